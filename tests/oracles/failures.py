"""Failures in a row of each phase on each host, counted from the log of a run alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, TaskFailed, TaskFinished
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot

MOST = 3
"""After so many failures in a row a phase may leave the slots of a host to others."""


@dataclass
class FailuresInARow:
    """What has failed in a row; lost and late attempts do not count."""

    running: dict[tuple[PhaseId, int, int], str] = field(default_factory=dict)
    count: Counter[tuple[PhaseId, str]] = field(default_factory=Counter)

    def note(self, entry: Event | Decision) -> None:
        """Take the next entry of the log."""
        if isinstance(entry, Launch):
            self.running[entry.phase, entry.task, entry.attempt] = entry.host
        elif isinstance(entry, TaskFinished | TaskFailed):
            host = self.running.pop((entry.phase, entry.task, entry.attempt), None)
            if host is not None and isinstance(entry, TaskFinished):
                self.count[entry.phase, host] = 0
            elif host is not None and not entry.lost:
                self.count[entry.phase, host] += 1

    def usable(self, snapshot: Snapshot, phase: PhaseState) -> set[str]:
        """The hosts with free slots that the phase may not leave to others."""
        here = {
            host.name
            for host in snapshot.cluster.hosts
            if host.slots.get(phase.slot_kind) and host.name not in snapshot.lost
        }
        failing = {host for host in here if self.count[phase.id, host] >= MOST}
        free = set(snapshot.free(phase.slot_kind))
        return free - failing if here - failing else free
