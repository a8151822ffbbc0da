"""The history: a database of finished tasks, written by runs and read by later ones.

It is one SQLite file with a write-ahead log. A writer adds each batch in one transaction, so
that a kill at any moment leaves only whole batches; several processes may write at once. A file
that is damaged, newer, or no history is rejected and left unchanged.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import uuid4

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, Launch
from slotwise.core.errors import InputError
from slotwise.core.events import Event, HostAdded, TaskEnded, TaskFinished, TaskKilled
from slotwise.core.files import other_kind
from slotwise.core.job import Observation, PhaseId, Sizes

FORMAT = 1
"""The version of the format, stored as user_version; a reader rejects newer ones."""

APPLICATION = 0x736C7768
"""The application_id that marks a database as a history: "slwh" in ASCII."""

LATEST = 256
"""The number of newest tasks that are read for each phase of a program on each host.

It is enough for a median, and small enough that changes of a program soon take effect.
"""

BUSY_SECONDS = 10.0
"""How long to wait for another run that is writing; a batch takes a few milliseconds."""

PEAK = "peak INTEGER CHECK (peak IS NULL OR typeof(peak) = 'integer' AND peak >= 0)"
"""A column that histories written before it lack; a writer adds it."""

SCHEMA = f"""
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    program TEXT NOT NULL,
    phase TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (typeof(bytes) = 'integer' AND bytes >= 0),
    host TEXT NOT NULL,
    speed REAL NOT NULL CHECK (typeof(speed) = 'real' AND speed > 0),
    seconds REAL NOT NULL CHECK (typeof(seconds) = 'real' AND seconds >= 0),
    written REAL NOT NULL,  -- seconds since 1970
    {PEAK}
);
CREATE INDEX tasks_by_place ON tasks (program, phase, host, id);
"""

COLUMNS = "program, phase, bytes, host, speed, seconds, peak"


def create_history(path: str | Path) -> None:
    """Create an empty history unless there is one. InputError if the file is something else.

    It is created under a temporary name and then linked to its path: a kill never leaves a
    partial file, and if two runs start at once, the file of one of them is used.
    """
    place = Path(path)
    with _input_errors(path):
        if not _exists(place):
            _make(place)
        _refuse_others(path)


def append_history(path: str | Path, observations: Iterable[Observation]) -> None:
    """Add finished tasks, all of them or none. Creates the history if there is none.

    It may wait up to BUSY_SECONDS for other writers. InputError if the file cannot be written
    or is not a history of this format. Once this has returned, a kill of the process loses
    nothing; a power failure may lose the last batches, but does not damage the rest.
    """
    create_history(path)
    now = time.time()
    rows = [
        (o.program, o.phase, o.bytes, o.host, float(o.speed), float(o.seconds), o.peak, now)
        for o in observations
    ]
    with _input_errors(path), closing(_connected(Path(path), "mode=rw")) as database:
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN IMMEDIATE")
        _refuse_format(database, path)  # Another process may just have upgraded it.
        if not _has_peaks(database):
            database.execute(f"ALTER TABLE tasks ADD COLUMN {PEAK}")
        values = ", ".join("?" * (COLUMNS.count(",") + 2))
        database.executemany(f"INSERT INTO tasks ({COLUMNS}, written) VALUES ({values})", rows)
        database.execute("COMMIT")


def read_history(path: str | Path) -> list[Observation]:
    """The newest finished tasks of each program, phase and host; the newest of each first.

    InputError if the file does not exist, is damaged, newer or not a history. The whole file is
    checked first: O(size).
    """
    place = Path(path)
    with _input_errors(path):
        if not _exists(place):
            raise InputError(
                f"history {str(path)!r}: there is no such file; name one that"
                " `slotwise run --history` has written"
            )
        _refuse_others(path)
        with closing(_opened_to_read(place)) as database:
            database.execute("BEGIN")
            _refuse_format(database, path)
            (fault,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if fault != "ok":
                raise InputError(_damaged(path, fault))
            columns = COLUMNS if _has_peaks(database) else COLUMNS.replace("peak", "NULL")
            database.execute(f"SELECT {columns}, written FROM tasks LIMIT 0")  # All exist.
            groups = "SELECT DISTINCT program, phase, host FROM tasks"
            newest = (
                f"SELECT {columns} FROM tasks WHERE program = ? AND phase = ? AND host = ?"
                f" ORDER BY id DESC LIMIT {LATEST}"
            )
            return [
                _observation(path, row)
                for group in database.execute(groups).fetchall()
                for row in database.execute(newest, group)
            ]


def _observation(path: str | Path, row: tuple[Any, ...]) -> Observation:
    """A row as an observation. InputError for invalid values: SQLite does not check types."""
    seen = Observation(*row)
    texts, numbers = (seen.program, seen.phase, seen.host), (seen.speed, seen.seconds)
    is_sound = all(isinstance(text, str) for text in texts) and all(
        isinstance(number, float) and 0 <= number < inf for number in numbers
    )
    sizes = seen.bytes, 0 if seen.peak is None else seen.peak
    is_sound &= all(isinstance(size, int) and size >= 0 for size in sizes)
    if not is_sound or seen.speed == 0:
        raise InputError(_damaged(path, f"a row is {row}"))
    return seen


def _has_peaks(database: sqlite3.Connection) -> bool:
    """Whether a history has the column of peaks."""
    names = database.execute("SELECT name FROM pragma_table_info('tasks')").fetchall()
    return ("peak",) in names


def _opened_to_read(place: Path) -> sqlite3.Connection:
    """A connection for reading, which also works in a folder without write permission."""
    if os.access(place, os.W_OK) and os.access(place.absolute().parent, os.W_OK):
        return _connected(place, "mode=rw")
    database = _connected(place, "mode=ro")
    try:
        database.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        database.close()
        if _code(error) != sqlite3.SQLITE_CANTOPEN:
            raise
        # SQLite would have to create the write-ahead log: so no process is writing, and the
        # log is not needed.
        return _connected(place, "mode=ro&immutable=1")
    return database


def _make(place: Path) -> None:
    made = place.with_name(f".{place.name}.{uuid4().hex[:8]}")
    try:
        with closing(_connected(made, "mode=rwc")) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION};"
                f" PRAGMA user_version = {FORMAT}; COMMIT"
            )
        with suppress(FileExistsError):  # Another run was faster: use its file.
            os.link(made, place)
    finally:
        for end in "", "-wal", "-shm":
            made.with_name(made.name + end).unlink(missing_ok=True)


def _connected(place: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{place.absolute().as_uri()}?{how}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # No implicit transactions.
    )


def _exists(place: Path) -> bool:
    """Whether there is such a file. Raises OSError for a path that cannot be looked up."""
    try:
        os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError as error:  # A null character.
        raise OSError(errno.EINVAL, str(error), str(place)) from error
    return True


def _refuse_others(path: str | Path) -> None:
    """InputError if the file is not a history, or is newer. Takes no lock, changes nothing.

    The marks of a history are always in the file itself, never only in its log. While another
    process writes, the file may look damaged to a reader without a lock; such errors are left
    to a later read with a lock.
    """
    if not S_ISREG(os.stat(path).st_mode):
        raise InputError(
            f"history {str(path)!r}: this is a folder, a pipe or a device, not a file;"
            " name another file"
        )
    try:
        with closing(_connected(Path(path), "mode=ro&immutable=1")) as database:
            _refuse_format(database, path)
    except sqlite3.DatabaseError as error:
        if _code(error) != sqlite3.SQLITE_CORRUPT:
            raise


def _refuse_format(database: sqlite3.Connection, path: str | Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise InputError(
            f"history {str(path)!r}: this file is not a history, and is left unchanged;"
            " name a file that `slotwise run --history` has written, or a new one"
        )
    if version > FORMAT:
        raise InputError(
            f"history {str(path)!r}: its format is {version}, this slotwise reads {FORMAT};"
            " update it, or name another file"
        )
    if version < 1:
        raise InputError(_damaged(path, f"its format is {version}"))


@contextmanager
def _input_errors(path: str | Path) -> Iterator[None]:
    """Convert all errors of the file or the database to an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"history {str(path)!r}: {error.strerror}; name another file"
        ) from error
    except sqlite3.Error as error:
        raise InputError(_reason(path, error)) from error
    except UnicodeDecodeError as error:  # Raised by Python for strings in the database.
        raise InputError(_damaged(path, "a string is not UTF-8")) from error


