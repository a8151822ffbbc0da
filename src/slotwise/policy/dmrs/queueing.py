"""DMRS at run time: a queue for each host, replanned when estimates change (DMRS V)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from slotwise.core.decisions import Decision, Enqueue, Launch
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import CLOSE
from slotwise.policy.assignment.assigner import give_up, retry
from slotwise.policy.dmrs.algorithm import by_completion, program_order
from slotwise.policy.dmrs.corrections import Corrected, corrected
from slotwise.policy.dmrs.jobs import Machines, Remaining, machines, remaining
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.planning import identical_machine, map_only
from slotwise.policy.dmrs.problem import RunColumns, Runs
from slotwise.policy.dmrs.search import best_order
from slotwise.policy.search.budget import Budget

LISTINGS = 1_000
"""The approximate number of list schedules in a run, enough to make machine code worthwhile."""

LIST_SECONDS = 1.4e-7
"""The approximate time of a list schedule in Python per task and machine. It converts a budget
in seconds into one in steps, so that a run is decided in the same way on every machine."""

MORE_MACHINES = 4
"""The fixed time per task in a list schedule, as a number of machines."""

BUDGET_SECONDS = 0.01
"""For the search at each plan, by default."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """A queue for each host: when a slot is free, the head of its host's queue runs.

    When jobs, tasks or hosts come or go, `plan` plans all tasks that have not begun, for
    example by Algorithm 1. Before each launch, the ends of running tasks are estimated again
    from the finished tasks (`corrected`), and all tasks before it in the plan are listed again.
    If another machine would now complete the task earlier by (20) and (21), all tasks that have
    not begun are planned again. A head whose phase is not ready keeps its slot idle, as
    planned.

    plan     from the remaining problem, whose schedules a `TaskLister` computes, and the
             previous order of its jobs: a new order of the jobs and a schedule
    checks   whether plans are checked before each launch; if not, plans change only when jobs,
             tasks or hosts come or go
    fills    whether other tasks use gaps before a task; gaps are then searched whenever slots
             idle

    A plan costs as much as `plan`. A launch costs a list schedule of the jobs up to its own,
    with `fills` of all jobs.
    """

    plan: Callable[[TaskLister, Sequence[int]], tuple[Sequence[int], RunColumns]]
    checks: bool = True
    fills: bool = False

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there are no more."""
        if snapshot.doomed:
            return give_up(snapshot)
        if snapshot.delays and (due := retry(snapshot)):
            return due
        queues = snapshot.queues
        if queues.is_outdated:
            return [self._enqueue(snapshot, _Outlook.of(snapshot))]
        heads = _heads(snapshot)
        if self.checks and queues.has_time_passed and (heads or self.fills):
            outlook = _Outlook.of(snapshot)
            if self._is_better_otherwise(snapshot, heads, outlook):
                return [self._enqueue(snapshot, outlook)]
        return heads

    def _enqueue(self, snapshot: Snapshot, outlook: _Outlook) -> Enqueue:
        """Queues for all tasks that have not begun, and the order of the jobs."""
        left, lister, hosts = outlook.left, outlook.lister, outlook.machines.hosts
        if lister is None:
            return Enqueue({})
        order, placed = self.plan(lister, _order(left, snapshot.queues.jobs))
        number = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
        of_machine = np.array([number[host] for host in hosts])
        places = placed.queued(lister.problem.columns, of_machine)
        tasks = left.unbegun.tasks[placed.task[places]].tolist()
        first = of_machine[placed.machine[places]].searchsorted(np.arange(len(number) + 1))
        of_host = zip(number, pairwise(first.tolist()), strict=True)
        queues = {host: tuple(tasks[begin:end]) for host, (begin, end) in of_host}
        names = list(left.jobs)
        return Enqueue(queues, tuple(names[job] for job in order))

    def _is_better_otherwise(
        self, snapshot: Snapshot, heads: Sequence[Launch], outlook: _Outlook
    ) -> bool:
        """Whether, by current estimates, one of these tasks would end earlier elsewhere, or
        another task could use a slot that they leave idle."""
        left, lister, hosts = outlook.left, outlook.lister, outlook.machines.hosts
        if lister is None:
            return False
        order = _order(left, snapshot.queues.jobs)
        if not self.fills:
            last = max(order.index(left.jobs[launch.phase.job]) for launch in heads)
            order = order[: last + 1]
        placed = lister.placed(order, self.fills)
        begun = [left.place(launch.phase, launch.task) for launch in heads]
        work, speeds = lister.problem.columns.work, outlook.estimates.speeds
        for launch, task in zip(heads, begun, strict=True):
            run = placed.find(task)
            if hosts[placed.machine[run]] != launch.host:
                alone = work[task] / speeds[launch.host]
                if placed.end[run] < alone * (1 - CLOSE):
                    return True
        if not self.fills:
            return False
        soon = set(placed.task[placed.start <= 0].tolist()).difference(begun)
        phases, stage_of = left.unbegun.of.phases, lister.problem.columns.stage_of
        return any(phases[stage_of[task]].is_ready for task in soon)


class _Outlook(NamedTuple):
    """What is left to do at an instant, by current estimates.

    lister  computes schedules of it; None if there are no tasks or no machines
    """

    estimates: Corrected
    machines: Machines
    left: Remaining
    lister: TaskLister | None

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Outlook:
        """At the instant of a snapshot."""
        estimates = corrected(snapshot.seen, snapshot.cluster.speeds)
        usable = machines(snapshot, estimates)
        left = remaining(snapshot, estimates, usable)
        lister = TaskLister(left.problem, LISTINGS) if left.problem else None
        return cls(estimates, usable, left, lister)


def _order(left: Remaining, jobs: Sequence[str]) -> list[int]:
    """The remaining jobs in this order, jobs that are not in it last."""
    number = left.jobs
    known = [number[name] for name in jobs if name in number]
    if len(known) < len(number):
        known += sorted(set(number.values()).difference(known))
    return known


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


def by_program(lister: TaskLister, before: Sequence[int]) -> tuple[Sequence[int], RunColumns]:
    """The plan by Algorithm 1."""
    order = program_order(lister.problem)
    return order, lister.placed(order)


def by_search(
    lister: TaskLister, before: Sequence[int], seconds: float | None = None
) -> tuple[Sequence[int], RunColumns]:
    """The plan by the best order found in about `seconds` seconds, with gaps filled.

    The search starts with the previous order, so that each plan continues the search of the
    last one.
    """
    problem = lister.problem
    each = LIST_SECONDS * len(problem.columns.work) * (len(problem.speed) + MORE_MACHINES)
    steps = (BUDGET_SECONDS if seconds is None else seconds) / each
    order = best_order(lister, Budget(steps), before)
    return order, lister.placed(order, fills=True)


def by_identical(lister: TaskLister, before: Sequence[int]) -> tuple[Sequence[int], RunColumns]:
    """The plan as if all machines had the same speed (`identical_machine`)."""
    return _planned(lister, identical_machine(lister.problem))


def by_maps(lister: TaskLister, before: Sequence[int]) -> tuple[Sequence[int], RunColumns]:
    """The plan by the maps only; all later tasks on random machines (`map_only`)."""
    return _planned(lister, map_only(lister.problem))


def _planned(lister: TaskLister, runs: Runs) -> tuple[Sequence[int], RunColumns]:
    return by_completion(runs.completion), RunColumns.of(runs.runs, lister.problem.columns)
