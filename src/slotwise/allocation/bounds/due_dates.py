"""Due dates: the least level at which all jobs can be complete in time, for a maximum."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter

import numpy as np

from slotwise.allocation.bounds.height import height_bound_max
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.due_dates.feasibility import fits
from slotwise.objective.cost import Steps
from slotwise.objective.costs import Floats

ARRIVALS_MOST = 64
"""From so many arrivals at most we look; fewer make the bound weaker, not wrong."""

PRECISION = 1e-13
"""Relative; the level is bracketed no closer."""

HALVINGS = 100


def due_date_bound(jobs: BoundJobs, capacity: float) -> float:
    """Of the largest cost; for jobs that all arrive at one instant its very optimum.

    If no job costs more than a level L, each is complete by the latest instant at which it
    costs L. From any arrival on, the work that must be done by then must fit. The value
    returned is at most a level that was seen not to fit, however far the bisection went.
    About 50 tests of O(J log J), for jobs that arrive one by one about 300.
    """
    jumps = _jumps(jobs)
    level = height_bound_max(jobs)
    for start in _starts(jobs.arrival):
        level = _least_level(_within(jobs, capacity, start), level, jumps)
    return level


def _within(jobs: BoundJobs, capacity: float, start: float) -> Callable[[float], bool]:
    """Whether at a level what must be done from an arrival on fits."""
    work = np.maximum(jobs.work - jobs.rate * np.maximum(start - jobs.arrival, 0.0), 0.0)
    # A job holds its least share from the start on only if it is there by then.
    least = np.where(jobs.arrival <= start, jobs.least, 0.0)

    def are_in_time(level: float) -> bool:
        due = jobs.costs.latest(level)
        due = np.maximum(due, jobs.soonest)  # A level from the heights up, but for rounding.
        due = np.where(work > 0, due - start, inf)  # Some may be complete before the start.
        return fits(capacity, work, least, jobs.rate, due)

    return are_in_time


def _least_level(fits_at: Callable[[float], bool], level: float, jumps: Floats) -> float:
    """The least level from this one on that fits, from below; what fits stays so above."""
    if fits_at(level):
        return level
    low, high = level, inf
    # Among the costs of steps, the first that fits: between two of them no cost jumps.
    above = jumps[jumps > level]
    first, last = 0, len(above)
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if fits_at(above[middle]) else (middle + 1, last)
    if first > 0:
        low = float(above[first - 1])
    if first < len(above):
        step = float(above[first])
        high = nextafter(step, -inf)
        if high <= low or not fits_at(high):
            return step
    else:
        reach = max(abs(low), 1e-9)
        while (high := low + reach) < inf and not fits_at(high):
            low, reach = high, 2 * reach
    return _bisected(fits_at, low, high)


def _bisected(fits_at: Callable[[float], bool], low: float, high: float) -> float:
    """A level that does not fit close below one that does; `low` does not, `high` does."""
    for _ in range(HALVINGS):
        if high - low <= PRECISION * max(abs(low), abs(high)):
            break
        middle = low + (high - low) / 2
        low, high = (low, middle) if fits_at(middle) else (middle, high)
    return low


def _jumps(jobs: BoundJobs) -> Floats:
    costs = [cost for job in jobs.costs if isinstance(job, Steps) for _, cost in job.steps]
    return np.unique(np.array(costs, dtype=float))


def _starts(arrival: Floats) -> Floats:
    starts = np.unique(arrival)
    if len(starts) > ARRIVALS_MOST:
        starts = starts[np.linspace(0, len(starts) - 1, ARRIVALS_MOST).astype(int)]
    return starts
