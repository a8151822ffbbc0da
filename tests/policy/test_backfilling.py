"""EASY and conservative backfilling: who starts when, and what no job may suffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import backfilling as oracle
from oracles.backfilling import Rigid
from properties import test_changing_hosts, test_requests
from properties.test_runs import reread
from properties.test_wide import Case, check_slots
from slotwise.backends.simulated.simulation import Fault, Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Enqueue, Launch
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import BACKFILLINGS
from tiers import examples

SLOTS = 8
Simulated = Callable[..., Any]


def rigid(name: str, slots: int, seconds: float, arrival: float = 0.0, **more: Any) -> Job:
    """A job of one wide task that requests the time that it takes, unless it states another."""
    phase = Phase("run", Tasks(1, seconds), slots=slots, resources=more.pop("resources", {}))
    return Job(name, (phase,), arrival=arrival, **{"time_requested": seconds, **more})


def starts(log: Log) -> dict[str, float]:
    """When the first task of each job was launched, the last time."""
    return {
        decision.phase.job: turn.now
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch) and decision.task == 0
    }


@st.composite
def streams(draw: st.DrawFn, factors: Sequence[float] = (1.0, 1.5, 4.0)) -> list[Rigid]:
    """Jobs of whole seconds, which request their run times by these factors."""
    made = []
    for _ in range(draw(st.integers(1, 14))):
        run = draw(st.integers(1, 12))
        requested = max(1.0, run * draw(st.sampled_from(factors)))
        arrival = draw(st.integers(0, 15))
        made.append(Rigid(arrival, draw(st.integers(1, SLOTS)), run, requested))
    return sorted(made, key=lambda job: job.arrival)


def course(simulated: Simulated, name: str, jobs: Sequence[Rigid]) -> Log:
    """The log of these jobs on one host."""
    made = [
        rigid(f"{n:02}", job.slots, job.run, job.arrival, time_requested=job.requested)
        for n, job in enumerate(jobs)
    ]
    return simulated(made, Cluster.of_slots(SLOTS), name=name).log


@pytest.mark.parametrize("name", BACKFILLINGS)
@given(jobs=streams(factors=(1.0, 1.5, 4.0, 0.5)))
@settings(max_examples=examples(40, slow=800), deadline=None)
def test_each_job_starts_when_the_textbook_says(
    simulated: Simulated, name: str, jobs: list[Rigid]
) -> None:
    """On one host, also if some jobs take longer than they request."""
    plain = oracle.easy if name.startswith("easy") else oracle.conservative
    expected = plain(jobs, SLOTS, shortest_first=name.endswith("-sjbf"))
    log = course(simulated, name, jobs)
    assert starts(log) == {f"{n:02}": start for n, start in expected.starts.items()}


@pytest.mark.parametrize("name", ["easy", "easy-sjbf"])
@given(jobs=streams(factors=(1.0, 1.5, 4.0, 0.5)))
@settings(max_examples=examples(20, slow=500), deadline=None)
def test_gangs_on_hosts_of_one_slot_start_like_wide_tasks_on_one_host(
    simulated: Simulated, name: str, jobs: list[Rigid]
) -> None:
    """What is reserved, and where others go ahead, leaves as much to each."""
    hosts = Cluster(tuple(Host(f"h{n}", {"task": 1}) for n in range(SLOTS)))
    gangs = [
        Job(
            f"{n:02}",
            (Phase("run", Tasks(job.slots, job.run), gang=True),),
            arrival=job.arrival,
            time_requested=job.requested,
        )
        for n, job in enumerate(jobs)
    ]
    expected = oracle.easy(jobs, SLOTS, shortest_first=name == "easy-sjbf").starts
    found = starts(simulated(gangs, hosts, name=name).log)
    assert found == {f"{n:02}": start for n, start in expected.items()}


@pytest.mark.parametrize("name", ["easy", "easy-sjbf"])
@given(jobs=streams())
@settings(max_examples=examples(20, slow=400), deadline=None)
def test_the_first_job_is_not_delayed_by_later_ones(
    simulated: Simulated, name: str, jobs: list[Rigid]
) -> None:
    """It starts by the reservation that it gets when it becomes the first."""
    found = starts(course(simulated, name, jobs))
    promised = oracle.easy(jobs, SLOTS, shortest_first=name.endswith("-sjbf")).promised
    assert all(found[f"{n:02}"] <= start for n, start in promised.items())


@pytest.mark.parametrize("name", ["conservative", "conservative-sjbf"])
@given(jobs=streams())
@settings(max_examples=examples(20, slow=400), deadline=None)
def test_no_job_is_delayed_by_later_ones(
    simulated: Simulated, name: str, jobs: list[Rigid]
) -> None:
    """Each starts by each reservation that it ever had."""
    log = course(simulated, name, jobs)
    found = starts(log)
    for turn in log.turns:
        for decision in turn.decisions:
            if isinstance(decision, Enqueue):
                assert all(found[p.job] <= at for p, at in decision.starts.items())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Wide tasks, gangs, arrays and resources, with faults, outages and limits of pools."""
    case = draw(test_requests.cases())
    jobs = [
        replace(job, time_requested=draw(st.sampled_from([None, 0.5, 2.0, 9.0])))
        for job in case.jobs
    ]
    pools = tuple(replace(pool, preemption=None) for pool in case.pools)
    options = {"name": draw(st.sampled_from(BACKFILLINGS))}
    return replace(case, jobs=tuple(jobs), pools=pools, options=options)


