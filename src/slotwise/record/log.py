"""The log: the events and decisions of a run, turn by turn, in one format for every backend.

As a file it is JSON Lines: a header, then one line for each turn of the loop with its events
and the decisions made on them. All other results are computed from it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from slotwise.model.cluster import GRACE_SECONDS, Cluster
from slotwise.model.decision import Decision
from slotwise.model.errors import InputError, SlotwiseError
from slotwise.model.event import Event
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.opening import open_to_read, open_to_write
from slotwise.record import codec
from slotwise.record.own_files import refuse_foreign
from slotwise.record.plausible import Plausible

FORMAT = 1
"""The version of the format; a reader rejects newer ones."""

MARK = b'{"is":"Header","format":'
"""The first bytes of a log."""

RULES = 2
"""The version of the rules by which schedulers decide.

It increases when the same events may lead to other decisions. Logs with other rules can be
read, but their replay may differ for this reason alone.
"""


@dataclass(frozen=True)
class Header:
    """The setup of the run: everything needed to repeat its decisions.

    `versions` are those of slotwise, Python and numpy; `attempts_max` and `losses_max` are the
    limits of the state. `scheduler` holds the name, assigner and parameters, `objective` the
    penalty and aggregate. `backend` is "simulated" or "live" (key "world" in the file), with
    its `parameters`, such as the seed. `jobs_expected` is the number of jobs, or None if they
    were not known when the run began. `rules` is the version of the decision rules (`RULES`).
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
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Header:
        """The inverse of `to_plain`. ValueError if it is no header, or has a newer format."""
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
    """A log in memory: a record for the loop (call it) and a source for the analysis."""

    header: Header
    turns: list[Turn] = field(default_factory=list, repr=False)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Record one turn."""
        self.turns.append(Turn(now, events, decisions))


def check_log(path: str | Path) -> None:
    """InputError if a log must not be written here because the file exists and is no log."""
    refuse_foreign(path, MARK, f"log {str(path)!r}")


class LogFile:
    """A log on disk: a record for the loop that writes each turn as it comes.

    An earlier log is replaced. InputError if another run is still writing it, or if the file
    exists and is no log. While it is open, no other run can write to it.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self._path = path
        check_log(path)
        with _telling(path):
            self._file = TextIOWrapper(open_to_write(path, is_emptied=False), encoding="utf-8")
            if os.path.isfile(path):
                self._lock()
        self._header: Header | None = header

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Write one turn; before the first, empty the file and write the header."""
        self._begin()
        self._write(Turn(now, events, decisions).to_plain())

    def _begin(self) -> None:
        # Not earlier: a run that fails validation must keep the previous log.
        if self._header is not None:
            with _telling(self._path):
                if os.path.isfile(self._path):
                    self._file.truncate(0)
            self._write(self._header.to_plain())
            self._header = None

    def _lock(self) -> None:
        """Lock the file for as long as it is open."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise InputError(
                f"log {str(self._path)!r} is being written by another run; name another file"
            ) from None

    def _write(self, plain: dict[str, Any]) -> None:
        with _telling(self._path):
            self._file.write(json.dumps(plain, separators=(",", ":")) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._begin()
        with _telling(self._path):
            self._file.close()


@contextmanager
def _telling(path: str | Path) -> Iterator[None]:
    """Convert an OSError to an InputError that names the log."""
    try:
        yield
    except OSError as error:
        raise InputError(f"log {str(path)!r}: {error.strerror}; name another file") from error


def read_log(path: str | Path) -> Log:
    """Read a whole log file. InputError with the line if it is no log or is damaged.

    An incomplete last line, which a killed run may leave, is ignored.
    """
    try:
        with open_to_read(path) as file:
            text = file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise InputError(
            f"log {str(path)!r}: {problem}; name a file that --log has written"
        ) from error
    lines = text.split("\n")[:-1]
    if not lines:
        raise InputError(f"log {str(path)!r} is empty; name a file that --log has written")
    number = 1
    try:
        log = Log(Header.from_plain(json.loads(lines[0])))
        plausible = Plausible(log.header.cluster)
        for line in lines[1:]:
            number += 1
            turn = Turn.from_plain(json.loads(line))
            plausible.hear(turn.now, turn.events, turn.decisions)
            log.turns.append(turn)
    except (*CONTRADICTIONS, InputError) as error:
        raise InputError(
            f"log {str(path)!r}, line {number}: {_reason(error)};"
            " name a file that --log has written"
        ) from error
    return log


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
    that ends but was never launched. InputError then, also for a log from `read_log`.
    """
    read = log if isinstance(log, Log) else read_log(log)
    try:
        yield read
    except CONTRADICTIONS as error:
        if isinstance(error, SlotwiseError):
            raise
        detail = f": {error}" if str(error) else ""
        place = "log" if isinstance(log, Log) else f"log {str(log)!r}"
        raise InputError(
            f"{place}: its entries contradict each other"
            f" ({type(error).__name__}{detail}); name a file that --log has written"
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg})"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing or unknown"
    return str(error)
