"""The history: a database of finished tasks, which many runs write and the next ones read.

It is one SQLite file with a write-ahead log. Whoever writes adds a batch in one transaction, so
that a kill at any moment leaves whole batches only; several may write at once. A file that is
damaged, newer, or not ours is refused and left as it is.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

from slotwise.model.errors import InputError
from slotwise.model.observation import Observation

FORMAT = 1
"""The version of the format, kept in user_version; a reader refuses newer ones."""

APPLICATION = 0x736C7768
"""Says, as application_id, that a database is a history: "slwh" in ASCII."""

LATEST = 256
"""So many tasks are read of each phase of a program on each host, the newest ones: enough for
a median, and few enough that a program that has changed is soon known as it is."""

BUSY_SECONDS = 10.0
"""How long to wait for another run that is writing; a batch takes some milliseconds."""

SCHEMA = """
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    program TEXT NOT NULL,
    phase TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (typeof(bytes) = 'integer' AND bytes >= 0),
    host TEXT NOT NULL,
    speed REAL NOT NULL CHECK (typeof(speed) = 'real' AND speed > 0),
    seconds REAL NOT NULL CHECK (typeof(seconds) = 'real' AND seconds >= 0),
    written REAL NOT NULL  -- seconds since 1970
);
CREATE INDEX tasks_by_place ON tasks (program, phase, host, id);
"""

COLUMNS = "program, phase, bytes, host, speed, seconds"


def create_history(path: str | Path) -> None:
    """Make an empty history unless there is one; InputError if something else is there.

    It is made beside its place and put there whole: no kill leaves half of one, and of two runs
    that begin at once one makes it.
    """
    place = Path(path)
    with _input_errors(path):
        if not place.exists():
            _make(place)
        _refuse_others(path)


def append_history(path: str | Path, observations: Iterable[Observation]) -> None:
    """Add finished tasks, all of them or none. The history is made if there is none.

    It may wait for others for BUSY_SECONDS. InputError if the file cannot be written or is not
    a history of this format. A kill of the process loses nothing once this has returned; where
    the machine loses power, the last batches may be lost, and the rest stays whole.
    """
    create_history(path)
    now = time.time()
    rows = [
        (o.program, o.phase, o.bytes, o.host, float(o.speed), float(o.seconds), now)
        for o in observations
    ]
    with _input_errors(path), closing(_connected(Path(path), "mode=rw")) as database:
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("BEGIN IMMEDIATE")
        _refuse_format(database, path)  # Another may have made it a newer one just now.
        database.executemany(
            f"INSERT INTO tasks ({COLUMNS}, written) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )
        database.execute("COMMIT")


def read_history(path: str | Path) -> list[Observation]:
    """The newest finished tasks of each phase, program and host; the newest of these first.

    InputError if the file is not there, or is damaged, newer or not a history. The whole file
    is checked first: O(size).
    """
    place = Path(path)
    with _input_errors(path):
        if not place.exists():
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
            database.execute(f"SELECT {COLUMNS}, written FROM tasks LIMIT 0")  # All are there.
            groups = "SELECT DISTINCT program, phase, host FROM tasks"
            newest = (
                f"SELECT {COLUMNS} FROM tasks WHERE program = ? AND phase = ? AND host = ?"
                f" ORDER BY id DESC LIMIT {LATEST}"
            )
            return [
                _observation(path, row)
                for group in database.execute(groups).fetchall()
                for row in database.execute(newest, group)
            ]


def _observation(path: str | Path, row: tuple[Any, ...]) -> Observation:
    """A row as it was written: SQLite holds any value in any column."""
    seen = Observation(*row)
    texts, numbers = (seen.program, seen.phase, seen.host), (seen.speed, seen.seconds)
    is_sound = all(isinstance(text, str) for text in texts) and all(
        isinstance(number, float) and 0 <= number < inf for number in numbers
    )
    if not is_sound or not isinstance(seen.bytes, int) or seen.bytes < 0 or seen.speed == 0:
        raise InputError(_damaged(path, f"a row is {row}"))
    return seen


def _opened_to_read(place: Path) -> sqlite3.Connection:
    """A connection, in a folder of others too, where we may not write beside the file."""
    if os.access(place, os.W_OK) and os.access(place.absolute().parent, os.W_OK):
        return _connected(place, "mode=rw")
    database = _connected(place, "mode=ro")
    try:
        database.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        database.close()
        if _code(error) != sqlite3.SQLITE_CANTOPEN:
            raise
        # Its log would have to be made first: so nobody is writing, and there is no need of it.
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
        with suppress(FileExistsError):  # Another run was quicker: then its file counts.
            os.link(made, place)
    finally:
        for end in "", "-wal", "-shm":
            made.with_name(made.name + end).unlink(missing_ok=True)


def _connected(place: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{place.absolute().as_uri()}?{how}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # Transactions begin and end where we say so.
    )


def _refuse_others(path: str | Path) -> None:
    """Refuse what is no history, or a newer one, without a lock and without a trace.

    A history has its marks in its file from the first moment, never in its log alone. While
    another process writes into the file, it may look damaged to who takes no lock: then only
    a look with one can tell.
    """
    if not Path(path).is_file():
        raise InputError(
            f"history {str(path)!r}: this is no file, but a folder, a pipe or a device;"
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
            f"history {str(path)!r}: this is a file of something else, and is left as it is;"
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
    """Turn what can go wrong with a file into one message."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"history {str(path)!r}: {error.strerror}; name another file"
        ) from error
    except sqlite3.Error as error:
        raise InputError(_reason(path, error)) from error
    except UnicodeDecodeError as error:  # Python's own, of what it reads from the database.
        raise InputError(_damaged(path, "a text is not UTF-8")) from error


def _reason(path: str | Path, error: sqlite3.Error) -> str:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return (
            f"history {str(path)!r}: another process has kept it locked for"
            f" {BUSY_SECONDS:.0f} s; end that, or name another file"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return (
            f"history {str(path)!r}: this is no database, or a damaged one, and is left as it"
            " is; name a file that `slotwise run --history` has written, or a new one"
        )
    if code in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    ):
        return f"history {str(path)!r}: {error}; mend that, or name another file"
    return _damaged(path, str(error))


def _code(error: sqlite3.Error) -> int:
    """Its primary code; errors of Python's own about what it reads have none."""
    code: int = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
    return code & 0xFF


def _damaged(path: str | Path, fault: str) -> str:
    line = " ".join(fault.split())  # SQLite tells some faults in several lines.
    return (
        f"history {str(path)!r}: it is damaged ({line}) and is left as it is;"
        " name another file, and move this one away if nobody needs it"
    )
