"""The log: the events and decisions of a run, turn by turn, in one format for every backend.

As a file it is JSON Lines: a header, then one line for each turn of the loop with its events
and the decisions made on them. All other results are computed from it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from itertools import islice
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload

from slotwise.core import codec
from slotwise.core.cluster import GRACE_SECONDS, Cluster
from slotwise.core.decisions import Decision
from slotwise.core.errors import InputError, SlotwiseError, shown
from slotwise.core.events import Event
from slotwise.core.files import open_to_read, open_to_write, other_kind, refuse_foreign
from slotwise.core.log_validation import LogValidator
from slotwise.core.pools import Pool, PoolTree

FORMAT = 1
"""The version of the format; a reader rejects newer ones."""

MARK = b'{"is":"Header","format":'
"""The first bytes of a log."""

READABLE = "name a file that --log has written"
"""The remedy for a log that cannot be read."""

FLUSH_SECONDS = 0.1
"""The seconds of a run within which turns are written to the log of its folder together."""

TAIL_BYTES = 256
"""The length of the end of a log by which it is recognized when it is read again."""

RULES = 9
"""The version of the rules by which schedulers decide.

It increases when the same events may lead to other decisions. Logs with other rules can be
read, but their replay may differ for this reason alone.
"""

RULES_RESERVING = 8
"""The first of these rules by which slots that are taken back are reserved for their pool."""


@dataclass(frozen=True)
class Header:
    """The setup of the run: everything needed to repeat its decisions.

    `versions` are those of slotwise, Python and numpy; `attempts_max` and `losses_max` are the
    limits of the state. `scheduler` holds the name, assigner and parameters, `objective` the
    penalty and aggregate. `backend` is "simulated" or "live" (key "world" in the file), with
    its `parameters`, such as the seed. `jobs_expected` is the number of jobs, or None if they
    were not known when the run began. `rules` is the version of the decision rules (`RULES`).
    `user` is the account of live work.
    """

    backend: Literal["live", "simulated"]
    scheduler: dict[str, Any]
    objective: dict[str, Any]
    cluster: Cluster
    pools: tuple[Pool, ...]
    jobs_expected: int | None
    attempts_max: int = 4
    losses_max: int = 16
    parameters: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    rules: int = RULES
    user: str | None = None

    @property
    def true_cluster(self) -> Cluster:
        """The cluster with its true speeds, which in a simulation may differ from `cluster`."""
        speeds = self.parameters.get("speeds")
        if not speeds:
            return self.cluster
        hosts = (replace(h, speed=speeds.get(h.name, h.speed)) for h in self.cluster.hosts)
        return replace(self.cluster, hosts=tuple(hosts))

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "is": "Header",
            "format": FORMAT,
            "rules": self.rules,
            "versions": self.versions,
            "world": self.backend,
            "parameters": self.parameters,
            "scheduler": self.scheduler,
            "objective": self.objective,
            "jobs_expected": self.jobs_expected,
            "attempts_max": self.attempts_max,
            "losses_max": self.losses_max,
            "cluster": codec.encode_cluster(self.cluster),
            "heartbeat": self.cluster.heartbeat,
            "grace": self.cluster.grace,
            **({"kinds": sorted(self.cluster.kinds)} if self.cluster.kinds else {}),
            "pools": [codec.encode_pool(pool) for pool in self.pools],
            **({"user": self.user} if self.user else {}),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Header:
        """The inverse of `to_plain`. ValueError if it is not one or its format is newer."""
        if plain.get("is") != "Header":
            raise ValueError("the first line is not the header of a slotwise log")
        if plain["format"] > FORMAT:
            raise ValueError(
                f"its format is {plain['format']}, this slotwise reads {FORMAT}; update it"
            )
        return cls(
            backend=plain["world"],
            scheduler=plain["scheduler"],
            objective=plain["objective"],
            cluster=codec.decode_cluster(
                plain["cluster"],
                plain.get("heartbeat", 0.0),
                plain.get("grace", GRACE_SECONDS),
                plain.get("kinds", ()),
            ),
            pools=tuple(PoolTree(map(codec.decode_pool, plain["pools"])).values()),
            jobs_expected=plain["jobs_expected"],
            attempts_max=plain["attempts_max"],
            losses_max=plain["losses_max"],
            parameters=plain["parameters"],
            versions=plain["versions"],
            rules=plain.get("rules", 1),
            user=plain.get("user"),
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the loop."""

    now: float
    events: Sequence[Event]
    decisions: Sequence[Decision]

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "now": self.now,
            "events": [codec.encode(event) for event in self.events],
            "decisions": [codec.encode(decision) for decision in self.decisions],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Turn:
        """The inverse of `to_plain`."""
        entries = [[codec.decode(entry) for entry in plain[k]] for k in ("events", "decisions")]
        return cls(plain["now"], *entries)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Log:
    """A header and turns, the source of the analysis.

    The turns are in memory, and then it is a record for the loop (call it); or they are in a
    file, from which they are read each time they are iterated (`FileTurns`).
    """

    header: Header
    turns: Sequence[Turn] = field(default_factory=list, repr=False)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Record one turn."""
        assert isinstance(self.turns, list), "a log that is read is not written"
        self.turns.append(Turn(now, events, decisions))


@contextmanager
def telling(path: str | Path, remedy: str = "name another file") -> Iterator[None]:
    """Convert an OSError to an InputError that names the log."""
    try:
        yield
    except OSError as error:
        raise _failed(path, error, remedy) from error


def _failed(path: str | Path, error: OSError, remedy: str = "name another file") -> InputError:
    return InputError(f"log {str(path)!r}: {error.strerror}; {remedy}")


def read_log(path: str | Path) -> Log:
    """Read a log file. InputError with the line if it is not a log or is damaged.

    The whole file is checked, but not kept: its turns are read again, line by line, each time
    they are iterated. An incomplete last line, which a killed run may leave, is ignored.
    """
    log = open_log(path)
    len(log.turns)
    return log


def open_log(path: str | Path) -> Log:
    """Like `read_log`, but a line is checked only when it is read.

    A pipe cannot be read twice, so its turns are kept.
    """
    if not isinstance(path, str | os.PathLike):  # A number would be a file descriptor.
        raise InputError(f"log is {shown(path)}; expected a path, as a string or a Path")
    lines = _lines(path)
    header = _header(path, lines)
    if os.path.isfile(path):
        return Log(header, FileTurns(path, header))
    return Log(header, list(_turns(path, header, lines)))


class FileTurns(Sequence[Turn]):
    """The turns of a log file, read line by line each time they are iterated, and not kept.

    They are always the same: lines that are written later are not read. `len` and an index
    read the file, too. InputError with the line if the file is damaged, and if it no longer
    has the content that it had.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self._named, self._path, self._header = path, os.path.abspath(path), header
        self._count: int | None = None
        with telling(path, READABLE), open_to_read(path) as file:
            self._end = file.seek(0, os.SEEK_END)
            file.seek(max(0, self._end - TAIL_BYTES))
            self._tail = file.read(TAIL_BYTES)

    def __iter__(self) -> Iterator[Turn]:
        lines = _lines(self._path, self._end, self._tail)
        next(lines, None)  # The header.
        return _turns(self._named, self._header, lines)

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    @overload
    def __getitem__(self, index: int) -> Turn: ...

    @overload
    def __getitem__(self, index: slice) -> list[Turn]: ...

    def __getitem__(self, index: int | slice) -> Turn | list[Turn]:
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return next(islice(self, chosen, None))
        found = [turn for place, turn in enumerate(self) if place in chosen]
        return found if chosen.step > 0 else found[::-1]


