"""The due date bound of a maximum: the least level at which all jobs can complete in time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter

import numpy as np

from slotwise.allocation.bounds.height import height_bound_max
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import Room, latest_parts
from slotwise.allocation.due_dates.feasibility import fits, needs
from slotwise.allocation.tolerances import LEVEL, SAFE
from slotwise.objective.cost import Steps
from slotwise.objective.costs import Floats

MAX_STARTS = 64
"""The maximum number of starts that are tested; fewer make the bound weaker, not wrong."""


HALVINGS = 100


def due_date_bound(jobs: BoundJobs, capacity: float) -> float:
    """A lower bound on the largest cost; the optimum if all jobs arrive at one instant.

    If no job costs more than a level L, each is complete by the latest instant at which it
    costs L, and each of its parts by its minimum tail before that. From any instant on, the
    work that must be done by each later instant must fit. The returned value is at most a level
    that was shown not to fit, whatever the precision of the bisection. About 50 tests of
    O(N log N) for N parts; about 300 for jobs that arrive one by one or have several parts.
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
    """A test of a level: whether the work that must be done by each instant fits.

    The demand has the parts of each job as late as possible for the job alone, the room has
    them as early as possible.
    """
    parts, first = latest_parts(jobs.parts, capacity), float(jobs.arrival.min())
    min_share, heights = jobs.least_of(parts), parts.work / parts.rate
    room = Room.of(jobs, capacity)
    grace = 1 + SAFE

    def are_in_time(level: float) -> bool:
        due = np.maximum(jobs.costs.latest(level), jobs.soonest)[parts.job] - parts.tail - first
        if np.any(due * grace < heights):
            return False
        instants, needed = needs(parts.work, min_share, parts.rate, np.maximum(due, heights))
        # What is needed has the rounding of instants, which may be much larger than the work.
        rounded = SAFE * capacity * instants
        # When all work can be done, the needed work can be done, whatever the rounding.
        available = np.where(
            instants < room.full, room.after(instants * grace) * grace + rounded, np.inf
        )
        return bool(np.all(needed <= available))

    return are_in_time


def _within(jobs: BoundJobs, capacity: float, start: float) -> Callable[[float], bool]:
    """A test of a level: whether the work that must be done from `start` on fits."""
    parts = jobs.parts
    begin = jobs.arrival[parts.job] + parts.head
    work = np.maximum(parts.work - parts.rate * np.maximum(start - begin, 0.0), 0.0)
    # A job holds its min share from the start on only if it has arrived by then.
    min_share = np.where(begin <= start, jobs.least_of(parts), 0.0)

    def are_in_time(level: float) -> bool:
        due = jobs.costs.latest(level)
        due = np.maximum(due, jobs.soonest)  # Levels start at the heights, up to rounding.
        # Some may be complete before the start.
        due = np.where(work > 0, due[parts.job] - parts.tail - start, inf)
        return fits(capacity, work, min_share, parts.rate, due)

    return are_in_time


def _least_level(fits_at: Callable[[float], bool], level: float, jumps: Floats) -> float:
    """The least level >= `level` that fits, approached from below; fitting is monotonic."""
    if fits_at(level):
        return level
    low, high = level, inf
    # The first cost of a step that fits: between two of these costs no cost jumps.
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
    """A level that does not fit, slightly below one that does; `low` does not, `high` does."""
    for _ in range(HALVINGS):
        if high - low <= LEVEL * max(abs(low), abs(high)):
            break
        middle = low + (high - low) / 2
        low, high = (low, middle) if fits_at(middle) else (middle, high)
    return low


def _jumps(jobs: BoundJobs) -> Floats:
    costs = [cost for job in jobs.costs if isinstance(job, Steps) for _, cost in job.steps]
    return np.unique(np.array(costs, dtype=float))


def _starts(begins: Floats) -> Floats:
    starts = np.unique(begins)
    if len(starts) > MAX_STARTS:
        starts = starts[np.linspace(0, len(starts) - 1, MAX_STARTS).astype(int)]
    return starts
