"""The height bound: every job as if it were alone."""

from __future__ import annotations

from slotwise.allocation.bounds.jobs import BoundJobs


def height_bound_sum(jobs: BoundJobs) -> float:
    """A lower bound on the sum: each job costs at least as much as alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).sum())


def height_bound_max(jobs: BoundJobs) -> float:
    """A lower bound on the maximum: the most expensive job, each alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).max())