def _lines(path: str | Path, end: float = inf, tail: bytes = b"") -> Iterator[bytes]:
    """The complete lines of a file up to `end`; InputError if no `tail` is before it."""
    with telling(path, READABLE), open_to_read(path) as file:
        if tail:
            file.seek(int(end) - len(tail))
            if file.read(len(tail)) != tail:
                raise InputError(f"log {str(path)!r} was replaced by another; read it again")
        place = file.seek(0) if tail else 0
        for line in file:
            place += len(line)
            if place > end or not line.endswith(b"\n"):
                return
            yield line


def _header(path: str | Path, lines: Iterator[bytes]) -> Header:
    """The header in the first line of a log."""
    first = next(lines, None)
    if first is None:
        raise InputError(f"log {str(path)!r} is empty; {READABLE}")
    try:
        return Header.from_plain(json.loads(first.decode("utf-8")))
    except (*CONTRADICTIONS, InputError) as error:
        raise _damaged(path, 1, error) from error


def _turns(path: str | Path, header: Header, lines: Iterable[bytes]) -> Iterator[Turn]:
    """The turns in the further lines of a log, each checked when it is read."""
    plausible = LogValidator(header.cluster)
    for number, line in enumerate(lines, 2):
        try:
            turn = Turn.from_plain(json.loads(line.decode("utf-8")))
            plausible.check_turn(turn.now, turn.events, turn.decisions)
        except (*CONTRADICTIONS, InputError) as error:
            raise _damaged(path, number, error) from error
        yield turn


def _damaged(path: str | Path, line: int, error: Exception) -> InputError:
    if line == 1 and (kind := other_kind(path, "a log")):
        return InputError(f"log {str(path)!r}: this is {kind}, not a log; {READABLE}")
    if isinstance(error, json.JSONDecodeError):
        reason = f"not JSON ({error.msg})"
    elif isinstance(error, UnicodeDecodeError):
        reason = "not text in UTF-8"
    elif isinstance(error, KeyError):
        reason = f"{error.args[0]!r} is missing or unknown"
    else:
        reason = str(error)
    return InputError(f"log {str(path)!r}, line {line}: {reason}; {READABLE}")


