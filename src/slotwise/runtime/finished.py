"""How long finished tasks took, beside what was expected of them: for estimates of speeds."""

from __future__ import annotations

from collections.abc import Mapping

from slotwise.model.job import PhaseId
from slotwise.model.snapshot import NOTHING_SEEN, Seen

PHASES_MOST = 32
"""So many phases are kept; of more, that which had a finished task first goes."""


class Finished:
    """Sums over the finished tasks of a phase on a host. `note` is O(1)."""

    def __init__(self) -> None:
        self._by_phase: dict[PhaseId, dict[str, Seen]] = {}

    @property
    def by_phase(self) -> Mapping[PhaseId, Mapping[str, Seen]]:
        """By phase and host."""
        return self._by_phase

    def note(self, phase: PhaseId, host: str, work: float, seconds: float) -> None:
        """A task has ended that was expected to be so much work, in seconds at speed 1."""
        by_host = self._by_phase.get(phase)
        if by_host is None:
            if len(self._by_phase) == PHASES_MOST:
                del self._by_phase[next(iter(self._by_phase))]
            by_host = self._by_phase[phase] = {}
        expected, computed, tasks = by_host.get(host, NOTHING_SEEN)
        by_host[host] = Seen(expected + work, computed + seconds, tasks + 1)
