"""The schedulers that DMRS was compared with (DMRS VI)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    runs = Lister(planned).runs(order).runs
    machine = {(run.job, run.stage, run.task): run.machine for run in runs}
    return keep_queues(problem, order, lambda job, stage, task: machine[job, stage, task])


def map_only(problem: Uneven, seed: int = SEED) -> Runs:
    """Algorithm 1 for the maps alone; all later tasks go to machines taken at random.

    Maps are the stages that wait for nothing.
    """
    sources = [
        [place for place, stage in enumerate(job.stages) if not stage.before]
        for job in problem.jobs
    ]
    maps = [
        replace(job, stages=tuple(job.stages[place] for place in places))
        for job, places in zip(problem.jobs, sources, strict=True)
    ]
    planned = Uneven(problem.speed, maps)
    order = by_completion(linear_program(planned).completion)
    machine = {
        (run.job, sources[run.job][run.stage], run.task): run.machine
        for run in Lister(planned).runs(order).runs
    }
    chance = _numbers(seed)

    def where(job: int, stage: int, task: int) -> int:
        known = machine.get((job, stage, task))
        return int(next(chance) * len(problem.speed)) if known is None else known

    return keep_queues(problem, order, where)


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


def _numbers(seed: int) -> Iterator[float]:
    """Numbers from 0 to 1, 1 excluded, without a pattern that one would see (Knuth's MMIX)."""
    state = seed
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield state / 2**64
