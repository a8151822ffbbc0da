"""LP-MapReduce: completions that no schedule can beat, and what they prove (DMRS III)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.allocation.bounds.contrapolymatroid import least_completions
from slotwise.dmrs.problem import Job, Uneven
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class Program:
    """The optimum of the linear program.

    completion  C_j of each job, seconds
    value       their weighted sum: no schedule has a lower one
    """

    completion: Floats
    value: float


def linear_program(problem: Uneven, *, with_tails: bool = True) -> Program:
    """The least weighted sum of completions that keep what every schedule keeps.

    For every set S of jobs, mu being the speed of all machines and P_j the work of a job,

        sum_S P_j C_j >= sum_S A_j + P(S)^2 / (2 mu)                                       (2)
        C_j >= r_j + the longest chain of its stages                                       (7)

    where a stage takes its work over the speed of as many machines as it has tasks, or its
    largest task on the fastest machine. These are 2^N inequalities and no ellipsoid is needed:
    `least_completions` solves them exactly. O(N^2).

    with_tails  A_j is what is left of a job in the mean if each stage is done as late as can
                be. Without it, P_j^2 / (2 mu_j) as in the paper, mu_j being the speed of as
                many machines as any of its stages has tasks
    """
    chains = [_Chains(problem, job) for job in problem.jobs]
    soonest = problem.release + np.array([chain.longest for chain in chains])
    if with_tails:
        alone = np.array([chain.late() for chain in chains])
    else:
        # Stages that lie side by side run side by side.
        rate = [problem.rate(_tasks_at_once(job)) for job in problem.jobs]
        alone = problem.work**2 / (2 * np.array(rate))
    mu = float(problem.speed.sum())
    completion = least_completions(problem.work, alone, mu, soonest, problem.weight)
    return Program(completion, problem.value(completion))


def skewness(problem: Uneven) -> float:
    """The task-skewness product D >= 1: each job's work is at least D times the sum of the
    largest tasks of its stages."""
    largest = [sum(stage.largest for stage in job.stages) for job in problem.jobs]
    return float(np.min(problem.work / np.array(largest)))


def guarantee(problem: Uneven) -> float:
    """What list scheduling by the program costs at most, beside its value (Theorem 1).

    2 (1 + (m - 1) / D), and 1 more where jobs are released later than at 0. The paper proves
    it for maps and reduces; for DAGs of stages see docs/algorithms/dmrs.md.
    """
    factor = 2 * (1 + (len(problem.speed) - 1) / skewness(problem))
    return factor + bool(problem.release.any())


class _Chains:
    """How long the stages of a job take at least, one behind the other."""

    def __init__(self, problem: Uneven, job: Job) -> None:
        self._job = job
        fastest = float(problem.fastest[0])
        self._spread = [stage.total / problem.rate(len(stage.work)) for stage in job.stages]
        length = [
            max(spread, stage.largest / fastest)
            for spread, stage in zip(self._spread, job.stages, strict=True)
        ]
        self._tail = [0.0] * len(length)
        for place in reversed(range(len(length))):
            through = self._tail[place] + length[place]
            for other in job.stages[place].before:
                self._tail[other] = max(self._tail[other], through)
        self.longest = max(tail + own for tail, own in zip(self._tail, length, strict=True))

    def late(self) -> float:
        """The work of the job times the time that is left of it then, in the mean, at least."""
        return sum(
            stage.total * (tail + spread / 2)
            for stage, tail, spread in zip(
                self._job.stages, self._tail, self._spread, strict=True
            )
        )


def _tasks_at_once(job: Job) -> int:
    counts = [len(stage.work) for stage in job.stages]
    is_chain = all(
        stage.before == ((place - 1,) if place else ())
        for place, stage in enumerate(job.stages)
    )
    return max(counts) if is_chain else sum(counts)
