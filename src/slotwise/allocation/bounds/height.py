"""Every job as if it were alone."""

from __future__ import annotations

from slotwise.allocation.bounds.jobs import BoundJobs


def height_bound_sum(jobs: BoundJobs) -> float:
    """The sum of the costs of jobs that are each alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).sum())


def height_bound_max(jobs: BoundJobs) -> float:
    """The dearest job if each were alone. O(J)."""
    return float(jobs.costs.at(jobs.soonest).max())
