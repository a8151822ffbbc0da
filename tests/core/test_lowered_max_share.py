"""The max share of a pool becomes lower than what it holds on hosts that do not respond."""

from __future__ import annotations

from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import PoolsChanged, TaskFinished
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Header, Log
from slotwise.core.loop import initial_state, run
from slotwise.core.pools import Pool
from slotwise.policy.scheduler import make_scheduler


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
