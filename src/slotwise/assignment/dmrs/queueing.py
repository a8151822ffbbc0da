"""DMRS at run time: a queue for each host, replanned when estimates change (DMRS V)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, takewhile

import numpy as np

from slotwise.allocation.search.budget import Budget
from slotwise.allocation.tolerances import CLOSE
from slotwise.assignment.dmrs.algorithm import by_completion, program_order
from slotwise.assignment.dmrs.baselines import identical_machine, map_only
from slotwise.assignment.dmrs.list_schedule import TaskLister
from slotwise.assignment.dmrs.problem import RelatedMachines
from slotwise.assignment.dmrs.remaining import Remaining, remaining
from slotwise.assignment.dmrs.schedule import RunColumns
from slotwise.assignment.dmrs.search import best_order
from slotwise.assignment.giving_up import give_up
from slotwise.estimation.corrections import Corrected, corrected
from slotwise.model.decision import Decision, Enqueue, Launch
from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Snapshot
from slotwise.objective.costs import Ints

LISTINGS = 1_000
"""The approximate number of list schedules in a run, enough to make machine code worthwhile."""

LIST_SECONDS = 1.4e-7
"""The approximate time of a list schedule in Python per task and machine. It converts a budget
in seconds into one in steps, so that a run is decided in the same way on every machine."""

MORE_MACHINES = 4
"""The fixed time per task in a list schedule, as a number of machines."""

BUDGET_SECONDS = 0.01
"""For the search at each plan, by default."""

EVERY = slice(None)
"""All places of a schedule."""

Task = tuple[PhaseId, int]


@dataclass(frozen=True, slots=True)
class Queueing:
    """A queue for each host: when a slot is free, the head of its host's queue runs.

    When jobs, tasks or hosts come or go, `plan` plans all tasks that have not begun, for
    example by Algorithm 1. Before each launch, the ends of running tasks are estimated again
    from the finished tasks (`corrected`), and all tasks before it in the plan are listed again.
    If another machine would now complete the task earlier by (20) and (21), all tasks that have
    not begun are planned again. A head whose phase is not ready keeps its slot idle, as
    planned.

    plan     from the remaining problem and the previous order of its jobs, a new order of the
             jobs and a schedule
    checks   whether plans are checked before each launch; if not, plans change only when jobs,
             tasks or hosts come or go
    fills    whether other tasks use gaps before a task; gaps are then searched whenever slots
             idle

    A plan costs as much as `plan`. A launch costs a list schedule of the jobs up to its own,
    with `fills` of all jobs.
    """

    plan: Callable[[RelatedMachines, Sequence[int]], tuple[Sequence[int], RunColumns]]
    checks: bool = True
    fills: bool = False

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there are no more."""
        if snapshot.doomed:
            return give_up(snapshot)
        queues = snapshot.queues
        if queues.is_outdated:
            return [self._enqueue(snapshot, _estimates(snapshot))]
        heads = _heads(snapshot)
        if self.checks and queues.has_heard and (heads or self.fills):
            estimates = _estimates(snapshot)
            if self._is_better_otherwise(snapshot, heads, estimates):
                return [self._enqueue(snapshot, estimates)]
        return heads

    def _enqueue(self, snapshot: Snapshot, estimates: Corrected) -> Enqueue:
        """Queues for all tasks that have not begun, and the order of the jobs."""
        left = remaining(snapshot, estimates)
        if left.problem is None:
            return Enqueue({})
        order, placed = self.plan(left.problem, _order(left, snapshot.queues.jobs))
        queues: dict[str, list[Task]] = {host: [] for host in left.hosts}
        of_machine = [queues[host] for host in left.hosts]
        machines, tasks = placed.machine.tolist(), _tasks(left, placed)
        for place in placed.queued():
            of_machine[machines[place]].append(tasks[place])
        return Enqueue(
            {host: tuple(queue) for host, queue in queues.items()},
            tuple(left.jobs[number] for number in order),
        )

    def _is_better_otherwise(
        self, snapshot: Snapshot, heads: Sequence[Launch], estimates: Corrected
    ) -> bool:
        """Whether, by current estimates, one of these tasks would end earlier elsewhere, or
        another task could use a slot that they leave idle."""
        queues = snapshot.queues
        jobs = queues.jobs
        if not self.fills:
            last = max(jobs.index(launch.phase.job) for launch in heads)
            jobs = jobs[: last + 1]
        left = remaining(snapshot, estimates, jobs)
        if left.problem is None:
            return False
        placed = TaskLister(left.problem, LISTINGS).placed(_order(left, jobs), self.fills)
        for launch in heads:
            run = placed.find(*left.number(launch.phase, launch.task))
            work = estimates.work(snapshot.phase(launch.phase), launch.task)
            here = work / estimates.speeds[launch.host]
            is_elsewhere = left.hosts[placed.machine[run]] != launch.host
            if is_elsewhere and placed.end[run] < here * (1 - CLOSE):
                return True
        if not self.fills:
            return False
        begun = {(launch.phase, launch.task) for launch in heads}
        soon = np.flatnonzero(placed.start <= 0)
        return any(
            task not in begun and snapshot.phase(task[0]).is_ready
            for task in _tasks(left, placed, soon)
        )


