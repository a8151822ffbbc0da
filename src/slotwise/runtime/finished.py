"""Measured and expected times of finished tasks, from which host speeds are estimated."""

from __future__ import annotations

from collections.abc import Mapping

from slotwise.model.job import PhaseId
from slotwise.model.snapshot import Seen, SeenByHost

PHASES_MOST = 32
"""The number of phases to keep. Beyond it, the one with the earliest first entry is dropped."""


class Finished:
    """Totals over finished tasks, by phase and host. `note` is O(1).

    Most policies do not read them: call `note` only from the first time that one did, so that
    they do not cost the others time.

    is_read  whether the totals were read
    """

    def __init__(self) -> None:
        self._by_phase: dict[PhaseId, SeenByHost] = {}
        self.is_read = False

    @property
    def by_phase(self) -> Mapping[PhaseId, Mapping[str, Seen]]:
        """The totals, by phase and host, since they were read for the first time."""
        self.is_read = True
        return self._by_phase

    def note(self, phase: PhaseId, host: str, work: float, seconds: float) -> None:
        """Add a finished task: expected `work` (seconds at speed 1) and measured `seconds`."""
        by_host = self._by_phase.get(phase)
        if by_host is None:
            if len(self._by_phase) == PHASES_MOST:
                del self._by_phase[next(iter(self._by_phase))]
            by_host = self._by_phase[phase] = SeenByHost()
        by_host.known = None
        total = by_host.get(host)
        if total is None:
            by_host[host] = Seen(work, seconds, 1)
        else:
            total.expected += work
            total.seconds += seconds
            total.tasks += 1

    def forget(self, host: str) -> None:
        """Drop the totals of a host that has left; one that comes back may differ."""
        for by_host in self._by_phase.values():
            by_host.pop(host, None)
            by_host.known = None
