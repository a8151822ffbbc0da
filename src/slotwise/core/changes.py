"""The changes of phases since all of them were allocated slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slotwise.core.decisions import Reallocate
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState

SLIGHT = 100
"""Changes in a pool are slight up to one for this number of its ready phases."""


class Changes:
    """The changes since the last `Reallocate`, and since the last `Adjust`.

    came      the ready phases that came, or whose demand changed, since the last of both
    ended     the phases with slots that are not ready any more, since then: at the next of both
              they lose these
    front     by kind of slot: the phases that the last `Reallocate` put first; None if it named
              none
    others    by kind of slot: the other ready phases that came, or whose demand changed, since
    later_work by kind of slot: the estimated work of the phases after those, slot-seconds
    is_slight whether few phases came or left since the last `Reallocate`: in each pool at most
              one for `SLIGHT` of its ready phases. Then most shares are still right

    O(1) for each change. It has what changed since the last allocation, not more.
    """

    def __init__(self) -> None:
        self.came: dict[PhaseId, PhaseState] = {}
        self.ended: dict[PhaseId, PhaseState] = {}
        self.front: dict[str, dict[PhaseId, PhaseState]] | None = None
        self.others: dict[str, dict[PhaseId, PhaseState]] = {}
        self.later_work: Mapping[str, float] = {}
        self.is_slight = False

    def invalidate(self) -> None:
        """Something changed that affects other phases, too: all of them must be considered."""
        self.is_slight, self.front = False, None
        self.came.clear()

    def note(self, phase: PhaseState) -> None:
        """A ready phase came, or its demand changed."""
        self.ended.pop(phase.id, None)
        if self._counts(phase):
            self.came[phase.id] = phase
            if self.front is not None and phase.id not in self.front[phase.slot_kind]:
                self.others[phase.slot_kind][phase.id] = phase

    def leave(self, phase: PhaseState) -> None:
        """A phase is not ready any more."""
        if phase.allocated:
            self.ended[phase.id] = phase
        if self._counts(phase):
            self.came.pop(phase.id, None)
            if self.front is not None:
                self.front[phase.slot_kind].pop(phase.id, None)
                self.others[phase.slot_kind].pop(phase.id, None)

    def reallocated(
        self, decision: Reallocate, phases: Mapping[PhaseId, PhaseState], kinds: Iterable[str]
    ) -> None:
        """All phases were allocated slots."""
        self.adjusted()
        self.is_slight, self.front, self.later_work = True, None, decision.behind
        if decision.next is not None:
            self.front = {kind: {} for kind in kinds}
            self.others = {kind: {} for kind in kinds}
            for name in (*decision.slots, *decision.next):
                phase = phases[name]
                self.front[phase.slot_kind][name] = phase

    def adjusted(self) -> None:
        """The phases that changed were allocated slots."""
        self.came.clear()
        for phase in self.ended.values():
            phase.allocated = 0.0
        self.ended.clear()

    def _counts(self, phase: PhaseState) -> bool:
        """Count a change in the pool of a phase. Whether the changes are still slight."""
        if self.is_slight:
            pool = phase.pool
            pool.changes += 1
            if phase.phase.slots_min or pool.changes * SLIGHT > pool.members:
                self.invalidate()
        return self.is_slight
