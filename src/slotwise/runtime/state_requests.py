"""How the state changes when users ask for something during a run."""

from __future__ import annotations

from slotwise.model.event import (
    JobCancelled,
    JobChanged,
    JobsClosed,
    ObjectiveChanged,
    PhaseClosed,
    PoolsChanged,
    TasksAdded,
)
from slotwise.model.pool_tree import PoolTree
from slotwise.runtime.shares_by_kind import SharesByKind
from slotwise.runtime.state_parts import StateParts

CANCELLED = "cancelled"
"""The reason why a cancelled job failed."""


class StateRequests(StateParts):
    """The part of the state that handles requests of users."""

    def _jobs_closed(self, event: JobsClosed) -> None:
        self._is_closed = True

    def _job_cancelled(self, event: JobCancelled) -> None:
        if event.job in self._jobs and not self._jobs.is_given_up(event.job):
            self.doomed[event.job] = CANCELLED

    def _job_changed(self, event: JobChanged) -> None:
        if event.job not in self._jobs or self._jobs.is_given_up(event.job):
            return
        old = self._jobs.job(event.job)
        job = event.applied_to(old)
        self._add_pool_of(job)
        admitted = self._jobs.change(job, self.pools)
        if (job.pool, job.priority) != (old.pool, old.priority):
            for phase in self._jobs.phases_of(job.id):
                phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
            self._group(job.id)
            self._recount()
        self._outdate_queues()
        self._reallocate_now()
        self._begin(admitted)

    def _tasks_added(self, event: TasksAdded) -> None:
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return  # Its job is over.
        was_idle = not phase.pending and not phase.running
        self._jobs.replace(phase.job.grown(event.phase.phase, event.count))
        phase.grow(event.count)
        self._demand_changed(phase)
        self._outdate_queues()
        if was_idle:
            self._make_ready(phase)
        else:
            self._settle(phase, 0)

    def _phase_closed(self, event: PhaseClosed) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            phase.is_open = False
            if not phase.pending and not phase.running:
                self._phase_done(phase, event.at)

    def _pools_changed(self, event: PoolsChanged) -> None:
        """Replace the pools. The turns of pools and the clocks of their shortages restart."""
        jobs = {phase.job.pool for phase in self._phases.values()}
        self.pools, old = PoolTree(event.pools).with_pools(sorted(jobs)), self._shares
        self._shares = SharesByKind(self._hosts.free)
        self._shares.at(self.now)
        self._of_kind = self._shares.of
        for phase in self._phases.values():
            phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
        for job in dict.fromkeys(phase.job.id for phase in self._phases.values()):
            self._group(job)
        old.hand_over(self._shares, self._phases.values())
        self._recount()
        self._reallocate_now()
        self._begin(self._jobs.readmit(self.pools))

    def _objective_changed(self, event: ObjectiveChanged) -> None:
        self.objective = (event.penalty, event.aggregate)
        self._reallocate_now()