def _estimates(snapshot: Snapshot) -> Corrected:
    return corrected(snapshot.seen, snapshot.cluster.speeds)


def _order(left: Remaining, jobs: Sequence[str]) -> list[int]:
    """The remaining jobs in this order, jobs that are not in it last."""
    place = {name: number for number, name in enumerate(jobs)}
    numbers = range(len(left.jobs))
    return sorted(numbers, key=lambda number: place.get(left.jobs[number], len(place)))


def _tasks(left: Remaining, placed: RunColumns, places: Ints | slice = EVERY) -> list[Task]:
    """The tasks of the runs at these places."""
    stages = [stage for job in left.tasks for stage in job]
    row = np.cumsum([0, *map(len, left.tasks)])[placed.job[places]] + placed.stage[places]
    first = np.cumsum([0, *(len(numbers) for _, numbers in stages)])[row]
    tasks = list(chain.from_iterable(zip(repeat(name), numbers) for name, numbers in stages))
    return [tasks[place] for place in (first + placed.task[places]).tolist()]


def _heads(snapshot: Snapshot) -> list[Launch]:
    """The launches that are possible now: the first tasks of each host's queue that are ready,
    at most as many as the host has free slots."""
    (kind,) = snapshot.cluster.capacity
    launches = []
    for host, free in snapshot.free(kind).items():
        queue = snapshot.queues.by_host.get(host, ())
        ready = takewhile(lambda task: snapshot.phase(task[0]).is_ready, queue)
        for (name, task), _ in zip(ready, range(free), strict=False):
            phase = snapshot.phase(name)
            locality = phase.locality(task, host)
            launches.append(Launch(name, task, phase.attempt_of(task), host, locality))
    return launches


def by_program(
    problem: RelatedMachines, before: Sequence[int]
) -> tuple[Sequence[int], RunColumns]:
    """The plan by Algorithm 1."""
    order = program_order(problem)
    return order, TaskLister(problem, LISTINGS).placed(order)


def by_search(
    problem: RelatedMachines, before: Sequence[int], seconds: float | None = None
) -> tuple[Sequence[int], RunColumns]:
    """The plan by the best order found in about `seconds` seconds, with gaps filled.

    The search starts with the previous order, so that each plan continues the search of the
    last one.
    """
    tasks = sum(len(stage.work) for job in problem.jobs for stage in job.stages)
    each = LIST_SECONDS * tasks * (len(problem.speed) + MORE_MACHINES)
    steps = (BUDGET_SECONDS if seconds is None else seconds) / each
    order = best_order(problem, Budget(steps), before)
    return order, TaskLister(problem, LISTINGS).placed(order, fills=True)


def by_identical(
    problem: RelatedMachines, before: Sequence[int]
) -> tuple[Sequence[int], RunColumns]:
    """The plan as if all machines had the same speed (`identical_machine`)."""
    runs = identical_machine(problem)
    return by_completion(runs.completion), RunColumns.of(runs.runs)


def by_maps(
    problem: RelatedMachines, before: Sequence[int]
) -> tuple[Sequence[int], RunColumns]:
    """The plan by the maps only; all later tasks on random machines (`map_only`)."""
    runs = map_only(problem)
    return by_completion(runs.completion), RunColumns.of(runs.runs)
