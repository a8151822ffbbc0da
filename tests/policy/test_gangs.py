"""Phases whose tasks start together: when they start and where, whom they wait for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slotwise.backends.simulated.simulation import Fault, Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Defer, Launch, Locality, Preempt
from slotwise.core.events import HostAdded, HostRemoved
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.timeline import timeline_of
from slotwise.insight.waits import worst_waits

TWO_HOSTS = Cluster((Host("a", {"task": 2}, "r0"), Host("b", {"task": 2}, "r1")))


def gang(
    count: int, seconds: float | tuple[float, ...], arrival: float = 0.0, **more: object
) -> Job:
    """A job of one gang."""
    about = {key: more.pop(key) for key in ("pool", "weight", "priority") if key in more}
    phase = Phase("p", Tasks(count, seconds, more.pop("blocks", ())), gang=True, **more)
    return Job("gang", (phase,), arrival=arrival, **about)


def narrow(name: str, count: int, seconds: object, arrival: float = 0.0, **more: object) -> Job:
    """A job of tasks of one slot each."""
    return Job(name, (Phase("p", Tasks(count, seconds)),), arrival=arrival, **more)


def starts(log: Log, name: str) -> list[float]:
    """When the tasks of a job were launched."""
    return [
        turn.now
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch) and decision.phase.job == name
    ]


def decisions(log: Log, kind: type) -> list[object]:
    """All decisions of a kind."""
    return [d for turn in log.turns for d in turn.decisions if isinstance(d, kind)]


def places(log: Log) -> list[tuple[int, str, Locality]]:
    """Where each task of the gang was launched."""
    return [
        (d.task, d.host, d.locality) for d in decisions(log, Launch) if d.phase.job == "gang"
    ]


@pytest.mark.parametrize("name", ["fifo", "fair", "flex", "flowflex-fast"])
def test_a_stream_of_narrow_tasks_ends_for_a_gang(
    simulated: Callable[..., object], name: str
) -> None:
    """Slots become free one by one on two hosts, and are kept until three are free."""
    stream = [narrow(f"n{n}", 1, 2.0, 0.5 * n, weight=0.01) for n in range(40)]
    job = gang(3, 1.0, 4.1, weight=100.0, priority="very_high")
    watch = simulated([*stream, job], TWO_HOSTS, name=name)
    assert starts(watch.log, "gang") == [5.5] * 3


def test_a_gang_that_fits_into_free_slots_does_not_wait(
    simulated: Callable[..., object],
) -> None:
    """Three slots are free on two hosts."""
    watch = simulated([narrow("n", 1, 9.0), gang(3, 1.0, 2.0)], TWO_HOSTS)
    assert starts(watch.log, "gang") == [2.0] * 3
    assert not decisions(watch.log, Defer)


def test_a_gang_waits_for_the_host_whose_newest_task_is_oldest(
    simulated: Callable[..., object],
) -> None:
    """Both hosts are full; only the slots of the one that was filled first are kept."""
    jobs = [
        narrow("old", 2, 4.0),
        narrow("new", 2, 4.0, 1.0),
        gang(2, 1.0, 2.0, weight=100.0),
        narrow("late", 1, 1.0, 3.0, weight=0.01),
    ]
    watch = simulated(jobs, TWO_HOSTS, name="fifo")
    assert starts(watch.log, "gang") == [4.0, 4.0]
    assert {host for _, host, _ in places(watch.log)} == {"a"}
    assert starts(watch.log, "late") == [5.0]


def test_half_of_a_gang_is_a_gang_half_of_the_time(simulated: Callable[..., object]) -> None:
    """With one of two slots allocated, the gang starts after about the length of a task."""
    watch = simulated([narrow("n", 60, 1.0), gang(2, 8.0)], Cluster.of_slots(2))
    assert 7.0 <= starts(watch.log, "gang")[0] <= 11.0


def test_a_max_share_leaves_room_for_a_gang(simulated: Callable[..., object]) -> None:
    """In a pool of at most three slots, narrow tasks stop until the gang has had its turn."""
    jobs = [narrow("n", 30, 1.0, pool="a"), gang(3, 1.0, pool="a")]
    watch = simulated(jobs, TWO_HOSTS, [Pool("a", slots_max={"task": 3})])
    assert starts(watch.log, "gang")[0] <= 4.0


@pytest.mark.parametrize("assigner", ["greedy", "delay", "flow"])
def test_tasks_go_to_the_hosts_of_their_input(
    simulated: Callable[..., object], assigner: str
) -> None:
    """Task 0 has input on both hosts, tasks 1 and 2 on a, task 3 on b."""
    homes = [{"a", "b"}, {"a"}, {"a"}, {"b"}]
    blocks = [Block(frozenset(one), 100) for one in homes]
    watch = simulated([gang(4, 1.0, blocks=blocks)], TWO_HOSTS, assigner=assigner)
    near = Locality.NODE
    assert places(watch.log) == [(0, "b", near), (1, "a", near), (2, "a", near), (3, "b", near)]


def test_flow_moves_the_fewest_bytes(simulated: Callable[..., object]) -> None:
    """Three tasks have input on a, which has two slots: the smallest input moves."""
    blocks = [Block(frozenset({"a"}), size) for size in (500, 7, 600)]
    watch = simulated([gang(3, 1.0, blocks=blocks)], TWO_HOSTS, assigner="flow")
    assert [host for _, host, _ in places(watch.log)] == ["a", "b", "a"]


def test_delay_waits_for_slots_near_the_input(simulated: Callable[..., object]) -> None:
    """One slot of host a is held until 2 s; after 1 s the gang accepts any slots."""
    blocks = [Block(frozenset({"a"}), 1)] * 2
    jobs = [narrow("n", 1, 2.0), gang(2, 1.0, 0.1, blocks=blocks)]
    options = {"assigner": "delay", "name": "fifo"}
    patient = simulated(jobs, TWO_HOSTS, waits=(3.0, 6.0), **options)
    assert starts(patient.log, "gang") == [2.0, 2.0]
    hasty = simulated(jobs, TWO_HOSTS, waits=(0.5, 1.0), **options)
    assert starts(hasty.log, "gang") == [1.1, 1.1]


def test_an_overdue_pool_gets_slots_for_a_whole_gang(simulated: Callable[..., object]) -> None:
    """Three tasks of another pool are stopped together, at the end of the time-out."""
    pools = [Pool("vip", slots_min={"task": 3}, preemption=Preemption(least_after=1.0))]
    jobs = [narrow("long", 4, 100.0, pool="other"), gang(3, 1.0, 5.0, pool="vip")]
    watch = simulated(jobs, TWO_HOSTS, pools)
    assert starts(watch.log, "gang") == [6.0] * 3
    assert len(decisions(watch.log, Preempt)) == 3


def test_no_slot_is_taken_back_for_tasks_that_leave_room_to_a_gang(
    simulated: Callable[..., object],
) -> None:
    """One slot is missing; the max share holds it free for the gang, which needs four."""
    pools = [Pool("a", slots_min=3, slots_max=4, preemption=Preemption(least_after=0.5))]
    jobs = [
        narrow("first", 2, 10.0, pool="a"),
        narrow("other", 9, 10.0, pool="c"),
        gang(4, 1.0, 1.0, pool="a"),
        narrow("later", 3, 1.0, 1.0, pool="a"),
    ]
    watch = simulated(jobs, Cluster.of_slots(5), pools)
    assert not decisions(watch.log, Preempt)
    assert starts(watch.log, "gang") == [10.0] * 4


def test_slots_that_come_one_by_one_are_not_given_away(
    simulated: Callable[..., object],
) -> None:
    """One of the stopped tasks ends by itself before its grace; its slot waits for others."""
    pools = [
        Pool("vip", slots_min={"task": 3}, preemption=Preemption(least_after=0.0, grace=3.0))
    ]
    long = narrow("long", 8, (9.0, 9.0, 9.0, 6.0, 9.0, 9.0, 9.0, 9.0))
    watch = simulated([long, gang(3, 1.0, 5.0, pool="vip")], TWO_HOSTS, pools)
    assert starts(watch.log, "gang")[0] <= 8.0
    assert len(decisions(watch.log, Preempt)) == 3


def test_a_gang_is_stopped_as_a_whole(simulated: Callable[..., object]) -> None:
    """One slot is missing, and both gangs are above the share of their pool: one must go."""
    pools = [Pool("vip", 99.0, {"task": 1}, preemption=Preemption(0.0, grace=0.5))]
    jobs = [
        replace(gang(2, 10.0, pool="other"), id="first"),
        gang(2, 10.0, 1.0, pool="other"),
        narrow("n", 4, 1.0, 2.0, pool="vip"),
    ]
    watch = simulated(jobs, TWO_HOSTS, pools, simulation=Simulation(save_seconds=0.1))
    taken = decisions(watch.log, Preempt)
    assert [(*one.phase, one.task, one.attempt, one.until, one.pool) for one in taken] == [
        ("gang", "p", task, 1, 2.5, "vip") for task in range(2)
    ]
    assert starts(watch.log, "n") == [2.5, 2.5, 3.5, 3.5]
    assert starts(watch.log, "gang") == [1.0] * 2 + [4.5] * 2
    assert watch.state.completed["gang"] == 14.5, "a gang keeps nothing"
    outcome = MetricsCollector.of_log(watch.log).outcome()
    assert outcome.bound <= outcome.metrics["value"]


def test_other_tasks_are_stopped_before_a_gang(simulated: Callable[..., object]) -> None:
    """The gang is newer, but one narrow task is enough."""
    pools = [Pool("vip", slots_min={"task": 1}, preemption=Preemption(0.0))]
    jobs = [
        narrow("old", 2, 10.0, pool="other"),
        gang(2, 10.0, 1.0, pool="other"),
        narrow("n", 1, 1.0, 2.0, pool="vip"),
    ]
    watch = simulated(jobs, TWO_HOSTS, pools)
    assert [one.phase.job for one in decisions(watch.log, Preempt)] == ["old"]


def test_a_gang_is_spared_that_a_share_needs(simulated: Callable[..., object]) -> None:
    """The gang holds all of its pool's min share; without it, the pool would be below."""
    pools = [
        Pool("vip", slots_min={"task": 1}, preemption=Preemption(0.0)),
        Pool("other", slots_min={"task": 3}),
    ]
    jobs = [gang(4, 10.0, pool="other"), narrow("n", 1, 1.0, 2.0, pool="vip")]
    watch = simulated(jobs, TWO_HOSTS, pools)
    assert not decisions(watch.log, Preempt)
    assert starts(watch.log, "n") == [10.0]


