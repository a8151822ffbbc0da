"""The numeric problem of DMRS: jobs of whole tasks, on machines of different speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.costs import Floats, Ints


@dataclass(frozen=True)
class Stage:
    """Tasks that may run in parallel: the maps of a job, or its reduces.

    work    of each task, seconds on a machine of speed 1, > 0
    before  the stages of the job that must be done first, by index, all lower
    ready   the earliest start of its tasks, seconds: it may wait for running tasks
    follows whether it waits for stages that are done or have only running tasks left
    """

    work: Floats
    before: tuple[int, ...] = ()
    ready: float = 0.0
    follows: bool = False

    @cached_property
    def largest_first(self) -> list[int]:
        """Its tasks by work, the largest first; ties by number."""
        order: list[int] = np.argsort(-self.work, kind="stable").tolist()
        return order


@dataclass(frozen=True, slots=True)
class NumericJob:
    """Stages in topological order. A MapReduce job has two stages.

    `release` in seconds; `weight` > 0.
    """

    stages: tuple[Stage, ...]
    release: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class StageArrays:
    """The stages of all jobs in one row, job after job, for computations on arrays.

    total, largest  the work of all tasks of each stage, and of its largest task
    count           the number of tasks of each stage
    first           the index of the first stage of each job, followed by the number of stages
    arcs            for each place within a job, pairs of the stage there and one before it
    is_chain        for each job, whether each stage waits for exactly the stage before it
    """

    total: Floats
    largest: Floats
    count: Ints
    first: Ints
    arcs: list[Ints]
    is_chain: NDArray[np.bool_]

    @classmethod
    def of(cls, jobs: Sequence[NumericJob]) -> StageArrays:
        """The stages of these jobs. Each job needs a stage, and each stage a task."""
        stages = [stage for job in jobs for stage in job.stages]
        first = np.cumsum([0, *(len(job.stages) for job in jobs)])
        count = np.array([len(stage.work) for stage in stages])
        starts = np.cumsum(count) - count
        work = np.concatenate([stage.work for stage in stages])
        arcs: list[list[tuple[int, int]]] = []
        is_chain = np.ones(len(jobs), np.bool_)
        for number, (begin, job) in enumerate(zip(first.tolist(), jobs, strict=False)):
            while len(arcs) < len(job.stages):
                arcs.append([])
            for place, stage in enumerate(job.stages):
                if stage.before != ((place - 1,) if place else ()):
                    is_chain[number] = False
                arcs[place].extend((begin + place, begin + other) for other in stage.before)
        return cls(
            np.add.reduceat(work, starts),
            np.maximum.reduceat(work, starts),
            count,
            first,
            [np.array(pairs, np.int64).reshape(-1, 2) for pairs in arcs],
            is_chain,
        )


@dataclass(frozen=True)
class RelatedMachines:
    """N jobs and m machines, each of which runs one task at a time.

    speed  of each machine, > 0: a task of work w takes w / speed seconds there
    busy   when each machine becomes free, seconds; None means all are free
    """

    speed: Floats
    jobs: Sequence[NumericJob]
    busy: Floats | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def free(self) -> Floats:
        """When each machine becomes free, seconds."""
        return np.zeros(len(self.speed)) if self.busy is None else self.busy

    @cached_property
    def fastest(self) -> Floats:
        """Entry n - 1 is the total speed of the n fastest machines."""
        return np.cumsum(np.sort(self.speed)[::-1])

    def rate(self, tasks: Ints) -> Floats:
        """The maximum work per second of this number of tasks, > 0."""
        fastest: Floats = self.fastest[np.minimum(tasks, len(self.fastest)) - 1]
        return fastest

    @cached_property
    def stages(self) -> StageArrays:
        """The stages of all jobs, in one row."""
        return StageArrays.of(self.jobs)

    @cached_property
    def release(self) -> Floats:
        """The release of each job, seconds."""
        return np.array([job.release for job in self.jobs])

    @cached_property
    def earliest(self) -> Floats:
        """The earliest start of the tasks of each stage, for all jobs in one row, seconds."""
        ready = (max(job.release, stage.ready) for job in self.jobs for stage in job.stages)
        return np.array(list(ready))

    @cached_property
    def weight(self) -> Floats:
        """The weight of each job."""
        return np.array([job.weight for job in self.jobs])

    @cached_property
    def work(self) -> Floats:
        """The work of all tasks of each job: P_j, seconds at speed 1."""
        return np.add.reduceat(self.stages.total, self.stages.first[:-1])

    def value(self, completion: Floats) -> float:
        """The weighted sum of the completions of the jobs."""
        return float(self.weight @ completion)
