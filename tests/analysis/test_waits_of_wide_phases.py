"""Why phases of wide tasks waited."""

from __future__ import annotations

import slotwise
from slotwise import Job, Phase, Simulation, Tasks


def test_a_wait_for_several_slots_is_no_delay_scheduling() -> None:
    """The wide task lacks a part of its slots, so its wait has an end; all slots are held."""
    jobs = [
        Job("narrow", (Phase("map", Tasks(40, 1.0)),)),
        Job("wide", (Phase("map", Tasks(4, 1.0), slots=2),), arrival=0.5),
    ]
    log = slotwise.simulate(jobs, "fair", slots=2, simulation=Simulation(noise=0.3, seed=1)).log
    found = list(slotwise.explain(log, "wide"))
    assert any("for 2 free slots of one host" in wait.reason for wait in found)
    assert not any("delay scheduling" in wait.reason for wait in found)
