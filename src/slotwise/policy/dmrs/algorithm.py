"""DMRS: Algorithm 1 from top to bottom, and its approximation ratio (DMRS III-C and IV).

Its fast parts are `linear_program` (line 1) and `TaskLister` (lines 3 to 17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slotwise.core.costs import Floats
from slotwise.policy.bounds.lines import least_completions
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.problem import RelatedMachines, Run, Runs


def dmrs(problem: RelatedMachines) -> Runs:
    """Algorithm 1. It costs at most `guarantee` times the value of the program (Theorem 1)."""
    order = program_order(problem)  # Lines 1 and 2.
    return TaskLister(problem).runs(order)  # Lines 3 to 17, as in `list_jobs`.


def program_order(problem: RelatedMachines) -> list[int]:
    """Lines 1 and 2: the jobs in order of their completions in the linear program."""
    return by_completion(linear_program(problem).completion)


def by_completion(completion: Floats) -> list[int]:
    """The jobs in ascending order of these completions; ties by place."""
    order: list[int] = np.argsort(completion, kind="stable").tolist()
    return order


Choice = Callable[[int, int, int, Floats], int]
"""choose(job, stage, task, done): the machine of a task; `done` is its end on each machine."""


def first_done(job: int, stage: int, task: int, done: Floats) -> int:
    """The choice of DMRS: the machine that completes the task first."""
    return int(done.argmin())


def list_jobs(
    problem: RelatedMachines, order: Sequence[int], choose: Choice = first_done
) -> Runs:
    """Lines 3 to 17: the schedule of the jobs in this order, task by task.

    The paper has two stages, maps and reduces; a job may have any DAG of stages. The baselines
    run this function with other choices. For `first_done`, `TaskLister` computes the same
    schedule faster. O(m) for each task, with numpy arrays.
    """
    free = problem.free.copy()  # Line 3: T_i.
    runs: list[Run] = []
    for number in order:  # Line 4.
        job = problem.jobs[number]
        ends: list[float] = []
        for place, stage in enumerate(job.stages):
            # Maps begin after the release of the job, reduces after its maps (line 12).
            earliest = max(job.release, stage.ready, *(ends[other] for other in stage.before))
            last = 0.0
            for task in stage.largest_first:  # Lines 5 and 11.
                begin = np.maximum(free, earliest)
                done = begin + stage.work[task] / problem.speed
                machine = choose(number, place, task, done)  # Lines 6 and 13: (20) and (21).
                start, end = float(begin[machine]), float(done[machine])
                runs.append(Run(number, place, task, machine, start, end))  # Lines 7 and 14.
                free[machine] = end  # Lines 8 and 15.
                last = max(last, end)
            ends.append(last)  # Line 10, after the maps.
    return Runs.of(problem, runs)


def guarantee(problem: RelatedMachines) -> float:
    """Theorem 1: the maximum ratio of the cost of Algorithm 1 to the value of the program.

    2 (1 + (m - 1) / D), plus 1 if jobs are released after 0. The paper proves it for maps and
    reduces; for DAGs of stages see docs/algorithms/dmrs.md.
    """
    factor = 2 * (1 + (len(problem.speed) - 1) / skewness(problem))
    return factor + bool(problem.release.any())


def skewness(problem: RelatedMachines) -> float:
    """The task-skewness product D >= 1: each job's work is at least D times the sum of the
    largest tasks of its stages."""
    jobs = problem.columns
    largest = np.add.reduceat(jobs.largest, jobs.graphs.first[:-1])
    return float(np.min(problem.work / largest))


# LP-MapReduce, the linear program of DMRS, which is also a lower bound (DMRS III-A and B).


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
            successor, predecessor = arcs.T
            np.maximum.at(tail, predecessor, tail[successor] + length[successor])
        starts = jobs.graphs.first[:-1]
        self.longest: Floats = np.maximum.reduceat(tail + length, starts)
        self.late: Floats = np.add.reduceat(jobs.total * (tail + spread / 2), starts)
        # Stages of a chain run one at a time; otherwise all stages may run at once.
        widest = np.maximum.reduceat(jobs.tasks, starts)
        at_once = np.where(jobs.graphs.is_chain, widest, np.add.reduceat(jobs.tasks, starts))
        self.rate: Floats = problem.rate(at_once)
