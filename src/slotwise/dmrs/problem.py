"""The numeric problem of DMRS: jobs of whole tasks, on machines of different speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slotwise.objective.costs import Floats


@dataclass(frozen=True)
class Stage:
    """Tasks that may run side by side: the maps of a job, or its reduces.

    work    of each task, seconds on a machine of speed 1, > 0
    before  the stages of the job that must be done first, by their places, all lower
    """

    work: Floats
    before: tuple[int, ...] = ()

    @cached_property
    def total(self) -> float:
        """The work of all of its tasks."""
        return float(self.work.sum())

    @cached_property
    def largest(self) -> float:
        """The work of its largest task."""
        return float(self.work.max())

    @cached_property
    def largest_first(self) -> list[int]:
        """Its tasks by their work, the largest first; ties by number."""
        order: list[int] = np.argsort(-self.work, kind="stable").tolist()
        return order


@dataclass(frozen=True, slots=True)
class Job:
    """Stages in an order in which each stands behind those that it waits for.

    A MapReduce job is two of them. `release` in seconds; `weight` > 0.
    """

    stages: tuple[Stage, ...]
    release: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class Uneven:
    """N jobs and m machines, each of which runs one task at a time.

    speed  of each machine, > 0: a task of work w takes w / speed seconds there
    """

    speed: Floats
    jobs: Sequence[Job]

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def fastest(self) -> Floats:
        """Entry n - 1: the speeds of the n fastest machines together."""
        return np.cumsum(np.sort(self.speed)[::-1])

    def rate(self, tasks: int) -> float:
        """The most work that so many tasks can have done in a second."""
        return float(self.fastest[min(tasks, len(self.fastest)) - 1])

    @cached_property
    def release(self) -> Floats:
        """Of each job, seconds."""
        return np.array([job.release for job in self.jobs])

    @cached_property
    def weight(self) -> Floats:
        """Of each job."""
        return np.array([job.weight for job in self.jobs])

    @cached_property
    def work(self) -> Floats:
        """Of all tasks of each job: P_j, seconds at speed 1."""
        return np.array([sum(stage.total for stage in job.stages) for job in self.jobs])

    def value(self, completion: Floats) -> float:
        """The weighted sum of the completions of the jobs."""
        return float(self.weight @ completion)
