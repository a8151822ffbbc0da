"""Pools in whole simulated runs, one scenario per test: nesting, `jobs_max`, preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from conftest import CheckedState
from slotwise.api import simulate
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Preempt, WouldPreempt
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostDrained, PoolsChanged, TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.core.loop import run
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain, explain_state
from slotwise.insight.explanation import Explanation
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.plans import plan, plan_tasks
from slotwise.policy.scheduler import make_scheduler
from slotwise.workload.workload import Workload

Simulate = Callable[..., object]


def job(
    name: str, pool: str, count: int, work: float = 100.0, slots: int = 1, **rest: object
) -> Job:
    """A job of one phase of equal tasks."""
    return Job(name, (Phase("map", Tasks(count, work), slots=slots),), pool=pool, **rest)


def held(log: Log, instant: float) -> dict[str, int]:
    """Slots that each job holds just after an instant."""
    slots: Counter[str] = Counter()
    for turn in log.turns:
        if turn.now > instant:
            break
        slots.update(d.phase.job for d in turn.decisions if isinstance(d, Launch))
        slots.subtract(
            e.phase.job for e in turn.events if isinstance(e, TaskFinished | TaskKilled)
        )
    return {name: count for name, count in sorted(slots.items()) if count}


def preempted(log: Log) -> list[tuple[float, str, int]]:
    """The tasks that were asked to stop: the instant, the job and the task."""
    return [
        (turn.now, decision.phase.job, decision.task)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Preempt)
    ]


def where(log: Log, name: str) -> Counter[str]:
    """The hosts on which the tasks of a job were launched."""
    launches = [d for turn in log.turns for d in turn.decisions if isinstance(d, Launch)]
    return Counter(launch.host for launch in launches if launch.phase.job == name)


THREE = Cluster(tuple(Host(name, {"task": 2}, f"r{name}") for name in "abc"))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("name", ["fair", "flex", "fifo", "las", "flowflex"])
@pytest.mark.parametrize("assigner", ["greedy", "delay", "flow"])
def test_tasks_run_only_on_their_hosts(
    simulated: Simulate, assigner: str, name: str, slots: int
) -> None:
    """They get their share there, although others come first; these use the other hosts."""
    homes = tuple(Block(frozenset("a")) for _ in range(6))
    only = Phase("p", Tasks(4, 2.0, homes[:4]), slots=slots, hosts=["b", "c"])
    jobs = [Job("x", (Phase("p", Tasks(18, 2.0)),)), Job("y", (only,), arrival=1.0)]
    log = simulated(jobs, THREE, name=name, assigner=assigner).log
    assert where(log, "y").keys() <= {"b", "c"}
    assert where(log, "x").total() == 18


def test_a_gang_runs_only_on_its_hosts(simulated: Simulate) -> None:
    """It waits until both slots of its host are free."""
    gang = Phase("p", Tasks(2, 2.0), gang=True, hosts="b")
    jobs = [job("x", "a", 12, 2.0), Job("y", (gang,), pool="b", arrival=1.0)]
    assert where(simulated(jobs, THREE, [Pool("a"), Pool("b")]).log, "y") == {"b": 2}


def test_slots_are_taken_back_on_the_hosts_of_the_taker(simulated: Simulate) -> None:
    """The newest tasks on other hosts go on; no more slots are lacked than these hosts have."""
    pools = [Pool("a"), Pool("b", preemption=Preemption(fair_after=1.0))]
    only = Phase("p", Tasks(9, 20.0), hosts="a")
    jobs = [job("x", "a", 6), Job("y", (only,), pool="b", arrival=1.0)]
    log = simulated(jobs, THREE, pools).log
    assert preempted(log) == [(2.0, "x", 1), (2.0, "x", 0)]
    assert where(log, "y") == {"a": 9}


def test_a_job_fails_when_the_last_of_its_hosts_leaves(simulated: Simulate) -> None:
    """One that may run on another host goes on there."""
    jobs = [
        Job("x", (Phase("p", Tasks(4, 3.0), hosts="a"),)),
        Job("y", (Phase("p", Tasks(4, 3.0), hosts=["a", "b"]),)),
        Job("late", (Phase("p", Tasks(1, 3.0), hosts="a"),), arrival=5.0),
    ]
    state = CheckedState(THREE)
    leaves = Simulation(changes=[HostDrained(1.0, "a")])
    backend = SimulatedBackend(THREE, jobs, leaves)
    run(make_scheduler("fair"), backend, state, lambda *turn: None)
    reason = "host a leaves, where a task of phase p must run"
    assert state.failed == {"x": reason, "late": reason}
    assert state.completed.keys() == {"y"}


def test_hosts_that_can_never_serve_are_refused() -> None:
    """With the hosts that there are; a host that comes later is enough."""
    for names, what in ("d", "is in the cluster"), ("r", "has slots of kind 'task'"):
        reduces = Host("r", {"reduce": 1})
        cluster = Cluster((*THREE.hosts, reduces))
        only = (Job("x", (Phase("p", Tasks(1, 1.0), hosts=names),)),)
        with pytest.raises(InputError) as refused:
            simulate(Workload(only, cluster))
        assert str(refused.value) == (
            f"job 'x', phase 'p': its tasks run only on hosts {names}, and none of these"
            f" {what}, whose hosts are a, b, c, r; correct `hosts`, or add a host"
        )
    later = HostAdded(5.0, Host("d", {"task": 1}))
    only = Workload(
        (Job("x", (Phase("p", Tasks(1, 1.0), hosts="d"),)),), THREE, changes=(later,)
    )
    assert simulate(only).metrics["makespan"] == 6.0
    for scheduler in ("dmrs", "dmrs-best"):
        with pytest.raises(InputError, match="its tasks run only on given hosts"):
            simulate(only, scheduler)
    with pytest.raises(InputError, match="its tasks run only on given hosts"):
        plan(
            Workload(
                (Job("x", (Phase("p", Tasks(1, 1.0), hosts="a"),)),),
                Cluster((Host("a", {"task": 1}),)),
            )
        )


@pytest.mark.parametrize(
    ("slots", "needs", "message"),
    [
        (
            1,
            {"memory": 8},
            "requests memory 8 bytes, but the one of these hosts with the most, 'a', has 4"
            " bytes; request less, or name a larger host",
        ),
        (
            1,
            {"gpu": 1},
            "requests gpu 1, but none of these hosts has gpu; leave it out, or name hosts that"
            " have it",
        ),
        (
            2,
            {"memory": 3},
            "requests memory 3 bytes and 2 slots of kind 'task', and none of these hosts has"
            " all of it; request less, or name a larger host",
        ),
        (
            3,
            {},
            "occupies 3 slots of one host, but the largest of these hosts, 'b', has 2 of kind"
            " 'task'; give `slots` at most 2, or name a larger host",
        ),
    ],
)
def test_what_only_other_hosts_hold_is_refused_with_the_hosts_that_count(
    slots: int, needs: dict[str, int], message: str
) -> None:
    """Another host has it, so the message is about those that the phase names."""
    phase = Phase("p", Tasks(1, 1.0), hosts=["a", "b"], slots=slots, resources=needs)
    hosts = [
        Host("a", {"task": 1}, resources={"memory": 4}),
        Host("b", {"task": 2}),
        Host("c", {"task": 3}, resources={"memory": 9, "gpu": 1}),
    ]
    with pytest.raises(InputError) as refused:
        simulate(Workload((Job("x", (phase,)),), Cluster(tuple(hosts))))
    where = "job 'x', phase 'p', which runs only on a, b: each task"
    assert str(refused.value) == f"{where} {message}"


def test_slots_go_down_the_tree(simulated: Simulate) -> None:
    """Twelve slots: a and b halve them, a's two pools share a's by 1 to 2."""
    pools = [Pool("a"), Pool("b"), Pool("a1", parent="a"), Pool("a2", 2.0, parent="a")]
    jobs = [job("x", "a1", 12), job("y", "a2", 12), job("z", "b", 12)]
    log = simulated(jobs, Cluster.of_slots(12), pools).log
    assert held(log, 0.0) == {"x": 2, "y": 4, "z": 6}


def test_max_shares_of_outer_pools_are_hard(simulated: Simulate) -> None:
    """Two pools within one of at most three slots hold three, although other slots idle."""
    pools = [Pool("a", slots_max=3), Pool("a1", parent="a"), Pool("a2", parent="a")]
    log = simulated([job("x", "a1", 5), job("y", "a2", 5)], Cluster.of_slots(9), pools).log
    assert sum(held(log, 0.0).values()) == 3


def test_a_pool_runs_at_most_jobs_max_jobs_at_once(simulated: Simulate) -> None:
    """Of three jobs one runs at a time, the one of high priority before an earlier one."""
    pools = [Pool("a", jobs_max=1)]
    jobs = [
        job("first", "a", 1, 2.0),
        job("second", "a", 1, 2.0),
        job("urgent", "a", 1, 2.0, priority="high"),
        job("other", "b", 1, 2.0),
    ]
    state = simulated(jobs, Cluster.of_slots(4), pools).state
    assert state.completed == {"first": 2.0, "other": 2.0, "urgent": 4.0, "second": 6.0}


def test_inner_pools_count_the_jobs_below_them(simulated: Simulate) -> None:
    """Two pools within one that runs one job: the second's job waits for the first's."""
    pools = [Pool("a", jobs_max=1), Pool("a1", parent="a"), Pool("a2", parent="a")]
    jobs = [job("x", "a1", 1, 3.0), job("y", "a2", 1, 1.0, arrival=1.0)]
    assert simulated(jobs, Cluster.of_slots(4), pools).state.completed == {"x": 3.0, "y": 4.0}


CLOSED = {
    "jobs_max is 0": Pool("shut", jobs_max=0),
    "jobs_max_per_user is 0 for ann": Pool("shut", jobs_max_per_user={"ann": 0}),
    "slots_max is 0": Pool("shut", slots_max=0),
    "slots_max of kind 'map' is 0": Pool("shut", slots_max={"map": 0}),
    "weight is 0 and it has no min share": Pool("shut", 0.0),
}


@pytest.mark.parametrize("why", CLOSED)
def test_simulations_and_plans_refuse_jobs_of_a_closed_pool(why: str) -> None:
    """They would wait forever: the message names job, pool and reason. An outer pool counts."""
    inner = Pool("inner", parent="shut")
    phases = (Phase("map", Tasks(1, 1.0), "map"),)
    jobs = (Job("x", phases, pool="inner", user="ann"),)
    workload = Workload(jobs, Cluster.of_slots(2), pools=(CLOSED[why], inner))
    for use in (simulate, plan, plan_tasks):
        with pytest.raises(InputError) as refused:
            use(workload)
        assert str(refused.value) == (
            f"job 'x': pool 'shut' is closed, because its {why}; open it, or name another pool"
        )


@pytest.mark.parametrize("name", ["fair", "flex", "las", "uwfq", "flowflex"])
def test_a_pool_of_weight_0_gets_its_min_share_only(simulated: Simulate, name: str) -> None:
    """One slot of four, although others idle; beside other pools, too."""
    pools = [Pool("late", 0.0, slots_min=1), Pool("a")]
    jobs = [job("x", "late", 4, 2.0), job("y", "a", 6, 2.0)]
    state = simulated(jobs, Cluster.of_slots(4), pools, name).state
    assert state.completed == {"x": 8.0, "y": 4.0}


def test_a_pool_of_weight_0_keeps_its_min_share_by_kind() -> None:
    """It has a min share of maps only, so its job, with reduces, is refused."""
    flow = (Phase("m", Tasks(1, 1.0), "map"), Phase("r", Tasks(1, 1.0), "reduce"))
    shut = Pool("shut", 0.0, {"map": 1})
    hosts = (Host("a", {"map": 2, "reduce": 2}),)
    workload = Workload((Job("x", flow, pool="shut"),), Cluster(hosts), pools=(shut,))
    with pytest.raises(InputError, match="weight is 0 and it has no min share; open it"):
        simulate(workload)


WAITS = {
    "awaits admission, number 1 in the queue: pool 'x' is closed (jobs_max 0)": Pool(
        "x", jobs_max=0
    ),
    "pool 'x' is closed (weight 0)": Pool("x", 0.0),
    "pool 'x' is closed (slots_max 0)": Pool("x", slots_max=0),
}


@pytest.mark.parametrize("why", WAITS)
def test_a_change_of_pools_opens_a_closed_one(why: str) -> None:
    """A job of two slots waits in it, with the reason, and runs when it is opened."""
    wide = Job("w", (Phase("p", Tasks(1, 2.0), slots=2),), pool="x")
    cluster, seen = Cluster.of_slots(2), list[Explanation]()
    state = CheckedState(cluster, [WAITS[why]])
    backend = SimulatedBackend(cluster, [wide], requests=[PoolsChanged(5.0, (Pool("x"),))])
    run(
        make_scheduler("fair"),
        backend,
        state,
        lambda *turn: seen.append(explain_state(state, "w", "x", "fair")),
    )
    assert why in (seen[0].status, seen[0].phases[0].why)
    assert state.completed == {"w": 7.0}


def test_phases_of_a_job_may_run_on_different_hosts() -> None:
    """What one phase names does not count for the next one."""
    phases = tuple(Phase(one, Tasks(1, 1.0), hosts=frozenset({one})) for one in ("h1", "h2"))
    cluster = Cluster((Host("h1", {"task": 1}), Host("h2", {"task": 1})))
    result = simulate(Workload((Job("x", phases),), cluster))
    assert result.jobs["x"]["completion"] == 1.0


def test_a_pool_takes_its_min_share_back(simulated: Simulate) -> None:
    """After its time-out tasks are killed at once, as many as it lacks slots.

    They are the newest ones of x, which holds more than its share; the newer x2 does not.
    """
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=Preemption(least_after=5.0))]
    jobs = [job("x", "a", 3), job("x2", "a", 1, arrival=1.0), job("y", "b", 9, arrival=10.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert preempted(log) == [(15.0, "x", 2), (15.0, "x", 1)]
    assert held(log, 15.0) == {"x": 1, "x2": 1, "y": 2}


def test_a_pool_that_is_not_preemptible_gives_no_slots(simulated: Simulate) -> None:
    """The pool above it states so; slots come from the other pool, and no more than it has."""
    back = Preemption(least_after=5.0)
    pools = [
        *(Pool("safe", preemptible=False), Pool("in", parent="safe"), Pool("a")),
        Pool("b", slots_min=3, preemption=back),
    ]
    jobs = [job("x", "in", 4), job("y", "a", 2), job("z", "b", 9, arrival=10.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert held(log, 0.0) == {"x": 2, "y": 2}
    assert preempted(log) == [(15.0, "y", 1), (15.0, "y", 0)]
    assert held(log, 15.0) == {"x": 2, "z": 2}
    lacks = explain(log, "z", 20.0).phases[0].shares[0].lacks
    assert lacks.endswith("it reclaims the missing slots; preemptible: false spares pool in")


@pytest.mark.parametrize("slots", [1, 2])
def test_a_job_takes_its_share_back_within_its_pool(simulated: Simulate, slots: int) -> None:
    """Of the job that holds most above its share, the newest tasks; another pool gives none."""
    pools = [Pool("a", preemption=Preemption(jobs_after=5.0)), Pool("b")]
    jobs = [
        job("x", "a", 4 // slots, slots=slots),
        job("other", "b", 4),
        job("y", "a", 4, arrival=10.0, slots=slots),
    ]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    newest = [(15.0, "x", 3), (15.0, "x", 2)] if slots == 1 else [(15.0, "x", 1)]
    assert preempted(log) == newest
    assert held(log, 14.0) == {"other": 4, "x": 4 // slots}
    assert held(log, 15.0) == {"other": 4, "x": 2 // slots, "y": 2 // slots}


def test_jobs_of_several_phases_take_their_shares_back(simulated: Simulate) -> None:
    """A job's share is that of its ready phases; in a pool of policy fifo none takes back."""
    two = (Phase("p", Tasks(4, 100.0)), Phase("q", Tasks(4, 100.0)))
    jobs = [job("x", "a", 4), Job("y", two, pool="a", arrival=1.0)]
    back = Preemption(jobs_after=5.0, fraction=1.0)
    pools = [Pool("top", preemption=back), Pool("a", parent="top")]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert preempted(log) == [(6.0, "x", 3), (6.0, "x", 2)]
    assert held(log, 6.0) == {"x": 2, "y": 2}
    in_order = [Pool("a", policy="fifo", preemption=back)]
    assert preempted(simulated(jobs, Cluster.of_slots(4), in_order).log) == []


