"""Penalties: what it costs to finish a job at a time (FLEX 2.1). One function each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from slotwise.model.job import Job

Penalty = Callable[[Job, float, float], float]
"""The cost of (job, completion time, work of the job in seconds): non-decreasing in time."""


def response(job: Job, completion: float, work: float) -> float:
    """Weighted response time, w (C - arrival)."""
    return job.weight * (completion - job.arrival)


def stretch(job: Job, completion: float, work: float) -> float:
    """Weighted stretch, w (C - arrival) / work: how much sharing delays a job for its size."""
    return job.weight * (completion - job.arrival) / work


def makespan(job: Job, completion: float, work: float) -> float:
    """Completion time; its maximum over the jobs is the makespan."""
    return completion


PENALTIES: Mapping[str, Penalty] = MappingProxyType(
    {"response": response, "stretch": stretch, "makespan": makespan}
)
"""The penalties by name."""

LINES: Mapping[str, Callable[[Job, float], tuple[float, float]]] = MappingProxyType(
    {
        "response": lambda job, work: (job.weight, job.arrival),
        "stretch": lambda job, work: (job.weight / work, job.arrival),
        "makespan": lambda job, work: (1.0, 0.0),
    }
)
"""The same penalties as slope and origin, slope * (C - origin), for the lower bounds."""
