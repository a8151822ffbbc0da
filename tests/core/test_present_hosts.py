"""Unresponsive hosts are not allocated: allocations, guarantees and their clocks, in
simulated runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slotwise.backends.simulated.backend import Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt, Reallocate
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain
from slotwise.insight.replay import replay_log

Simulate = Callable[..., object]

HOSTS = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 2})), grace=1000.0)


def job(name: str, count: int, work: float = 100.0, **rest: object) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("map", Tasks(count, work)),), **rest)


def outage(at: float, seconds: float, host: str = "h1") -> Simulation:
    """A simulation in which a host is unresponsive for a while."""
    return Simulation(outages=(Outage(host, at, seconds),))


def allocated(log: Log) -> list[tuple[float, dict[str, float]]]:
    """What each job was allocated, and when."""
    return [
        (turn.now, {phase.job: slots for phase, slots in decision.slots.items()})
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Reallocate)
    ]


@pytest.mark.parametrize("name", ["fair", "flex", "flowflex-fast"])
def test_only_present_slots_are_allocated(simulated: Simulate, name: str) -> None:
    """Two of four slots are unavailable from 10 to 25; both instants lead to a reallocation."""
    log = simulated([job("x", 9, 50.0)], HOSTS, name=name, simulation=outage(10, 15)).log
    found = dict(allocated(log))
    assert [found[at]["x"] for at in (0.0, 10.0, 25.0)] == [4, 2, 4]


def test_tasks_on_an_unresponsive_host_do_not_count_for_a_share(simulated: Simulate) -> None:
    """The job on h1 holds no slot of a responsive host, so it gets the next free slot."""
    jobs = [job("x", 9), job("y", 6, 12.0, arrival=1.0)]
    watch = simulated(jobs, HOSTS, simulation=outage(5, 500, "h1"))
    begun = [
        (turn.now, d.phase.job, d.host)
        for turn in watch.log.turns
        for d in turn.decisions
        if isinstance(d, Launch)
    ]
    assert begun[:4] == [(0.0, "x", "h1")] * 2 + [(0.0, "x", "h2")] * 2
    assert dict(allocated(watch.log))[5.0] == {"x": 1, "y": 1}
    assert [one for one in begun if one[0] == 100.0] == [
        (100.0, "y", "h2"),
        (100.0, "x", "h2"),
    ]


def test_a_min_share_is_limited_to_present_slots(simulated: Simulate) -> None:
    """Pool b has both slots on h1, unresponsive from 10 on. At 15 it takes two back."""
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=Preemption(least_after=5.0))]
    jobs = [job("y", 4, pool="b"), job("x", 4, pool="a")]
    watch = simulated(jobs, HOSTS, pools, simulation=outage(10, 100))
    preempted = [
        (turn.now, d.phase.job, d.host)
        for turn in watch.log.turns
        for d in turn.decisions
        if isinstance(d, Preempt)
    ]
    assert preempted == [(15.0, "x", "h2"), (15.0, "x", "h2")]


def test_preemption_is_limited_to_present_slots(simulated: Simulate) -> None:
    """Both pools are guaranteed two of four slots. Each has one of the two that are left."""
    taking = Preemption(least_after=5.0)
    pools = [Pool(name, slots_min=2, preemption=taking) for name in "ab"]
    jobs = [job("x", 4, pool="a"), job("y", 4, pool="b")]
    watch = simulated(jobs, HOSTS, pools, simulation=outage(10, 50))
    assert dict(allocated(watch.log))[10.0] == {"x": 1, "y": 1}
    assert replay_log(watch.log).is_identical


def test_a_max_share_counts_tasks_on_unresponsive_hosts(simulated: Simulate) -> None:
    """Of three slots, two are held on the unresponsive host, so one more task may begin."""
    pools = [Pool("a", slots_max=3)]
    watch = simulated([job("x", 9, pool="a")], HOSTS, pools, simulation=outage(10, 50))
    assert dict(allocated(watch.log))[10.0] == {"x": 1}


@pytest.mark.parametrize("name", ["fair", "flex", "flowflex-fast"])
def test_without_present_slots_nothing_is_allocated(simulated: Simulate, name: str) -> None:
    """The only host with reduce slots is unresponsive; maps continue, and all jobs complete."""
    cluster = Cluster((Host("m", {"map": 2}), Host("r", {"reduce": 1})), grace=1000.0)
    phases = (
        Phase("map", Tasks(4, 5.0), "map"),
        Phase("reduce", Tasks(2, 5.0), "reduce", frozenset({"map"})),
    )
    jobs = [Job("x", phases), Job("y", phases, arrival=11.0)]
    watch = simulated(jobs, cluster, name=name, simulation=outage(11, 30, "r"))
    at_once = {
        phase: slots
        for turn in watch.log.turns
        if turn.now == 11.0
        for decision in turn.decisions
        if isinstance(decision, Reallocate)
        for phase, slots in decision.slots.items()
    }
    assert at_once == {PhaseId("y", "map"): 2}
    assert watch.state.completed.keys() == {"x", "y"}


def test_explanations_show_present_slots(simulated: Simulate) -> None:
    """While h1 is unresponsive, two slots are shared, and slots held on h1 do not count."""
    jobs = [job("x", 4, pool="a"), job("y", 4, pool="b")]
    log = simulated(jobs, HOSTS, [Pool("a"), Pool("b")], simulation=outage(10, 50)).log
    (phase,) = explain(log, "x", 10.0).phases
    assert (phase.running, phase.silent, phase.allocated) == (2, {"h1": 1}, 1)
    (share,) = phase.shares
    assert (share.running, share.share, share.demand) == (1, 1, 3)