@given(case=cases())
@settings(max_examples=examples(60, slow=500), deadline=None)
def test_all_jobs_end_and_each_decision_repeats(simulated: Simulated, case: Case) -> None:
    """No host and no limit is exceeded, nothing waits forever, and the log replays."""
    watch = simulated(
        case.jobs, case.cluster, case.pools, simulation=case.simulation, **case.options
    )
    ended = watch.state.completed.keys() | watch.state.failed.keys()
    assert ended == {job.id for job in case.jobs}
    check_slots(case, watch.log)
    assert replay_log(reread(watch.log)).is_identical


@pytest.mark.parametrize("name", BACKFILLINGS)
@given(case=test_changing_hosts.cases())
@settings(max_examples=examples(10, slow=60), deadline=None)
def test_jobs_end_on_hosts_that_come_and_go(
    simulated: Simulated, name: str, case: test_changing_hosts.Case
) -> None:
    """Nothing runs where it cannot, and each decision repeats."""
    pools = tuple(replace(pool, preemption=None) for pool in case.pools)
    truth = case.simulation
    told = {"parameters": truth.troubles(case.cluster, case.cluster)}
    watch = simulated(case.jobs, case.cluster, pools, name, truth, **told)
    ended = watch.state.completed.keys() | watch.state.failed.keys()
    assert ended == {job.id for job in case.jobs}
    test_changing_hosts.follow(case, watch.log)
    assert replay_log(reread(watch.log)).is_identical


WAITING = [rigid("runs", 3, 10.0), rigid("first", 4, 5.0, 1.0)]
"""On four slots: one is free until 10, when the second job begins."""


@pytest.mark.parametrize(
    ("later", "start"),
    [
        (rigid("later", 1, 8.0, 2.0), 2.0),
        (rigid("later", 1, 8.5, 2.0), 15.0),
        (rigid("later", 1, 1.0, 2.0, time_requested=8.5), 15.0),
        (rigid("later", 1, 1.0, 2.0, time_requested=None, time_limit=8.5), 15.0),
        (rigid("later", 1, 1.0, 2.0, time_requested=9.0, time_limit=8.0), 2.0),
        (rigid("later", 1, 8.5, 2.0, time_requested=None), 15.0),
        (rigid("later", 1, 20.0, 2.0, time_requested=8.0), 2.0),
    ],
    ids=[
        "ends in time",
        "late",
        "asks for more",
        "limit",
        "least",
        "estimate",
        "asks for less",
    ],
)
@pytest.mark.parametrize("name", BACKFILLINGS)
def test_a_later_job_goes_ahead_if_it_ends_in_time_as_requested(
    simulated: Simulated, name: str, later: Job, start: float
) -> None:
    """What counts is what it requests, its limit, or else its estimated work."""
    log = simulated([*WAITING, later], Cluster.of_slots(4), name=name).log
    assert starts(log)["later"] == start


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_a_job_that_takes_longer_than_it_requested_runs_on(
    simulated: Simulated, name: str
) -> None:
    """It is taken to end at any moment: nothing goes ahead into the slots that it will free."""
    jobs = [
        rigid("runs", 3, 10.0, time_requested=2.0),
        rigid("first", 4, 5.0, 1.0),
        rigid("later", 1, 1.0, 3.0),
    ]
    watch = simulated(jobs, Cluster.of_slots(4), name=name)
    assert watch.state.completed == {"runs": 10.0, "first": 15.0, "later": 16.0}


def test_the_shortest_of_the_later_jobs_goes_first(simulated: Simulated) -> None:
    """Both fit, one after the other."""
    jobs = [*WAITING, rigid("long", 1, 7.0, 2.0), rigid("short", 1, 6.0, 2.0)]
    for name, first in (("easy", "long"), ("easy-sjbf", "short")):
        assert starts(simulated(jobs, Cluster.of_slots(4), name=name).log)[first] == 2.0