def test_a_lost_host_breaks_a_gang(simulated: Callable[..., object]) -> None:
    """A host is removed: what ran on the other one is stopped, and all start there later."""
    simulation = Simulation(
        changes=(HostRemoved(1.0, "b"), HostAdded(2.0, Host("c", {"task": 1})))
    )
    watch = simulated([gang(3, 4.0)], TWO_HOSTS, simulation=simulation)
    assert starts(watch.log, "gang") == [0.0] * 3 + [2.0] * 3
    assert watch.state.completed == {"gang": 6.0}
    text = str(explain(watch.log, "gang", 1.5))
    assert (
        "the 3 tasks of its gang start together, and the hosts that can start tasks now have"
        " slots for 2 of them" in text
    )


def test_a_gang_waits_for_its_attempts_on_an_unresponsive_host(
    simulated: Callable[..., object],
) -> None:
    """Its tasks on b are heard of again at 6 s. Until then the gang does not start again."""
    simulation = Simulation(
        outages=(Outage("b", 1.0, 5.0),),
        fault=lambda launch: (
            Fault("broke", 0.5) if (launch.attempt, launch.task) == (1, 0) else None
        ),
    )
    cluster = Cluster(TWO_HOSTS.hosts, grace=60.0)
    watch = simulated([gang(4, 4.0)], cluster, simulation=simulation)
    assert starts(watch.log, "gang") == [0.0] * 4 + [6.0] * 4


