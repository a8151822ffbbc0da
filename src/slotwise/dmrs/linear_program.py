"""LP-MapReduce: completions that no schedule can beat, and what they prove (DMRS III)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.allocation.bounds.contrapolymatroid import least_completions
from slotwise.dmrs.problem import RelatedMachines
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """The optimum of the linear program.

    completion  C_j of each job, seconds
    value       their weighted sum: no schedule has a lower one
    """

    completion: Floats
    value: float


def linear_program(problem: RelatedMachines, *, with_tails: bool = True) -> LinearProgram:
    """The least weighted sum of completions that keep what every schedule keeps.

    For every set S of jobs, mu being the speed of all machines and P_j the work of a job,

        sum_S P_j C_j >= sum_S A_j + P(S)^2 / (2 mu)                                       (2)
        C_j >= r_j + the longest chain of its stages                                       (7)

    where a stage takes its work over the speed of as many machines as it has tasks, or its
    largest task on the fastest machine. These are 2^N inequalities and no ellipsoid is needed:
    `least_completions` solves them exactly. O(N) where jobs are there from the beginning, and
    O(N^2) at worst.

    with_tails  A_j is what is left of a job in the mean if each stage is done as late as can
                be, where that is more than P_j^2 / (2 mu_j) as in the paper, mu_j being the
                speed of as many machines as the job can have tasks running
    """
    chains = _Chains(problem)
    soonest = problem.release + chains.longest
    alone = problem.work**2 / (2 * chains.rate)
    if with_tails:
        alone = np.maximum(alone, chains.late)
    mu = float(problem.speed.sum())
    completion = least_completions(problem.work, alone, mu, soonest, problem.weight)
    return LinearProgram(completion, problem.value(completion))


def skewness(problem: RelatedMachines) -> float:
    """The task-skewness product D >= 1: each job's work is at least D times the sum of the
    largest tasks of its stages."""
    stages = problem.stages
    largest = np.add.reduceat(stages.largest, stages.first[:-1])
    return float(np.min(problem.work / largest))


def guarantee(problem: RelatedMachines) -> float:
    """What list scheduling by the program costs at most, beside its value (Theorem 1).

    2 (1 + (m - 1) / D), and 1 more where jobs are released later than at 0. The paper proves
    it for maps and reduces; for DAGs of stages see docs/algorithms/dmrs.md.
    """
    factor = 2 * (1 + (len(problem.speed) - 1) / skewness(problem))
    return factor + bool(problem.release.any())


class _Chains:
    """How long the stages of each job take at least, one behind the other.

    longest  the longest chain, seconds
    late     the work of the job times the time that is left of it then, in the mean, at least
    rate     the most of its work that can be done in a second
    """

    def __init__(self, problem: RelatedMachines) -> None:
        stages = problem.stages
        rates = problem.rate(stages.count)
        spread = stages.total / rates
        length = np.maximum(spread, stages.largest / float(problem.fastest[0]))
        tail = np.zeros(len(spread))
        # A job has one stage at each place, so no stage is met twice in a pass.
        for arcs in reversed(stages.arcs):
            behind, ahead = arcs.T
            np.maximum.at(tail, ahead, tail[behind] + length[behind])
        starts = stages.first[:-1]
        self.longest: Floats = np.maximum.reduceat(tail + length, starts)
        self.late: Floats = np.add.reduceat(stages.total * (tail + spread / 2), starts)
        # Stages that lie side by side run side by side.
        max_share = np.maximum.reduceat(stages.count, starts)
        at_once = np.where(stages.is_chain, max_share, np.add.reduceat(stages.count, starts))
        self.rate: Floats = problem.rate(at_once)
