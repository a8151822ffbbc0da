"""Lines 3 to 17 of Algorithm 1 for many orders of the jobs, on plain numbers or compiled.

`list_jobs` in `algorithm.py` shows the same loop step by step."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.policy.compiled import FLOATS, INTS, Numbers, compiled, has_numba, is_loaded
from slotwise.policy.dmrs.problem import RelatedMachines, RunColumns, Runs

COMPILED_FROM = 2_000_000
"""Tasks times machines; below this, loading machine code takes longer than it saves."""


KEPT = 16
"""The number of schedules that a `TaskLister` keeps."""


class TaskLister:
    """Computes the schedules of `list_jobs` for many orders, in machine code if that pays off.

    The last few schedules are kept: a search often asks for one of them again.

    asked  the approximate number of schedules to compute
    """

    def __init__(self, problem: RelatedMachines, asked: float = 1) -> None:
        self.problem = problem
        jobs = problem.columns
        numbers = (
            problem.speed.astype(float),
            problem.free.astype(float),
            problem.earliest,
            jobs.graphs.first,
            jobs.task_first,
            jobs.work[jobs.largest_first],
            jobs.graphs.before_first,
            jobs.graphs.before,
        )
        self._stages, self._count = len(jobs.tasks), len(jobs.work)
        is_large = self._count * len(problem.speed) * asked >= COMPILED_FROM
        self._is_fast = (is_large or is_loaded()) and has_numba()
        self._numbers = numbers if self._is_fast else [n.tolist() for n in numbers]
        self._kept: dict[tuple[bytes, bool], tuple[Numbers, ...]] = {}

    def completions(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> Floats:
        """The completion of each job, seconds.

        order    of the jobs; a job that is not in it gets no runs, and completes at 0
        fills    whether gaps are used, too (`run_tasks`)
        slowest  the minimum speed of the machines of each stage, for the stages of all jobs in
                 one row; at most the largest speed. Without it, all machines are allowed
        """
        ends, *_ = self._run(order, fills, slowest)
        first = self.problem.columns.graphs.first
        done: Floats = np.maximum.reduceat(np.asarray(ends), first[:-1])
        return done

    def runs(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> Runs:
        """The whole schedule."""
        placed = self.placed(order, fills, slowest)
        return Runs.of(self.problem, placed.runs(self.problem.columns))

    def placed(
        self, order: Sequence[int], fills: bool = False, slowest: Sequence[float] | None = None
    ) -> RunColumns:
        """The whole schedule in arrays."""
        _, machine, start, end = self._run(order, fills, slowest)
        machines = np.asarray(machine, np.int64)
        tasks = self.problem.columns.largest_first
        return RunColumns(tasks, machines, np.asarray(start), np.asarray(end))

    def _run(
        self, order: Sequence[int], fills: bool, slowest: Sequence[float] | None
    ) -> tuple[Numbers, ...]:
        """The end of each stage; the machine, the start and the end of each task."""
        numbers = np.array(order, np.int64)
        if slowest is not None:
            return self._computed(numbers, fills, slowest)
        key = numbers.tobytes(), fills
        if key not in self._kept:
            if len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = self._computed(numbers, fills, np.zeros(self._stages))
        return self._kept[key]

    def _computed(
        self, order: Ints, fills: bool, slowest: Sequence[float] | Floats
    ) -> tuple[Numbers, ...]:
        count, places = self._count, self._count + len(self.problem.speed)
        ends, start, end = np.zeros(self._stages), np.zeros(count), np.zeros(count)
        machine = np.zeros(count, np.int64)
        rooms = np.empty(places, np.int64), *np.empty((4, places))
        which, found = (order, np.array(slowest)), (ends, machine, start, end)
        if self._is_fast:
            run = compiled(run_tasks, RUN_TASKS, never_by_zero=True)
            run(*self._numbers, *which, fills, *rooms, *found)
            return found
        lists = [column.tolist() for column in found]
        given = [column.tolist() for column in which], [room.tolist() for room in rooms]
        numbers: list[Numbers] = [*self._numbers, *given[0], fills, *given[1], *lists]
        run_tasks(*numbers)
        return tuple(lists)


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
    room: Numbers,
    rate: Numbers,
    since: Numbers,
    until: Numbers,
    done: Numbers,
    ends: Numbers,
    machine: Numbers,
    start: Numbers,
    end: Numbers,
) -> None:
    """`list_jobs` on plain numbers: fill in the end of each stage, and the run of each task.

    A task goes where it is completed first: to a machine, after all its tasks, or into a gap,
    in which its machine waits for a stage, if it is completed before the gap ends. So no placed
    task is delayed. Places are the machines and then the gaps; `room` to `done` are for notes
    on each: its machine and speed, when it begins and ends, and when a task would end there.

    slowest  of each stage: its tasks do not run on slower machines
    fills    whether gaps are used. Each task then considers all gaps
    """
    machines, smallest = len(speed), min(work) if fills else inf
    places = machines
    for i in range(machines):
        room[i], rate[i], since[i], until[i] = i, speed[i], free_from[i], inf
    for number in order:  # Line 4.
        for stage in range(stage_first[number], stage_first[number + 1]):
            # The earliest start of a map or, by line 12, of a reduce.
            floor, ready = slowest[stage], earliest[stage]
            for arc in range(before_first[stage], before_first[stage + 1]):
                ready = max(ready, ends[before[arc]])
            last = 0.0
            # Lines 5 to 9 or 11 to 16. The first loop computes several numbers at once.
            for task in range(task_first[stage], task_first[stage + 1]):
                size = work[task]
                for p in range(places):
                    over = max(since[p], ready) + size / rate[p]
                    done[p] = over if (over <= until[p]) & (rate[p] >= floor) else inf
                best, place = done[0], 0
                for p in range(1, places):
                    if done[p] < best:
                        best, place = done[p], p
                i, begin = room[place], max(since[place], ready)
                if place < machines:
                    idle_from, idle_until = since[place], begin
                    since[place] = best
                else:
                    idle_from, idle_until = best, until[place]
                    until[place] = begin
                    if (begin - since[place]) * rate[place] < smallest:
                        places -= 1
                        room[place], rate[place] = room[places], rate[places]
                        since[place], until[place] = since[places], until[places]
                if fills and (idle_until - idle_from) * speed[i] >= smallest:
                    room[places], rate[places] = i, speed[i]
                    since[places], until[places] = idle_from, idle_until
                    places += 1
                machine[task], start[task], end[task] = i, begin, best
                last = max(last, best)
            ends[stage] = last


RUN_TASKS = (
    f"void({FLOATS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {FLOATS}, {INTS}, {INTS}, {INTS},"
    f" {FLOATS}, boolean, {INTS}, {FLOATS}, {FLOATS}, {FLOATS}, {FLOATS}, {FLOATS}, {INTS},"
    f" {FLOATS}, {FLOATS})"
)
"""The types of the arguments of `run_tasks`, in order."""
