"""What `slotwise explain` prints of a whole run: waits, or the life of one job in intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, overload

from slotwise.insight.report.grid import framed_html, grid_html, grid_lines
from slotwise.insight.report.tables import wait_lines
from slotwise.insight.report.text import counted, in_short, number, percent, seconds
from slotwise.insight.waits import Holder, Wait

MAX_HOLDERS = 3
"""The most jobs that a row names as holders of slots."""


class WorstWaits(tuple[Wait, ...]):
    """The longest waits of a run, longest first. Its `str` has one line for each."""

    def lines(self) -> Iterator[str]:
        """Yield one line for each wait."""
        return wait_lines(self)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        columns = {
            "job": [wait.job for wait in self],
            "pool": [wait.pool for wait in self],
            "from": [seconds(wait.start) for wait in self],
            "to": [seconds(wait.end) for wait in self],
            "behind": [_named(wait.holders) for wait in self],
            "reason": [wait.reason for wait in self],
            "what would have helped": [wait.remedy for wait in self],
        }
        return framed_html([grid_html(columns)])

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"waits": [wait.to_plain() for wait in self]}


@dataclass(frozen=True, slots=True)
class Interval:
    """A time (seconds) in the life of a job.

    state    "waiting" if it held no slot, "running" if it held some, "idle" if it had no task
             that could start; "on and off" for several short times
    held     the slots that it held, on average
    wanted   the most slots that its tasks that ran or could start needed at once
    limit    the kind of the reason: a word for programs
    reason   why it held no more, or why it could use no more
    holders  the other jobs that held slots of this kind, most first; empty if the reason does
             not depend on them
    failed, lost, stopped  the number of its attempts that ended so
    redone   the number of its done tasks whose output was lost
    """

    start: float
    end: float
    state: str
    held: float
    wanted: int
    limit: str
    reason: str
    holders: tuple[Holder, ...] = ()
    failed: int = 0
    lost: int = 0
    stopped: int = 0
    redone: int = 0

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class JobExplained(Sequence[Wait]):
    """What held a job, from its arrival to its end, or to the end of the log (seconds).

    start      when its first task began; None if none has
    status     "completed", "failed", or "waiting", "running" or "idle" at the end of the log
    failure    why it failed; empty if it did not
    reason     the main reason for its response
    intervals  its life without gaps, at most `slotwise.insight.held_back.MAX_INTERVALS`
    waits      its longest waits, as a sequence of which it can also be read

    Its `str` is a sentence and a table.
    """

    job: str
    pool: str
    scheduler: str
    arrival: float
    start: float | None
    end: float
    status: str
    failure: str
    reason: str
    intervals: tuple[Interval, ...]
    waits: tuple[Wait, ...]

    @overload
    def __getitem__(self, index: int) -> Wait: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Wait, ...]: ...

    def __getitem__(self, index: int | slice) -> Wait | tuple[Wait, ...]:
        return self.waits[index]

    def __len__(self) -> int:
        return len(self.waits)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        table = grid_html(self._columns()) if self.intervals else ""
        after = "".join(f"<p>{escape(line)}</p>" for line in self._remedies())
        return framed_html([f"<p>{escape(self.summary())}</p>", table, after])

    def lines(self) -> Iterator[str]:
        """Yield the sentence, the rows of the table, and what would have helped."""
        yield self.summary()
        if self.intervals:
            yield ""
            yield from grid_lines(self._columns())
        yield from self._remedies()

    def summary(self) -> str:
        """When it arrived, started and ended, and the main reason; repeated work, if any."""
        began = "never started" if self.start is None else f"started at {seconds(self.start)}"
        parts = [f"{self.job} arrived at {seconds(self.arrival)} in pool {self.pool}", began]
        if self.status == "completed":
            parts.append(f"and completed at {seconds(self.end)}")
        elif self.status == "failed":
            parts.append(f"and failed at {seconds(self.end)} ({in_short(self.failure)})")
        else:
            what = "waits" if self.status == "waiting" else f"is {self.status}"
            parts.append(f"and still {what} when the log ends, at {seconds(self.end)}")
        repeated = _happened(self.intervals)
        return f"{', '.join(parts)}: {self.reason}" + (f"; {repeated}" if repeated else "")

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        plain = asdict(self)
        plain["summary"] = self.summary()
        plain["waits"] = [wait.to_plain() for wait in self.waits]
        return plain

    def _columns(self) -> dict[str, list[str]]:
        rows = self.intervals
        return {
            "from": [seconds(row.start) for row in rows],
            "to": [seconds(row.end) for row in rows],
            "state": [row.state for row in rows],
            "slots": [f"{_slots(row.held)} of {row.wanted}" for row in rows],
            "reason": ["; ".join(filter(None, (row.reason, _happened([row])))) for row in rows],
            "who held them": [_named(row.holders) for row in rows],
        }

    def _remedies(self) -> Iterator[str]:
        for remedy in dict.fromkeys(wait.remedy for wait in self.waits if wait.remedy):
            yield f"what would have helped: {remedy}"


def _slots(held: float) -> str:
    return f"{held:.0f}" if abs(held - round(held)) < 1e-6 else number(held)


def _happened(rows: Sequence[Interval]) -> str:
    """The attempts that failed, were lost or stopped, and lost output, in words."""
    counts = {
        "attempt that failed": sum(row.failed for row in rows),
        "attempt that was lost with its slot": sum(row.lost for row in rows),
        "attempt that was stopped": sum(row.stopped for row in rows),
        "task that was done again because its output was lost": sum(r.redone for r in rows),
    }
    return ", ".join(
        counted(count, what) if count == 1 else f"{count:,} {_plural(what)}"
        for what, count in counts.items()
        if count
    )


def _plural(what: str) -> str:
    noun, _, rest = what.partition(" ")
    return f"{noun}s {rest.replace('was', 'were').replace('its', 'their')}"


def _named(holders: Sequence[Holder]) -> str:
    """Jobs with their pools and parts of the slots, such as "a (pool p) 60 %"."""
    total = sum(holder.slot_seconds for holder in holders)
    named = holders if len(holders) == MAX_HOLDERS + 1 else holders[:MAX_HOLDERS]
    words = []
    for one in named:
        part = f" {percent(one.slot_seconds / total)}" if len(holders) > 1 else ""
        words.append(f"{one.job} (pool {one.pool}){part}")
    more = len(holders) - len(named)
    return ", ".join([*words, f"{more} more jobs"] if more else words)