CONTRADICTIONS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors that following the entries of an invalid log can raise."""


@contextmanager
def following(log: Log | str | Path) -> Iterator[Log]:
    """Context in which to follow the log of a file, or a log in memory.

    The lines of a file can be valid one by one and still contradict each other, such as a task
    that ends but was never launched. InputError then, also for a log from `read_log`. The lines
    of a file are checked while they are followed.
    """
    read = log if isinstance(log, Log) else open_log(log)
    try:
        yield read
    except CONTRADICTIONS as error:
        if isinstance(error, SlotwiseError):
            raise
        detail = f": {error}" if str(error) else ""
        place = "log" if isinstance(log, Log) else f"log {str(log)!r}"
        raise InputError(
            f"{place}: its entries contradict each other"
            f" ({type(error).__name__}{detail}); {READABLE}"
        ) from error


# Writing a log to a file, turn by turn.

logger = logging.getLogger("slotwise")


def check_log(path: str | Path) -> None:
    """InputError if a log must not be written here because the file exists and is not a log."""
    refuse_foreign(path, MARK, f"log {str(path)!r}")


def check_writable(path: str | Path) -> None:
    """InputError if a log cannot be written here now. The file is made if it is missing."""
    _open(path).close()


class LogFile:
    """A log on disk: a record for the loop that writes each turn as it comes.

    An earlier log is replaced. InputError if another run is still writing it, or if the file
    exists and is not a log. While it is open, no other run can write to it. A turn of a live
    run is in the file at once, so that it can be read during the run, and survives a kill.

    A live run whose log cannot be written any more continues without it, because others wait
    for its work. A warning is logged at once, and the end of the context raises the InputError.
    With `bytes_max`, which is for the logs of all runs, an error of writing is raised at once,
    and before the log would become larger it ends with a note, which readers ignore as an
    incomplete line. Turns in quick succession are written together, at `due`: a kill may lose
    those of the last `FLUSH_SECONDS`.
    """

    def __init__(self, path: str | Path, header: Header, bytes_max: int | None = None) -> None:
        self._path, self._header, self._bytes_max = path, header, bytes_max
        self._is_live, self._is_cut = header.backend == "live", False
        self._flushed_at = -inf
        self.due = inf
        self.has_begun = False  # Until then, the file has an earlier log.
        self._error: InputError | None = None
        self._file = _open(path)
        self.is_kept = os.path.isfile(path)  # Unlike a pipe or a device.

    def log(self) -> Log:
        """The log that was written, with its turns to be read from the file."""
        return Log(self._header, FileTurns(self._path, self._header))

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Write one turn; before the first, empty the file and write the header."""
        if self._error is not None or self._is_cut:
            return
        try:
            if not self.has_begun:
                self._begin()
            self._write(_line_of(now, events, decisions), now)
        except InputError as error:
            if not self._is_live or self._bytes_max is not None:
                raise
            self._error = error
            logger.warning("slotwise: the run continues without its log: %s", error)

    def _begin(self) -> None:
        # Not earlier: a run that fails validation must keep the previous log.
        with telling(self._path):
            if self.is_kept:
                self._file.truncate(0)
        self._write(codec.dumped(self._header.to_plain()))
        self.has_begun = True

    def _write(self, line: str, now: float = -inf) -> None:
        if self._bytes_max is not None:
            self._bytes_max -= len(line) + 1
            if self._bytes_max < 0:
                self._is_cut = True
                line = '{"is":"Cut","reason":"the limit of the size of the log"}'
        try:  # Not `telling`, because each turn comes here.
            self._file.write(line if self._is_cut else line + "\n")
            if self._is_live:
                if self._bytes_max is None or now - self._flushed_at >= FLUSH_SECONDS:
                    self._file.flush()
                    self._flushed_at, self.due = now, inf
                else:
                    self.due = self._flushed_at + FLUSH_SECONDS
        except OSError as error:
            raise _failed(self._path, error) from error

    def flush(self) -> None:
        """Write what is held to the file. InputError if that is impossible."""
        self.due = inf
        with telling(self._path):
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._error is not None:
            with suppress(OSError):
                self._file.close()
            if kind is None:
                raise self._error
            return
        if kind is None and not self.has_begun:
            self._begin()
        with telling(self._path):
            self._file.close()


def _open(path: str | Path) -> TextIOWrapper:
    """Open the file of a log for appending; it is locked for as long as it is open."""
    check_log(path)
    with telling(path):
        file = TextIOWrapper(open_to_write(path, is_emptied=False), encoding="utf-8")
        if os.path.isfile(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"log {str(path)!r} is being written by another run; name another file"
                ) from None
    return file


def _line_of(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> str:
    """A turn as it is in the file."""
    at = repr(now) if type(now) is float else codec.dumped(now)
    happened = ",".join(map(codec.to_json, events))
    decided = ",".join(map(codec.to_json, decisions))
    return f'{{"now":{at},"events":[{happened}],"decisions":[{decided}]}}'
