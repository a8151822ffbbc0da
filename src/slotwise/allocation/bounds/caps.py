"""The area bound with limited rates and heights: a linear program over all sets of jobs."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.contrapolymatroid import least_completions
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import latest_moments

JOBS_MOST = 40_000
"""Above this number of jobs, O(J^2) takes more than a second or two."""


def caps_bound(jobs: BoundJobs, capacity: float) -> float:
    """A lower bound on the sum of costs that are lines, from the first arrival on. O(J^2).

    For any set of jobs, the sum of work times completion is at least the sum of their least
    moments about the completion, plus half of the square of their total work over the capacity.
    Each job also needs its height. The minimum weighted sum of such completion times is
    computed exactly.
    """
    assert jobs.costs.are_lines
    begin = float(jobs.arrival.min())
    slope, origin = jobs.costs.slope, jobs.costs.origin
    soonest = jobs.arrival - begin + jobs.height
    moments = latest_moments(jobs, capacity)
    ends = least_completions(jobs.work, moments, capacity, soonest, slope)
    return float(np.sum(slope * (begin - origin + ends)))
