"""What policies see of the state: the part of it that implements `model.snapshot.Snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from slotwise.core.decisions import Launch
from slotwise.core.host_state import Finished, Hosts, Queues
from slotwise.core.job import PhaseId
from slotwise.core.jobs_in_progress import Jobs
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PhaseBelow, PoolState
from slotwise.core.pools import PoolTree
from slotwise.core.shares import SharesByKind
from slotwise.core.snapshot import JobGraphs, LaunchOrder, TaskTimings, Unbegun, UnbegunPhases
from slotwise.core.turns import turns_of
from slotwise.core.views import PhaseView, PoolView


class StateView:
    """Read-only access to jobs, hosts, shares and queues."""

    pools: PoolTree
    _hosts: Hosts
    _queues: Queues
    _finished: Finished
    _unbegun: UnbegunColumns
    _jobs: Jobs
    _shares: SharesByKind

    def ready(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases that use this kind of slot, in order of arrival."""
        return self._jobs.in_order(slot_kind)

    def holding(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases, then those that hold such slots but are ready no longer."""
        waiting_again = (
            phase
            for phases in self.jobs_left()
            for phase in phases
            if phase.running and not phase.is_ready and phase.slot_kind == slot_kind
        )
        return [*self.ready(slot_kind), *waiting_again]

    def wide(self, slot_kind: str) -> Collection[PhaseState]:
        """Those of them that take several slots at once."""
        return self._jobs.wide[slot_kind].values()

    def backlogged(self, slot_kind: str) -> Iterable[PhaseBelow]:
        """The ready phases with pending tasks, by pool, then within it; largest lack first."""
        return self._shares.of[slot_kind].whole.walk()

    def turns(self, slot_kind: str, most: Callable[[PhaseView], int]) -> LaunchOrder:
        """The turns of phases for the free slots if each launches a task at each turn."""
        slots = sum(self._hosts.free[slot_kind].by_host.values())
        return turns_of(self._shares.of[slot_kind].whole, slots, most)

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind, and the number of these slots."""
        return self._hosts.free[slot_kind].by_host

    def reserved(self, slot_kind: str) -> Mapping[str, Mapping[PoolView, int]]:
        """The other free slots of each host: those reserved for pools that took them back."""
        reserved = self._shares.of[slot_kind].reserved.by_host
        return cast("Mapping[str, Mapping[PoolView, int]]", reserved)

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind became free in this turn."""
        return self._hosts.free[slot_kind].freed

    def overdue(self, slot_kind: str) -> Collection[PoolState]:
        """The shares of pools that have lacked slots for as long as their time-out."""
        return self._shares.of[slot_kind].overdue

    @property
    def is_settled(self) -> bool:
        """Whether no slot is free or reserved, no pool is overdue and no phase is wide."""
        if self._jobs.has_wide:
            return False
        shares = self._shares.of
        for kind, free in self._hosts.free.items():
            if free.by_host or shares[kind].reserved.by_host or shares[kind].overdue:
                return False
        return True

    def shares(self, slot_kind: str) -> Sequence[PoolState]:
        """The shares of all pools in this kind of slot, outer ones first."""
        return self._shares.of[slot_kind].pools()

    def phases_of(self, job: str) -> Sequence[PhaseState]:
        """The phases of a job that has arrived and is not over."""
        return self._jobs.phases_of(job)

    def capacity(self, slot_kind: str) -> int:
        """The slots of this kind on hosts that can begin tasks."""
        return self._hosts.capacity[slot_kind]

    @property
    def has_wide(self) -> bool:
        """Whether a ready phase takes several slots at once."""
        return self._jobs.has_wide

    @property
    def lost(self) -> Collection[str]:
        """The hosts where nothing can begin: unresponsive ones, and those that will leave."""
        return self._hosts.lost

    @property
    def unresponsive(self) -> Collection[str]:
        """The unresponsive hosts."""
        return self._hosts.unresponsive

    @property
    def leaving(self) -> Collection[str]:
        """The hosts that leave when no attempt runs there."""
        return self._hosts.leaving

    @property
    def seen(self) -> TaskTimings:
        """What tasks took, by phase and host, that finished since this was read first."""
        return self._finished.seen

    @property
    def unbegun(self) -> Unbegun:
        """The tasks that have not begun, of all admitted jobs, as columns."""
        return self._unbegun.read()

    @property
    def queues(self) -> Queues:
        """The queue of each host, if the policy plans queues."""
        return self._queues

    def phase(self, name: PhaseId) -> PhaseState:
        """A phase of a job that is not over."""
        return self._jobs.phases[name]

    @property
    def awaiting_admission(self) -> list[str]:
        """The jobs that wait for admission, the next one first."""
        return self._jobs.awaiting_admission

    def full_pools(self, job: str) -> dict[str, list[str]]:
        """The pools of a job that are at their `jobs_max`, with the jobs that they run."""
        return self._jobs.full_pools(job, self.pools)

    def jobs_left(self) -> Iterable[Sequence[PhaseState]]:
        """The phases of each admitted job that is not over, in topological order.

        The jobs are in order of arrival.
        """
        return self._jobs.left()

    @property
    def phases_left(self) -> Sequence[PhaseState]:
        """The phases of these jobs in a row; also of jobs that are over since others came."""
        return self._unbegun.phases_left

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        return self._jobs.attempts_of(job)


# Keeps the columns of the tasks that have not begun from one decision to the next.


class UnbegunColumns:
    """The columns, computed when they are read.

    Launches leave gaps in the columns, which numpy closes. When a phase has no tasks left, the
    list of phases is made again; after `outdate` everything is.
    """

    def __init__(self, jobs_left: Callable[[], Iterable[Sequence[PhaseState]]]) -> None:
        """`jobs_left` returns the phases of each admitted job that is not over."""
        self._jobs_left = jobs_left
        self._left: list[PhaseState] | None = None
        self._found: Unbegun | None = None
        self._phases: list[PhaseState] = []  # those of the columns

    def outdate(self) -> None:
        """Jobs, tasks or hosts came or went: compute everything again at the next reading."""
        self._left = self._found = None

    @property
    def phases_left(self) -> Sequence[PhaseState]:
        """All phases of the jobs."""
        if self._left is None:
            self._left = [phase for phases in self._jobs_left() for phase in phases]
        return self._left

    def read(self) -> Unbegun:
        """The columns at this instant."""
        found = self._found
        if found is None:
            self._phases = [phase for phase in self.phases_left if phase.pending]
            found = _columns(self._phases)
        else:
            pending = [phase.pending for phase in self._phases]
            if pending != found.count:
                found = self._without_begun(found, pending)
        self._found = found
        return found

    def _without_begun(self, found: Unbegun, pending: list[int]) -> Unbegun:
        """The columns without the tasks that have begun; `pending` are left of each phase."""
        is_left = np.ones(len(found.expected), np.bool_)
        rows = [row for row, count in enumerate(found.count) if count != pending[row]]
        for row in rows:
            begin, end = found.task_first[row : row + 2].tolist()
            kept = found.number[begin:end].searchsorted(self._phases[row].pending_tasks())
            is_left[begin:end] = False
            is_left[begin + kept] = True
        of = found.of
        if not all(pending):
            self._phases = [phase for phase in self._phases if phase.pending]
            pending = [count for count in pending if count]
            of = _phases(self._phases)
        largest = found.largest[is_left[found.largest]]
        return Unbegun(
            of,
            pending,
            np.array([0, *pending]).cumsum(),
            found.tasks[is_left],
            found.number[is_left],
            found.expected[is_left],
            (is_left.cumsum() - 1)[largest],
        )


def _columns(phases: Sequence[PhaseState]) -> Unbegun:
    """The columns of these phases, which have tasks that have not begun."""
    count = [phase.pending for phase in phases]
    first = np.array([0, *count]).cumsum()
    tasks = [(phase.id, task) for phase in phases for task in phase.pending_tasks()]
    number = np.array([task for _, task in tasks], np.int64)
    expected = np.zeros(len(tasks))
    for phase, begin, end in zip(phases, first.tolist(), first[1:].tolist(), strict=False):
        each = phase.phase.tasks.work
        is_equal = not isinstance(each, tuple)
        expected[begin:end] = (
            phase.expected(tasks[begin][1]) if is_equal else np.array(each)[number[begin:end]]
        )
    return Unbegun(
        _phases(phases),
        count,
        first,
        np.fromiter(tasks, object, len(tasks)),
        number,
        expected,
        np.lexsort((-expected, np.arange(len(count)).repeat(count))),
    )


def _phases(phases: Sequence[PhaseState]) -> UnbegunPhases:
    """The columns of these phases, which have tasks that have not begun."""
    jobs: dict[str, int] = {}
    stages: list[int] = []
    weight: list[float] = []
    place: dict[PhaseId, int] = {}
    behind: dict[PhaseId, list[int]] = {}
    before: list[list[int]] = []
    follows: list[bool] = []
    for number, phase in enumerate(phases):
        job = phase.job.id
        if job not in jobs:
            jobs[job] = len(jobs)
            stages.append(0)
            weight.append(phase.job.weight)
        stages[-1] += 1
        place[phase.id] = number
        waits_for = [PhaseId(job, name) for name in phase.phase.waits_for]
        for name in waits_for:
            behind.setdefault(name, []).append(number)
        before.append(sorted(place[name] for name in waits_for if name in place))
        follows.append(len(before[-1]) < len(waits_for))
    graphs = JobGraphs.of(stages, before)
    weights, follow = np.array(weight, np.float64), np.array(follows, np.bool_)
    return UnbegunPhases(phases, place, jobs, weights, graphs, behind, follow)
