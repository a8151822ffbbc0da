"""Explanations of which job holds what and why, from a log."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slotwise
from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.cli.main import app
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostRemoved
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log, LogFile
from slotwise.core.loop import initial_state
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.explain import explain
from slotwise.insight.explanation import Estimated, explanation_lines
from slotwise.insight.report.pictures.held import draw_by_pool
from slotwise.insight.report.reported import scene_of
from slotwise.workload.workload import Workload

POOLS = [
    Pool("ads", slots_min=2, preemption=Preemption(least_after=5.0)),
    Pool("small", slots_max=1, parent="ads"),
    Pool("large", parent="ads"),
    Pool("web", jobs_max=1),
]


def job(name: str, pool: str, count: int, arrival: float = 0.0) -> Job:
    """A job of one phase of tasks of 30 seconds."""
    return Job(name, (Phase("map", Tasks(count, 30.0)),), arrival, pool)


@pytest.fixture
def log(simulated: Callable[..., object]) -> Log:
    """On eight slots web has all, until the pools within ads take two back at 8 s."""
    jobs = [job("w1", "web", 10), job("w2", "web", 5), job("s", "small", 4, 3.0)]
    jobs += [job("l", "large", 9, 3.0), job("l2", "large", 9, 4.0)]
    return simulated(jobs, Cluster.of_slots(8), POOLS).log


def test_it_shows_what_a_job_holds_and_what_it_is_allocated(log: Log) -> None:
    """At 4 s web holds all; ads is below its min share and says when it takes it back."""
    (phase,) = explain(log, "l", 4.0).phases
    assert (phase.running, phase.pending, phase.allocated) == (0, 9, 1.5)
    assert phase.why == "it lacks 1 of its allocated slots: other phases still hold them"
    inner, outer = phase.shares
    assert (inner.pool, inner.share, inner.demand) == ("large", 3.0, 18)
    assert (outer.pool, outer.share, outer.least) == ("ads", 4.0, 2)
    assert outer.lacks == "below its min share: it reclaims the missing slots at 8 s"
    assert [(share.pool, share.running) for share in phase.over] == [("web", 8)]
    assert [other.job for other in phase.after] == ["l2"]


def test_it_shows_the_steady_share_of_a_pool_beside_its_share() -> None:
    """While only `a` has work it has all slots. The picture in a report has it, too."""
    pools = [Pool("a", 2.0), Pool("b"), Pool("b1", parent="b"), Pool("b2", parent="b")]
    jobs = [job("x", "a", 12), job("y", "b1", 1, arrival=1.0)]
    workload = Workload(tuple(jobs), Cluster.of_slots(12), pools=tuple(pools))
    result = slotwise.simulate(workload, "fair")
    log = result.log
    (share,) = explain(log, "x", 0.0).phases[0].shares
    assert (share.share, share.steady) == (12.0, 8.0)
    assert "share of 12, can use 12 (steady 8)" in str(explain(log, "x", 0.0))
    inner, outer = explain(log, "y", 1.0).phases[0].shares
    assert [one.steady for one in (inner, outer)] == [2.0, 4.0]
    picture = draw_by_pool(scene_of([result.reported]))
    assert picture.sentence.endswith("their shares under fair would be: a 8, b1 2.")


def test_it_shows_limits_and_admission(log: Log) -> None:
    """A max share, a job that awaits admission, one that has not come, one that is done."""
    assert explain(log, "s", 20.0).phases[0].why == "pool 'small' holds its max share of 1"
    assert explain(log, "w2", 1.0).status == (
        "awaits admission, number 1 in the queue: pool 'web' runs w1 (jobs_max 1)"
    )
    assert explain(log, "l", 2.9).status == "has not arrived yet"
    last = log.turns[-1].now
    assert explain(log, "l", last).status.startswith("completed at ")
    assert explain(log, "w1", 0.0).phases[0].running == 8


def test_it_says_that_tasks_stopped_before_are_left(simulated: Callable[..., object]) -> None:
    """Under LAS the task of x, stopped after 6 s, comes first again at 11.5 s, until 23.5 s."""
    pools = [Pool(name, preemption=Preemption(fair_after=5.0, fraction=1.0)) for name in "ab"]
    maps = Phase("map", Tasks(1, 20.0))
    jobs = [Job("x", (maps,), pool="a"), Job("y", (maps,), 1.0, "b")]
    log = simulated(jobs, Cluster.of_slots(1), pools, "las").log
    lacks = {at: explain(log, "y", at).phases[0].shares[0].lacks for at in (13.0, 20.0)}
    takes = "below its share for too long: it reclaims the missing slots"
    leaves = "it spares tasks that were stopped before until they have run longer"
    assert lacks[13.0] == "below its share: it reclaims the missing slots at 17 s"
    assert lacks[20.0] == f"{takes}; {leaves}"


def test_it_names_the_queues_in_which_tasks_wait() -> None:
    """With queues at hosts nothing is allocated; the tasks before its own are counted."""
    cluster = Cluster((Host("fast", {"task": 1}), Host("slow", {"task": 1}, speed=0.5)))
    jobs = [
        Job("a", (Phase("map", Tasks(3, 2.0)),), weight=9),
        Job("b", (Phase("map", Tasks(3, 2.0)), Phase("end", Tasks(1, 1.0), after={"map"}))),
    ]
    log = slotwise.simulate(Workload(tuple(jobs), cluster=cluster), "dmrs").log
    (held,) = explain(log, "a", 0.0).phases
    assert (held.running, held.allocated, held.shares) == (2, None, ())
    assert held.why == (
        "its job was placed as number 1 of 2, and its tasks wait in queues:"
        " 1 task on fast, first"
    )
    first, last = explain(log, "b", 0.0).phases
    assert first.why.startswith("its job was placed as number 2 of 2")
    assert "on fast, after 1 task" in first.why
    assert last.why == "it waits for map"
    lines = list(explanation_lines(explain(log, "a", 0.0)))
    assert lines[1] == "  map: holds 2 slots of kind task; 1 task waits, 0 are done"


def test_it_shows_unresponsive_hosts_and_waiting_queues() -> None:
    """A task on an unresponsive host counts as held; a slot kept for a reduce is named."""
    cluster = Cluster((Host("a", {"task": 1}), Host("b", {"task": 1}, speed=0.25)), grace=9.0)
    phases = (
        Phase("map", Tasks(2, work=(3.0, 0.9))),
        Phase("end", Tasks(1, 1.0), after={"map"}),
    )
    jobs = (Job("j", phases, weight=9), Job("k", (Phase("map", Tasks(1, 8.0)),)))
    simulation = Simulation(outages=(Outage("b", 1.0, 2.0),))
    workload = Workload(jobs, cluster=cluster)
    log = slotwise.simulate(workload, "dmrs", simulation=simulation).log
    assert explain(log, "j", 0.5).phases[0].silent == {}
    unresponsive = explain(log, "j", 1.5)
    assert unresponsive.phases[0].silent == {"b": 1}
    assert "    on unresponsive hosts: 1 on b" in explanation_lines(unresponsive)
    (waits,) = explain(log, "k", 3.3).phases
    assert waits.why.endswith("1 task on a, after 1 task (next is j/end, which waits for map)")


def test_it_refuses_jobs_and_instants_outside_the_log(log: Log) -> None:
    """A job or an instant that the log does not have, with what it has."""
    with pytest.raises(InputError, match=r"job 'nobody' is not in the log.*l, l2, s, w1, w2"):
        explain(log, "nobody", 1.0)
    for instant in (-1.0, 1e9, float("nan")):
        with pytest.raises(InputError, match="not in the log; name one from 0 to"):
            explain(log, "l", instant)


def test_the_command(log: Log, tmp_path: Path) -> None:
    """It prints the same as text, or as one JSON object."""
    path = tmp_path / "run.jsonl"
    with LogFile(path, log.header) as file:
        for turn in log.turns:
            file(turn.now, turn.events, turn.decisions)
    shown = CliRunner().invoke(app, ["explain", str(path), "--at", "4", "--job", "l"])
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == list(explanation_lines(explain(log, "l", 4.0)))
    shown = CliRunner().invoke(app, ["explain", str(path), "--at", "4", "--job", "l", "--json"])
    assert '"allocated": 1.5' in shown.stdout


def test_it_says_that_no_host_is_large_enough_for_a_wide_task() -> None:
    """After the loss of one, until another one comes."""
    changes = (HostRemoved(2.0, "large"), HostAdded(8.0, Host("larger", {"task": 4})))
    jobs = (Job("a", (Phase("map", Tasks(1, 5.0), slots=3),)),)
    hosts = (Host("large", {"task": 3}), Host("small", {"task": 2}))
    workload = Workload(jobs, cluster=Cluster(hosts), changes=changes)
    result = slotwise.simulate(workload, "fair")
    assert result.metrics["jobs_done"] == 1
    (phase,) = explain(result.log, "a", 4.0).phases
    assert phase.why == (
        "each of its tasks occupies 3 slots of one host, and the largest host that can start"
        " tasks now has 2: it waits for a larger one"
    )


def test_it_says_that_a_wide_task_waits_for_slots_of_one_host() -> None:
    """For as long as a task takes; then it keeps the free slot until the other one is free."""
    jobs = (
        Job("a", (Phase("map", Tasks(1, 9.0)),)),
        Job("b", (Phase("map", Tasks(1, 4.0), slots=2),)),
    )
    workload = Workload(jobs, cluster=Cluster((Host("h", {"task": 2}),)))
    log = slotwise.simulate(workload, "fair").log
    (phase,) = explain(log, "b", 1.0).phases
    assert (phase.running, phase.pending) == (0, 1)
    assert phase.why == "it has waited since 0 s for 2 free slots of one host"
    (phase,) = explain(log, "b", 5.0).phases
    assert phase.why == "it waits for 2 free slots of one host; at most 1 are free on one"


def of_stated(name: str, seconds: float, count: int, arrival: float) -> Job:
    """A job of tasks of equal work."""
    return Job(name, (Phase("map", Tasks(count, seconds)),), arrival)


def test_it_tells_where_an_estimate_comes_from(simulated: Callable[..., object]) -> None:
    """Before and after five phases were measured; FAIR estimates nothing."""
    jobs = [of_stated(f"j{n}", 2.0, 3, 4.0 * n) for n in range(6)]
    jobs.append(of_stated("last", 2.0, 3, 30.0))
    hidden = simulated(
        jobs, Cluster.of_slots(1), name="flex", simulation=Simulation(hide_work=True)
    ).log
    at_first, measured, at_last = (
        explain(hidden, name, at).phases[0].estimate
        for name, at in (("j0", 1.0), ("j0", 2.5), ("last", 30.0))
    )
    assert (at_first.origin, measured.origin) == ("assumed", "measured")
    assert (measured.factor, measured.work) == (1.0, pytest.approx(3.5))
    assert at_last.origin == "alike"
    assert 1.0 < at_last.factor < at_first.factor
    assert at_last.work == pytest.approx(6.0, rel=0.3)
    stated = simulated(jobs, Cluster.of_slots(1), name="flex").log
    phase = explain(stated, "last", 30.0).phases[0]
    assert phase.estimate == Estimated(6.0, 1.0, "stated")
    noisy = simulated(
        jobs, Cluster.of_slots(1), name="flex", simulation=Simulation(noise=0.5)
    ).log
    assert explain(noisy, "last", 30.0).phases[0].estimate.origin == "corrected"
    fair = simulated(jobs, Cluster.of_slots(1)).log
    assert explain(fair, "j0", 1.0).phases[0].estimate is None


def test_it_tells_the_estimates_that_the_allocator_had(
    simulated: Callable[..., object],
) -> None:
    """A hundred phases are measured before; an allocator asks for estimates all the time."""
    jobs = [of_stated(f"j{n}", 1.0 + n % 7, 2, float(n)) for n in range(100)]
    jobs.append(of_stated("last", 5.0, 3, 600.0))
    hidden = Simulation(hide_work=True)
    log = simulated(jobs, Cluster.of_slots(2), name="flex", simulation=hidden).log
    state = initial_state(log.header)
    for turn in log.turns:
        if turn.now <= 600.0:
            state.at(turn.now)
            for entry in (*turn.events, *turn.decisions):
                state.apply(entry)
            left = [phase.estimate(turn.now) for phase in state.ready("task")]
    told = explain(log, "last", 600.0).phases[0].estimate
    assert [(told.work, told.factor)] == [(work, exp(spread)) for work, spread in left]
    assert told.origin == "alike"


def test_it_tells_the_work_left_of_the_jobs_before_and_after(
    simulated: Callable[..., object],
) -> None:
    """All phases of a job count."""
    two = Job("two", (Phase("map", Tasks(2, 1.0)), Phase("end", Tasks(1, 4.0), after={"map"})))
    jobs = [two, of_stated("long", 9.0, 4, 0.0)]
    log = simulated(jobs, Cluster.of_slots(1), name="flex").log
    found = explain(log, "long", 0.0)
    assert "served before it in its pool: two/map (1 of 1, 6 s of work left)" in str(found)
