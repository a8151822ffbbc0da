"""Planners of whole tasks by name: DMRS, our improvement of it, and other schedulers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from slotwise.core.costs import Floats
from slotwise.policy.dmrs.algorithm import list_jobs, program_order
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Run, Runs

if TYPE_CHECKING:
    from slotwise.policy.dmrs.problem import RelatedMachines, Runs
    from slotwise.policy.search.budget import Budget


# Each planner imports its module when it is called: the command line only lists the names.


def _dmrs(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.policy.dmrs.algorithm import dmrs

    return dmrs(problem)


def _dmrs_best(problem: RelatedMachines, budget: Budget) -> Runs:
    from slotwise.policy.dmrs.search import best_found

    return best_found(problem, budget)


def _fifo(problem: RelatedMachines, budget: Budget) -> Runs:

    return fifo(problem)


def _identical_machine(problem: RelatedMachines, budget: Budget) -> Runs:

    return identical_machine(problem)


def _map_only(problem: RelatedMachines, budget: Budget) -> Runs:

    return map_only(problem)


PLANNERS: Mapping[str, Callable[[RelatedMachines, Budget], Runs]] = MappingProxyType(
    {
        "dmrs": _dmrs,
        "dmrs-best": _dmrs_best,
        "fifo": _fifo,
        "identical-machine": _identical_machine,
        "map-only": _map_only,
    }
)
"""The schedulers of whole tasks by name. Only those that search use the budget."""


# The schedulers with which the DMRS paper compares (DMRS VI).

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


# FIFO as in Hadoop: jobs in order of release, the first free machine, early reduces.


def fifo(problem: RelatedMachines) -> Runs:
    """Jobs by release, each task on the first free machine (DMRS VI).

    Tasks of a later stage may take a machine before their job's earlier tasks are done, once
    fewer of those are pending than machines are not held by waiting tasks. Then they hold the
    machine and wait, which slows FIFO down when they hold fast machines. O(log m + unfinished
    jobs) for each task.
    """
    return _Fifo(problem).run()


class _Fifo:
    """An event simulation of the machines and the remaining tasks of each job."""

    def __init__(self, problem: RelatedMachines) -> None:
        self._problem = problem
        release = problem.release.tolist()
        jobs = range(len(problem))
        self._turn = deque(sorted(jobs, key=lambda job: (release[job], job)))
        self._pending = [[deque(s.largest_first) for s in job.stages] for job in problem.jobs]
        self._left = [[len(s.work) for s in job.stages] for job in problem.jobs]
        self._waiting: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
        self._held = 0
        self._runs: list[Run] = []
        self._idle: set[int] = set()
        # Events: the release of a job, the start of a machine, or the end of a run on one.
        self._events: list[tuple[float, int, Run | None]] = [
            *((at, -1, None) for at in set(release)),
            *((0.0, machine, None) for machine in range(len(problem.speed))),
        ]
        heapify(self._events)

    def run(self) -> Runs:
        """Process all events; returns the schedule."""
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, machine, ended = heappop(self._events)
                if machine >= 0:
                    self._idle.add(machine)
                if ended is not None:
                    self._end(ended, now)
            for machine in sorted(self._idle):
                if self._launch(machine, now):
                    self._idle.discard(machine)
                elif not self._turn or self._problem.jobs[self._turn[0]].release > now:
                    break  # The other machines get no task either.
        return Runs.of(self._problem, self._runs)

    def _end(self, run: Run, now: float) -> None:
        """End a run; tasks that waited for its stage can compute now."""
        self._left[run.job][run.stage] -= 1
        for stage in range(len(self._left[run.job])):
            if self._is_ready(run.job, stage):
                for task, machine, since in self._waiting.pop((run.job, stage), []):
                    self._held -= 1
                    self._compute(run.job, stage, task, machine, since, now)

    def _launch(self, machine: int, now: float) -> bool:
        """Give a machine the next task that may take it; whether there is one."""
        while self._turn and not any(self._pending[self._turn[0]]):
            self._turn.popleft()
        for number in self._turn:
            if self._problem.jobs[number].release > now:
                return False
            unbegun = 0
            for stage, pending in enumerate(self._pending[number]):
                if not pending:
                    continue
                if self._is_ready(number, stage):
                    self._compute(number, stage, pending.popleft(), machine, now, now)
                    return True
                if unbegun < len(self._problem.speed) - self._held:
                    waits = self._waiting.setdefault((number, stage), [])
                    waits.append((pending.popleft(), machine, now))
                    self._held += 1
                    return True
                unbegun += len(pending)
        return False

    def _compute(
        self, job: int, stage: int, task: int, machine: int, since: float, now: float
    ) -> None:
        work = self._problem.jobs[job].stages[stage].work[task]
        end = now + float(work / self._problem.speed[machine])
        run = Run(job, stage, task, machine, since, end)
        self._runs.append(run)
        heappush(self._events, (end, machine, run))

    def _is_ready(self, job: int, stage: int) -> bool:
        left = self._left[job]
        return all(left[other] == 0 for other in self._problem.jobs[job].stages[stage].before)
