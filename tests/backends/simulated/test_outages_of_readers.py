"""Outages of hosts from which others copy and read."""

from __future__ import annotations

from backends.simulated.test_outages import (
    MAP,
    REDUCE,
    cluster,
    finished,
    launch,
    lost,
    until_quiet,
)
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import HostJoined, HostLost, TaskFailed, TaskFinished
from slotwise.core.job import Block, Job, Phase, Tasks


def reduce_backend(*outages: Outage, grace: float = 5.0) -> SimulatedBackend:
    """Two maps of 4 s, and two reduces of 1 s that copy from them, without losing time."""
    early = Phase("reduce", Tasks(2, 1.0), after=frozenset({"map"}), slow_start=0.0)
    job = Job("a", (Phase("map", Tasks(2, 4.0)), early))
    backend = SimulatedBackend(cluster(grace=grace), (job,), Simulation(outages=outages))
    backend.wait(None)
    backend.perform(launch(0, "h1"))
    backend.perform(launch(1, "h2"))
    backend.perform(Launch(REDUCE, 0, 1, "h1", Locality.NODE))
    backend.perform(Launch(REDUCE, 1, 1, "h2", Locality.NODE))
    return backend


def reduced(at: float, task: int) -> TaskFinished:
    """The success of a reduce."""
    return TaskFinished(at, REDUCE, task, 1, 1.0)


def test_reduces_copy_from_a_map_when_its_end_is_reported() -> None:
    """The map on h1 ends at 4, which is known at 7: both reduces end at 8."""
    events = until_quiet(reduce_backend(Outage("h1", 3, 4)))
    assert events[-2:] == [reduced(8.0, 0), reduced(8.0, 1)]


def test_a_reduce_on_an_unresponsive_host_learns_of_maps_later() -> None:
    """The maps end at 4 and 4; h2 hears of it at 7, after its own map's end was known."""
    events = until_quiet(reduce_backend(Outage("h1", 4.5, 3), Outage("h2", 3, 3)))
    ends = [event for event in events if isinstance(event, TaskFinished)]
    assert ends == [finished(4.0, 0), finished(6.0, 1), reduced(7.0, 1), reduced(8.5, 0)]


def test_a_map_that_was_lost_is_copied_from_once() -> None:
    """Lost at 4, though done; the reduces wait for the second attempt, which ends at 8."""
    backend = reduce_backend(Outage("h1", 3.5, 9), grace=0.5)
    events = []
    while not any(isinstance(event, TaskFailed) for event in events):
        events += backend.wait(None)
    assert {event.phase for event in events if isinstance(event, TaskFailed)} == {MAP, REDUCE}
    backend.perform(launch(0, "h2", attempt=2))
    assert until_quiet(backend) == [
        finished(8.0, 0, attempt=2),
        reduced(9.0, 1),
        HostJoined(12.5, "h1"),
    ]


def reading_backend(*outages: Outage) -> SimulatedBackend:
    """Two tasks of 1 s read 20 bytes each from h1 over 10 bytes a second."""
    blocks = tuple(Block(frozenset({"h1"}), 20) for _ in range(2))
    job = Job("a", (Phase("map", Tasks(2, 1.0, blocks)),))
    hosts = tuple(Host(name, {"task": 2}) for name in ("h1", "h2", "h3"))
    truth = Simulation(network=Network(host=10), outages=outages)
    backend = SimulatedBackend(Cluster(hosts, grace=1.0), (job,), truth)
    backend.wait(None)
    backend.perform(Launch(MAP, 0, 1, "h2", Locality.RACK))
    backend.perform(Launch(MAP, 1, 1, "h3", Locality.RACK))
    return backend


def test_unresponsive_hosts_continue_to_send_and_read() -> None:
    """Both have their blocks at 4 during any outage: only their ends are reported late."""
    backend = reading_backend(Outage("h1", 1, 1), Outage("h2", 4.5, 1))
    assert until_quiet(backend) == [
        HostLost(1.0, "h1"),
        HostJoined(2.0, "h1"),
        HostLost(4.5, "h2"),
        finished(5.0, 1, seconds=1.0),
        HostJoined(5.5, "h2"),
        finished(5.5, 0, seconds=1.0),
    ]


def test_a_reader_that_is_lost_leaves_the_network_to_others() -> None:
    """Half of 10 until 2, when the other one is lost; then all of it for the 10 bytes left."""
    backend = reading_backend(Outage("h2", 1, 9))
    assert until_quiet(backend) == [
        HostLost(1.0, "h2"),
        lost(2.0, 0, "h2", grace=1.0),
        finished(2.0 + 1.0 + 1.0, 1, seconds=1.0),
        HostJoined(10.0, "h2"),
    ]
