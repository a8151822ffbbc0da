"""The parts of the state, and changes that involve several of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal

from slotwise.model.cluster import Cluster
from slotwise.model.decision import (
    Launch,
)
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.model.virtual_time import VirtualTime
from slotwise.runtime.changes import Changes
from slotwise.runtime.finished import Finished
from slotwise.runtime.groups import JobShare
from slotwise.runtime.hosts import Hosts
from slotwise.runtime.jobs import Jobs, release_followers, unblock_successors
from slotwise.runtime.learned import Learned
from slotwise.runtime.offers import LocalityWaitTimer
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState
from slotwise.runtime.queues import Queues
from slotwise.runtime.shares_by_kind import SharesByKind
from slotwise.runtime.state_view import StateView
from slotwise.runtime.unbegun import UnbegunColumns


class StateParts(StateView):
    """The jobs, hosts, shares and queues of a state, updated for one change at a time."""

    def __init__(
        self,
        cluster: Cluster,
        pools: Iterable[Pool],
        default_work: float,
        limits: Mapping[bool, int],
        reserves: bool,
    ) -> None:
        """`limits`: how often a task may lose its slot or output (True), or fail (False).

        `reserves`: whether slots that are taken back are reserved for the pool that takes them.
        """
        self.cluster = cluster
        self.pools = PoolTree(pools)
        self.now = 0.0
        self.doomed: dict[str, str] = {}
        self.broken: dict[PhaseId, None] = {}
        self.is_stale = self.has_changed = self.has_shrunk = False
        self.epoch_ends = self.reallocates_from = -inf
        self.objective: tuple[str, Literal["sum", "max"]] | None = None
        self.virtual: VirtualTime | None = None
        self.changes = Changes()
        self._is_closed = False  # No more jobs arrive.
        self._default_work, self._limits = default_work, limits
        self._reserves = reserves
        self._hosts = Hosts(cluster)
        self._offers: dict[
            str, LocalityWaitTimer
        ] = {}  # of the kinds of slots for which phases waited
        self._queues = Queues()
        self._finished = Finished()
        self._learned = Learned(default_work)
        self._jobs = Jobs(cluster.capacity)
        self._phases = self._jobs.phases
        self.completed, self.failed = self._jobs.completed, self._jobs.failed
        self._unbegun = UnbegunColumns(self._jobs.left)
        self._shares = SharesByKind(self._hosts.free)
        self._of_kind = self._shares.of

    def _outdate_queues(self) -> None:
        """Jobs, tasks or hosts that the queues do not cover came or went."""
        self._queues.is_outdated = True
        self._unbegun.outdate()

    def _add_pool_of(self, job: Job) -> None:
        if job.pool not in self.pools or job.pool in self.pools.inner:
            self.pools = self.pools.with_pools([job.pool])

    def _begin(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._outdate_queues()
            for phase in self._jobs.phases_of(job.id):
                if not phase.waits_for and phase.has_tasks:
                    self._make_ready(phase)

    def _hosts_changed(self) -> None:
        """Update shares: slots, held ones included, were added or removed.

        The next allocation does not wait for the end of a rest: meanwhile the old one would
        give new slots to phases that hold their shares.
        """
        self._outdate_queues()
        self._reallocate_now()
        if self.cluster is not self._hosts.cluster:
            self.cluster = self._hosts.cluster
            for phase in self._phases.values():
                phase.move_to(self.cluster)
        self._recount()

    def _reallocate_now(self) -> None:
        self.is_stale, self.reallocates_from = True, -inf
        self.changes.invalidate()

    def _block_if_early(self, phase: PhaseState, task: int) -> None:
        """Block a pending task if the output of the task that it continues was lost.

        The tasks of a gated phase are blocked until they are reported as runnable again.
        """
        if phase.phase.gated:
            phase.block(task)
        if phase.phase.continues is not None:
            before = self._phases[PhaseId(phase.job.id, phase.phase.continues)]
            if not before.is_done(task):
                phase.block(task)

    def _break(self, phase: PhaseState) -> list[int]:
        """Make the done tasks of a gang pending again, and let the running ones be stopped.

        An attempt has ended without a result, or output was lost. Returns the done tasks.
        """
        was_broken = phase.is_broken
        tasks = phase.undo_gang()
        if tasks:
            self.is_stale = True
            self.changes.invalidate()
        if not phase.is_broken:
            self.broken.pop(phase.id, None)
        elif not was_broken and not self._jobs.is_given_up(phase.job.id):
            self.broken[phase.id] = None
        return tasks

    def _free_slot(self, phase: PhaseState, launch: Launch) -> None:
        self._hosts.free[phase.slot_kind].give_back(launch.host, phase.width)
        if phase.stopping:
            shares = self._of_kind[phase.slot_kind]
            taker = shares.ended(phase, launch.task)
            if taker is not None and self._reserves:
                shares.reserved.add(launch.host, taker, phase.width)

    def _settle_end(self, phase: PhaseState, launch: Launch) -> None:
        """Update the shares above a phase after one of its attempts has ended."""
        if launch.host not in self._hosts.lost:
            self._of_kind[phase.slot_kind].settle(phase, -phase.width)
            return
        if self._let_go(launch.host):
            self._hosts_changed()
        else:
            self._recount()
        self._demand_changed(phase)  # It may use more slots of responsive hosts.

    def _let_go(self, host: str) -> bool:
        """Remove a host that is to leave if no attempt runs there; whether it has left now."""
        has_left = self._hosts.forget_if_idle(host)
        if has_left:
            self._finished.forget(host)
        return has_left

    def _strand(self, phase: PhaseState, host: str) -> None:
        """A pending task can only run on a host that leaves: its job cannot succeed."""
        if not self._jobs.is_given_up(phase.job.id):
            reason = f"host {host} leaves, where a task of phase {phase.id.phase} must run"
            self.doomed.setdefault(phase.job.id, reason)

    def _recount(self) -> None:
        self.changes.invalidate()
        self._shares.recount(self._phases.values(), self._hosts.lost)

    def _settle(self, phase: PhaseState, held: int) -> None:
        self._of_kind[phase.slot_kind].settle(phase, held)

    def _demand_changed(self, phase: PhaseState) -> None:
        self.has_shrunk = True
        if phase.is_ready:
            self.changes.note(phase)

    def _make_ready(self, phase: PhaseState) -> None:
        self._jobs.make_ready(phase)
        self.changes.note(phase)
        self._settle(phase, 0)
        self.is_stale = True

    def _make_unready(self, phase: PhaseState) -> None:
        self._jobs.make_unready(phase)
        self.changes.leave(phase)
        if phase.slot_kind in self._offers:
            self._offers[phase.slot_kind].leave(phase, self.now)
        self._settle(phase, 0)
        self.is_stale = True

    def _unblock_successors(self, phase: PhaseState, task: int, host: str) -> None:
        """Update the phases that need not wait for all tasks of this phase."""
        for other in unblock_successors(phase, task, host):
            if other.is_pinned and not self._hosts.is_staying(host):
                self._strand(other, host)
            if other.is_ready:
                self._demand_changed(other)  # The next epoch handles it.
                self._settle(other, 0)
            elif not self._jobs.is_given_up(phase.job.id):
                self._make_ready(other)

    def _phase_done(self, phase: PhaseState, at: float) -> None:
        self._make_unready(phase)
        if phase.blocked or phase.is_open:
            return  # Its other tasks continue tasks that are not done, or were not added yet.
        if not self._jobs.is_given_up(phase.job.id):
            for other in release_followers(phase):
                self._make_ready(other)
            self._begin(self._jobs.phase_done(phase, at, self.pools))
            if phase.job.id in self.completed:
                self.doomed.pop(phase.job.id, None)  # It was cancelled too late.
        self._forget_if_over(phase.job.id)

    def _forget_if_over(self, job: str) -> None:
        """Drop a job that has ended and holds no slots, and after the last one its phases."""
        self._jobs.forget_if_over(job)
        if not self._phases:
            self.changes.adjusted()

    def _group(self, job: str) -> None:
        """Join the phases of a job that count against the same share of a fair pool."""
        phases = self._jobs.phases_of(job)
        if len(phases) == 1:
            return
        of_pool: dict[PoolState, list[PhaseState]] = {}
        for phase in phases:
            of_pool.setdefault(phase.pool, []).append(phase)
        for pool, members in of_pool.items():
            if len(members) > 1 and not pool.is_in_turn:
                share = JobShare(pool, members)
                for phase in members:
                    phase.job_share = share

    def _phase(self, job: Job, phase: Phase, order: int) -> PhaseState:
        share = self._share(job, phase, self.cluster.slot_kind(phase.kind))
        learned, default = self._learned, self._default_work
        return PhaseState(job, phase, order, share, self.pools, self.cluster, default, learned)

    def _share(self, job: Job, phase: Phase, slot_kind: str) -> PoolState:
        """The share of its pool that a phase counts against."""
        keys = self.pools.shares(job.pool, phase.kind)
        return self._of_kind[slot_kind].share(keys, self.pools)
