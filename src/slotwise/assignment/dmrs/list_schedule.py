"""Lines 3 to 17 of Algorithm 1 for many orders of the jobs, on plain numbers or compiled.

`list_jobs` in `algorithm.py` shows the same loop step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from slotwise.allocation.compiled import FLOATS, INTS, Numbers, compiled, has_numba, is_loaded
from slotwise.assignment.dmrs.problem import RelatedMachines
from slotwise.assignment.dmrs.schedule import RunColumns, Runs
from slotwise.objective.costs import Floats

COMPILED_FROM = 2_000_000
"""Tasks times machines; below this, loading machine code takes longer than it saves."""


class TaskLister:
    """Computes the schedules of `list_jobs` for many orders, in machine code if that pays off.

    asked  the approximate number of schedules to compute
    """

    def __init__(self, problem: RelatedMachines, asked: float = 1) -> None:
        self._problem = problem
        of_jobs = [len(job.stages) for job in problem.jobs]
        first = np.cumsum([0, *of_jobs])
        stages = [stage for job in problem.jobs for stage in job.stages]
        counts = [len(stage.work) for stage in stages]
        task_first = np.cumsum([0, *counts])
        # The stage of each task in the row of all stages, and the tasks, the largest first.
        row = np.repeat(np.arange(len(stages)), counts)
        work = np.concatenate([stage.work for stage in stages])
        largest = np.lexsort((-work, row))
        job = np.repeat(np.arange(len(of_jobs)), of_jobs)[row]
        self._tasks = job, row - first[job], largest - task_first[row]
        before = [
            [begin + other for other in stage.before]
            for begin, job in zip(first.tolist(), problem.jobs, strict=False)
            for stage in job.stages
        ]
        numbers = (
            problem.speed.astype(float),
            problem.free.astype(float),
            problem.earliest,
            first,
            task_first,
            work[largest],
            np.cumsum([0, *map(len, before)]),
            np.array([other for others in before for other in others], dtype=np.int64),
        )
        self._stages, self._count = len(stages), len(work)
        is_large = self._count * len(problem.speed) * asked >= COMPILED_FROM
        self._is_fast = (is_large or is_loaded()) and has_numba()
        self._numbers = numbers if self._is_fast else [n.tolist() for n in numbers]

    def completions(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> Floats:
        """The completion of each job, seconds.

        fills    whether gaps are used, too (`run_tasks`)
        slowest  the minimum speed of the machines of each stage, for the stages of all jobs in
                 one row; at most the largest speed. Without it, all machines are allowed
        """
        first = self._numbers[3]
        ends, *_ = self._run(order, fills, slowest)
        done: Floats = np.maximum.reduceat(np.asarray(ends), np.asarray(first[:-1]))
        return done

    def runs(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> Runs:
        """The whole schedule."""
        return Runs.of(self._problem, self.placed(order, fills, slowest).runs())

    def placed(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> RunColumns:
        """The whole schedule in arrays."""
        _, machine, start, end = self._run(order, fills, slowest)
        machines = np.asarray(machine, np.int64)
        return RunColumns(*self._tasks, machines, np.asarray(start), np.asarray(end))

    def _run(
        self, order: Sequence[int], fills: bool, slowest: Sequence[float] | None
    ) -> tuple[Numbers, ...]:
        count, stages = self._count, self._stages
        floors = [0.0] * stages if slowest is None else list(slowest)
        if self._is_fast:
            ends, start, end = np.zeros(stages), np.zeros(count), np.zeros(count)
            machine = np.zeros(count, np.int64)
            run = compiled(run_tasks, RUN_TASKS)
            which = np.array(order, np.int64), np.array(floors)
            run(*self._numbers, *which, fills, ends, machine, start, end)
            return ends, machine, start, end
        lists = [0.0] * stages, [0] * count, [0.0] * count, [0.0] * count
        numbers = [*self._numbers, list(order), floors, fills, *lists]
        run_tasks(*numbers)
        return lists


def run_tasks(
    speed: Numbers,
    free_from: Numbers,
    earliest: Numbers,
    stage_first: Numbers,
    task_first: Numbers,
    work: Numbers,
    before_first: Numbers,
    before: Numbers,
    order: Numbers,
    slowest: Numbers,
    fills: bool,
    ends: Numbers,
    machine: Numbers,
    start: Numbers,
    end: Numbers,
) -> None:
    """`list_jobs` on plain numbers: fill in the end of each stage, and the run of each task.

    slowest  of each stage: its tasks do not run on slower machines
    fills    a task may also run in a gap in which its machine waits for a stage, if that
             completes it first and before the gap ends: no placed task is delayed. Each task
             then considers all gaps
    """
    machines, smallest = len(speed), min(work)
    free = [free_from[i] for i in range(machines)]
    gap_machine, gap_start, gap_end = [0] * 0, [0.0] * 0, [0.0] * 0
    for number in order:  # Line 4.
        for stage in range(stage_first[number], stage_first[number + 1]):
            # The earliest start of a map or, by line 12, of a reduce.
            floor, ready = slowest[stage], earliest[stage]
            for arc in range(before_first[stage], before_first[stage + 1]):
                ready = max(ready, ends[before[arc]])
            last = 0.0
            # Lines 5 to 9 or 11 to 16.
            for task in range(task_first[stage], task_first[stage + 1]):
                best, place, gap = inf, 0, -1
                for i in range(machines):
                    done = max(free[i], ready) + work[task] / speed[i]
                    if done < best and speed[i] >= floor:
                        best, place = done, i
                for g in range(len(gap_machine)):
                    done = max(gap_start[g], ready) + work[task] / speed[gap_machine[g]]
                    if done < best and done <= gap_end[g] and speed[gap_machine[g]] >= floor:
                        best, place, gap = done, gap_machine[g], g
                if gap >= 0:
                    begin, idle_from, idle_until = (
                        max(gap_start[gap], ready),
                        best,
                        gap_end[gap],
                    )
                    gap_end[gap] = begin
                    if (begin - gap_start[gap]) * speed[place] < smallest:
                        gap_machine[gap], gap_start[gap] = gap_machine[-1], gap_start[-1]
                        gap_end[gap] = gap_end[-1]
                        gap_machine.pop()
                        gap_start.pop()
                        gap_end.pop()
                else:
                    begin = max(free[place], ready)
                    idle_from, idle_until = free[place], begin
                    free[place] = best
                if fills and (idle_until - idle_from) * speed[place] >= smallest:
                    gap_machine.append(place)
                    gap_start.append(idle_from)
                    gap_end.append(idle_until)
                machine[task], start[task], end[task] = place, begin, best
                last = max(last, best)
            ends[stage] = last


RUN_TASKS = (
    f"void({FLOATS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {FLOATS}, {INTS}, {INTS}, {INTS},"
    f" {FLOATS}, boolean, {FLOATS}, {INTS}, {FLOATS}, {FLOATS})"
)
"""The types of the arguments of `run_tasks`, in order."""
