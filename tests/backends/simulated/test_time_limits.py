"""Time limits in simulations: an attempt fails at the instant at which it exceeds its limit."""

from __future__ import annotations

import slotwise
from slotwise import Block, Cluster, Host, Job, Network, Phase, Simulation, Tasks
from slotwise.core.events import TaskFailed


def failures(result: slotwise.Result) -> list[tuple[float, str, str]]:
    """When attempts failed: the instant, the phase and the reason."""
    return [
        (one.at, one.phase.phase, one.reason)
        for turn in result.log.turns
        for one in turn.events
        if isinstance(one, TaskFailed)
    ]


def test_attempt_that_exceeds_its_limit_fails_then() -> None:
    """Each attempt fails after 300 s, and the job after its attempts."""
    one = Job("a", (Phase("p", Tasks(1, 400.0)),), time_limit=300.0, attempts=2)
    result = slotwise.simulate(one, slots=1)
    reason = "exceeded its time limit of 5 min"
    assert failures(result) == [(300.0, "p", reason), (600.0, "p", reason)]
    assert result.failed == {"a": reason}


def test_attempt_may_take_exactly_its_limit() -> None:
    """A task whose work is equal to the limit is done."""
    one = Job("a", (Phase("p", Tasks(1, 8.0)),), time_limit=8.0)
    assert not slotwise.simulate(one, slots=1).failed


def test_own_limit_wins_over_that_of_the_run() -> None:
    """The limit of the run is for jobs that state none."""
    jobs = [
        Job(n, (Phase("p", Tasks(1, 8.0)),), time_limit=t) for n, t in (("a", 9.0), ("b", None))
    ]
    result = slotwise.simulate(jobs, slots=2, time_limit=5.0, attempts_max=1)
    assert list(result.failed) == ["b"]


def test_limit_ends_an_attempt_that_waits_for_its_input() -> None:
    """A reduce that has begun to copy fails although the maps still run."""
    maps = Phase("map", Tasks(4, 8.0), kind="map")
    reduces = Phase("reduce", Tasks(1, 1.0), kind="reduce", after={"map"}, slow_start=0.25)
    one = Job("a", (maps, reduces), time_limit=10.0, attempts=1)
    result = slotwise.simulate(one, slots={"map": 1, "reduce": 1})
    assert failures(result) == [(18.0, "reduce", "exceeded its time limit of 10 s")]


def test_limit_ends_an_attempt_that_reads_over_the_network() -> None:
    """The time to read a block counts."""
    hosts = Host("near", {"task": 0}), Host("far", {"task": 1})
    block = Block(frozenset({"near"}), 100)
    one = Job("a", (Phase("p", Tasks(1, 1.0, (block,))),), time_limit=5.0, attempts=1)
    workload = slotwise.Workload((one,), cluster=Cluster(hosts), network=Network(host=10.0))
    result = slotwise.simulate(workload, "fair", simulation=Simulation())
    assert failures(result) == [(5.0, "p", "exceeded its time limit of 5 s")]
