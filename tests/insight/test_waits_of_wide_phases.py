"""Why phases of wide tasks, and gangs, waited."""

from __future__ import annotations

import slotwise
from slotwise import Cluster, Host, Job, Outage, Phase, Simulation, Tasks, Workload


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


def test_a_gang_that_waits_for_a_lost_host_says_that_the_others_are_too_few() -> None:
    """From the loss, when its other tasks are stopped, until the host is back."""
    hosts = (Host("h0", {"task": 4}), Host("h1", {"task": 4}))
    gang = Job("gang", (Phase("map", Tasks(8, 10.0), gang=True),))
    workload = Workload((gang,), cluster=Cluster(hosts, grace=2.0))
    truth = Simulation(outages=(Outage("h0", 3, 40),))
    (wait,) = slotwise.explain(slotwise.simulate(workload, "fair", simulation=truth).log)
    assert (wait.start, wait.end) == (5.0, 43.0)
    assert wait.reason == (
        "the 8 tasks of its gang start together, and the hosts present had slots for 4 of them"
    )
