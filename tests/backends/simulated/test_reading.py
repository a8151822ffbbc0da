"""Tasks far from their input read it over the network, and only then compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import Fault, SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import Event, JobArrived, JobsClosed, TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.placement import place_blocks
from slotwise.insight.metrics import MetricsCollector, traffic_of
from slotwise.insight.timeline import timeline_of
from tiers import examples

MAP = PhaseId("a", "map")
HOSTS = ("a1", "a2", "a3", "b1", "b2")
CLUSTER = Cluster(tuple(Host(name, {"task": 4}, rack=name[0]) for name in HOSTS))
TEN = Simulation(network=Network(host=10, core=5))


def job_of(*homes: str, size: int = 20, work: float = 3.0) -> Job:
    """A job whose tasks read blocks of the given bytes, each on hosts such as "a1 b1"."""
    blocks = tuple(Block(frozenset(hosts.split()), size) for hosts in homes)
    return Job("a", (Phase("map", Tasks(len(homes), work, blocks)),))


def backend_of(job: Job, simulation: Simulation = TEN) -> SimulatedBackend:
    """A backend in which the job has arrived."""
    backend = SimulatedBackend(CLUSTER, (job,), simulation)
    assert backend.wait(None) == [JobArrived(0.0, job), JobsClosed(0.0)]
    return backend


def launch(task: int, host: str, far: Locality, attempt: int = 1) -> Launch:
    """An attempt of the job."""
    return Launch(MAP, task, attempt, host, far)


def finished(at: float, task: int, seconds: float = 3.0) -> TaskFinished:
    """A first attempt that succeeded."""
    return TaskFinished(at, MAP, task, 1, seconds)


def events_of(backend: SimulatedBackend, count: int) -> list[Event]:
    """The given number of next events."""
    events: list[Event] = []
    while len(events) < count:
        events += backend.wait(None)
    return events


@pytest.mark.parametrize(
    ("host", "far", "seconds"),
    [("a1", Locality.NODE, 0.0), ("a2", Locality.RACK, 2.0), ("b1", Locality.ANY, 4.0)],
)
def test_a_task_reads_before_it_computes(host: str, far: Locality, seconds: float) -> None:
    """20 bytes: at once on its host, 2 s in the rack, 4 s through the core; 3 s of work."""
    backend = backend_of(job_of("a1"))
    backend.perform(launch(0, host, far))
    assert backend.wait(None) == [finished(seconds + 3.0, 0)]


def test_readers_share_the_host_that_they_read_from() -> None:
    """Two at once take twice as long; a third one comes when they are half through.

    5 bytes a second each until 2.0, then 10/3 each until the two have their other 10 bytes at
    5.0; the third has 10 bytes then, and 10 bytes a second.
    """
    backend = backend_of(job_of("a1", "a1", "a1"))
    backend.perform(launch(0, "a2", Locality.RACK))
    backend.perform(launch(1, "a3", Locality.RACK))
    assert backend.wait(2.0) == ()
    backend.perform(launch(2, "a2", Locality.RACK))
    assert events_of(backend, 3) == [finished(8.0, 0), finished(8.0, 1), finished(9.0, 2)]


def test_a_block_is_read_from_the_nearest_and_idlest_copy() -> None:
    """In the reader's rack if there is one; of two there, from the one that sends to nobody."""
    backend = backend_of(job_of("a1 b1", "a1 a2", "a1 a2 b2"))
    backend.perform(launch(0, "b2", Locality.RACK))  # From b1.
    backend.perform(launch(1, "a3", Locality.RACK))  # From one of a1 and a2 in its rack,
    backend.perform(launch(2, "a3", Locality.RACK))  # and this from the other one.
    assert backend._reading is not None
    flows = backend._reading._flows
    assert [flows.leaving(host) for host in HOSTS] == [1, 1, 0, 1, 0]


def test_a_block_that_no_host_holds_comes_from_outside() -> None:
    """Through the core."""
    backend = backend_of(job_of("gone"))
    backend.perform(launch(0, "a1", Locality.ANY))
    assert backend.wait(None) == [finished(4.0 + 3.0, 0)]


def test_a_killed_reader_leaves_the_network_to_others() -> None:
    """Killed after 1 s: the other one, at rate 5 until then, gets its other 15 bytes at 10."""
    backend = backend_of(job_of("a1", "a1"))
    backend.perform(launch(0, "a2", Locality.RACK))
    backend.perform(launch(1, "a3", Locality.RACK))
    backend.wait(1.0)
    backend.perform(Preempt(MAP, 0, 1, "a2"))
    assert backend.wait(None) == [TaskKilled(1.0, MAP, 0, 1)]
    assert events_of(backend, 1) == [finished(2.5 + 3.0, 1)]
    backend.perform(launch(0, "a2", Locality.RACK, attempt=2))  # It reads all of it again.
    assert backend.wait(None) == [TaskFinished(5.5 + 2.0 + 3.0, MAP, 0, 2, 3.0)]


