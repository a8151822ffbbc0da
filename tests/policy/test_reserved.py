"""Slots that are taken back for a pool are kept for it: exactly those that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

import pytest

from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.backends.simulated.simulation import Outage
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Preempt, Release
from slotwise.core.events import JobCancelled, PoolsChanged, TaskKilled
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.loop import initial_state
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain
from slotwise.insight.replay import replay_log

Simulate = Callable[..., object]
TAKES = Preemption(fair_after=5.0, fraction=1.0, grace=3.0)


def job(name: str, count: int, arrival: float = 1.0, work: float = 30.0, **how: object) -> Job:
    """A job in a pool of its own, of one phase."""
    return Job(name, (Phase("p", Tasks(count, work), **how),), arrival, name)


def scene(others: int) -> tuple[list[Pool], list[Job]]:
    """Pool big holds all slots; so many others and, after them, t lack two slots each."""
    names = [f"none{number}" for number in range(others)]
    pools = [Pool("big"), *(Pool(name) for name in names), Pool("t", preemption=TAKES)]
    jobs = [job("big", 24, 0.0, 100.0), *(job(name, 2) for name in names), job("t", 2)]
    return pools, jobs


def killed(log: Log, until: float = inf) -> list[tuple[float, str, int]]:
    """The tasks that were killed: when, the job and the task."""
    return [
        (turn.now, event.phase.job, event.task)
        for turn in log.turns
        for event in turn.events
        if isinstance(event, TaskKilled) and turn.now <= until
    ]


def launched(log: Log, name: str) -> list[float]:
    """When tasks of a job were launched."""
    return [
        turn.now
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch) and decision.phase.job == name
    ]


def released(log: Log) -> list[tuple[float, Release]]:
    """What was released, and when."""
    found = [(turn.now, d) for turn in log.turns for d in turn.decisions]
    return [(now, d) for now, d in found if isinstance(d, Release)]


ASSIGNERS = ["greedy", "delay", "flow"]


@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_two_tasks_die_for_two_slots(simulated: Simulate, assigner: str) -> None:
    """A pool without a time-out lacks two slots, too, and comes first, but gets none."""
    pools, jobs = scene(1)
    log = simulated(jobs, Cluster.of_slots(8), pools, assigner=assigner).log
    assert killed(log) == [(9.0, "big", 7), (9.0, "big", 6)]
    assert launched(log, "t") == [9.0, 9.0]
    assert launched(log, "none0") == [39.0, 39.0]
    assert not released(log)
    assert replay_log(log).is_identical


@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_one_task_dies_for_one_slot_beside_ten_pools(
    simulated: Simulate, assigner: str
) -> None:
    """The taker begins after its time-out and the grace, 8 s, whatever the others lack."""
    pools, jobs = scene(10)
    log = simulated(jobs, Cluster.of_slots(12), pools, assigner=assigner).log
    assert killed(log, until=38.0) == [(9.0, "big", 11)]
    assert launched(log, "t")[0] == 9.0
    assert launched(log, "none0")[0] == 39.0


def test_explain_says_for_whom_slots_are_taken_back(simulated: Simulate) -> None:
    """Before the tasks have stopped, to those who wait for them and to their pool."""
    pools, jobs = scene(1)
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    (other,) = explain(log, "none0", 7.0).phases
    assert other.reserved == {"t": 2}
    text = "reserved for pools that reclaim them, now or when tasks stop: 2 for pool t"
    assert text in str(explain(log, "none0", 7.0))
    (taker,) = explain(log, "t", 7.0).phases
    assert not taker.reserved
    assert taker.shares[0].lacks.endswith("; 2 slots are being reclaimed for it")


def test_a_task_that_ends_in_its_grace_gives_its_slot_to_the_taker(simulated: Simulate) -> None:
    """The newest tasks of big end at 8 s by themselves: nothing dies."""
    pools, jobs = scene(1)
    jobs[0] = Job("big", (Phase("p", Tasks(8, (*[100.0] * 6, 8.0, 8.0))),), 0.0, "big")
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert killed(log) == []
    assert launched(log, "t") == [8.0, 8.0]


def test_a_pool_gets_all_that_it_took_although_it_has_its_fraction(simulated: Simulate) -> None:
    """Its four slots come one after the other; with two of them it is not overdue any more."""
    pools = [Pool("big"), Pool("none"), Pool("t", preemption=replace(TAKES, fraction=0.5))]
    ends = (*[100.0] * 8, 9.0, 8.0, 7.0, 6.5)
    jobs = [
        Job("big", (Phase("p", Tasks(12, ends)),), 0.0, "big"),
        *[job("none", 4), job("t", 4)],
    ]
    log = simulated(jobs, Cluster.of_slots(12), pools).log
    assert launched(log, "t") == [6.5, 7.0, 8.0, 9.0]


def test_an_overdue_min_share_beats_a_reservation(simulated: Simulate) -> None:
    """Pool m is overdue when the slot for t is free: it takes this one, and t another."""
    pools = [
        Pool("big"),
        Pool("m", slots_min=1, preemption=Preemption(least_after=8.0)),
        Pool("t", preemption=TAKES),
    ]
    jobs = [job("big", 8, 0.0, 100.0), job("m", 1), job("t", 1)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert killed(log) == [(9.0, "big", 3), (12.0, "big", 2)]
    assert (launched(log, "m"), launched(log, "t")) == ([9.0], [12.0])


def test_slots_of_a_cancelled_taker_are_released(
    simulated: Simulate, watched: Simulate
) -> None:
    """Its job ends before the tasks have stopped: others get the slots at once."""
    pools, jobs = scene(1)
    cluster = Cluster.of_slots(8)
    backend = SimulatedBackend(cluster, jobs, requests=[JobCancelled(8.0, "t")])
    log = watched(backend, jobs, cluster, pools, "fair").log
    assert launched(log, "none0") == [9.0, 9.0]
    (host,) = cluster.by_name
    assert released(log) == [(9.0, Release("t", "task", "task", host, 2))]
    assert replay_log(log).is_identical


def test_pools_that_change_keep_what_is_taken_back(watched: Simulate) -> None:
    """Another pool gets a larger weight in the meantime; t still gets its two slots."""
    pools, jobs = scene(1)
    cluster = Cluster.of_slots(8)
    changed = [Pool("big", 1.5), *pools[1:]]
    backend = SimulatedBackend(cluster, jobs, requests=[PoolsChanged(7.0, tuple(changed))])
    log = watched(backend, jobs, cluster, pools, "fair").log
    assert len(killed(log, until=38.0)) == 2
    assert launched(log, "t") == [9.0, 9.0]


def test_a_lost_host_frees_nothing(simulated: Simulate) -> None:
    """What was to be freed there is taken on the other host."""
    pools = [Pool("big"), Pool("none"), Pool("t", preemption=TAKES)]
    jobs = [job("big", 20, 0.0, 100.0), job("none", 2), job("t", 2)]
    cluster = Cluster((Host("h1", {"task": 6}), Host("h2", {"task": 6})), grace=1000.0)
    log = simulated(
        jobs, cluster, pools, simulation=Simulation(outages=(Outage("h2", 7.0, 60.0),))
    ).log
    assert {now for now, *_ in killed(log, until=60.0)} == {10.0}
    assert launched(log, "t")[:2] == [10.0, 10.0]
    assert replay_log(log).is_identical


def test_wide_tasks_and_gangs_get_the_slots_of_their_pool(simulated: Simulate) -> None:
    """Pools that lack slots without a time-out get none while these add up."""
    ends = (*[100.0] * 6, 8.0, 7.0)
    for how in ({"slots": 2}, {"gang": True}):
        count = 1 if "slots" in how else 2
        jobs = [
            Job("big", (Phase("p", Tasks(8, ends)),), 0.0, "big"),
            job("none", 2),
            job("t", count, **how),
        ]
        pools = [Pool("big"), Pool("none"), Pool("t", preemption=TAKES)]
        log = simulated(jobs, Cluster.of_slots(8), pools).log
        assert launched(log, "t") == [8.0] * count
        assert launched(log, "none") == [38.0, 38.0]
        assert killed(log) == []


def test_what_a_wide_task_frees_beyond_the_lack_is_for_all(simulated: Simulate) -> None:
    """Two slots come free where t lacks one: the other one is released."""
    pools = [Pool("big"), Pool("none"), Pool("t", preemption=TAKES)]
    jobs = [job("big", 6, 0.0, 100.0, slots=2), job("none", 1), job("t", 1)]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert len(killed(log)) == 1
    assert launched(log, "t") == launched(log, "none") == [9.0]
    assert [one.slots for _, one in released(log)] == [1]


def test_each_share_of_a_pool_takes_what_it_lacks(simulated: Simulate) -> None:
    """A pool with a min share for maps and one for reduces on the same slots: four die."""
    takes = Preemption(least_after=5.0, grace=3.0)
    pools = [
        *[Pool("big"), Pool("none")],
        Pool("t", slots_min={"map": 2, "reduce": 2}, preemption=takes),
    ]
    jobs = [job("big", 13, 0.0, 100.0), job("none", 13)]
    jobs += [
        Job(kind, (Phase(kind, Tasks(2, 30.0), kind),), 1.0, "t") for kind in ("map", "reduce")
    ]
    log = simulated(jobs, Cluster.of_slots(12), pools).log
    assert len(killed(log)) == 4
    assert launched(log, "map") == launched(log, "reduce") == [9.0, 9.0]


def test_a_slot_waits_for_room_in_the_pool(simulated: Simulate) -> None:
    """The reduce slot that b gives is there before the map that makes room for it has ended."""
    cluster = Cluster((Host("h", {"map": 2, "reduce": 2}),))
    pools = [
        Pool("a", slots_max=2),
        Pool("a1", parent="a"),
        Pool("a2", parent="a", preemption=TAKES),
        Pool("b"),
    ]

    def of(name: str, pool: str, kind: str, works: Sequence[float], at: float) -> Job:
        return Job(name, (Phase("p", Tasks(len(works), tuple(works)), kind),), at, pool)

    jobs = [
        of("x", "a1", "map", [100.0, 100.0], 0.0),
        of("y", "b", "reduce", [100.0, 7.0, 100.0], 0.0),
        of("z", "a2", "reduce", [20.0], 1.0),
    ]
    log = simulated(jobs, cluster, pools).log
    assert launched(log, "z") == [9.0]
    assert sorted(killed(log, until=20.0)) == [(9.0, "x", 1)]


def decided(log: Log) -> Iterable[object]:
    """All decisions."""
    return (decision for turn in log.turns for decision in turn.decisions)


def test_a_log_of_older_rules_reserves_nothing(simulated: Simulate) -> None:
    """Its slots went to whoever came first; the state follows it as it was."""
    pools, jobs = scene(1)
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    for rules, kept in ((7, {}), (8, 2)):
        state = initial_state(replace(log.header, rules=rules))
        for turn in log.turns:
            state.at(turn.now)
            for event in turn.events:
                state.apply(event)
            if turn.now == 9.0:
                break
            for decision in turn.decisions:
                state.apply(decision)
        there = state.reserved("task")
        slots = {} if not there else sum(next(iter(there.values())).values())
        assert slots == kept
        for decision in turn.decisions:
            state.apply(decision)
        state.check()
    assert sum(isinstance(one, Preempt) for one in decided(log)) == 2
