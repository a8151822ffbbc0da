"""Penalties: the cost of completing a job at a time (FLEX 2.1). One function each.

A penalty converts a job and its size to a cost: a non-decreasing function of completion time.
To add a penalty, add a function here and its name to `PENALTIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.objective.cost import Cost, Hinge, Line, Steps


class Size(NamedTuple):
    """The size of a job, in seconds at speed 1; both > 0.

    work   of all its phases
    alone  the minimum time from its arrival to its completion alone on the cluster
    """

    work: float
    alone: float


Penalty = Callable[[Job, Size], Cost]
"""The cost of a job of this size as a function of its completion time."""


def response(job: Job, size: Size) -> Line:
    """Weighted response time, w (C - arrival)."""
    return Line(job.weight, job.arrival)


def stretch(job: Job, size: Size) -> Line:
    """Weighted stretch, w (C - arrival) / work, as the papers define it."""
    return Line(job.weight / size.work, job.arrival)


def slowdown(job: Job, size: Size) -> Line:
    """Weighted slowdown, w (C - arrival) / (minimum time alone): at least w."""
    return Line(job.weight / size.alone, job.arrival)


def tardy(job: Job, size: Size) -> Steps:
    """The weight of a job that misses its deadline; the sum counts the tardy jobs by weight.

    InputError without a deadline, as for `tardiness` and `lateness`.
    """
    return Steps(((_deadline(job, "tardy"), job.weight),))


def tardiness(job: Job, size: Size) -> Hinge:
    """Weighted tardiness, w max(0, C - deadline)."""
    return Hinge(job.weight, _deadline(job, "tardiness"))


def lateness(job: Job, size: Size) -> Line:
    """Weighted lateness, w (C - deadline): negative for a job that is early."""
    return Line(job.weight, _deadline(job, "lateness"))


def sla(job: Job, size: Size) -> Steps:
    """The cost of the last step passed, as stated for the job; weights do not matter.

    InputError without steps.
    """
    if not job.steps:
        raise InputError(
            f"job {job.id!r}: penalty sla needs steps; give it steps: [[seconds, cost], ...]"
        )
    return Steps(job.steps)


def makespan(job: Job, size: Size) -> Line:
    """Completion time; its maximum over the jobs is the makespan."""
    return Line(1.0)


PENALTIES: Mapping[str, Penalty] = MappingProxyType(
    {
        "response": response,
        "stretch": stretch,
        "slowdown": slowdown,
        "tardy": tardy,
        "tardiness": tardiness,
        "lateness": lateness,
        "sla": sla,
        "makespan": makespan,
    }
)
"""The penalties by name."""


def _deadline(job: Job, penalty: str) -> float:
    if job.deadline is None:
        raise InputError(
            f"job {job.id!r}: penalty {penalty} needs a deadline; give it deadline: seconds"
        )
    return job.deadline
