"""Slots that were kept for a phase of wide tasks, and are not needed for it any more."""

from __future__ import annotations

from policy.test_assigners import decide
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Defer, GiveUp, Launch, Locality, Reallocate
from slotwise.core.events import JobArrived
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.state import State
from slotwise.policy.assignment.delay import Delay


def test_a_phase_that_waits_for_locality_takes_slots_that_were_kept() -> None:
    """Its input is on h1, kept at first for two slots at once; it did not let h1 pass."""
    state = State(Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 1}))))
    state.at(0.0)
    near = Tasks(1, 1.0, (Block(frozenset({"h1"})),))
    phases = {
        "busy": Phase("p", Tasks(1, 9.0)),
        "wide": Phase("p", Tasks(1, 1.0), slots=2),
        "near": Phase("p", near),
    }
    for name, phase in phases.items():
        state.apply(JobArrived(0.0, Job(name, (phase,))))
    busy, wide, waits = (PhaseId(name, "p") for name in phases)
    state.apply(Reallocate({busy: 1.0, wide: 2.0, waits: 1.0}, until=1e9))
    state.apply(Launch(busy, 0, 1, "h1", Locality.NODE))
    delay = Delay(5.0, 10.0)
    assert {d.phase for d in decide(state, delay) if isinstance(d, Defer)} == {wide, waits}
    state.at(0.1)
    state.apply(GiveUp("wide", "cancelled"))
    assert decide(state, delay) == [Launch(waits, 0, 1, "h1", Locality.NODE)]
