"""Pools that may hold only so much of a resource beside slots (`resources_max`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from slotwise import PoolsChanged, plan, plan_tasks, simulate
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode_pool, encode_pool
from slotwise.core.decisions import Launch, Preempt, Reallocate
from slotwise.core.errors import InputError
from slotwise.core.events import HostLost, JobArrived, JobChanged, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, PoolTree, Preemption, check_fits
from slotwise.core.state import State
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.claims import allocate
from slotwise.policy.scheduler import ALLOCATORS, BACKFILLINGS, make_allocator, make_scheduler
from slotwise.workload.file import parse_workload
from slotwise.workload.workload import Workload

GIB = 2**30
HOST = Host("h", {"task": 12}, resources={"memory": 40, "gpu": 4})
LAB = (
    Pool("lab", resources_max={"memory": 12, "gpu": 2}),
    Pool("x", parent="lab"),
    Pool("y", parent="lab", resources_max={"memory": 8}),
)


def job(name: str, pool: str, count: int, seconds: float = 5.0, **phase: Any) -> Job:
    """A job of one phase; what is not a key of a phase is what its tasks request."""
    keys = {
        key: phase.pop(key) for key in ("slots", "gang", "kind", "slots_min") if key in phase
    }
    return Job(name, (Phase("p", Tasks(count, seconds), resources=phase, **keys),), pool=pool)


MIX = (
    job("x1", "x", 20, memory=1),
    job("y1", "y", 6, memory=4, gpu=1),
    job("y2", "y", 9),
    job("z", "z", 9, memory=2),
)


def held_in(
    log: Log, pools: Sequence[Pool], jobs: Sequence[Job]
) -> list[Counter[tuple[str, str]]]:
    """What the pools hold of each resource after each turn, from the log alone."""
    tree = PoolTree(pools).with_pools([one.pool for one in jobs])
    needs = {one.id: (one.pool, one.phases[0].needs) for one in jobs}
    running: dict[tuple[str, int], Launch] = {}
    found = []
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished | TaskFailed):
                running.pop((event.phase.job, event.task), None)
        for one in turn.decisions:
            if isinstance(one, Launch):
                running[one.phase.job, one.task] = one
        held: Counter[tuple[str, str]] = Counter()
        for name, _ in running:
            pool, request = needs[name]
            for above in tree.path(pool):
                held.update({(above.name, key): amount for key, amount in request.items()})
        found.append(held)
    return found


@pytest.mark.parametrize("scheduler", [*ALLOCATORS, *BACKFILLINGS])
def test_no_scheduler_exceeds_a_limit(simulated: Callable[..., Any], scheduler: str) -> None:
    """Of a pool or of the one that contains it; what others leave is used, and bounds hold."""
    run = simulated(MIX, Cluster((HOST,)), LAB, scheduler)
    most: Counter[tuple[str, str]] = Counter()
    for held in held_in(run.log, LAB, MIX):
        most |= held
    assert 9 < most["lab", "memory"] <= 12
    assert most["lab", "gpu"] == 2000
    assert most["y", "memory"] == 8
    assert run.state.completed.keys() == {one.id for one in MIX}
    assert replay_log(run.log).is_identical
    outcome = MetricsCollector.of_log(run.log).outcome()
    assert outcome.bound <= outcome.metrics["value"]


@pytest.mark.parametrize("scheduler", ["fair", "flex", "las", "fifo", "uwfq", "flowflex-fast"])
def test_shares_stay_within_limits(scheduler: str) -> None:
    """No pool is allocated more than it may hold; others get most of what this leaves."""
    state = State(Cluster((HOST,)), LAB)
    state.expect_estimates()
    state.at(0.0)
    for one in MIX:
        state.apply(JobArrived(0.0, one))
    shares = {
        key.job: slots for key, slots in allocate(make_allocator(scheduler), state).items()
    }
    x1, y1, y2, z = (shares.get(one.id, 0.0) for one in MIX)
    assert x1 + 4 * y1 <= 12 + 1e-9
    assert y1 <= 2 + 1e-9
    assert 4 * y1 <= 8 + 1e-9
    assert 9 < x1 + y1 + y2 + z <= 12 + 1e-9


def test_flex_gives_a_limit_to_the_jobs_in_its_order() -> None:
    """The shorter job gets all of the memory that the pool may hold, and the rest others."""
    jobs = (
        job("long", "x", 20, 9.0, memory=1),
        job("short", "x", 10, 1.0, memory=1),
        job("free", "x", 20, 20.0),
    )
    state = State(Cluster((HOST,)), [Pool("x", resources_max={"memory": 8})])
    state.expect_estimates()
    state.at(0.0)
    for one in jobs:
        state.apply(JobArrived(0.0, one))
    shares = {key.job: slots for key, slots in allocate(make_allocator("flex"), state).items()}
    assert shares == pytest.approx({"short": 8, "free": 4})


def test_a_limit_counts_jobs_of_several_phases_as_others() -> None:
    """By what their tasks take of it, so the job that needs it for less time goes first."""
    first = Phase("p", Tasks(4, 6.0), resources={"memory": 8})
    long = Job("long", (first, Phase("q", Tasks(1, 1.0), after=frozenset({"p"}))), pool="x")
    state = State(Cluster((HOST,)), [Pool("x", resources_max={"memory": 8})])
    state.expect_estimates()
    state.at(0.0)
    for one in long, job("short", "x", 4, memory=8):
        state.apply(JobArrived(0.0, one))
    shares = {key.job: slots for key, slots in allocate(make_allocator("flex"), state).items()}
    assert shares == pytest.approx({"short": 1})


@pytest.mark.parametrize("scheduler", ["flex", "flex-on-fair"])
def test_a_limit_over_kinds_counts_all_phases_of_each_job(scheduler: str) -> None:
    """The job with the shorter first phase waits, since its later one takes longer."""

    def of(name: str, kind: str, first: float, later: float) -> Job:
        phases = [
            Phase("p", Tasks(10, first), kind, resources={"memory": 1}),
            Phase("q", Tasks(10, later), kind, frozenset({"p"})),
        ]
        return Job(name, tuple(phases), pool="x")

    host = Host("h", {"map": 12, "reduce": 12}, resources={"memory": 40})
    state = State(Cluster((host,)), [Pool("x", resources_max={"memory": 8})])
    state.expect_estimates()
    state.at(0.0)
    for one in of("short", "map", 2.0, 1.0), of("long", "reduce", 1.0, 99.0):
        state.apply(JobArrived(0.0, one))
    shares = allocate(make_allocator(scheduler), state).items()
    assert {key.job: slots for key, slots in shares} == pytest.approx({"short": 8})


def test_a_limit_holds_over_kinds_of_slots(simulated: Callable[..., Any]) -> None:
    """Maps and reduces together, while other pools use the slots."""
    host = Host("h", {"map": 4, "reduce": 4}, resources={"memory": 99})
    jobs = [
        job("m", "x", 9, 1.0, kind="map", memory=2),
        job("r", "x", 9, 1.0, kind="reduce", memory=2),
        job("o", "other", 9, 1.0, kind="reduce", memory=2),
    ]
    pools = [Pool("x", resources_max={"memory": 6})]
    for scheduler in ("fair", "flex"):
        run = simulated(jobs, Cluster((host,)), pools, scheduler)
        held = held_in(run.log, pools, jobs)
        assert max(one["x", "memory"] for one in held) == 6
        assert run.state.completed.keys() == {"m", "r", "o"}


def test_a_large_task_does_not_starve_within_a_limit(simulated: Callable[..., Any]) -> None:
    """A stream of small tasks of the pool always leaves too little, until they wait for it."""
    stream = [
        Job(f"s{n}", (Phase("p", Tasks(1, 1.7), resources={"memory": 1}),), 0.4 * n, pool="x")
        for n in range(60)
    ]
    big = Job("big", (Phase("p", Tasks(1, 1.0), resources={"memory": 4}),), 5.0, pool="x")
    beside = Job("beside", (Phase("p", Tasks(40, 0.5)),), pool="x")
    cluster = Cluster((Host("h", {"task": 8}, resources={"memory": 64}),))
    pools = [Pool("x", resources_max={"memory": 4})]
    state = simulated([*stream, big, beside], cluster, pools, "fair").state
    assert state.completed["big"] < 12.0
    assert state.completed["beside"] < 8.0, "what needs no memory does not wait for it"


def begun(pools: Sequence[Pool], *jobs: Job, hosts: Sequence[Host] = (HOST,)) -> State:
    """A state in which these jobs have arrived, and all has begun that may."""
    state = State(Cluster(tuple(hosts)), pools)
    state.at(0.0)
    for one in jobs:
        state.apply(JobArrived(0.0, one))
    settle(state)
    return state


def settle(state: State) -> list[Any]:
    """Decide until nothing more is decided."""
    scheduler, found = make_scheduler("fair"), []
    while decisions := scheduler.decide(state):
        found += decisions
        for one in decisions:
            state.apply(one)
            state.check()
    return found


def running(state: State) -> dict[str, int]:
    """The running tasks of each job."""
    return {one[0].id.job: len(one[0].launches) for one in state.jobs_left()}


def test_a_lowered_limit_lets_running_tasks_end() -> None:
    """They are not stopped; none begins until there is room. A raised one is used at once."""
    state = begun([Pool("x", resources_max={"memory": 8})], job("a", "x", 12, memory=2))
    assert running(state) == {"a": 4}
    for most, count in ((4, 4), (10, 5)):
        state.apply(PoolsChanged(0.0, (Pool("x", resources_max={"memory": most}),)))
        state.check()
        assert not any(isinstance(one, Preempt) for one in settle(state))
        assert running(state) == {"a": count}


def test_a_job_that_moves_takes_what_it_holds_along() -> None:
    """What its tasks hold counts in its new pool, which then has no room for others."""
    pools = [Pool("x"), Pool("y", resources_max={"memory": 8})]
    state = begun(pools, job("a", "x", 3, memory=2), job("b", "y", 9, memory=2))
    assert running(state) == {"a": 3, "b": 4}
    state.apply(JobChanged(0.0, "a", "normal", 1.0, "y", None))
    state.check()
    for task in range(3):
        state.apply(TaskFinished(0.0, PhaseId("b", "p"), task, 1, 1.0))
    settle(state)
    assert running(state) == {"a": 3, "b": 1}


def test_what_runs_on_lost_hosts_counts() -> None:
    """As for a max share: the task may still run there."""
    hosts = [Host(name, {"task": 4}, resources={"memory": 8}) for name in "ab"]
    state = begun(
        [Pool("x", resources_max={"memory": 4})], job("a", "x", 9, memory=2), hosts=hosts
    )
    state.apply(HostLost(0.0, "a"))
    state.check()
    settle(state)
    assert running(state) == {"a": 2}


def test_nothing_is_stopped_for_a_pool_that_may_hold_no_more(
    simulated: Callable[..., Any],
) -> None:
    """It is below its min share, but may hold the memory of two tasks only."""
    pools = [
        Pool("x", slots_min=6, resources_max={"memory": 4}, preemption=Preemption(0.0)),
        Pool("y"),
    ]
    jobs = [job("b", "y", 12, 99.0), replace(job("a", "x", 9, memory=2), arrival=1.0)]
    run = simulated(jobs, Cluster((HOST,)), pools)
    stops = [one for turn in run.log.turns for one in turn.decisions if type(one) is Preempt]
    assert len(stops) == 2
    assert run.state.completed["a"] == pytest.approx(26.0)


def test_learned_memory_stays_within_the_limit(simulated: Callable[..., Any]) -> None:
    """Tasks of 6 bytes that request 1 get at most the 4 that their pool may hold."""
    tasks = Tasks(12, 1.0, memory=6, peaks=6)
    jobs = [Job("a", (Phase("p", tasks, resources={"memory": 1}),), pool="x")]
    run = simulated(jobs, Cluster((HOST,)), [Pool("x", resources_max={"memory": 4})], "fair")
    asked = [
        one.memory for turn in run.log.turns for one in turn.decisions if type(one) is Launch
    ]
    assert max(memory or 1 for memory in asked) <= 4


REFUSED = {
    "a task": (
        job("a", "y", 1, memory=9),
        "job 'a', phase 'p': each task requests memory 9 bytes, but pool 'y' may hold at most 8"
        " bytes (resources_max); give the pool more, or the task less",
    ),
    "above": (
        job("a", "x", 1, gpu=3),
        "job 'a', phase 'p': each task requests gpu 3, but pool 'lab' may hold at most 2"
        " (resources_max); give the pool more, or the task less",
    ),
    "a gang": (
        job("a", "x", 3, gpu=1, gang=True),
        "job 'a', phase 'p': the tasks of a gang request gpu 3, but pool 'lab' may hold at most"
        " 2 (resources_max); give the pool more, or the task less",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_never_fit_is_refused(case: str) -> None:
    """With the amounts and the pool."""
    one, message = REFUSED[case]
    with pytest.raises(InputError) as error:
        check_fits(one, Cluster((HOST,)), PoolTree(LAB))
    assert str(error.value) == message


BAD: list[tuple[Any, str]] = [
    ({"memory": -1}, "memory is -1; give bytes as a whole number >= 0, or a size such"),
    ({"gpu": float("nan")}, "gpu is nan; give a number from 0 to"),
    ({"memory": "4 GX"}, "memory is '4 GX'; expected a whole number of bytes"),
    ({"slots": 3}, "slots are stated beside it, with the key `slots_max`"),
    ({"mem": 3}, "there is no resource 'mem'; did you mean 'memory'?"),
    (7, "pool 'x': resources_max is 7; give amounts by name"),
    ({"gpu": "101%"}, "gpu is '101%'; give an amount, or a part of the cluster such as 50%"),
    ({"memory": "-5%"}, "memory is '-5%'; give an amount, or a part of the cluster such as"),
]


@pytest.mark.parametrize(("stated", "message"), BAD)
def test_bad_limits_are_refused(stated: Any, message: str) -> None:
    """With the pool, the key, the value and a remedy."""
    with pytest.raises(InputError) as error:
        Pool("x", resources_max=stated)
    assert message in str(error.value)
    assert str(error.value).startswith("pool 'x': resources_max")


def test_unknown_resources_are_refused() -> None:
    """No host has it and no phase requests it: it is a typing error."""
    with pytest.raises(InputError, match="resources_max has 'licence', which no host has and"):
        Workload(
            [job("a", "x", 1)], Cluster((HOST,)), [Pool("x", resources_max={"licence": 1})]
        )
    Workload([job("a", "x", 1)], Cluster((HOST,)), [Pool("x", resources_max={"memory": 1})])


def test_plans_do_not_exceed_limits() -> None:
    """They divide slots, so a limit that might bind is refused, and others are no matter."""
    pools = [Pool("x", resources_max={"memory": 24})]
    workload = Workload([job("a", "x", 4, memory=2)], Cluster((HOST,)), pools)
    assert plan(workload).value == 5.0
    workload = Workload([job("a", "x", 4, memory=3)], Cluster((HOST,)), pools)
    with pytest.raises(InputError, match="pool 'x' may hold at most memory 24 bytes"):
        plan(workload)
    with pytest.raises(InputError, match="dmrs keeps no shares of pools; leave out"):
        plan_tasks(workload)


def test_a_limit_of_zero_gives_nothing_of_it(simulated: Callable[..., Any]) -> None:
    """It stays in the log, and jobs that need none of it run."""
    pool = Pool("x", resources_max={"gpu": 0, "memory": "1 GiB"})
    assert decode_pool(encode_pool(pool)) == pool
    assert encode_pool(pool)["resources_max"] == {"gpu": 0, "memory": GIB}
    run = simulated([job("a", "x", 1)], Cluster((HOST,)), [pool], simulation=Simulation())
    assert run.state.completed == {"a": 5.0}
    with pytest.raises(InputError, match="requests gpu 1, but pool 'x' may hold at most 0"):
        check_fits(job("a", "x", 1, gpu=1), Cluster((HOST,)), PoolTree([pool]))


def test_a_limit_may_be_a_part_of_the_cluster(simulated: Callable[..., Any]) -> None:
    """Of all its hosts, rounded down; other amounts stay as they are."""
    pool = Pool("x", resources_max={"memory": "33%", "gpu": "12.5%", "licence": 2})
    assert pool.has_parts
    cluster = Cluster((HOST, Host("g", {"task": 2}, resources={"memory": 20})))
    stated = {"memory": 19, "gpu": 0.5, "licence": 2}
    assert pool.on(cluster) == Pool("x", resources_max=stated)
    text = """
