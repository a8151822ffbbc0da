"""DMRS: Algorithm 1 from top to bottom, and its approximation ratio (DMRS III-C and IV).

Its fast parts are `linear_program` (line 1) and `TaskLister` (lines 3 to 17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from slotwise.assignment.dmrs.linear_program import linear_program
from slotwise.assignment.dmrs.list_schedule import TaskLister
from slotwise.assignment.dmrs.problem import RelatedMachines
from slotwise.assignment.dmrs.schedule import Run, Runs
from slotwise.objective.costs import Floats


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
