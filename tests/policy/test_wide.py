"""Tasks that occupy several slots of one host, beside tasks of one slot."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Defer, Launch, Preempt
from slotwise.core.events import HostAdded
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.timeline import timeline_of

TWO = Cluster.of_slots(2)


def job(
    name: str, count: int, seconds: float, width: int = 1, arrival: float = 0.0, **more: object
) -> Job:
    """A job of one phase of equal tasks."""
    phase = Phase("p", Tasks(count, seconds), slots=width)
    return Job(name, (phase,), arrival=arrival, **more)


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


def test_a_task_holds_its_slots_together(simulated: Callable[..., object]) -> None:
    """On four slots of two hosts, tasks of two slots run two at a time, one on each host."""
    cluster = Cluster((Host("a", {"task": 3}), Host("b", {"task": 2})))
    watch = simulated([job("wide", 4, 1.0, 2)], cluster)
    assert starts(watch.log, "wide") == [0.0, 0.0, 1.0, 1.0]
    assert watch.state.completed == {"wide": 2.0}


def test_metrics_count_slot_seconds(simulated: Callable[..., object]) -> None:
    """One task of 3 s on two of four slots uses 6 of 12 slot-seconds; its bound is exact."""
    watch = simulated([job("wide", 1, 3.0, 2)], Cluster.of_slots(4))
    outcome = MetricsCollector.of_log(watch.log).outcome()
    assert outcome.metrics["utilisation"] == pytest.approx(0.5)
    assert outcome.metrics["work_seconds"] == pytest.approx(6.0)
    assert outcome.metrics["stretch_mean"] == pytest.approx(0.5)
    assert outcome.metrics["slowdown_mean"] == pytest.approx(1.0)
    assert outcome.bound == pytest.approx(outcome.metrics["value"])


def test_it_is_shown_in_each_of_its_slots(simulated: Callable[..., object]) -> None:
    """The timeline has the task in two lanes, and counts two slots held."""
    line = timeline_of(simulated([job("wide", 1, 3.0, 2)], TWO).log)
    assert sorted(placed.lane for placed in line.attempts) == [0, 1]
    assert line.held_by_job["wide"].area(0.0, 3.0) == pytest.approx(6.0)


@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
def test_a_stream_of_narrow_tasks_ends_for_a_wide_one(
    simulated: Callable[..., object], name: str
) -> None:
    """Slots become free one by one, and are kept until both are free."""
    stream = [job(f"n{n}", 1, 1.0, arrival=0.5 * n, weight=0.01) for n in range(40)]
    wide = job("wide", 1, 1.0, 2, arrival=2.1, weight=100.0, priority="very_high")
    watch = simulated([*stream, wide], TWO, name=name)
    assert starts(watch.log, "wide") == [3.0]


def test_half_of_a_task_is_a_task_half_of_the_time(simulated: Callable[..., object]) -> None:
    """A wide and a narrow job have one slot each, and so the wide one gets both by turns."""
    watch = simulated([job("narrow", 60, 1.0), job("wide", 10, 1.0, 2)], TWO)
    begun = starts(watch.log, "wide")
    narrow = [at for at in starts(watch.log, "narrow") if at < begun[-1]]
    assert 0.7 < len(narrow) / (2 * len(begun)) < 1.5, "both have about half of the slots"
    assert max(b - a for a, b in pairwise(begun)) <= 4.0


def test_a_wait_begins_with_one_decision(simulated: Callable[..., object]) -> None:
    """The wide phase is deferred once until its turn, and nothing is decided meanwhile."""
    watch = simulated([job("narrow", 4, 10.0), job("wide", 1, 10.0, 2, arrival=1.0)], TWO)
    (wait,) = decisions(watch.log, Defer)[:1]
    assert (wait.phase.job, wait.since) == ("wide", 1.0)
    assert wait.until > 10.0, (
        "it lacks half of a task, and waits for about as long as one takes"
    )


def test_nothing_is_kept_while_a_wide_task_runs(simulated: Callable[..., object]) -> None:
    """The end of one wide task frees enough for the next: the third slot stays in use."""
    jobs = [
        job("one", 2, 4.0, 2),
        job("two", 2, 4.0, 2),
        job("narrow", 12, 1.0),
    ]
    watch = simulated(jobs, Cluster.of_slots(3))
    outcome = MetricsCollector.of_log(watch.log).outcome()
    assert watch.state.completed["narrow"] <= 16.0
    assert outcome.metrics["makespan"] <= 20.0


def test_a_max_share_leaves_room_for_a_wide_task(simulated: Callable[..., object]) -> None:
    """In a pool of at most two slots, narrow tasks stop until the wide one has had its turn."""
    jobs = [job("narrow", 20, 1.0, pool="a"), job("wide", 1, 1.0, 2, pool="a")]
    pools = [Pool("a", slots_max={"task": 2})]
    watch = simulated(jobs, Cluster.of_slots(4), pools)
    assert starts(watch.log, "wide")[0] <= 3.0


def test_a_pool_takes_slots_back_on_one_host(simulated: Callable[..., object]) -> None:
    """With two hosts of two slots, both stopped tasks ran on the same host."""
    cluster = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})))
    pools = [Pool("vip", slots_min={"task": 2}, preemption=Preemption(least_after=0.0))]
    jobs = [job("long", 4, 100.0, pool="other"), job("wide", 1, 1.0, 2, 5.0, pool="vip")]
    watch = simulated(jobs, cluster, pools)
    taken = decisions(watch.log, Preempt)
    assert len(taken) == 2
    assert len({one.host for one in taken}) == 1
    assert starts(watch.log, "wide") == [5.0]


def test_slots_that_come_one_by_one_are_not_given_away(
    simulated: Callable[..., object],
) -> None:
    """One of two stopped tasks ends before its grace: its slot waits for the other one."""
    cluster = Cluster((Host("a", {"task": 2}), Host("b", {"task": 2})))
    pools = [
        Pool("vip", slots_min={"task": 2}, preemption=Preemption(least_after=0.0, grace=3.0))
    ]
    jobs = [
        Job("long", (Phase("p", Tasks(8, (9.0, 9.0, 6.0, 9.0, 9.0, 9.0, 9.0, 9.0))),)),
        job("wide", 1, 1.0, 2, 5.0, pool="vip"),
    ]
    watch = simulated(jobs, cluster, pools)
    assert starts(watch.log, "wide")[0] <= 8.0


def test_nothing_is_taken_for_a_part_of_a_task(simulated: Callable[..., object]) -> None:
    """A min share of one slot is no guarantee for tasks of two: no task is stopped in vain."""
    pools = [Pool("vip", slots_min={"task": 1}, preemption=Preemption(least_after=0.0))]
    jobs = [job("long", 2, 10.0, pool="other"), job("wide", 1, 1.0, 2, 5.0, pool="vip")]
    watch = simulated(jobs, TWO, pools)
    assert decisions(watch.log, Preempt) == []
    assert starts(watch.log, "wide") == [10.0]


def test_explain_names_the_slots_that_it_waits_for(simulated: Callable[..., object]) -> None:
    """One slot is free, and the job needs two of one host."""
    jobs = [job("narrow", 1, 10.0), job("wide", 1, 1.0, 2, arrival=1.0)]
    watch = simulated(jobs, TWO)
    (phase,) = explain(watch.log, "wide", 2.0).phases
    assert phase.why == "it waits for 2 free slots of one host; at most 1 are free on one"


def test_a_wait_goes_on_when_slots_of_the_kind_of_its_phase_come(
    simulated: Callable[..., object],
) -> None:
    """A phase keeps the kind of slots that it had when its job arrived, and its place."""
    cluster = Cluster((Host("a", {"task": 2}),))
    one_by_one = (Phase("p", Tasks(30, 1.0), slots_max=1),)
    narrow = [Job(f"n{n}", one_by_one, arrival=n / 2) for n in range(2)]
    phases = (Phase("p", Tasks(1, 1.0), "map", slots=2),)
    wide = Job("wide", phases, arrival=0.75, priority="high")
    change = HostAdded(0.8, Host("b", {"map": 1}))
    watch = simulated([*narrow, wide], cluster, (), "fifo", Simulation(changes=(change,)))
    assert starts(watch.log, "wide") == [1.5]
