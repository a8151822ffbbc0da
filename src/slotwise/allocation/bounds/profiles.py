"""The maximum work of each job in the last or first seconds of its time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from slotwise.allocation.bounds.jobs import BoundJobs, Parts
from slotwise.allocation.tolerances import SAFE
from slotwise.objective.costs import Floats


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
