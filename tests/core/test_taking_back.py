"""Slots that are taken back go to the pool that lacks them, and each wait for them ends."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import JobArrived, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.insight.replay import replay_log
from slotwise.policy.assignment import preemption, victims

Simulate = Callable[..., object]


def job(name: str, pool: str, count: int, work: float, arrival: float = 0.0) -> Job:
    """A job of one phase."""
    return Job(name, (Phase("p", Tasks(count, work)),), arrival, pool)


def preempted(log: Log) -> list[tuple[float, str, int]]:
    """When which tasks were asked to stop."""
    found = [(turn.now, d) for turn in log.turns for d in turn.decisions]
    return [(now, d.phase.job, d.task) for now, d in found if isinstance(d, Preempt)]


def test_no_slots_are_taken_on_hosts_where_the_tasks_only_fail(simulated: Simulate) -> None:
    """When three tasks of y have failed on h1, its pool takes no more slots of x there."""
    pools = [
        Pool("a"),
        Pool("b", weight=3.0, preemption=Preemption(fair_after=0.0, fraction=1.0)),
    ]
    cluster = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 2})))
    jobs = [job("x", "a", 4, 10.0), job("y", "b", 5, 10.0, arrival=1.0)]
    simulation = Simulation(
        fault=lambda a: Fault("h1") if (a.phase.job, a.host) == ("y", "h1") else None
    )
    watch = simulated(jobs, cluster, pools, simulation=simulation)
    assert watch.state.completed.keys() == {"x", "y"}
    assert preempted(watch.log) == [(1.0, "x", 3), (1.0, "x", 2), (1.0, "x", 1)]


def test_a_task_that_is_stopped_as_soon_as_it_begins_is_spared() -> None:
    """Otherwise shares that go back and forth at one instant would do so for ever."""
    state = State(
        Cluster.of_slots(1), [Pool("a"), Pool("b", preemption=Preemption(fair_after=0))]
    )
    state.at(5.0)
    state.apply(JobArrived(5.0, job("x", "a", 1, 10.0)))
    state.apply(JobArrived(5.0, job("y", "b", 1, 10.0)))
    phase, host = PhaseId("x", "p"), state.cluster.hosts[0].name
    state.apply(Launch(phase, 0, 1, host, Locality.NODE))
    state.apply(Preempt(phase, 0, 1, host, None, "b"))
    state.apply(TaskKilled(5.0, phase, 0, 1))
    state.apply(Launch(phase, 0, 2, host, Locality.NODE))
    held = {one.id: one for one in state.holding("task")}
    assert held[phase].spared_until(0) > 5.0


def test_a_wide_task_leaves_room_in_its_pool_to_another_kind(simulated: Simulate) -> None:
    """Two maps of two slots fill pool a. One stops for a reduce, and does not come back.

    Pool a then has room for two slots. Another map of x would take both of them.
    """
    pools = [
        Pool("a", slots_max=4),
        Pool("a1", parent="a"),
        Pool("a2", parent="a", preemption=Preemption(fair_after=5.0, fraction=1.0)),
        *[Pool("b"), Pool("c")],
    ]
    cluster = Cluster(tuple(Host(f"h{n}", {"map": 2, "reduce": 1}) for n in (1, 2)))
    jobs = [
        Job("x", (Phase("p", Tasks(4, 100.0), "map", slots=2),), 0.0, "a1"),
        Job("y", (Phase("p", Tasks(8, 100.0), "reduce"),), 0.0, "b"),
        Job("gang", (Phase("p", Tasks(4, 100.0), "map", gang=True),), 5.0, "c"),
        Job("z", (Phase("p", Tasks(1, 20.0), "reduce"),), 10.0, "a2"),
    ]
    watch = simulated(jobs, cluster, pools)
    assert watch.state.completed["z"] == 35.0
    assert preempted(watch.log) == [(15.0, "x", 1), (15.0, "y", 1)]


def test_a_min_share_comes_before_a_wide_task_in_the_same_pool(simulated: Simulate) -> None:
    """When its task stops, b is overdue, too. Its slots go to b2, and not to the wide task."""
    of_b2 = Preemption(least_after=5.0, fair_after=inf, fraction=1.0)
    pools = [
        Pool("a", weight=0.3),
        Pool("b", preemption=Preemption(fair_after=0.0, fraction=1.0)),
        Pool("b1", parent="b"),
        Pool("b2", parent="b", slots_min=1, preemption=of_b2),
    ]
    jobs = [
        Job("wide", (Phase("p", Tasks(2, 300.0), slots=2),), 0.0, "b1"),
        Job("gang", (Phase("p", Tasks(2, 10.0), gang=True),), 5.0, "a"),
        job("narrow", "b2", 1, 20.0, arrival=10.0),
    ]
    watch = simulated(jobs, Cluster.of_slots(2), pools)
    assert preempted(watch.log) == [(15.0, "wide", 0)]
    assert watch.state.completed["narrow"] == 35.0


def test_a_replay_has_the_order_in_which_pools_became_overdue(simulated: Simulate) -> None:
    """The shortage of b that would be overdue at 6 s ends; at 9 s a and b both are.

    A replay sees no turn between, since nothing is decided in it.
    """
    taking = Preemption(fair_after=5.0, fraction=1.0)
    pools = [Pool("a", preemption=taking), Pool("b", preemption=taking), Pool("c")]
    jobs = [
        job("first", "a", 1, 0.0625),
        job("x", "c", 2, 100.0),
        job("s", "c", 1, 2.0, arrival=0.5),
        job("y", "b", 1, 0.25, arrival=1.0),
        job("z", "c", 1, 100.0, arrival=2.125),
        job("ya", "a", 1, 10.0, arrival=4.0),
        job("yb", "b", 1, 10.0, arrival=4.0),
        job("late", "c", 1, 10.0, arrival=5.5),
    ]
    log = simulated(jobs, Cluster.of_slots(3), pools).log
    assert [now for now, *_ in preempted(log)] == [9.0, 9.0]
    assert replay_log(log).is_identical


def test_all_overdue_pools_look_at_the_running_tasks_once(
    simulated: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under LAS several pools wait for tasks that were stopped before."""
    looks: list[int] = []
    preempt, newest_first = preemption.preempt, victims._newest_first

    def counted(*given: object) -> object:
        looks[-1] += 1
        return newest_first(*given)

    def called(snapshot: State) -> object:
        looks.append(0)
        return preempt(snapshot)

    monkeypatch.setattr(victims, "_newest_first", counted)
    monkeypatch.setattr("slotwise.policy.scheduler.preempt", called)
    names = [f"p{number}" for number in range(6)]
    taking = Preemption(fair_after=1.0, fraction=1.0)
    pools = [Pool(name, preemption=taking) for name in names]
    jobs = [job(name, name, 3, 50.0, arrival=number) for number, name in enumerate(names)]
    simulated(jobs, Cluster.of_slots(3), pools, "las")
    assert max(looks) == 1
