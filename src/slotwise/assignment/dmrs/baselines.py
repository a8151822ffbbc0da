"""The schedulers with which the DMRS paper compares (DMRS VI)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from slotwise.assignment.dmrs.algorithm import list_jobs, program_order
from slotwise.assignment.dmrs.list_schedule import TaskLister
from slotwise.assignment.dmrs.problem import NumericJob, RelatedMachines
from slotwise.assignment.dmrs.schedule import Runs
from slotwise.objective.costs import Floats

SEED = 0
"""The seed for the random machines of Map-only."""


def identical_machine(problem: RelatedMachines) -> Runs:
    """Algorithm 1 for machines that all have the mean speed, run on the real machines."""
    mean = np.full(len(problem.speed), problem.speed.mean())
    planned = replace(problem, speed=mean)
    order = program_order(planned)
    runs = TaskLister(planned).runs(order).runs
    machine = {(run.job, run.stage, run.task): run.machine for run in runs}
    return list_jobs(problem, order, lambda job, stage, task, done: machine[job, stage, task])


def map_only(problem: RelatedMachines, seed: int = SEED) -> Runs:
    """Algorithm 1 for the maps only; all later tasks go to random machines.

    Maps are the stages that wait for nothing. Jobs without remaining maps come first. The same
    seed gives the same schedule.
    """
    sources = {
        number: places
        for number, job in enumerate(problem.jobs)
        if (places := [p for p, s in enumerate(job.stages) if not s.before and not s.follows])
    }
    order = [number for number in range(len(problem)) if number not in sources]
    machine: dict[tuple[int, int, int], int] = {}
    if sources:
        with_maps = list(sources)
        maps = [_part(problem.jobs[number], places) for number, places in sources.items()]
        planned = replace(problem, jobs=maps)
        by_maps = program_order(planned)
        order += [with_maps[place] for place in by_maps]
        for run in TaskLister(planned).runs(by_maps).runs:
            number = with_maps[run.job]
            machine[number, sources[number][run.stage], run.task] = run.machine
    chance = _numbers(seed)

    def where(job: int, stage: int, task: int, done: Floats) -> int:
        known = machine.get((job, stage, task))
        return int(next(chance) * len(problem.speed)) if known is None else known

    return list_jobs(problem, order, where)


def _part(job: NumericJob, places: Sequence[int]) -> NumericJob:
    """The job with these stages only, none of which waits for another."""
    return replace(job, stages=tuple(job.stages[place] for place in places))


def _numbers(seed: int) -> Iterator[float]:
    """Pseudo-random numbers in [0, 1), from Knuth's MMIX generator."""
    state = seed
    while True:
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        yield state / 2**64
