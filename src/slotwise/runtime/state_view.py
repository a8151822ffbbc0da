"""What policies see of the state: the part of it that implements `model.snapshot.Snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.pool_tree import PoolTree
from slotwise.model.snapshot import LaunchOrder, TaskTimings
from slotwise.model.unbegun import Unbegun
from slotwise.model.views import PhaseView, PoolView
from slotwise.runtime.finished import Finished
from slotwise.runtime.hosts import Hosts
from slotwise.runtime.jobs import Jobs
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PhaseBelow, PoolState
from slotwise.runtime.queues import Queues
from slotwise.runtime.shares_by_kind import SharesByKind
from slotwise.runtime.turns import turns_of
from slotwise.runtime.unbegun import UnbegunColumns


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
