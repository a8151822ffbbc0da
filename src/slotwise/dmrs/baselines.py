"""The schedulers that DMRS was compared with (DMRS VI)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slotwise.dmrs.listing import Lister, by_completion
from slotwise.dmrs.problem import Uneven
from slotwise.dmrs.program import linear_program
from slotwise.dmrs.schedule import Run, Runs

SEED = 0
"""For the machines that Map-only takes at random."""


def identical_machine(problem: Uneven) -> Runs:
    """Algorithm 1 for machines that all have the mean speed, run on those that there are."""
    mean = np.full(len(problem.speed), problem.speed.mean())
    planned = Uneven(mean, problem.jobs)
    order = by_completion(linear_program(planned).completion)
    machine = _machines(Lister(planned).runs(order))
    return keep_queues(problem, order, lambda job, stage, task: machine[job, stage, task])


def map_only(problem: Uneven, seed: int = SEED) -> Runs:
    """Algorithm 1 for the maps alone; all later tasks go to machines taken at random."""
    maps = Uneven(problem.speed, [replace(job, stages=job.stages[:1]) for job in problem.jobs])
    order = by_completion(linear_program(maps).completion)
    machine = _machines(Lister(maps).runs(order))
    rng = np.random.default_rng(seed)
    for number, job in enumerate(problem.jobs):
        for place, stage in enumerate(job.stages[1:], start=1):
            taken = rng.integers(len(problem.speed), size=len(stage.work)).tolist()
            machine |= {(number, place, task): one for task, one in enumerate(taken)}
    return keep_queues(problem, order, lambda job, stage, task: machine[job, stage, task])


def keep_queues(
    problem: Uneven, order: Sequence[int], machine: Callable[[int, int, int], int]
) -> Runs:
    """Every machine runs the tasks that are meant for it as soon as it can, one by one.

    A machine's queue goes by the order of the jobs, then by stage, the largest task first: as
    Algorithm 1 hands tasks out.

    machine  of a job, a stage and a task
    """
    free = [0.0] * len(problem.speed)
    runs: list[Run] = []
    for number in order:
        job = problem.jobs[number]
        ends: list[float] = []
        for place, stage in enumerate(job.stages):
            ready = max([ends[other] for other in stage.before], default=job.release)
            last = 0.0
            for task in stage.largest_first:
                where = machine(number, place, task)
                begin = max(free[where], ready)
                done = begin + float(stage.work[task] / problem.speed[where])
                runs.append(Run(number, place, task, where, begin, done))
                free[where], last = done, max(last, done)
            ends.append(last)
    return Runs.of(problem, runs)


def _machines(runs: Runs) -> dict[tuple[int, int, int], int]:
    return {(run.job, run.stage, run.task): run.machine for run in runs.runs}
