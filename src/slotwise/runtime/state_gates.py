"""How the state changes when tasks of gated phases become runnable, or not needed."""

from __future__ import annotations

from slotwise.model.event import TasksBlocked, TasksDropped, TasksRunnable
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.state_parts import StateParts


class StateGates(StateParts):
    """The part of the state that handles changes of the tasks of gated phases.

    Changes of jobs that are over have no effect.
    """

    def _tasks_runnable(self, event: TasksRunnable) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            phase.release(event.tasks)
            self._demand_changed(phase)
            self._outdate_queues()
            self._settle_gated(phase)

    def _tasks_blocked(self, event: TasksBlocked) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            for task in event.tasks:
                phase.block(task)
            self._settle_gated(phase)

    def _tasks_dropped(self, event: TasksDropped) -> None:
        phase = self._phases.get(event.phase)
        if phase is None:
            return
        phase.drop(event.tasks)
        if phase.has_tasks or phase.blocked:
            self._settle_gated(phase)
        else:
            self._phase_done(phase, event.at)

    def _settle_gated(self, phase: PhaseState) -> None:
        """Update the shares above a phase; it is ready while it has tasks that may run."""
        self._outdate_queues()
        if not self._jobs.may_begin(phase.job) or phase.is_ready == phase.has_tasks:
            self._settle(phase, 0)
        elif phase.is_ready:
            self._make_unready(phase)
        else:
            self._make_ready(phase)