def _reason(path: str | Path, error: sqlite3.Error) -> str:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"history {str(path)!r}: another process has kept it locked for"
            f" {BUSY_SECONDS:.0f} s; end that process, or name another file"
        )
    if code == sqlite3.SQLITE_NOTADB:
        kind = other_kind(path, "a history") or "not a database, or a damaged one,"
        return (
            f"history {str(path)!r}: this is {kind} and is left unchanged;"
            " name a file that `slotwise run --history` has written, or a new one"
        )
    if code in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    ):
        return f"history {str(path)!r}: {error}; fix that, or name another file"
    return _damaged(path, str(error))


def _code(error: sqlite3.Error) -> int:
    """The primary code of an error; those that Python raises on reading have none."""
    code: int = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
    return code & 0xFF


def _damaged(path: str | Path, fault: str) -> str:
    line = " ".join(fault.split())  # Some messages of SQLite have several lines.
    return (
        f"history {str(path)!r}: it is damaged ({line}) and is left unchanged;"
        " name another file, or move this one away if it is not needed"
    )


# Remembering: a record for the loop that adds finished tasks of programs to a history.

WRITE_SECONDS = 2.0
"""The interval of writes, and so the most observations, in seconds, that a kill may lose."""


class Recorded(Protocol):
    """What a job runs. It is asked for each attempt, because a plan may come with the job."""

    @property
    def program(self) -> str:
        """The name in other runs; empty if it says nothing about durations."""
        ...

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of its tasks, by phase."""
        ...

    def known_as(self, phase: str) -> tuple[str, str]:
        """The program and the phase by which histories know the tasks of a phase."""
        ...


AttemptKey = tuple[PhaseId, int, int]


class HistoryWriter:
    """Collects finished tasks of programs, and writes them to a history periodically.

    A thread writes, so that the loop never waits for a disk or for another run. A failed write
    is tried again; InputError if the last one, at the end, fails. Tasks that continued from the
    kept value of a stopped attempt are left out, because their full duration is unknown.
    InputError at the start if the path cannot hold a history.
    """

    def __init__(
        self, path: str | Path, programs: Mapping[str, Recorded], cluster: Cluster
    ) -> None:
        """`programs` has what each job runs."""
        self._path = path
        self._programs = programs
        self._speeds = {host.name: host.speed for host in cluster.hosts}
        self._hosts: dict[AttemptKey, str] = {}
        self._helped: set[tuple[PhaseId, int]] = set()
        self._waiting: list[Observation] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_often, daemon=True)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Collect the tasks that ended in one turn."""
        for event in events:
            if isinstance(event, HostAdded):
                self._speeds[event.host.name] = event.host.speed
        if seen := list(self._seen(events)):
            with self._lock:
                self._waiting += seen
        for decision in decisions:
            if not isinstance(decision, Launch):
                continue
            runs = self._programs.get(decision.phase.job)
            if runs is not None and runs.program:
                attempt = (decision.phase, decision.task, decision.attempt)
                self._hosts[attempt] = decision.host

    def __enter__(self) -> Self:
        create_history(self._path)  # Fails now rather than at the end.
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._write()

    def _seen(self, events: Sequence[Event]) -> Iterator[Observation]:
        for event in events:
            if not isinstance(event, TaskEnded):
                continue
            phase, task = event.phase, event.task
            host = self._hosts.pop((phase, task, event.attempt), None)
            if isinstance(event, TaskKilled) and event.kept:
                self._helped.add((phase, task))
            if not isinstance(event, TaskFinished) or host is None:
                continue
            runs = self._programs.get(phase.job)  # None if its job has failed before.
            sizes = None if runs is None else runs.sizes.get(phase.phase)
            if runs is not None and sizes is not None and (phase, task) not in self._helped:
                size = sizes if isinstance(sizes, int) else sizes[task]
                # Waits, measured separately, may exceed the whole by rounding.
                seconds = max(0.0, event.seconds)
                speed = self._speeds[host]
                known = runs.known_as(phase.phase)
                yield Observation(*known, size, host, speed, seconds, event.peak)

    def _write_often(self) -> None:
        while not self._is_over.wait(WRITE_SECONDS):
            with suppress(InputError):  # It is tried again; the last try raises.
                self._write()

    def _write(self) -> None:
        """Write the collected observations. Only one thread at a time may call this."""
        with self._lock:
            batch = tuple(self._waiting)
        if batch:
            append_history(self._path, batch)
            with self._lock:
                del self._waiting[: len(batch)]
