"""The least maximum of a resource allocation problem, by bisection on the cost: no gains."""

from __future__ import annotations

import numpy as np

from slotwise.core.costs import Ints
from slotwise.policy.rap import ResourceProblem


def lowest_level(problem: ResourceProblem) -> Ints:
    """The fewest units of each job that minimise the maximum cost, by bisection on the cost.

    A level is feasible if the fewest units that keep it do not exceed the total. Each step ends
    on a cost that occurs, so the level found is exact. O(J log S) per step; steps halve the
    range of costs, at most about 2,000 times and usually some 50.
    """
    jobs = np.arange(len(problem))
    best, high = problem.min_share.copy(), problem.value(problem.min_share, "max")
    # No level below `low` is feasible; `high` is.
    low = float(problem.cost(jobs, problem.min_share + problem.room).max(initial=-np.inf))
    while low < high:
        level = _between(low, high)
        units = _fewest(problem, level)
        if units.sum() <= problem.total:
            best, high = units, problem.value(units, "max")
        else:  # The next candidate is the lowest cost above at which some job saves a unit.
            short = np.flatnonzero(units > problem.min_share)
            low = float(problem.cost(short, units[short] - 1).min())
    return best


def _between(low: float, high: float) -> float:
    """A level that is at least `low` and below `high`, in the middle if possible."""
    if high == np.inf:
        return float(np.finfo(float).max)
    return min(max(low, low / 2 + high / 2), float(np.nextafter(high, -np.inf)))


def _fewest(problem: ResourceProblem, level: float) -> Ints:
    """The fewest units with which each job costs at most `level`, which must be possible."""
    jobs = np.arange(len(problem))
    low, high = problem.min_share, problem.min_share + problem.room
    while (low < high).any():
        middle = (low + high) // 2
        fits = problem.cost(jobs, middle) <= level
        low = np.where(fits, low, np.minimum(middle + 1, high))
        high = np.where(fits, middle, high)
    return low
