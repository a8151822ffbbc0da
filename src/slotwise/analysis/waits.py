"""The waits of jobs for slots, the jobs that held the slots meanwhile, and remedies."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import nsmallest
from typing import Any

import numpy as np

from slotwise.analysis.present_hosts import SlotsOverTime
from slotwise.analysis.remedies import Advice, Stretch, advise
from slotwise.analysis.timeline import Timeline
from slotwise.model.errors import InputError
from slotwise.record.log import Log

MIN_WAIT = 0.01
"""Waits shorter than this part of the run are left out."""

MAX_WAITS = 10
"""The default number of waits."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that held slots while another one waited for them."""

    job: str
    pool: str
    slot_seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A time (seconds) in which a job had tasks that could begin, and none that ran.

    slot_kind          the kind of slot that it waited for
    holders            the jobs that held slots of this kind meanwhile, the largest first
    free_slot_seconds  slot-seconds that no job held, including those of unresponsive hosts
    reason             why it waited; empty if other jobs were simply served first
    remedy             a change that would have helped; empty if the log proves none
    """

    job: str
    pool: str
    start: float
    end: float
    slot_kind: str
    holders: tuple[Holder, ...]
    free_slot_seconds: float
    reason: str = ""
    remedy: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def held_slot_seconds(self) -> float:
        """The slot-seconds that all other jobs held meanwhile."""
        return sum(holder.slot_seconds for holder in self.holders)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"seconds": self.seconds}


def worst_waits(
    log: Log,
    line: Timeline,
    *,
    job: str | None = None,
    most: int = MAX_WAITS,
    most_of_job: int | None = None,
) -> tuple[Wait, ...]:
    """The longest waits in a run, of all jobs or of one, the longest first.

    A job waits from its arrival, or from the end of its last running task, until one of its
    tasks is launched, it is given up, or it is moved to another pool, where it waits again.
    Since it is not done, it has tasks that could begin then, unless it awaits admission
    (`jobs_max`). A job whose phase grows does not wait while all tasks that were added to it
    are done. `line` is the timeline of the log. InputError for a job that is not in it. O(n log
    n) for n entries of the log, and O(`most` times n) in numpy.
    """
    if job is not None and job not in line.jobs:
        raise InputError(unknown_job(job, line.jobs))
    least = MIN_WAIT * (line.end - min((s.arrival for s in line.jobs.values()), default=0.0))
    found = [
        stretch
        for name in (line.jobs if job is None else [job])
        for stretch in _stretches(line, name)
        if stretch.end - stretch.start > least
    ]
    found.sort(key=lambda stretch: (stretch.start - stretch.end, stretch.start, stretch.job))
    chosen, taken = [], Counter[str]()
    for stretch in found:
        if most_of_job is None or taken[stretch.job] < most_of_job:
            chosen.append(stretch)
            taken[stretch.job] += 1
        if len(chosen) == most:
            break
    held = _Held(line)
    advice = advise(log, chosen)
    return tuple(
        _wait(line, stretch, held, said) for stretch, said in zip(chosen, advice, strict=True)
    )


def unknown_job(job: str, known: Iterable[str]) -> str:
    """The message that a job is not in the log, with some jobs that are."""
    names = ", ".join(nsmallest(8, known))
    return f"job {job!r} is not in the log; it has, among others: {names}"


def _stretches(line: Timeline, job: str) -> Iterator[Stretch]:
    """The times between arrival and end of the job in which it held no slot."""
    since: float | None = line.jobs[job].arrival
    end = line.end_of(job)
    steps = line.held_by_job.get(job)
    for time, slots in zip(steps.times, steps.values, strict=True) if steps else ():
        if slots and since is not None:
            yield from _parts(line, Stretch(job, since, time))
            since = None
        elif not slots:
            since = time
    if since is not None and since < end:
        yield from _parts(line, Stretch(job, since, end))


def _parts(line: Timeline, stretch: Stretch) -> Iterator[Stretch]:
    """The parts of a stretch in one pool and with tasks that were not done."""
    for until, _ in line.jobs[stretch.job].moves:
        if stretch.start < until < stretch.end:
            yield from _busy(line, replace(stretch, end=until))
            stretch = replace(stretch, start=until)
    yield from _busy(line, stretch)


def _busy(line: Timeline, stretch: Stretch) -> Iterator[Stretch]:
    """The parts of a stretch in which the job had tasks that were not done."""
    since, spans = stretch.start, line.idle.get(stretch.job, ())
    for start, end in spans[bisect_left(spans, (since, since)) :]:
        if start >= stretch.end:
            break
        if since < start:
            yield Stretch(stretch.job, since, start)
        since = end
    if since < stretch.end:
        yield Stretch(stretch.job, since, stretch.end)


class _Held:
    """The attempts of a run as arrays, to find the jobs that held slots at some time."""

    def __init__(self, line: Timeline) -> None:
        self.jobs = list(line.jobs)
        number = {job: at for at, job in enumerate(self.jobs)}
        columns = line.attempts.columns
        self._start, self._end, self._phase = columns.start, columns.end, columns.phase
        self._jobs = np.array([number[phase.job] for phase in columns.phases], dtype=np.intp)
        self._kinds = np.array(line.attempts.kinds, dtype=object)

    def between(self, start: float, end: float, kind: str) -> dict[str, float]:
        """The slot-seconds of each job that held slots of this kind from start to end."""
        at = (self._start < end) & (self._end > start)
        at &= (self._kinds == kind)[self._phase]
        overlap = np.minimum(self._end[at], end) - np.maximum(self._start[at], start)
        sums = np.bincount(self._jobs[self._phase[at]], overlap, minlength=len(self.jobs))
        return {self.jobs[number]: float(sums[number]) for number in np.flatnonzero(sums)}


def _wait(line: Timeline, stretch: Stretch, held: _Held, advice: Advice) -> Wait:
    by_job = held.between(stretch.start, stretch.end, advice.slot_kind)
    by_job.pop(stretch.job, None)  # It holds nothing, except at the ends of the wait.
    order: Sequence[str] = sorted(by_job, key=lambda job: (-by_job[job], job))
    slots = line.slots_by_kind.get(advice.slot_kind, SlotsOverTime(0))
    area = slots.seconds(stretch.start, stretch.end)
    return Wait(
        stretch.job,
        line.jobs[stretch.job].pool_at(stretch.start),
        stretch.start,
        stretch.end,
        advice.slot_kind,
        tuple(Holder(job, line.jobs[job].pool_at(stretch.start), by_job[job]) for job in order),
        max(0.0, area - sum(by_job.values())),
        advice.reason,
        advice.remedy,
    )