def test_a_reader_with_grace_is_killed_after_it() -> None:
    """It reads until then; one that already computes is killed as usual."""
    backend = backend_of(job_of("a1", "a2"))
    backend.perform(launch(0, "a3", Locality.RACK))
    backend.perform(launch(1, "a2", Locality.NODE))
    backend.perform(Preempt(MAP, 0, 1, "a3", until=1.0))
    backend.perform(Preempt(MAP, 1, 1, "a2", until=2.0))
    assert events_of(backend, 2) == [TaskKilled(1.0, MAP, 0, 1), TaskKilled(2.0, MAP, 1, 1)]


def test_a_fault_comes_while_computing() -> None:
    """Half of the computing behind the reading."""
    backend = backend_of(job_of("a1"), replace(TEN, fault=lambda _: Fault("it broke")))
    backend.perform(launch(0, "a2", Locality.RACK))
    (event,) = backend.wait(None)
    assert event.at == 2.0 + 1.5  # type: ignore[union-attr]


def test_blocks_without_size_are_read_at_once() -> None:
    """As without a network."""
    backend = backend_of(job_of("a1", size=0))
    backend.perform(launch(0, "b1", Locality.ANY))
    assert backend.wait(None) == [finished(3.0, 0)]


def test_the_clock_stops_at_the_given_instant() -> None:
    """A read that is over later does not move it."""
    backend = backend_of(job_of("a1"))
    backend.perform(launch(0, "a2", Locality.RACK))
    assert backend.wait(1.0) == ()
    assert backend.now == 1.0
    assert backend.wait(2.0) == ()  # The block is there, the task computes.
    assert backend.wait(None) == [finished(5.0, 0)]


@settings(max_examples=examples(6, slow=25))
@given(
    st.integers(0, 99),
    st.sampled_from([Network(host=50), Network(host=50, rack=80, core=60), Network(core=40)]),
    st.sampled_from(["greedy", "delay"]),
)
def test_a_run_counts_the_bytes_that_pass(
    simulated: Callable[..., Any], seed: int, network: Network, assigner: str
) -> None:
    """The bytes that launches read equal those of the network and the area of the chart."""
    job = Job("a", (Phase("map", Tasks(30, 2.0)),))
    other = Job("b", (Phase("map", Tasks(20, 1.0)),), arrival=1.0)
    jobs = place_blocks((job, other), CLUSTER, 2, seed, block_bytes=64)
    truth = Simulation(seed=seed, noise=0.3, network=network)
    waits = (0.5, 1.0) if assigner == "delay" else None
    log = simulated(jobs, CLUSTER, simulation=truth, assigner=assigner, waits=waits).log
    read = MetricsCollector.of_log(log).outcome().metrics["traffic_bytes"]
    attempts = [placed.attempt for placed in timeline_of(log).attempts]
    for name, level in (("rack", Locality.RACK), ("core", Locality.ANY)):
        assert read[name] == 64 * sum(attempt.locality is level for attempt in attempts)
        steps = getattr(traffic_of(log), name)
        assert steps.area(0.0, log.turns[-1].now) == pytest.approx(read[name])
    for attempt in attempts:
        read_for = attempt.end - attempt.start - attempt.seconds
        if attempt.locality is Locality.NODE:
            assert read_for == pytest.approx(0.0, abs=1e-9)
        else:
            assert read_for >= 64 / network.host - 1e-9


def test_the_same_seed_makes_the_same_log(watched: Callable[..., Any]) -> None:
    """The network counts the same bytes as the launches."""
    job = Job("a", (Phase("map", Tasks(60, 2.0)),))
    jobs = place_blocks((job,), CLUSTER, 2, 7, block_bytes=9)
    truth = Simulation(seed=7, noise=0.4, network=Network(host=4, core=3))
    backends = [SimulatedBackend(CLUSTER, jobs, truth) for _ in range(2)]
    first, second = (watched(backend, jobs, CLUSTER).log for backend in backends)
    assert first.turns == second.turns
    read = MetricsCollector.of_log(first).outcome().metrics["traffic_bytes"]
    assert backends[0]._reading is not None
    passed = backends[0]._reading.traffic()
    assert (passed.rack_bytes, passed.core_bytes) == (read["rack"], read["core"])
    assert passed.rack_bytes > 0
