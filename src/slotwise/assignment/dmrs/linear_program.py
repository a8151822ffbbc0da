"""LP-MapReduce, the linear program of DMRS, which is also a lower bound (DMRS III-A and B)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.allocation.bounds.lines import least_completions
from slotwise.assignment.dmrs.problem import RelatedMachines
from slotwise.objective.costs import Floats


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """The optimum of the linear program.

    completion  C_j of each job, seconds
    value       their weighted sum: a lower bound for every schedule
    """

    completion: Floats
    value: float


def linear_program(problem: RelatedMachines, *, with_tails: bool = True) -> LinearProgram:
    """The minimum weighted sum of completions under constraints that every schedule keeps.

    For every set S of jobs, with mu the total speed of all machines and P_j the work of a job,

        sum_S P_j C_j >= sum_S A_j + P(S)^2 / (2 mu)                                       (2)
        C_j >= r_j + the longest chain of its stages                                       (7)

    where a stage takes at least its work over the speed of as many machines as it has tasks,
    and at least its largest task on the fastest machine. There are 2^N inequalities, but no
    ellipsoid method is needed: `least_completions` solves them exactly. O(N log N) if all jobs
    are present from the beginning, O(N^2) in the worst case.

    with_tails  A_j is the work times the mean remaining time of a job with each stage as late
                as possible, if that is more than the paper's P_j^2 / (2 mu_j), where mu_j is
                the speed of as many machines as the job can have running tasks
    """
    chains = _Chains(problem)
    soonest = problem.release + chains.longest
    alone = problem.work**2 / (2 * chains.rate)
    if with_tails:
        alone = np.maximum(alone, chains.late)
    mu = float(problem.speed.sum())
    completion = least_completions(problem.work, alone, mu, soonest, problem.weight)
    return LinearProgram(completion, problem.value(completion))


class _Chains:
    """Minimum times of the stages of each job in sequence.

    longest  the longest chain, seconds
    late     the work of the job times its minimum mean remaining time
    rate     the maximum work of the job per second
    """

    def __init__(self, problem: RelatedMachines) -> None:
        jobs = problem.columns
        rates = problem.rate(jobs.tasks)
        spread = jobs.total / rates
        length = np.maximum(spread, jobs.largest / float(problem.fastest[0]))
        tail = np.zeros(len(spread))
        # A job has one stage at each place, so a pass handles each stage once.
        for arcs in reversed(jobs.graphs.arcs):
            behind, ahead = arcs.T
            np.maximum.at(tail, ahead, tail[behind] + length[behind])
        starts = jobs.graphs.first[:-1]
        self.longest: Floats = np.maximum.reduceat(tail + length, starts)
        self.late: Floats = np.add.reduceat(jobs.total * (tail + spread / 2), starts)
        # Stages of a chain run one at a time; otherwise all stages may run at once.
        widest = np.maximum.reduceat(jobs.tasks, starts)
        at_once = np.where(jobs.graphs.is_chain, widest, np.add.reduceat(jobs.tasks, starts))
        self.rate: Floats = problem.rate(at_once)
