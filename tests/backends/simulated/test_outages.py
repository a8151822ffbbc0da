"""Simulated hosts that are cut off for a while, or have other speeds than believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from slotwise import replay, simulate
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Outage, Reports, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import (
    Event,
    HostJoined,
    HostLost,
    JobArrived,
    LaunchDropped,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, Preemption
from slotwise.workload.workload import Workload

MAP, REDUCE = PhaseId("a", "map"), PhaseId("a", "reduce")


def cluster(heartbeat: float = 0.0, grace: float = 5.0) -> Cluster:
    """Two hosts of two slots; with a heartbeat h2 reports half of it after h1."""
    hosts = tuple(Host(name, {"task": 2}) for name in ("h1", "h2"))
    return Cluster(hosts, heartbeat, grace)


def backend_of(
    *outages: Outage,
    heartbeat: float = 0.0,
    grace: float = 5.0,
    work: float = 4.0,
    **simulation: Any,
) -> SimulatedBackend:
    """A backend in which a job of eight maps and a reduce of 1 s has arrived."""
    maps = Phase("map", Tasks(8, work))
    job = Job("a", (maps, Phase("reduce", Tasks(2, 1.0), after=frozenset({"map"}))))
    truth = Simulation(outages=outages, **simulation)
    backend = SimulatedBackend(cluster(heartbeat, grace), (job,), truth)
    assert JobArrived(0.0, job) in backend.wait(None)
    return backend


def launch(task: int, host: str = "h1", attempt: int = 1) -> Launch:
    """An attempt of a map."""
    return Launch(MAP, task, attempt, host, Locality.NODE)


def finished(at: float, task: int, seconds: float = 4.0, attempt: int = 1) -> TaskFinished:
    """The success of a map."""
    return TaskFinished(at, MAP, task, attempt, seconds)


def lost(at: float, task: int, host: str = "h1", grace: float = 5.0) -> TaskFailed:
    """The first attempt of a map is given up."""
    reason = f"host {host} has not responded for more than {grace:g} s"
    return TaskFailed(at, MAP, task, 1, reason, lost=True)


def until_quiet(backend: SimulatedBackend) -> list[Event]:
    """All remaining events."""
    events: list[Event] = []
    while received := backend.wait(until=1000.0):
        events += received
    return events


# Outages within the grace.


def test_tasks_that_end_during_an_outage_are_reported_after_it() -> None:
    """Two tasks of 4 s on h1, begun at 0 and 1.5; it is cut off from 3 to 6."""
    backend = backend_of(Outage("h1", 3, 3))
    backend.perform(launch(0))
    assert backend.wait(1.5) == ()
    backend.perform(launch(1))
    backend.perform(launch(2, "h2"))
    assert until_quiet(backend) == [
        HostLost(3.0, "h1"),
        finished(5.5, 2),
        HostJoined(6.0, "h1"),
        finished(6.0, 0),
        finished(6.0, 1),
    ]


def test_tasks_that_end_after_an_outage_are_not_affected() -> None:
    """An outage from 1 to 3 within a task of 4 s."""
    backend = backend_of(Outage("h1", 1, 2))
    backend.perform(launch(0))
    assert until_quiet(backend) == [
        HostLost(1.0, "h1"),
        HostJoined(3.0, "h1"),
        finished(4.0, 0),
    ]


def test_an_outage_as_long_as_the_grace_loses_nothing() -> None:
    """Back at the very instant at which the grace of 5 s ends, tasks are not lost."""
    backend = backend_of(Outage("h1", 1, 5))
    backend.perform(launch(0))
    assert until_quiet(backend)[-1] == finished(6.0, 0)


def test_an_end_at_the_start_of_an_outage_is_not_reported() -> None:
    """Nor is one at the instant of the return late."""
    backend = backend_of(Outage("h1", 4, 1), Outage("h2", 1, 3))
    backend.perform(launch(0, "h1"))
    backend.perform(launch(1, "h2"))
    assert until_quiet(backend) == [
        HostLost(1.0, "h2"),
        HostLost(4.0, "h1"),
        HostJoined(4.0, "h2"),
        finished(4.0, 1),
        HostJoined(5.0, "h1"),
        finished(5.0, 0),
    ]


def test_touching_outages_are_one_outage() -> None:
    """3 s and 3 s are more than the grace of 5 s."""
    backend = backend_of(Outage("h1", 4, 3), Outage("h1", 1, 3))
    backend.perform(launch(0))
    assert until_quiet(backend) == [HostLost(1.0, "h1"), lost(6.0, 0), HostJoined(7.0, "h1")]


# Outages beyond the grace.


def test_after_the_grace_running_tasks_are_lost_for_good() -> None:
    """Both tasks of h1 at 6, though one was done by then; others may begin when it is back."""
    backend = backend_of(Outage("h1", 1, 20), work=4.0)
    backend.perform(launch(0))
    backend.perform(launch(1))
    assert backend.wait(None) == [HostLost(1.0, "h1")]
    assert backend.wait(None) == [lost(6.0, 0), lost(6.0, 1)]
    backend.perform(launch(0, "h2", attempt=2))
    assert until_quiet(backend) == [finished(10.0, 0, attempt=2), HostJoined(21.0, "h1")]


def test_without_grace_tasks_are_lost_when_the_outage_is_noticed() -> None:
    """At the instant of the outage."""
    backend = backend_of(Outage("h1", 1, 0.5), grace=0.0)
    backend.perform(launch(0))
    events = [HostLost(1.0, "h1"), lost(1.0, 0, grace=0.0), HostJoined(1.5, "h1")]
    assert until_quiet(backend) == events


# Hosts that report now and then. h1 reports at 0, 2, 4, ..., h2 at 1, 3, 5, ...


def test_an_outage_is_noticed_at_the_first_missing_report() -> None:
    """Cut off from 1 to 4.5: noticed at 2, back at 6. The end at 4 is known then, too."""
    backend = backend_of(Outage("h1", 1, 3.5), heartbeat=2.0)
    backend.perform(launch(0))
    assert until_quiet(backend) == [
        HostLost(2.0, "h1"),
        HostJoined(6.0, "h1"),
        finished(6.0, 0),
    ]


def test_an_outage_between_two_reports_is_not_noticed() -> None:
    """A launch within it begins when it is over, at 1.5; its end at 5.5 is known at 6."""
    backend = backend_of(Outage("h1", 0.5, 1.0), heartbeat=2.0)
    assert backend.wait(1.0) == ()
    backend.perform(launch(0))
    backend.perform(launch(1, "h2"))
    assert until_quiet(backend) == [finished(5.0, 1), finished(6.0, 0)]


def test_outages_without_a_report_between_them_are_one_outage() -> None:
    """The reports at 2 and 4 are missing, although the host was reachable from 2.5 to 3.5."""
    backend = backend_of(Outage("h1", 1.5, 1), Outage("h1", 3.5, 1), heartbeat=2.0)
    assert until_quiet(backend) == [HostLost(2.0, "h1"), HostJoined(6.0, "h1")]


def test_the_grace_begins_when_the_outage_is_noticed() -> None:
    """Noticed at 2, lost at 7; cut off until 6.5 only, but the next report is at 8."""
    backend = backend_of(Outage("h1", 0.5, 6), heartbeat=2.0)
    backend.perform(launch(0))
    assert until_quiet(backend) == [HostLost(2.0, "h1"), lost(7.0, 0), HostJoined(8.0, "h1")]


@pytest.mark.parametrize("heartbeat", [5e-324, 1e-320, 1e-300, 1e-9])
def test_a_heartbeat_shorter_than_any_difference_of_instants_is_none(heartbeat: float) -> None:
    """Ends are known at once, and no number is too large."""
    reports = Reports(cluster(heartbeat))
    assert [reports.next(host, 1.0) for host in ("h1", "h2")] == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("seconds", "events"),
    [
        (2.0, [HostLost(2.0, "h1"), HostJoined(4.0, "h1"), finished(8.0, 0)]),
        (
            9.0,
            [
                HostLost(2.0, "h1"),
                lost(7.0, 0),
                HostJoined(10.0, "h1"),
                LaunchDropped(10.0, MAP, 0, 1, "h1", "was taken back"),
            ],
        ),
    ],
)
def test_a_launch_during_an_outage(seconds: float, events: list[Event]) -> None:
    """Between the cut and its notice: it begins on return, or is dropped if it was lost."""
    backend = backend_of(Outage("h1", 0.5, seconds), heartbeat=2.0)
    assert backend.wait(1.0) == ()
    backend.perform(launch(0))
    assert until_quiet(backend) == events


# Orders to stop.


def test_a_kill_reaches_an_unresponsive_host_when_it_is_back() -> None:
    """One of two tasks is done by then, and ends normally."""
    backend = backend_of(Outage("h1", 2, 3), work=4.0)
    backend.perform(launch(0))
    assert backend.wait(1.5) == ()
    backend.perform(launch(1))
    assert backend.wait(None) == [HostLost(2.0, "h1")]
    backend.perform(Preempt(MAP, 0, 1, "h1"))
    backend.perform(Preempt(MAP, 1, 1, "h1"))
    assert until_quiet(backend) == [
        HostJoined(5.0, "h1"),
        finished(5.0, 0),
        TaskKilled(5.0, MAP, 1, 1),
    ]


def test_a_kill_of_a_lost_attempt_has_no_effect() -> None:
    """The grace is over first."""
    backend = backend_of(Outage("h1", 2, 30))
    backend.perform(launch(0))
    assert backend.wait(None) == [HostLost(2.0, "h1")]
    backend.perform(Preempt(MAP, 0, 1, "h1", until=3.0))
    assert until_quiet(backend) == [lost(7.0, 0), HostJoined(32.0, "h1")]


def test_a_launch_and_its_kill_may_both_wait() -> None:
    """It begins and is stopped at once."""
    backend = backend_of(Outage("h1", 0.5, 1), heartbeat=2.0)
    assert backend.wait(1.0) == ()
    backend.perform(launch(0))
    backend.perform(Preempt(MAP, 0, 1, "h1"))
    assert until_quiet(backend) == [TaskKilled(1.5, MAP, 0, 1)]


def test_work_saved_during_an_outage_is_reported_after_it() -> None:
    """Asked to stop at 1 after 1 s, it saves until 2; at 4 it is reported as killed."""
    backend = backend_of(Outage("h1", 1.5, 3), work=2.0, save_seconds=0.5)
    backend.perform(launch(0))
    assert backend.wait(1.0) == ()
    backend.perform(Preempt(MAP, 0, 1, "h1", until=9.0))
    events = [HostLost(1.5, "h1"), HostJoined(4.5, "h1"), TaskKilled(4.5, MAP, 0, 1, kept=1.0)]
    assert until_quiet(backend) == events


# Whole runs.


def test_when_all_hosts_are_unresponsive_everything_waits() -> None:
    """Cut off from 0 on, h1 until 3, h2 until 4; the job arrives at 1 and begins at 3."""
    hosts = tuple(Host(name, {"task": 1}) for name in ("h1", "h2"))
    jobs = (Job("a", (Phase("map", Tasks(2, 2.0)),), arrival=1.0),)
    truth = Simulation(outages=(Outage("h1", 0, 3), Outage("h2", 0, 4)))
    result = simulate(Workload(jobs, Cluster(hosts, grace=0.0)), "fair", simulation=truth)
    assert (result.jobs["a"]["start"], result.jobs["a"]["completion"]) == (3.0, 6.0)


def test_a_pool_below_another_waits_for_the_only_host_of_its_kind() -> None:
    """Reduces run only on h1: lost at 3 with a grace of 1 s, begun again at 8, done at 10."""
    hosts = (Host("h1", {"reduce": 2}), Host("h2", {"map": 2}))
    phases = (
        Phase("map", Tasks(2, 1.0), "map"),
        Phase("reduce", Tasks(2, 2.0), "reduce", frozenset({"map"})),
    )
    pools = (Pool("above", slots_min=2), Pool("below", parent="above", slots_min=2))
    workload = Workload((Job("a", phases, pool="below"),), Cluster(hosts, grace=1.0), pools)
    truth = Simulation(outages=(Outage("h1", 2, 6),))
    for name in ("fifo", "fair", "flex", "flowflex"):
        result = simulate(workload, name, simulation=truth)
        assert result.jobs["a"]["completion"] == 10.0
        assert result.metrics["attempts"] == {"done": 4, "lost": 2}
        assert replay(result.log).is_identical


def test_no_pool_takes_slots_of_an_unresponsive_host() -> None:
    """b takes the slot of the older task on h2, because that of the newer one on h1 is away."""
    hosts = tuple(Host(name, {"task": 1}) for name in ("h2", "h1"))
    long = Phase("map", Tasks(2, 50.0))
    jobs = (
        Job("a", (long,), pool="a"),
        Job("b", (Phase("map", Tasks(1, 1.0)),), arrival=3.0, pool="b"),
    )
    taking = Pool("b", slots_min=1, preemption=Preemption(least_after=1.0))
    truth = Simulation(outages=(Outage("h1", 2, 10),))
    result = simulate(Workload(jobs, Cluster(hosts), (taking,)), "fair", simulation=truth)
    decisions = [d for turn in result.log.turns for d in turn.decisions]
    (taken,) = (d for d in decisions if isinstance(d, Preempt))
    assert (taken.host, taken.task) == ("h2", 0)
    assert result.jobs["b"]["completion"] == 5.0


def test_run_times_and_bound_use_the_true_speeds() -> None:
    """The scheduler believes that both have speed 1 and uses h1 of speed 0.1: 100 s, not 10."""
    hosts = tuple(Host(name, {"task": 1}) for name in ("h1", "h2"))
    workload = Workload((Job("a", (Phase("map", Tasks(1, 10.0)),)),), Cluster(hosts))
    result = simulate(workload, "fair", simulation=Simulation(speeds={"h1": 0.1}))
    assert result.metrics["value"] == pytest.approx(100.0)
    assert result.bound == pytest.approx(10.0)
    assert result.log.header.parameters["speeds"] == {"h1": 0.1}
    assert result.log.header.cluster == workload.cluster


def test_the_log_header_holds_the_troubles_and_nothing_else() -> None:
    """The outages; without any there is no key."""
    workload = Workload((Job("a", (Phase("map", Tasks(1, 1.0)),)),), cluster())
    plain = simulate(workload).log.header.parameters
    truth = Simulation(outages=(Outage("h1", 3, 2),), repeats=lambda _: None)
    troubled = simulate(workload, simulation=truth).log.header.parameters
    assert troubled == plain | {"outages": [["h1", 3, 2]], "repeats": True}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Outage("h1", -1, 2), "outage h1=-1+2: it begins at -1; expected seconds >= 0"),
        (lambda: Outage("h1", float("nan"), 2), "it begins at nan; expected seconds >= 0"),
        (lambda: Outage("h1", 1, 0), "outage h1=1+0: it lasts 0 s; expected seconds > 0"),
        (lambda: Outage("h1", 1, float("inf")), "it lasts inf s; expected seconds > 0"),
        (lambda: Outage("h1", 1e308, 1e308), "it begins at 1e+308; expected seconds >= 0"),
        (
            lambda: Simulation(outages=(Outage("h1", 3, 2), Outage("h1", 1, 2.5))),
            "outage h1=1+2.5 and outage h1=3+2 overlap; combine them into one",
        ),
        (
            lambda: Simulation(speeds={"h1": 0.0}),
            "host 'h1' is 0.0; give a number",
        ),
        (lambda: Simulation(speeds={"h1": float("inf")}), "is inf; give a number > 0"),
        (lambda: Simulation(speeds=cast("Any", {"h1": "x"})), "is 'x'; give a number > 0"),
        (lambda: Simulation(speeds=cast("Any", 5)), "speeds is 5; expected a mapping of hosts"),
        (lambda: Simulation(outages=cast("Any", 5)), "outages is 5; expected a tuple of"),
        (lambda: Simulation(outages=cast("Any", (5,))), "outages is (5,); expected a tuple of"),
        (
            lambda: Simulation(remote_factor=cast("Any", "x")),
            "remote_factor is 'x'; expected a",
        ),
        (
            lambda: Simulation(save_seconds=cast("Any", "x")),
            "save_seconds is 'x'; give seconds",
        ),
        (
            lambda: Simulation(seed=cast("Any", float("nan"))),
            "seed is nan; expected a whole number >= 0",
        ),
        (
            lambda: Simulation(seed=cast("Any", "x")),
            "seed is 'x'; expected a whole number >= 0",
        ),
        (
            lambda: Simulation(noise=cast("Any", "x")),
            "noise is 'x'; expected a number from 0 to 10",
        ),
        (
            lambda: Simulation(hide_work=cast("Any", "no")),
            "hide_work is 'no'; expected True or False",
        ),
        (
            lambda: simulated(Simulation(), slots=2.5),
            "slots is 2.5; expected a whole number >= 1",
        ),
        (
            lambda: simulated(Simulation(), slots="2"),
            "slots is '2'; expected a whole number >= 1",
        ),
        (
            lambda: simulated(Simulation(outages=(Outage("h3", 3, 2),))),
            "outage h3=3+2: there is no host 'h3'; known: h1, h2",
        ),
        (
            lambda: simulated(Simulation(speeds={"h3": 2.0})),
            "true speed h3=2: there is no host 'h3'; known: h1, h2",
        ),
    ],
)
def test_invalid_values_are_refused(make: Callable[[], object], words: str) -> None:
    """The message has the place, the value and the remedy."""
    with pytest.raises(InputError) as refused:
        make()
    assert words in str(refused.value)


def simulated(simulation: Simulation, slots: Any = None) -> object:
    """The result of a small job."""
    workload = Workload((Job("a", (Phase("map", Tasks(1, 1.0)),)),), cluster())
    return simulate(workload, simulation=simulation, slots=slots)