slotwise: 1
cluster: {hosts: [{name: h, slots: 8, resources: {memory: 80}}]}
pools: {lab: {resources_max: {memory: 50%}}}
jobs: [{id: a, pool: lab, phases: [{name: p, work: 5, tasks: 4, resources: {memory: 20}}]}]
"""
    read = parse_workload(text)
    assert simulate(read).metrics["makespan"] == 2.5  # Two at once.
    large = text.replace("memory: 20", "memory: 41")
    with pytest.raises(InputError, match="pool 'lab' may hold at most 40 bytes"):
        simulate(parse_workload(large))


def test_allocations_count_what_others_hold_on_lost_hosts() -> None:
    """Half of the limit is held where nothing can begin."""
    hosts = [Host(name, {"task": 4}, resources={"memory": 8}) for name in "ab"]
    pools = [Pool("x", resources_max={"memory": 8})]
    state = begun(pools, job("a", "x", 2, memory=2), job("b", "x", 9, memory=2), hosts=hosts)
    lost = {one.host for _, one in state.phase(PhaseId("a", "p")).attempts()}
    state.apply(HostLost(0.0, next(iter(lost))))
    state.check()
    changes = [one for one in settle(state) if isinstance(one, Reallocate)]
    on_lost = sum(
        launch.host in lost
        for phases in state.jobs_left()
        for _, launch in phases[0].attempts()
    )
    assert on_lost
    for change in changes:
        assert 2 * sum(change.slots.values()) <= 8 - 2 * on_lost + 1e-9
