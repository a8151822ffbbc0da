"""Lower bounds: no schedule of any scheduler can cost less.

All penalties here are linear, slope * (completion - origin). The bounds hold for malleable
jobs on `capacity` (slots times speed) where job j does work at a rate of at most `rate_j` and
not before its arrival; real schedules, whose tasks are whole, only cost more. Proofs are in
docs/algorithms/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Literal

import numpy as np

SAFETY = 1e-11
"""Bounds are lowered by this part of themselves and of the instants that they are made of, so
that the rounding of clocks, however often something was added to them, never lifts one above a
feasible value."""


@dataclass(frozen=True, slots=True)
class BoundJobs:
    """J jobs as parallel lists.

    slope, origin  of the penalty: slope * (C - origin), slope > 0
    arrival        seconds
    work           seconds at speed 1, >= 0
    rate           the most work that it can have done in a second, > 0
    height         the least time from arrival to completion that it needs alone, seconds
    """

    slope: Sequence[float]
    origin: Sequence[float]
    arrival: Sequence[float]
    work: Sequence[float]
    rate: Sequence[float]
    height: Sequence[float]


def lower_bound(jobs: BoundJobs, capacity: float, aggregate: Literal["sum", "max"]) -> float:
    """The best of the bounds below for a minisum or minimax objective. O(J^2) at most."""
    if not jobs.work:
        return 0.0
    if aggregate == "max":
        bound = max(height_bound_max(jobs), area_bound_max(jobs, capacity))
        instants = max(_clock_costs(jobs))
    else:
        bound = max(height_bound_sum(jobs), busy_time_bound(jobs, capacity))
        instants = sum(_clock_costs(jobs))
    return bound - SAFETY * (abs(bound) + instants)


def height_bound_sum(jobs: BoundJobs) -> float:
    """Every job as if it were alone. O(J)."""
    return sum(_height_costs(jobs))


def height_bound_max(jobs: BoundJobs) -> float:
    """The dearest job as if it were alone. O(J)."""
    return max(_height_costs(jobs))


def busy_time_bound(jobs: BoundJobs, capacity: float) -> float:
    """The squashed area with arrivals and limited rates: mean busy times. O(J log J).

    A job completes at least work / (2 rate) after its mean busy time, and the weighted sum of
    mean busy times is least when, at each instant, all capacity goes to the present job of
    the largest slope / work (Goemans). With one arrival time and unlimited rates this is the
    squashed area bound of Turek and others.
    """
    # The order by slope / work stays as it is while a job is being done.
    order = sorted(range(len(jobs.work)), key=lambda j: jobs.arrival[j])
    left = [work / capacity for work in jobs.work]  # seconds on the whole cluster
    # Integral of t - arrival over the time a job is served: instants themselves are large, and
    # differences of their squares would be lost in rounding.
    moment = [0.0] * len(left)
    waiting: list[tuple[float, int]] = []
    now, come = 0.0, 0
    while come < len(order) or waiting:
        if not waiting:
            now = max(now, jobs.arrival[order[come]])
        while come < len(order) and jobs.arrival[order[come]] <= now:
            j = order[come]
            if left[j] > 0:
                heappush(waiting, (jobs.work[j] / jobs.slope[j], j))
            come += 1
        if not waiting:
            continue
        j = waiting[0][1]
        arrival = jobs.arrival[order[come]] if come < len(order) else inf
        step = min(left[j], arrival - now)
        moment[j] += step * (now - jobs.arrival[j] + step / 2)
        now = arrival if step == arrival - now else now + step
        left[j] -= step
        if left[j] <= 0:
            heappop(waiting)
    total = 0.0
    for j, work in enumerate(jobs.work):
        delay = moment[j] * capacity / work if work > 0 else 0.0
        least = delay + work / (2 * min(jobs.rate[j], capacity))
        total += jobs.slope[j] * (jobs.arrival[j] - jobs.origin[j] + least)
    return total


def area_bound_max(jobs: BoundJobs, capacity: float) -> float:
    """The least L for which due dates origin + L / slope leave enough room for the work.

    What arrives from an instant on and is due by another must fit between the two. Found by
    bisection from below: the value returned is one that is proven too small to be beaten.
    """
    slope, origin, arrival, work = (
        np.asarray(values, dtype=float)
        for values in (jobs.slope, jobs.origin, jobs.arrival, jobs.work)
    )
    starts = np.unique(arrival)
    if len(starts) > 64:  # Fewer instants to look from make the bound weaker, not wrong.
        starts = starts[np.linspace(0, len(starts) - 1, 64).astype(int)]

    def fits(level: float) -> bool:
        due = origin + level / slope
        by_due = np.argsort(due)
        for start in starts:
            chosen = by_due[arrival[by_due] >= start]
            if np.any(np.cumsum(work[chosen]) > capacity * (due[chosen] - start)):
                return False
        return True

    low = float(np.min(slope * (arrival - origin)))
    high = max(height_bound_max(jobs), low, 1e-9)
    if fits(high):
        return min(low, high)
    while not fits(high):
        low, high = high, 2 * high + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low


def _height_costs(jobs: BoundJobs) -> list[float]:
    return [
        slope * (arrival + height - origin)
        for slope, arrival, height, origin in zip(
            jobs.slope, jobs.arrival, jobs.height, jobs.origin, strict=True
        )
    ]


def _clock_costs(jobs: BoundJobs) -> list[float]:
    return [
        slope * (arrival + height)
        for slope, arrival, height in zip(jobs.slope, jobs.arrival, jobs.height, strict=True)
    ]