DRY = {
    "min share": Preemption(least_after=5.0, dry_run=True),
    "share": Preemption(fair_after=0.0, dry_run=True),
    "jobs": Preemption(jobs_after=5.0, dry_run=True),
}


@pytest.mark.parametrize("what", DRY)
def test_a_dry_run_stops_nothing_and_logs_what_it_would_stop(
    simulated: Simulate, what: str
) -> None:
    """Once for a shortage; all else is as without preemption. The log can be replayed."""
    jobs = [
        *(job("x", "a", 3), job("x2", "a", 1, arrival=1.0)),
        job("y", "b" if what != "jobs" else "a", 9, 20.0, arrival=10.0),
    ]
    logs = []
    for one in (DRY[what], None):
        pools = [Pool("a", preemption=one), Pool("b", slots_min=2, preemption=one)]
        logs.append(simulated(jobs, Cluster.of_slots(4), pools).log)
    decided = [[d for turn in log.turns for d in turn.decisions] for log in logs]
    noted = [d for d in decided[0] if isinstance(d, WouldPreempt)]
    launched = [[d for d in found if isinstance(d, Launch)] for found in decided]
    assert [(d.phase.job, d.task) for d in noted] == [("x", 2), ("x", 1)][: len(noted)]
    assert noted
    assert {d.pool for d in noted} == {"a" if what == "jobs" else "b"}
    assert launched[0] == launched[1]
    assert not preempted(logs[0])
    assert replay_log(logs[0]).is_identical


