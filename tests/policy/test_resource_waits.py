"""Tasks that request memory or devices: where they are launched, and what is kept for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policy.test_assigners import decide
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Defer, Launch, Locality, Preempt, Reallocate
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.core.state import State
from slotwise.policy.assignment.assigner import Greedy
from slotwise.policy.fair import Fair
from slotwise.policy.scheduler import Scheduler


def phase(tasks: int, seconds: float, memory: int, **more: Any) -> Phase:
    """A phase of tasks of equal length, each with so many bytes."""
    return Phase("p", Tasks(tasks, seconds), resources={"memory": memory, **more})


def begun(cluster: Cluster, phases: dict[str, Phase]) -> State:
    """A state in which these jobs have arrived, and each is allocated all of its tasks."""
    state = State(cluster)
    state.at(0.0)
    for name, one in phases.items():
        state.apply(JobArrived(0.0, Job(name, (one,))))
    slots = {PhaseId(name, "p"): float(one.tasks.count) for name, one in phases.items()}
    state.apply(Reallocate(slots, until=1e9))
    return state


def launch(job: str, task: int, host: str) -> Launch:
    """The first attempt of a task."""
    return Launch(PhaseId(job, "p"), task, 1, host, Locality.NODE)


def test_a_task_is_launched_where_its_request_fits() -> None:
    """The first host has a free slot, but too little memory."""
    hosts = Host("small", {"task": 9}, resources={"memory": 4}), Host("none", {"task": 9})
    large = Host("large", {"task": 9}, resources={"memory": 16})
    state = begun(Cluster((*hosts, large)), {"job": phase(3, 1.0, 6)})
    assert decide(state, Greedy())[:2] == [launch("job", 0, "large"), launch("job", 1, "large")]


def test_the_host_where_it_fits_first_is_kept() -> None:
    """The task on b ends at 2 s, the one on a at 9 s."""
    hosts = (Host(name, {"task": 4}, resources={"memory": 8}) for name in "ab")
    one = {"long": phase(1, 9.0, 4), "short": phase(1, 2.0, 5), "big": phase(1, 1.0, 8)}
    state = begun(Cluster(tuple(hosts)), one)
    state.apply(launch("long", 0, "a"))
    state.apply(launch("short", 0, "b"))
    assert [d for d in decide(state, Greedy()) if isinstance(d, Defer)] == [
        Defer(PhaseId("big", "p"), 0.0, 1.0, "b")
    ]


def test_others_use_what_a_keeper_leaves(simulated: Callable[..., Any]) -> None:
    """When the first task ends, 8 of 10 bytes suffice: one small task runs meanwhile."""
    cluster = Cluster((Host("h", {"task": 9}, resources={"memory": 10}),))
    jobs = (
        Job("first", (phase(1, 4.0, 6),)),
        Job("big", (phase(1, 4.0, 8),), arrival=1.0),
        Job("small", (phase(2, 20.0, 2),), arrival=2.0),
    )
    log = simulated(jobs, cluster, name="fair").log
    launched = [
        (turn.now, one.phase.job)
        for turn in log.turns
        for one in turn.decisions
        if isinstance(one, Launch)
    ]
    assert launched == [(0.0, "first"), (2.0, "small"), (4.0, "big"), (8.0, "small")]


def test_large_requests_do_not_starve(simulated: Callable[..., Any]) -> None:
    """A stream of small tasks, of which some always run, does not hold up a large one."""
    cluster = Cluster((Host("h", {"task": 4}, resources={"memory": 4}),))
    stream = [Job(f"s{n}", (phase(1, 1.7, 1),), arrival=0.4 * n) for n in range(60)]
    big = Job("big", (phase(1, 1.0, 4),), arrival=5.0)
    state = simulated([*stream, big], cluster, name="fair").state
    assert state.completed["big"] < 12.0


def test_parts_of_a_device_share_it() -> None:
    """Two parts of 0.4 are on one device; a third one and a whole device get others."""
    host = Host("h", {"task": 9}, resources={"gpu": 3})
    gpus = {
        name: Phase("p", Tasks(3 - 2 * n, 1.0), resources={"gpu": part})
        for n, (name, part) in enumerate({"parts": 0.4, "whole": 1}.items())
    }
    state = begun(Cluster((host,)), gpus)
    scheduler = Scheduler(Fair(), Greedy())
    taken: dict[tuple[str, int], tuple[int, ...]] = {}
    while decisions := scheduler.decide(state):
        for one in decisions:
            state.apply(one)
            if isinstance(one, Launch):
                taken[one.phase.job, one.task] = one.devices
    assert taken == {
        ("parts", 0): (0,),
        ("parts", 1): (0,),
        ("parts", 2): (2,),
        ("whole", 0): (1,),
    }


def test_a_pool_takes_back_memory(simulated: Callable[..., Any]) -> None:
    """It needs 6 of 8 bytes: the tasks of 3 bytes are stopped, and one without is not."""
    cluster = Cluster((Host("h", {"task": 8}, resources={"memory": 8}),))
    pools = (
        Pool("mine", slots_min={"task": 1}, preemption=Preemption(1.0)),
        Pool("theirs"),
    )
    jobs = (
        Job("fat", (phase(2, 50.0, 3),), pool="theirs"),
        Job("thin", (Phase("p", Tasks(1, 50.0)),), arrival=0.5, pool="theirs"),
        Job("mine", (phase(1, 1.0, 6),), arrival=1.0, pool="mine"),
    )
    state = simulated(jobs, cluster, pools).state
    assert state.completed["mine"] == 3.0
    assert state.completed["thin"] == 50.5


def gang(tasks: int, seconds: float, memory: int) -> Phase:
    """Tasks that start together, each with so many bytes."""
    return Phase("p", Tasks(tasks, seconds), gang=True, resources={"memory": memory})


def test_a_pool_takes_back_memory_for_a_gang(simulated: Callable[..., Any]) -> None:
    """It needs 8 bytes in parts of 4: two of the fat tasks are stopped, and no thin one."""
    cluster = Cluster(tuple(Host(n, {"task": 8}, resources={"memory": 8}) for n in "ab"))
    pools = (
        Pool("mine", slots_min={"task": 2}, preemption=Preemption(1.0)),
        Pool("theirs"),
    )
    jobs = (
        Job("fat", (phase(4, 50.0, 3),), pool="theirs"),
        Job("thin", (Phase("p", Tasks(2, 50.0)),), arrival=0.5, pool="theirs"),
        Job("mine", (gang(2, 1.0, 4),), arrival=1.0, pool="mine"),
    )
    run = simulated(jobs, cluster, pools)
    stopped = [
        (one.phase.job, one.host)
        for turn in run.log.turns
        for one in turn.decisions
        if isinstance(one, Preempt)
    ]
    assert stopped == [("fat", "b"), ("fat", "b")]
    assert run.state.completed["mine"] == 3.0


def test_a_gang_keeps_hosts_with_memory_for_all_of_its_tasks(
    simulated: Callable[..., Any],
) -> None:
    """One host has slots for both tasks, but memory for one: both are kept during a stream."""
    cluster = Cluster(tuple(Host(n, {"task": 4}, resources={"memory": 4}) for n in "ab"))
    stream = [Job(f"s{n}", (phase(1, 1.7, 1),), arrival=0.25 * n) for n in range(120)]
    run = simulated(
        [*stream, Job("big", (gang(2, 1.0, 4),), arrival=5.0)], cluster, name="fair"
    )
    assert run.state.completed["big"] < 20.0


def test_kinds_of_slots_get_other_parts_as_demand_falls(simulated: Callable[..., Any]) -> None:
    """A phase with one task left gets a slot: it does not keep two thirds of one."""
    host = Host("h", {"map": 4, "reduce": 4}, resources={"memory": 8})
    maps = Phase("map", Tasks(2, 0.3), "map", resources={"memory": 1})
    first = Phase("map", Tasks(1, 0.0), "map")
    after = frozenset({"map"})
    last = Phase("reduce", Tasks(1, 1.0), "reduce", after, resources={"memory": 1})
    jobs = [
        Job("gang", (Phase("map", Tasks(2, 1.0), "map", gang=True),), pool="a"),
        Job("short", (Phase("map", Tasks(1, 0.0), "map", gang=True),), pool="a"),
        Job("both", (first, last), pool="a"),
        Job("maps", (maps,), pool="a"),
    ]
    pools = [Pool("a", slots_max={"task": 4})]
    log = simulated(jobs, Cluster((host,)), pools, name="fifo").log
    slots = {
        turn.now: decision.slots.get(PhaseId("maps", "map"))
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Reallocate)
    }
    assert slots[0.5] == 1.0
