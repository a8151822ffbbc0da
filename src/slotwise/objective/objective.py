"""Objectives: the sum (minisum) or the maximum (minimax) of the penalties of all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.objective.penalty import LINES, PENALTIES

Aggregate = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Objective:
    """What is to be made small: the name of a penalty, and sum or max over the jobs."""

    penalty: str = "response"
    aggregate: Aggregate = "sum"

    def __post_init__(self) -> None:
        if self.penalty not in PENALTIES:
            raise InputError(
                f"objective: unknown penalty {self.penalty!r}; known: {', '.join(PENALTIES)}"
            )
        if self.aggregate not in ("sum", "max"):
            raise InputError(f"objective: aggregate is {self.aggregate!r}; use sum or max")
        if self.penalty == "makespan" and self.aggregate == "sum":
            raise InputError("objective: makespan is a maximum; set aggregate to max")

    @classmethod
    def named(cls, penalty: str) -> Objective:
        """The objective that a penalty's name alone stands for: its sum, or the makespan."""
        return cls(penalty, "max" if penalty == "makespan" else "sum")

    def cost(self, job: Job, completion: float, work: float) -> float:
        """The penalty of one job; a job may have chosen one of its own."""
        return PENALTIES[job.penalty or self.penalty](job, completion, work)

    def line(self, job: Job, work: float) -> tuple[float, float]:
        """The penalty of one job as slope and origin: slope * (completion - origin)."""
        return LINES[job.penalty or self.penalty](job, work)

    def value(
        self,
        jobs: Mapping[str, Job],
        completion: Mapping[str, float],
        work: Mapping[str, float],
    ) -> float:
        """The value over the jobs that have a completion time; 0 without any."""
        costs = [self.cost(jobs[job], at, work[job]) for job, at in completion.items()]
        if self.aggregate == "max":
            return max(costs, default=0.0)
        return sum(costs)
