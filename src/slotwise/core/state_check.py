"""The invariants of the state, for tests."""

from __future__ import annotations

from typing import Any

from slotwise.core.phase_state import check_phase


def check_state(state: Any) -> None:
    """Assert every invariant of a `State`, of whose module this is a part. O(its size)."""
    for phase in state._phases.values():
        check_phase(phase)
    assert state.cluster is state._hosts.cluster
    for kind in state.cluster.capacity:
        phases = [phase for phase in state._phases.values() if phase.slot_kind == kind]
        of_hosts = state.reserved(kind).values()
        reserved = sum(slots for pools in of_hosts for slots in pools.values())
        state._hosts.check(kind, sum(phase.running for phase in phases) + reserved)
        backlogged = {phase.id for phase in state.backlogged(kind)}
        assert backlogged == {p.id for p in state._jobs.ready[kind].values() if p.pending}
        state._jobs.check(kind, state.pools)
        state._of_kind[kind].check(phases)
    state._shares.check_limits(state._phases.values(), state._hosts.lost)
    state._shares.check_reclaimed(state._phases.values(), state._hosts.lost)
    state._hosts.check_spare(state._phases.values())
    for offers in state._offers.values():
        offers.check()
