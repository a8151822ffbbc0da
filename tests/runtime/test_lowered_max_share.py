"""The max share of a pool becomes lower than what it holds on hosts that do not respond."""

from __future__ import annotations

from slotwise.model.cluster import Cluster, Host
from slotwise.model.event import PoolsChanged, TaskFinished
from slotwise.model.job import Job, Phase, Tasks
from slotwise.model.pool import Pool
from slotwise.record.log import Header, Log
from slotwise.runtime.initial import initial_state
from slotwise.runtime.loop import run
from slotwise.runtime.simulated.backend import SimulatedBackend, Simulation
from slotwise.runtime.simulated.outages import Outage
from slotwise.scheduler import make_scheduler


def test_a_pool_that_holds_more_elsewhere_gets_no_slots() -> None:
    """Its third task waits for the two that run unseen; the other pool uses the other host."""
    cluster = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1})))
    jobs = [
        Job("p", (Phase("p", Tasks(3, 4.0)),), pool="p"),
        Job("q", (Phase("q", Tasks(2, 1.0)),), 2.5, pool="q"),
    ]
    pools = (Pool("p", slots_max={"task": 2}), Pool("q"))
    simulation = Simulation(outages=(Outage("a", 1.0, 5.0),))
    requests = [PoolsChanged(2.0, (Pool("p", slots_max={"task": 1}), Pool("q")))]
    objective = {"penalty": "response", "aggregate": "sum"}
    log = Log(Header("simulated", {"name": "fair"}, objective, cluster, pools, None))
    backend = SimulatedBackend(cluster, jobs, simulation, requests)
    run(make_scheduler("fair"), backend, initial_state(log.header), log)
    ends = [
        (turn.now, event.phase.job)
        for turn in log.turns
        for event in turn.events
        if isinstance(event, TaskFinished)
    ]
    assert ends == [(3.5, "q"), (4.5, "q"), (6.0, "p"), (6.0, "p"), (10.0, "p")]
