"""Why a phase leaves free slots to others: its tasks only fail on their hosts."""

from __future__ import annotations

from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.state import State


def why_avoided(state: State, phase: PhaseState) -> str:
    """The reason if the only free slots are on hosts that it avoids; else empty."""
    avoided, free = phase.avoided(state.lost), state.free(phase.slot_kind)
    if not free or not avoided or not free.keys() <= set(avoided):
        return ""
    hosts = ", ".join(sorted(free))
    return f"its last attempts on {hosts} have failed: it waits for slots of other hosts"
