"""Objectives: the sum (minisum) or the maximum (minimax) of the costs of all jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite
from typing import Literal

from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.objective.cost import MET, Cost
from slotwise.objective.penalty import PENALTIES, Size

Aggregate = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Objective:
    """The function to minimise: the name of a penalty, and its sum or max over the jobs.

    InputError for an unknown penalty or aggregate, or for a sum of makespans.
    """

    penalty: str = "response"
    aggregate: Aggregate = "sum"

    def __post_init__(self) -> None:
        if not isinstance(self.penalty, str) or self.penalty not in PENALTIES:
            raise InputError(
                f"objective: unknown penalty {self.penalty!r}; known: {', '.join(PENALTIES)}"
            )
        if self.aggregate not in ("sum", "max"):
            raise InputError(f"objective: aggregate is {self.aggregate!r}; use sum or max")
        if self.penalty == "makespan" and self.aggregate == "sum":
            raise InputError("objective: makespan is a maximum; set aggregate to max")

    @classmethod
    def named(cls, penalty: str) -> Objective:
        """The default objective of a penalty: its sum, for makespan its maximum."""
        return cls(penalty, "max" if penalty == "makespan" else "sum")

    @classmethod
    def of(cls, given: Objective | str) -> Objective:
        """The objective that a user gives, perhaps by the name of a penalty."""
        if isinstance(given, str):
            return cls.named(given)
        if not isinstance(given, Objective):
            raise InputError(
                f"objective is {given!r}; give the name of a penalty, or a slotwise.Objective"
            )
        return given

    def penalty_of(self, job: Job) -> str:
        """The name of the penalty of one job: its own if it states one."""
        return job.penalty or self.penalty

    def penalties(self, jobs: Iterable[Job]) -> tuple[str, ...]:
        """The names of the penalties of these jobs, the one of the objective first."""
        names = {self.penalty_of(job) for job in jobs} or {self.penalty}
        return tuple(sorted(names, key=lambda name: (name != self.penalty, name)))

    def cost(self, job: Job, size: Size) -> Cost:
        """The cost of the job as a function of its completion time.

        InputError if its penalty is unknown, or if the job lacks the deadline or steps that its
        penalty needs.
        """
        penalty = self.penalty_of(job)
        if penalty not in PENALTIES:
            raise InputError(
                f"job {job.id!r}: unknown penalty {penalty!r}; known: {', '.join(PENALTIES)}"
            )
        return PENALTIES[penalty](job, size)

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise InputError for jobs that lack what their penalty needs."""
        for job in jobs:
            self.cost(job, Size(1.0, 1.0))

    def value(
        self,
        jobs: Mapping[str, Job],
        completion: Mapping[str, float],
        size: Mapping[str, Size],
    ) -> float:
        """The value over the jobs that have a completion time; 0 without any."""
        costs = [self.cost(jobs[job], size[job]).at(at) for job, at in completion.items()]
        return self.total(costs)

    def total(self, costs: Iterable[float]) -> float:
        """The sum or the maximum of costs; 0 without any."""
        return max(costs, default=0.0) if self.aggregate == "max" else sum(costs)


def in_words(penalties: Sequence[str]) -> str:
    """Names of penalties, such as "response, lateness and sla, by job"."""
    *most, last = penalties
    return f"{', '.join(most)} and {last}, by job" if most else last


def gap_of(value: float, bound: float) -> float | None:
    """The relative gap between a value and its lower bound.

    Lateness and tardiness may have lower bounds <= 0, for which a relative gap is not defined:
    then it is 0 if the value equals the bound up to rounding, otherwise None. It is also None
    if the bound is so small that the ratio is not finite.
    """
    if bound <= 0:
        return 0.0 if isclose(value, bound, rel_tol=MET, abs_tol=MET) else None
    gap = value / bound - 1
    return gap if isfinite(gap) else None
