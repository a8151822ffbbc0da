"""Schedules of whole tasks: the machine and the time of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from slotwise.allocation.tolerances import CLOSE
from slotwise.assignment.dmrs.problem import JobColumns, RelatedMachines
from slotwise.objective.costs import Floats, Ints


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
