"""Due dates: the least level at which all jobs can be complete in time, for a maximum."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter

import numpy as np

from slotwise.allocation.bounds.height import height_bound_max
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import Room, latest_parts
from slotwise.allocation.due_dates.feasibility import ROUNDING, fits, needs
from slotwise.objective.cost import Steps
from slotwise.objective.costs import Floats

STARTS_MOST = 64
"""From so many instants at most we look; fewer make the bound weaker, not wrong."""

PRECISION = 1e-13
"""Relative; the level is bracketed no closer."""

HALVINGS = 100


def due_date_bound(jobs: BoundJobs, capacity: float) -> float:
    """Of the largest cost; for jobs that all arrive at one instant its very optimum.

    If no job costs more than a level L, each is complete by the latest instant at which it
    costs L, and each of its parts by the least time before that. From any instant on, the work
    that must be done by then must fit. The value returned is at most a level that was seen not
    to fit, however far the bisection went. About 50 tests of O(N log N) for N parts, for jobs
    that arrive one by one or have several parts about 300.
    """
    jumps = _jumps(jobs)
    level = height_bound_max(jobs)
    begins = jobs.arrival[jobs.parts.job] + jobs.parts.head
    first = float(jobs.arrival.min())
    for start in _starts(np.concatenate([[first], begins])):
        if start == first and not jobs.parts.are_whole and jobs.work.any():
            level = _least_level(_from_the_first(jobs, capacity), level, jumps)
        else:
            level = _least_level(_within(jobs, capacity, start), level, jumps)
    return level


def _from_the_first(jobs: BoundJobs, capacity: float) -> Callable[[float], bool]:
    """Whether at a level what must be done by each instant can be done by then.

    Each job has its parts as late as it can do them alone; the room has them as early.
    """
    parts, first = latest_parts(jobs.parts, capacity), float(jobs.arrival.min())
    min_share, heights = jobs.least_of(parts), parts.work / parts.rate
    room = Room.of(jobs, capacity)
    grace = 1 + ROUNDING

    def are_in_time(level: float) -> bool:
        due = np.maximum(jobs.costs.latest(level), jobs.soonest)[parts.job] - parts.tail - first
        if np.any(due * grace < heights):
            return False
        instants, needed = needs(parts.work, min_share, parts.rate, np.maximum(due, heights))
        # When the room is full, all that is needed can be done, however it was rounded.
        max_share = np.where(instants < room.full, room.after(instants * grace) * grace, np.inf)
        return bool(np.all(needed <= max_share))

    return are_in_time


def _within(jobs: BoundJobs, capacity: float, start: float) -> Callable[[float], bool]:
    """Whether at a level what must be done from an instant on fits."""
    parts = jobs.parts
    begin = jobs.arrival[parts.job] + parts.head
    work = np.maximum(parts.work - parts.rate * np.maximum(start - begin, 0.0), 0.0)
    # A job holds its min share from the start on only if it is there by then.
    min_share = np.where(begin <= start, jobs.least_of(parts), 0.0)

    def are_in_time(level: float) -> bool:
        due = jobs.costs.latest(level)
        due = np.maximum(due, jobs.soonest)  # A level from the heights up, but for rounding.
        # Some may be complete before the start.
        due = np.where(work > 0, due[parts.job] - parts.tail - start, inf)
        return fits(capacity, work, min_share, parts.rate, due)

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


def _starts(begins: Floats) -> Floats:
    starts = np.unique(begins)
    if len(starts) > STARTS_MOST:
        starts = starts[np.linspace(0, len(starts) - 1, STARTS_MOST).astype(int)]
    return starts