def test_priority_comes_before_arrival(simulated: Simulated) -> None:
    """The urgent job is the first of the queue, though it came last."""
    jobs = [*WAITING, rigid("urgent", 4, 5.0, 2.0, priority="high")]
    found = starts(simulated(jobs, Cluster.of_slots(4), name="easy").log)
    assert (found["urgent"], found["first"]) == (10.0, 15.0)


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_a_gang_over_hosts_has_a_reservation_on_them(simulated: Simulated, name: str) -> None:
    """Short tasks go ahead of it, a long one waits though a slot is free."""
    gang = Job(
        "gang",
        (Phase("run", Tasks(3, 5.0), gang=True),),
        arrival=1.0,
        time_requested=5.0,
    )
    jobs = [
        rigid("runs", 2, 10.0),
        gang,
        rigid("short", 1, 4.0, 2.0),
        rigid("long", 1, 9.0, 2.0),
    ]
    two = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1})))
    found = starts(simulated(jobs, two, name=name).log)
    assert (found["short"], found["gang"], found["long"]) == (2.0, 10.0, 15.0)


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_memory_is_reserved_as_slots_are(simulated: Simulated, name: str) -> None:
    """Slots are free, and the later job would take memory of the one before it."""
    jobs = [
        rigid("runs", 1, 10.0, resources={"memory": 6}),
        rigid("first", 1, 5.0, 1.0, resources={"memory": 8}),
        rigid("late", 1, 9.0, 2.0, resources={"memory": 1}),
        rigid("none", 1, 9.0, 2.0),
    ]
    host = Cluster((Host("a", {"task": 4}, resources={"memory": 8}),))
    found = starts(simulated(jobs, host, name=name).log)
    assert (found["first"], found["late"], found["none"]) == (10.0, 15.0, 2.0)


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_later_jobs_of_a_pool_leave_its_limit_to_earlier_ones(
    simulated: Simulated, name: str
) -> None:
    """A wide job does not starve behind narrow ones of its pool; other pools pass it."""
    narrow = [rigid(f"n{n}", 1, 4.0, 0.5 * n, pool="a") for n in range(20)]
    jobs = [*narrow, rigid("wide", 3, 1.0, 1.2, pool="a"), rigid("other", 5, 1.0, 1.3)]
    pools = [Pool("a", slots_max={"task": 3})]
    found = starts(simulated(jobs, Cluster.of_slots(8), pools, name).log)
    assert (found["other"], found["wide"]) == (1.3, 5.0)
    assert found["n3"] == 6.0


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_jobs_that_go_ahead_leave_the_limit_of_its_pool_to_the_first_one(
    simulated: Simulated, name: str
) -> None:
    """It lacks slots, not room in its pool, which a long job of the pool could fill."""
    jobs = [
        rigid("runs", 5, 10.0),
        rigid("first", 3, 1.0, 1.0, pool="a"),
        rigid("mate", 1, 30.0, 2.0, pool="a"),
        rigid("other", 1, 30.0, 2.0),
    ]
    pools = [Pool("a", slots_max={"task": 3})]
    found = starts(simulated(jobs, Cluster.of_slots(7), pools, name).log)
    assert found == {"runs": 0.0, "first": 10.0, "mate": 11.0, "other": 2.0}


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_parts_of_devices_are_not_added(simulated: Simulated, name: str) -> None:
    """Two devices have 0.4 free each, which is not 0.5; what needs no device starts."""
    jobs = [
        *(rigid(f"runs{n}", 1, 10.0, resources={"gpu": 0.6}) for n in range(2)),
        rigid("part", 1, 2.0, 1.0, resources={"gpu": 0.5}),
        rigid("none", 1, 2.0, 1.0),
    ]
    host = Cluster((Host("a", {"task": 4}, resources={"gpu": 2}),))
    found = starts(simulated(jobs, host, name=name).log)
    assert (found["part"], found["none"]) == (10.0, 1.0)


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_tasks_of_an_array_start_as_far_as_they_fit(simulated: Simulated, name: str) -> None:
    """Those that end in time go ahead of a wide job; the others follow it."""
    array = Job("array", (Phase("run", Tasks(6, 4.0)),), arrival=1.5, time_requested=4.0)
    watch = simulated([*WAITING, array], Cluster.of_slots(4), name=name)
    begun = [
        turn.now
        for turn in watch.log.turns
        for decision in turn.decisions
        if isinstance(decision, Launch) and decision.phase.job == "array"
    ]
    assert begun == [1.5, 5.5, 15.0, 15.0, 15.0, 15.0]


@pytest.mark.parametrize("name", BACKFILLINGS)
def test_a_lost_host_and_failures_delay_no_other_job_for_ever(
    simulated: Simulated, name: str
) -> None:
    """The job that only the lost host can run waits; smaller ones pass it meanwhile."""
    big = rigid("big", 4, 1.0, 1.5)
    small = [replace(rigid(f"s{n}", 1, 2.0, float(n)), retry_delay=0.5) for n in range(6)]
    two = Cluster((Host("a", {"task": 4}), Host("b", {"task": 2})), grace=30.0)
    simulation = Simulation(
        outages=(Outage("a", 1.2, 4.0),),
        fault=lambda launch: Fault("bad") if launch.attempt == 1 else None,
    )
    watch = simulated([big, *small], two, name=name, simulation=simulation)
    assert len(watch.state.completed) == 7
    assert starts(watch.log)["big"] >= 5.2
    assert replay_log(watch.log).is_identical
