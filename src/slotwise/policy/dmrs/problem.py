"""The numeric problem of DMRS: jobs of whole tasks, on machines of different speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from slotwise.core.costs import Floats, Ints
from slotwise.core.tolerances import CLOSE
from slotwise.core.unbegun import JobGraphs


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


@dataclass(frozen=True, eq=False)
class JobColumns(Sequence[NumericJob]):
    """Jobs as arrays: their stages one after another, and the tasks of these.

    graphs           the stages of each job
    release, weight  of each job
    ready, follows   of each stage
    task_first       the index of the first task of each stage, followed by the number of tasks
    work             of each task
    largest_first    the indices of the tasks of each stage, the largest first; ties by number
    """

    graphs: JobGraphs
    release: Floats
    weight: Floats
    ready: Floats
    follows: NDArray[np.bool_]
    task_first: Ints
    work: Floats
    largest_first: Ints

    @classmethod
    def of(cls, jobs: Sequence[NumericJob]) -> JobColumns:
        """The columns of these jobs. Each job needs a stage, and each stage a task."""
        if isinstance(jobs, cls):
            return jobs
        stages = [stage for job in jobs for stage in job.stages]
        first = accumulate((len(job.stages) for job in jobs), initial=0)
        task_first = np.cumsum([0, *(len(stage.work) for stage in stages)])
        before = [
            [begin + other for other in stage.before]
            for begin, job in zip(first, jobs, strict=False)
            for stage in job.stages
        ]
        work = np.concatenate([stage.work for stage in stages])
        stage_of = np.repeat(np.arange(len(stages)), np.diff(task_first))
        return cls(
            JobGraphs.of([len(job.stages) for job in jobs], before),
            np.array([job.release for job in jobs]),
            np.array([job.weight for job in jobs]),
            np.array([stage.ready for stage in stages]),
            np.array([stage.follows for stage in stages]),
            task_first,
            work,
            np.lexsort((-work, stage_of)),
        )

    def __len__(self) -> int:
        return len(self.weight)

    @overload
    def __getitem__(self, which: int) -> NumericJob: ...

    @overload
    def __getitem__(self, which: slice) -> list[NumericJob]: ...

    def __getitem__(self, which: int | slice) -> NumericJob | list[NumericJob]:
        if isinstance(which, slice):
            return [self[number] for number in range(*which.indices(len(self)))]
        number = range(len(self))[which]
        first, end = self.graphs.first[number : number + 2].tolist()
        stages = tuple(self._stage(stage, first) for stage in range(first, end))
        return NumericJob(stages, float(self.release[number]), float(self.weight[number]))

    def _stage(self, stage: int, first: int) -> Stage:
        begin, end = self.graphs.before_first[stage : stage + 2].tolist()
        before = self.graphs.before[begin:end] - first
        return Stage(
            self.work[self.task_first[stage] : self.task_first[stage + 1]],
            tuple(before.tolist()),
            float(self.ready[stage]),
            bool(self.follows[stage]),
        )

    @cached_property
    def tasks(self) -> Ints:
        """The number of tasks of each stage."""
        return np.diff(self.task_first)

    @cached_property
    def total(self) -> Floats:
        """The work of all tasks of each stage."""
        return np.add.reduceat(self.work, self.task_first[:-1])

    @cached_property
    def largest(self) -> Floats:
        """The work of the largest task of each stage."""
        return self.work[self.largest_first[self.task_first[:-1]]]

    @cached_property
    def stage_of(self) -> Ints:
        """The stage of each task, by index among all."""
        return np.repeat(np.arange(len(self.tasks)), self.tasks)


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
    def columns(self) -> JobColumns:
        """The jobs as arrays."""
        return JobColumns.of(self.jobs)

    @property
    def release(self) -> Floats:
        """The release of each job, seconds."""
        return self.columns.release

    @property
    def weight(self) -> Floats:
        """The weight of each job."""
        return self.columns.weight

    @cached_property
    def earliest(self) -> Floats:
        """The earliest start of the tasks of each stage, for all jobs in one row, seconds."""
        stages = np.diff(self.columns.graphs.first)
        earliest: Floats = np.maximum(np.repeat(self.release, stages), self.columns.ready)
        return earliest

    @cached_property
    def work(self) -> Floats:
        """The work of all tasks of each job: P_j, seconds at speed 1."""
        return np.add.reduceat(self.columns.total, self.columns.graphs.first[:-1])

    def value(self, completion: Floats) -> float:
        """The weighted sum of the completions of the jobs."""
        return float(self.weight @ completion)


# Schedules of whole tasks: the machine and the time of each task.


class Run(NamedTuple):
    """One task on one machine; `start` and `end` in seconds. It may hold the machine before it
    can compute."""

    job: int
    stage: int
    task: int
    machine: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class RunColumns:
    """The runs of tasks as arrays, for schedules of which only a part is read.

    task  by index among all tasks of the problem
    """

    task: Ints
    machine: Ints
    start: Floats
    end: Floats

    @classmethod
    def of(cls, runs: Sequence[Run], jobs: JobColumns) -> RunColumns:
        """These runs of the tasks of these jobs, in the same order."""
        columns = [np.array(column) for column in zip(*runs, strict=True)]
        job, stage, task, machine, start, end = columns
        return cls(jobs.task_first[jobs.graphs.first[job] + stage] + task, machine, start, end)

    def runs(self, jobs: JobColumns) -> list[Run]:
        """The runs of the tasks of these jobs, in the same order."""
        stage = jobs.stage_of[self.task]
        columns = (
            jobs.graphs.first[1:].searchsorted(stage, side="right"),
            jobs.graphs.place[stage],
            self.task - jobs.task_first[stage],
            self.machine,
            self.start,
            self.end,
        )
        return list(map(Run, *(column.tolist() for column in columns)))

    def queued(self, jobs: JobColumns, hosts: Ints) -> Ints:
        """The places of the runs in queues: each run after all runs that it waits for.

        The queues are those of the `hosts` of the machines, by number, one after another. At
        late instants, short tasks may end when they begin, because of rounding. Then the tasks
        that wait for them begin at the same instant.
        """
        of_host = hosts[self.machine]
        places = np.lexsort((self.start, of_host))
        start, host = self.start[places], of_host[places]
        if ((start[1:] == start[:-1]) & (host[1:] == host[:-1])).any():
            stage = jobs.graphs.place[jobs.stage_of[self.task]]
            keys = (self.machine, stage, self.end > self.start, self.start, of_host)
            places = np.lexsort(keys)
        return places

    def find(self, task: int) -> int:
        """The place of the run of a task."""
        return int((self.task == task).argmax())


@dataclass(frozen=True, slots=True)
class Runs:
    """A schedule: the runs of all tasks, and the completion of each job, seconds."""

    runs: Sequence[Run]
    completion: Floats

    @classmethod
    def of(cls, problem: RelatedMachines, runs: Sequence[Run]) -> Runs:
        """The schedule of these runs."""
        completion = np.zeros(len(problem))
        for run in runs:
            completion[run.job] = max(completion[run.job], run.end)
        return cls(runs, completion)

    def check(self, problem: RelatedMachines) -> None:
        """Assert that it is feasible: each task once, alone, long enough and not too early."""
        tasks = {(run.job, run.stage, run.task) for run in self.runs}
        count = sum(len(stage.work) for job in problem.jobs for stage in job.stages)
        assert len(tasks) == len(self.runs) == count, "each task runs once"
        ends: dict[tuple[int, int], float] = {}
        for run in self.runs:
            work = problem.jobs[run.job].stages[run.stage].work[run.task]
            shortest = float(work / problem.speed[run.machine])
            rounded = CLOSE * (shortest + run.end)
            assert run.end - run.start >= shortest - rounded, (
                "a task takes its work over the speed"
            )
            assert run.start >= problem.jobs[run.job].release * (1 - CLOSE), "not released"
            key = run.job, run.stage
            ends[key] = max(ends.get(key, 0.0), run.end)
        by_machine: dict[int, list[Run]] = {}
        for run in self.runs:
            by_machine.setdefault(run.machine, []).append(run)
            work = problem.jobs[run.job].stages[run.stage].work[run.task]
            computes = run.end - float(work / problem.speed[run.machine])
            for other in problem.jobs[run.job].stages[run.stage].before:
                rounded = CLOSE * run.end
                assert computes >= ends[run.job, other] - rounded, "a stage waits for others"
        for mine in by_machine.values():
            mine.sort(key=lambda run: run.start)
            for one, after in pairwise(mine):
                assert after.start >= one.end * (1 - CLOSE), "one task at a time"
