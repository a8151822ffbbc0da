"""Read SWIM traces, and convert the bytes of their jobs to phases and tasks by given rates.

A SWIM trace (for example the Facebook traces FB-2009 and FB-2010) has one line for each job,
with six columns separated by tabs or blanks: id, submit time in seconds from the start, gap to
the previous job in seconds, and the bytes of map input, shuffle and output. Traces published
"with input paths" have paths in further columns, which are not read. A trace contains neither
the number of tasks nor their durations; `SwimRates` derives both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import MAX_TIME, InputError
from slotwise.core.job import MAX_TASKS, Job, Phase, Tasks
from slotwise.workload.records import opened, read_records

COLUMNS = ("job id", "submit time", "gap", "map input", "shuffle", "output")
"""The columns of a trace that are read; others may follow."""

MAX_DIGITS = 18
"""Maximum digits of a number of bytes: a billion gigabytes or more is an error."""

MAX_NAME = 200
"""Maximum characters of a job id, as in a workload file."""

MAX_SHOWN = 40
"""Maximum characters of an invalid value that a message shows."""


@dataclass(frozen=True, slots=True)
class SwimRates:
    """Rates that convert bytes to tasks and to seconds on a slot of speed 1.

    block_bytes    maximum bytes that a map reads
    part_bytes     maximum bytes that a reduce fetches, and that any task writes
    input_rate     bytes of map input that a map processes per second
    shuffle_rate   bytes that a reduce fetches and merges per second
    output_rate    bytes of output that a task writes per second, including replicas
    start_seconds  time of any task before its first byte; above 0, as a job may have no bytes

    The defaults are our choice: the trace gives none. With them a map of a full block takes 33
    seconds, and the FB-2010 day has 8.6 million tasks that keep 6,000 slots busy for 87 % of
    the day.
    """

    block_bytes: int = 128 << 20
    part_bytes: int = 1 << 30
    input_rate: float = 4 << 20
    shuffle_rate: float = 4 << 20
    output_rate: float = 4 << 20
    start_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name in ("block_bytes", "part_bytes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected bytes, at least 1")
        for name in ("input_rate", "shuffle_rate", "output_rate", "start_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is {getattr(self, name)}; expected a number > 0")

    def phases(self, read: int, shuffled: int, written: int) -> tuple[Phase, ...]:
        """The phases of a job with these bytes: maps, and reduces if it shuffles any bytes.

        The maps of a job without a shuffle write its output. All tasks of a phase are equal.
        """
        if not shuffled:
            count = max(1, _parts(read, self.block_bytes), _parts(written, self.part_bytes))
            seconds = read / self.input_rate + written / self.output_rate
            return (self._phase("map", count, seconds),)
        maps = max(1, _parts(read, self.block_bytes))
        reduces = _parts(max(shuffled, written), self.part_bytes)
        seconds = shuffled / self.shuffle_rate + written / self.output_rate
        return (
            self._phase("map", maps, read / self.input_rate),
            self._phase("reduce", reduces, seconds, after=frozenset({"map"})),
        )

    def _phase(
        self, kind: str, count: int, seconds: float, after: frozenset[str] = frozenset()
    ) -> Phase:
        if count > MAX_TASKS:
            raise InputError(
                f"{count} tasks of one phase are more than {MAX_TASKS};"
                " correct the bytes, or set larger blocks and parts"
            )
        work = self.start_seconds + seconds / count
        return Phase(kind, Tasks(count, work), kind=kind, after=after)


def read_swim(
    path: str | Path, rates: SwimRates | None = None, *, first: int | None = None
) -> tuple[Job, ...]:
    """Read the jobs of a SWIM trace, or its `first` jobs, in the order of its lines.

    Empty lines and lines that begin with `#` are skipped. Raises InputError, with the line, the
    value and the remedy, for an invalid trace. O(jobs): equal tasks are stored as a number.
    """
    by_rates, path = rates or SwimRates(), Path(path)

    def made(line: str) -> tuple[str, Job]:
        job = _job(line, by_rates)
        return job.id, job

    with opened(path, "a SWIM trace") as trace:
        jobs, _ = read_records(path, _lines(trace), made, "job id", first)
    if not jobs:
        raise InputError(f"{path}: no jobs; name a SWIM trace, with a line for each job")
    return tuple(jobs.values())


def racked_cluster(hosts: int, *, slots: int = 2, hosts_a_rack: int = 40) -> Cluster:
    """Build a cluster of equal hosts with plain slots, in racks. FB-2010 had 3,000 hosts.

    Raises InputError for a number below 1.
    """
    for name, value in (("hosts", hosts), ("slots", slots), ("hosts_a_rack", hosts_a_rack)):
        if value < 1:
            raise InputError(f"{name} is {value}; expected a number, at least 1")
    return Cluster(
        tuple(
            Host(f"h{number}", {ANY_KIND: slots}, rack=f"r{number // hosts_a_rack}")
            for number in range(hosts)
        )
    )


def _lines(trace: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that describe jobs, with their numbers."""
    for number, line in enumerate(trace, start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _job(line: str, rates: SwimRates) -> Job:
    values = line.split()
    if len(values) < len(COLUMNS):
        raise InputError(
            f"{len(values)} columns; a line has {len(COLUMNS)}, separated by tabs, and perhaps"
            f" paths after them: {', '.join(COLUMNS)}"
        )
    name, submitted, _, *sizes = values[: len(COLUMNS)]
    if len(name) > MAX_NAME or not name.isprintable():
        raise InputError(
            f"job id is {_shown(name)}; expected at most {MAX_NAME} characters,"
            " no control characters"
        )
    read, shuffled, written = map(_bytes, COLUMNS[3:], sizes)
    return Job(name, rates.phases(read, shuffled, written), arrival=_seconds(submitted))


def _seconds(text: str) -> float:
    """Parse a submit time: digits with at most one decimal point."""
    if not _is_digits(text.replace(".", "", 1)) or float(text) > MAX_TIME:
        raise InputError(
            f"submit time is {_shown(text)}; expected seconds, a number from 0 to"
            f" {MAX_TIME:.0e}"
        )
    return float(text)


def _bytes(column: str, text: str) -> int:
    """Parse a number of bytes: digits only."""
    if not _is_digits(text) or len(text) > MAX_DIGITS:
        raise InputError(
            f"{column} is {_shown(text)}; expected bytes, a whole number >= 0"
            f" of at most {MAX_DIGITS} digits"
        )
    return int(text)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")


def _parts(total: int, most: int) -> int:
    """The number of parts of at most `most` bytes."""
    return -(-total // most)
