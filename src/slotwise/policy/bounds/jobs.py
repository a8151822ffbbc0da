"""The input of all bounds: jobs, their parts, and costs that are safe from rounding.

Instants are rounded: the sum of many others has a limited number of digits, and a deadline
missed by a rounding error counts as met. Bounds are proven for real numbers. So they use costs
that are slightly lower at each instant (`BoundJobs.early`), and hold for the values that
programs print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from slotwise.core.costs import Costs, Floats, Ints
from slotwise.core.objective import Cost, Curve, Hinge, Line, Steps, met_until
from slotwise.core.tolerances import EARLY, SAFE


@dataclass(frozen=True, slots=True)
class BoundJobs:
    """J jobs as parallel arrays; created by `BoundJobs.of`.

    costs      of each job by the instant of its completion
    arrival    seconds, >= 0; no work is done before
    work       seconds at speed 1, >= 0
    rate       the maximum work per second, > 0
    height     the minimum time from arrival to completion alone, seconds
    min_share  the minimum work per second from arrival to completion; 0 without a guarantee,
               together at most the capacity
    parts      its phases; by default the whole job is one part
    """

    costs: Costs
    arrival: Floats
    work: Floats
    rate: Floats
    height: Floats
    min_share: Floats
    parts: Parts

    @classmethod
    def of(
        cls,
        costs: Sequence[Cost],
        arrival: Sequence[float] | Floats,
        work: Sequence[float] | Floats,
        rate: Sequence[float] | Floats,
        height: Sequence[float] | Floats,
        min_share: Sequence[float] | Floats | None = None,
        parts: Parts | None = None,
    ) -> BoundJobs:
        """The jobs; by default without min shares, and each job is one part."""
        low = np.zeros(len(costs)) if min_share is None else min_share
        came, amount, pace, alone, held = (
            np.asarray(values, dtype=float) for values in (arrival, work, rate, height, low)
        )
        some = parts or Parts.whole(amount, pace)
        return cls(Costs(costs), came, amount, pace, alone, held, some)

    def __len__(self) -> int:
        return len(self.work)

    def early(self) -> BoundJobs:
        """The same jobs; each cost is at most cost((1 - EARLY) C) at each C >= 0. O(J)."""
        return replace(self, costs=Costs([_earlier(cost) for cost in self.costs]))

    def since(self, instant: float) -> BoundJobs:
        """The same jobs on a clock that shows 0 at this instant."""
        costs = Costs([cost.since(instant) for cost in self.costs]) if instant else self.costs
        return replace(self, costs=costs, arrival=self.arrival - instant)

    def least_of(self, parts: Parts) -> Floats:
        """The min share of each part: that of the job if it is the whole job, otherwise 0."""
        count = np.bincount(parts.job, minlength=len(self))
        is_all = (count[parts.job] == 1) & (parts.head + parts.tail == 0)
        return np.where(is_all, self.min_share[parts.job], 0.0)

    @property
    def soonest(self) -> Floats:
        """The earliest instant at which each job can be complete."""
        return self.arrival + self.height

    @property
    def latest(self) -> Floats:
        """The latest completion of each job, which its min share implies, or inf."""
        held = np.where(self.min_share > 0, self.min_share, 1.0)
        ends = np.where(self.min_share > 0, self.arrival + self.work / held, np.inf)
        return np.maximum(ends, self.soonest)


@dataclass(frozen=True, slots=True)
class Parts:
    """N parts of J jobs as parallel arrays; the parts of a job are adjacent.

    A part is a phase, with its earliest start and the minimum time after its end.

    job   of each part: 0 to J - 1
    work  seconds at speed 1, >= 0
    rate  the maximum work per second, > 0
    head  minimum seconds from the arrival of the job to the start of the part
    tail  minimum seconds from the end of the part to the completion of the job
    """

    job: Ints
    work: Floats
    rate: Floats
    head: Floats
    tail: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float, float, float]]) -> Parts:
        """From one row per part: job, work, rate, head, tail."""
        table = np.array(rows, dtype=float).reshape(-1, 5).T
        return cls(table[0].astype(np.int64), *table[1:])

    @classmethod
    def whole(cls, work: Floats, rate: Floats) -> Parts:
        """Each job as one part, with head and tail 0."""
        nothing = np.zeros(len(work))
        return cls(np.arange(len(work)), work, rate, nothing, nothing)

    def __len__(self) -> int:
        return len(self.work)

    @property
    def are_whole(self) -> bool:
        """Whether each part is a whole job."""
        return bool(np.all(np.diff(self.job) > 0) and not np.any(self.head + self.tail))

    def fitted(self, capacity: float) -> Parts:
        """The parts with rates limited by the capacity."""
        return replace(self, rate=np.minimum(self.rate, capacity))


def _earlier(cost: Cost) -> Cost:
    part = 1 - EARLY
    match cost:
        case Line(slope, origin):
            return Line(slope * part, max(origin, origin / part))
        case Hinge(slope, due):
            return Hinge(slope * part, max(due, due / part))
        case Steps(steps):
            # A step is passed only after the tolerance for rounding (`met_until`).
            return Steps(tuple((met_until(at) / part, cost) for at, cost in steps))
        case _:
            return Curve(lambda instant: cost.at(part * instant))


# The maximum work of each job in the last or first seconds of its time.


def latest_parts(parts: Parts, capacity: float) -> Parts:
    """Each job as consecutive parts that are done as late as possible.

    In the last u seconds of a job at most sum min(s, d (u - q)^+) over its parts can be done,
    and never more than the capacity allows. This function is piecewise linear; each linear
    piece is a part of the result, with head 0. O(N log N).
    """
    if parts.are_whole:
        return parts
    rows = []
    ends = np.searchsorted(parts.job, np.arange(parts.job.max(initial=-1) + 2))
    for job, (first, last) in enumerate(pairwise(ends.tolist())):
        if first < last:
            own = slice(first, last)
            spans = _served(
                *_rates(parts.tail[own], parts.work[own], parts.rate[own]), capacity
            )
            rows += [(job, rate * (end - at), rate, 0.0, at) for at, end, rate in spans]
    return Parts.of(rows)


def latest_moments(jobs: BoundJobs, capacity: float) -> Floats:
    """For each job, the minimum integral of (C - t) x(t) for a rate x(t) and completion C.

    It is reached with its parts as late as possible: work^2 / (2 rate) for one part.
    """
    parts = latest_parts(jobs.parts.fitted(capacity), capacity)
    moments = parts.work * parts.work / (2 * parts.rate) + parts.work * parts.tail
    lowest: Floats = np.bincount(parts.job, moments, minlength=len(jobs)).astype(float)
    return lowest


@dataclass(frozen=True, slots=True)
class Room:
    """The maximum work of all jobs that can be done by any instant, piecewise linear.

    Each part runs from its head on at its rate; work beyond the capacity waits. Seconds count
    from the first arrival.
    """

    seconds: Floats
    amounts: Floats

    @classmethod
    def of(cls, jobs: BoundJobs, capacity: float) -> Room:
        """The room of jobs that have some work. O(N log N)."""
        ready = jobs.arrival[jobs.parts.job] - jobs.arrival.min() + jobs.parts.head
        spans = _served(*_rates(ready, jobs.parts.work, jobs.parts.rate), capacity)
        begin, end, rate = np.array(spans).reshape(-1, 3).T
        done = np.cumsum(np.concatenate([[0.0], rate * (end - begin)])) * (1 + SAFE)
        bends = np.stack([begin, end], axis=1), np.stack([done[:-1], done[1:]], axis=1)
        return cls(bends[0].ravel(), bends[1].ravel())

    def after(self, seconds: Floats) -> Floats:
        """The work that can be done in these seconds from the first arrival on."""
        highest: Floats = np.interp(seconds, self.seconds, self.amounts)
        return highest

    @property
    def full(self) -> float:
        """Seconds from the first arrival on until all work can be done."""
        return float(self.seconds[-1])


def _rates(begin: Floats, work: Floats, rate: Floats) -> tuple[list[float], list[float]]:
    """Instants, and the total rate between them, if each part runs from `begin` on."""
    instants = np.concatenate([begin, begin + work / rate])
    order = np.argsort(instants, kind="stable")
    running = np.cumsum(np.concatenate([rate, -rate])[order])
    running[-1] = 0.0
    return instants[order].tolist(), np.maximum(running, 0.0).tolist()


def _served(
    instants: list[float], rates: list[float], capacity: float
) -> list[tuple[float, float, float]]:
    """The spans (begin, end, rate > 0) in which a server of this capacity does arriving work.

    Work that arrives while the server is busy waits. The spans contain all work.
    """
    spans: list[tuple[float, float, float]] = []
    waiting = 0.0
    for (at, until), rate in zip(pairwise(instants), rates[:-1], strict=True):
        length = until - at
        if length <= 0:
            continue
        if rate >= capacity:
            spans.append((at, until, capacity))
            waiting += (rate - capacity) * length
            continue
        drained = min(length, waiting / (capacity - rate))
        if drained > 0:
            spans.append((at, at + drained, capacity))
        waiting = 0.0 if drained < length else waiting - (capacity - rate) * length
        if drained < length and rate > 0:
            spans.append((at + drained, until, rate))
    if waiting > 0:
        spans.append((instants[-1], instants[-1] + waiting / capacity, capacity))
    return spans
