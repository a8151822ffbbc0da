"""The best of all applicable lower bounds: the entry to this folder."""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from slotwise.core.objective import Aggregate, Steps
from slotwise.core.tolerances import SAFE, WHOLE
from slotwise.policy.bounds.height import due_date_bound, fitted, height_bound_sum
from slotwise.policy.bounds.jobs import BoundJobs
from slotwise.policy.bounds.lines import MAX_JOBS, busy_time_bound, caps_bound
from slotwise.policy.bounds.prices import price_bound

PRICES_FROM = 1e-6
"""Relative; prices are computed if a bound is below the known value by more than this."""


def lower_bound(
    jobs: BoundJobs, capacity: float, aggregate: Aggregate, value: float = inf
) -> float:
    """A lower bound on the sum or maximum of the costs of any schedule. 0 without jobs.

    value  of a known schedule: if a cheap bound is close to it, expensive bounds are skipped

    A maximum takes some 50 tests of O(J log J), a sum at most a fixed number of steps over
    `MAX_NUMBERS` numbers.
    """
    if not len(jobs):
        return 0.0
    jobs = fitted(jobs, capacity).early()
    if aggregate == "max":
        return due_date_bound(jobs, capacity)
    are_whole = _are_whole(jobs)
    # A bound of value - 0.5 is enough: it is rounded up.
    bound = _sum_bound(jobs, capacity, value - 0.5 if are_whole else value)
    bound -= SAFE * float(np.abs(jobs.costs.at(jobs.soonest)).sum() + abs(bound))
    if are_whole:
        return float(ceil(bound - WHOLE))
    cheapest = jobs.costs.at(jobs.arrival)
    return max(bound, 0.0) if np.all(cheapest >= 0) else bound


def _sum_bound(jobs: BoundJobs, capacity: float, value: float) -> float:
    """The best lower bound of a sum, the cheap bounds first."""
    bound = height_bound_sum(jobs)
    if jobs.costs.are_lines:
        bound = max(bound, busy_time_bound(jobs, capacity))
        if len(jobs) <= MAX_JOBS:
            bound = max(bound, caps_bound(jobs, capacity))
    if value < inf and value - bound <= PRICES_FROM * abs(value):
        return bound
    return max(bound, price_bound(jobs, capacity, value))


def _are_whole(jobs: BoundJobs) -> bool:
    """Whether every sum of costs is a whole number, such as the number of tardy jobs."""
    return all(
        isinstance(cost, Steps) and all(float(fee).is_integer() for _, fee in cost.steps)
        for cost in jobs.costs
    )