def test_slots_of_tasks_that_wait_for_lost_input_are_taken_back(simulated: Simulate) -> None:
    """The copying task of x waits for a map that must be done again; its phase is not ready."""
    pools = [
        Pool("a"),
        Pool("b", slots_min={"copy": 1}, preemption=Preemption(least_after=2.0)),
    ]
    maps = Phase("map", Tasks(2, (1.0, 100.0)), "map")
    copies = Phase("copy", Tasks(1, 0.0), "copy", frozenset({"map"}), slow_start=0.5)
    urgent = Job("y", (Phase("copy", Tasks(1, 1.0), "copy"),), pool="b", arrival=10.0)
    first = (PhaseId("x", "map"), 0, 1)
    lost = Simulation(
        loss=lambda end: 3.0 if (end.phase, end.task, end.attempt) == first else None
    )
    cluster = Cluster((Host("h", {"map": 1, "copy": 1}),))
    jobs = [Job("x", (maps, copies), pool="a"), urgent]
    watch = simulated(jobs, cluster, pools, simulation=lost)
    assert preempted(watch.log) == [(12.0, "x", 0)]
    assert watch.state.completed["y"] == 13.0


def test_no_task_is_killed_for_a_slot_that_becomes_free(simulated: Simulate) -> None:
    """One of the two missing slots comes free before the time-out is over."""
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=Preemption(least_after=5.0))]
    jobs = [job("x", "a", 3), job("short", "a", 1, 12.0), job("y", "b", 9, arrival=10.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert preempted(log) == [(15.0, "x", 2)]


def test_a_pool_below_its_fraction_takes_its_whole_share(simulated: Simulate) -> None:
    """Below half of its fair share for ten seconds: it then takes back all, not only half."""
    pools = [Pool("a"), Pool("b", preemption=Preemption(fair_after=10.0, fraction=0.5))]
    jobs = [job("x", "a", 8), job("y", "b", 8, arrival=1.0)]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert [at for at, _, _ in preempted(log)] == [11.0] * 4
    assert held(log, 11.0) == {"x": 4, "y": 4}


def test_a_pool_with_its_fraction_takes_nothing(simulated: Simulate) -> None:
    """Half of the share is not below half of it."""
    pools = [Pool("a"), Pool("b", preemption=Preemption(fair_after=1.0, fraction=0.5))]
    jobs = [job("x", "a", 6), job("y", "b", 2, 100.0), job("y2", "b", 4, arrival=5.0)]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert held(log, 0.0) == {"x": 6, "y": 2}
    assert preempted(log) == []


def test_no_pool_is_pushed_below_its_own_share(simulated: Simulate) -> None:
    """Only the pool that holds more than its share gives."""
    pools = [Pool("a"), Pool("b"), Pool("c", preemption=Preemption(fair_after=3.0))]
    jobs = [
        job("x", "a", 9),
        job("y", "b", 3),
        job("z", "c", 3, arrival=1.0),
    ]
    log = simulated(jobs, Cluster.of_slots(9), pools).log
    assert held(log, 0.5) == {"x": 6, "y": 3}
    assert {name for _, name, _ in preempted(log)} == {"x"}
    assert held(log, 4.0) == {"x": 3, "y": 3, "z": 3}


def test_a_pool_takes_from_its_sibling(simulated: Simulate) -> None:
    """The slots that a1 lacks are held by a2 in the same pool: b keeps its slots."""
    pools = [
        Pool("a"),
        Pool("b"),
        Pool("a1", slots_min=1, parent="a", preemption=Preemption(least_after=2.0)),
        Pool("a2", parent="a"),
    ]
    jobs = [job("x", "a2", 8), job("z", "b", 8), job("y", "a1", 8, arrival=1.0)]
    log = simulated(jobs, Cluster.of_slots(8), pools).log
    assert preempted(log) == [(3.0, "x", 3)]
    assert held(log, 3.0) == {"x": 3, "y": 1, "z": 4}


def test_inner_pools_preempt_as_their_parent_says(simulated: Simulate) -> None:
    """The time-outs of a pool hold for those below it that state none."""
    pools = [
        Pool("a", preemption=Preemption(least_after=2.0)),
        Pool("a1", slots_min=1, parent="a"),
        Pool("b"),
    ]
    jobs = [job("x", "b", 4), job("y", "a1", 4, arrival=1.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert preempted(log) == [(3.0, "x", 3)]


GRACE = Preemption(least_after=5.0, grace=4.0)


def test_a_preempted_task_may_finish_within_its_grace(simulated: Simulate) -> None:
    """It is asked to stop at 15 and done at 17: nothing is lost."""
    pools = [Pool("a"), Pool("b", slots_min=1, preemption=GRACE)]
    jobs = [job("x", "a", 1, 17.0), job("y", "b", 1, arrival=10.0)]
    watch = simulated(jobs, Cluster.of_slots(1), pools)
    assert preempted(watch.log) == [(15.0, "x", 0)]
    assert watch.state.completed == {"x": 17.0, "y": 117.0}
    assert MetricsCollector.of_log(watch.log).outcome().metrics["preemption"] == {
        "told": 1,
        "stopped": 0,
        "lost_slot_seconds": 0.0,
        "kept_seconds": 0.0,
    }


def test_a_preempted_task_is_killed_after_its_grace(simulated: Simulate) -> None:
    """Asked at 15, killed at 19; 19 seconds are lost and reported."""
    pools = [Pool("a"), Pool("b", slots_min=1, preemption=GRACE)]
    jobs = [job("x", "a", 1, 30.0), job("y", "b", 1, arrival=10.0)]
    watch = simulated(jobs, Cluster.of_slots(1), pools)
    assert watch.state.completed == {"y": 119.0, "x": 149.0}
    metrics = MetricsCollector.of_log(watch.log).outcome().metrics
    assert metrics["preemption"]["lost_slot_seconds"] == 19.0
    assert metrics["wasted_slot_seconds"] == 19.0


def test_a_preempted_task_may_keep_its_work(simulated: Simulate) -> None:
    """Asked at 15, it has saved its 15 seconds by 16, and does the other 15 later."""
    pools = [Pool("a"), Pool("b", slots_min=1, preemption=GRACE)]
    jobs = [job("x", "a", 1, 30.0), job("y", "b", 1, arrival=10.0)]
    simulation = Simulation(save_seconds=1.0)
    watch = simulated(jobs, Cluster.of_slots(1), pools, simulation=simulation)
    assert watch.state.completed == {"y": 116.0, "x": 131.0}
    outcome = MetricsCollector.of_log(watch.log).outcome()
    assert outcome.metrics["preemption"] == {
        "told": 1,
        "stopped": 1,
        "lost_slot_seconds": 1.0,
        "kept_seconds": 15.0,
    }
    assert outcome.metrics["work_seconds"] == pytest.approx(130.0)


def test_an_overdue_pool_does_not_wait_for_locality(simulated: Simulate) -> None:
    """Its input is on a busy host; when overdue, it takes the other host without waiting."""
    hosts = (Host("h1", {"task": 1}), Host("h2", {"task": 1}))
    homes = Tasks(1, 5.0, (Block(frozenset({"h1"})),))
    pools = [Pool("a"), Pool("b", slots_min=1, preemption=Preemption(least_after=3.0))]
    jobs = [
        Job("x", (Phase("map", Tasks(1, 100.0, (Block(frozenset({"h1"})),))),), pool="a"),
        Job("y", (Phase("map", homes),), pool="b", arrival=1.0),
    ]
    log = simulated(jobs, Cluster(hosts), pools, assigner="delay", waits=(50.0, 60.0)).log
    launches = [
        (turn.now, d.host, d.locality)
        for turn in log.turns
        for d in turn.decisions
        if isinstance(d, Launch) and d.phase.job == "y"
    ]
    assert launches == [(4.0, "h2", Locality.RACK)]


def test_flex_keeps_the_min_shares_of_pools(simulated: Simulate) -> None:
    """FLEX would serve the short job alone; the other pool takes its min share back."""
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=Preemption(least_after=1.0))]
    jobs = [job("x", "a", 8, 10.0), job("y", "b", 8, 50.0, arrival=0.5)]
    log = simulated(jobs, Cluster.of_slots(4), pools, name="flex").log
    assert held(log, 1.5) == {"x": 2, "y": 2}


def test_pools_keep_their_slots_while_their_jobs_take_turns(simulated: Simulate) -> None:
    """Twelve jobs of half a slot each: the pool of short tasks keeps its three slots.

    If turns went over all jobs, those of long tasks would gather slots: each keeps for long
    what it wins, while the others win again every second.
    """
    jobs = [job(f"long{n}", "a", 4, 100.0) for n in range(6)]
    jobs += [job(f"short{n}", "b", 100, 1.0) for n in range(6)]
    log = simulated(jobs, Cluster.of_slots(6), [Pool("a"), Pool("b")]).log
    for instant in range(50):
        slots = held(log, instant + 0.5)
        assert sum(count for name, count in slots.items() if name.startswith("short")) == 3


def test_waits_come_from_the_heartbeat() -> None:
    """A cluster whose hosts report every two seconds: 3 s for the rack, 6 s for any slot."""
    hosts = (Host("h1", {"task": 1}), Host("h2", {"task": 1}))
    blocks = (Block(frozenset({"h1"})), Block(frozenset({"h1"})))
    jobs = [Job("x", (Phase("map", Tasks(2, 30.0, blocks)),))]
    workload = Workload(tuple(jobs), Cluster(hosts, heartbeat=2.0))
    log = simulate(workload, "fair", assigner="delay").log
    assert log.header.scheduler["waits"] == (3.0, 6.0)
    launches = [
        (turn.now, d.host)
        for turn in log.turns
        for d in turn.decisions
        if isinstance(d, Launch)
    ]
    assert launches == [(0.0, "h1"), (3.0, "h2")]


def test_each_shortage_has_its_own_clock(simulated: Simulate) -> None:
    """For an instant a pool lacks both; the shortage of its min share continues."""
    patience = Preemption(least_after=5.0, fair_after=0.0)
    pools = [Pool("a"), Pool("b", slots_min=2, preemption=patience)]
    jobs = [job("x", "a", 3), job("y", "b", 2, arrival=1.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert held(log, 1.0) == {"x": 3, "y": 1}
    assert preempted(log) == [(6.0, "x", 2)]


def test_in_a_full_pool_slots_come_from_siblings(simulated: Simulate) -> None:
    """Slots are free, but the pool that contains both holds its max share."""
    pools = [
        Pool("a", slots_max=3),
        Pool("a1", parent="a"),
        Pool("a2", slots_min=1, parent="a", preemption=Preemption(least_after=2.0)),
    ]
    jobs = [job("x", "a1", 5), job("z", "b", 2, arrival=0.5), job("y", "a2", 1, arrival=1.0)]
    log = simulated(jobs, Cluster.of_slots(6), pools).log
    assert preempted(log) == [(3.0, "x", 2)]
    assert held(log, 3.0) == {"x": 2, "y": 1, "z": 2}


def test_a_task_stopped_for_a_share_then_runs_twice_as_long(simulated: Simulate) -> None:
    """Under LAS a killed task has attained nothing and comes first again.

    The attempts of x take 6, 12 and 20 s, those of y in between 5.5, 11 and 20 s.
    """
    pools = [Pool(name, preemption=Preemption(fair_after=5.0, fraction=1.0)) for name in "ab"]
    jobs = [job("x", "a", 1, 20.0), job("y", "b", 1, 20.0, arrival=1.0)]
    watch = simulated(jobs, Cluster.of_slots(1), pools, "las")
    stopped = [(6.0, "x", 0), (11.5, "y", 0), (23.5, "x", 0), (34.5, "y", 0)]
    assert preempted(watch.log) == stopped
    assert watch.state.completed == {"x": 54.5, "y": 74.5}


@pytest.mark.parametrize(
    ("preemption", "taken"),
    [
        (Preemption(least_after=2.0), [(14.0, "x", 1)]),
        (Preemption(fair_after=2.0), [(14.0, "x", 0)]),
    ],
)
def test_only_a_min_share_stops_a_task_again_before(
    simulated: Simulate, preemption: Preemption, taken: list[tuple[float, str, int]]
) -> None:
    """A task of x ran for 10 s until it was stopped for y. At 11 s it begins again.

    Then it is the newest task, but a share takes the other one.
    """
    pools = [
        Pool("a"),
        Pool("b", preemption=Preemption(fair_after=5.0)),
        Pool("c", slots_min=1, preemption=preemption),
    ]
    jobs = [
        job("x", "a", 2),
        job("y", "b", 1, 1.0, arrival=5.0),
        job("z", "c", 1, 1.0, arrival=12.0),
    ]
    log = simulated(jobs, Cluster.of_slots(2), pools).log
    assert preempted(log) == [(10.0, "x", 1), *taken]
