"""How the state changes when hosts come or go, or output is lost."""

from __future__ import annotations

from slotwise.model.event import (
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    HostResized,
    OutputLost,
)
from slotwise.model.job import PhaseId
from slotwise.runtime.jobs import block_successors, hold_behind
from slotwise.runtime.state_parts import StateParts


class StateHosts(StateParts):
    """The part of the state that handles hosts, and output that is lost with them."""

    def _host_lost(self, event: HostLost) -> None:
        self._shares.release_host(event.host)
        self._hosts.lose(event.host)
        self._hosts_changed()

    def _host_joined(self, event: HostJoined) -> None:
        self._hosts.join(event.host)
        self._hosts_changed()

    def _host_added(self, event: HostAdded) -> None:
        for kind in self._hosts.add(event.host):
            self._jobs.add_kind(kind)
            self._shares.add(kind, self.now, self.pools)
        self._hosts_changed()

    def _host_resized(self, event: HostResized) -> None:
        self._shares.release_host(event.host)
        self._hosts.resize(event.host, event.slots)
        self._hosts_changed()

    def _host_leaves(self, event: HostDrained | HostRemoved) -> None:
        """The host leaves now, or when its last attempt has ended.

        Attempts on a removed host are lost: their ends are reported in the same turn.
        """
        self._shares.release_host(event.host)
        self._hosts.leave(event.host)
        self._let_go(event.host)
        self._hosts_changed()
        for phase in self._phases.values():
            if phase.is_pinned and phase.homes.has_pinned_to(event.host):
                self._strand(phase, event.host)

    def _output_lost(self, event: OutputLost) -> None:
        """Make tasks pending again. No effect on tasks that are not done."""
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return
        if not phase.is_gang:
            tasks = [task for task in event.tasks if phase.undo(task)]
        else:  # All of them are done again.
            tasks = self._break(phase) if any(map(phase.is_done, event.tasks)) else []
        if not tasks:
            return
        self.is_stale = True
        self.changes.invalidate()
        self._outdate_queues()
        self._jobs.phase_undone(phase)
        for task in tasks:
            self._block_if_early(phase, task)
        for task in (0,) if phase.is_gang else tasks:
            count = phase.count_bad_end(task, is_lost=True)
            if count >= self._limits[True]:
                what, which = f"{phase.id.phase} task {task}", "this task"
                if phase.is_gang:
                    what, which = f"gang {phase.id.phase}", "this gang"
                why = f": {event.reason}" if event.reason else ""
                self.doomed[phase.job.id] = (
                    f"the output of {what} was lost; {which} has lost its slot or its output"
                    f" {count} times{why}"
                )
        for name in phase.phase.after:  # It did not wait for them while it was done.
            hold_behind(phase, self._phases[PhaseId(phase.job.id, name)])
        for other in block_successors(phase, tasks):
            if other.waits_for or not other.has_tasks:
                self._make_unready(other)
            else:
                self._settle(other, 0)
        if phase.waits_for or phase.is_ready or not phase.has_tasks:
            self._settle(phase, 0)
        else:
            self._make_ready(phase)