def test_a_waiting_gang_is_explained(simulated: Callable[..., object]) -> None:
    """For what it waits and since when; and afterwards, for what it waited."""
    jobs = [narrow("n", 4, 10.0), gang(2, 2.0, 1.0, slots=2, weight=9.0)]
    watch = simulated(jobs, Cluster((Host("a", {"task": 5}), Host("b", {"task": 1}))))
    text = str(explain(watch.log, "gang", 3.0))
    assert (
        "it has waited since 1 s for 4 free slots on the hosts together, 2 on one host" in text
    )
    assert "there are free slots for 0 of the 2 tasks of its gang" in text
    (wait, *_) = worst_waits(watch.log, timeline_of(watch.log), job="gang")
    assert wait.reason == (
        "it waited for 4 free slots on the hosts together, for all 2 tasks of its gang"
    )


def test_a_broken_gang_is_explained(simulated: Callable[..., object]) -> None:
    """While its tasks on an unresponsive host cannot be stopped."""
    simulation = Simulation(
        outages=(Outage("b", 1.0, 5.0),),
        fault=lambda launch: (
            Fault("broke", 0.5) if (launch.attempt, launch.task) == (1, 0) else None
        ),
    )
    watch = simulated(
        [gang(4, 4.0)], Cluster(TWO_HOSTS.hosts, grace=60.0), simulation=simulation
    )
    text = str(explain(watch.log, "gang", 3.0))
    assert (
        "an attempt of its gang has ended without a result: its running tasks are stopped"
        in text
    )
