"""Simulated hosts that are added, drained and removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputError
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks

MAP = PhaseId("a", "map")
CLUSTER = Cluster((Host("h1", {"task": 2}), Host("h2", {"task": 2})), grace=5.0)


def backend_of(*changes: HostChange, **simulation: object) -> SimulatedBackend:
    """A backend in which a job of eight maps of 4 s has arrived."""
    job = Job("a", (Phase("map", Tasks(8, 4.0)),))
    truth = Simulation(changes=changes, **simulation)  # type: ignore[arg-type]
    backend = SimulatedBackend(CLUSTER, (job,), truth)
    backend.wait(None)
    return backend


def launch(task: int, host: str, attempt: int = 1) -> Launch:
    """An attempt of a map."""
    return Launch(MAP, task, attempt, host, Locality.NODE)


def rest(backend: SimulatedBackend) -> list[Event]:
    """All further events."""
    found: list[Event] = []
    while events := backend.wait(100.0):
        found += events
    return found


def test_the_attempts_on_a_removed_host_are_lost() -> None:
    """They are reported with the removal, and nothing more is heard of them."""
    backend = backend_of(HostRemoved(1.0, "h1"))
    for task, host in enumerate(("h1", "h2", "h1")):
        backend.perform(launch(task, host))
    assert rest(backend) == [
        TaskFailed(1.0, MAP, 0, 1, "host h1 was removed", lost=True),
        TaskFailed(1.0, MAP, 2, 1, "host h1 was removed", lost=True),
        HostRemoved(1.0, "h1"),
        TaskFinished(4.0, MAP, 1, 1, 4.0),
    ]


def test_the_attempts_on_a_drained_host_end_as_usual() -> None:
    """Only the scheduler treats it differently."""
    backend = backend_of(HostDrained(1.0, "h1"))
    backend.perform(launch(0, "h1"))
    assert rest(backend) == [HostDrained(1.0, "h1"), TaskFinished(4.0, MAP, 0, 1, 4.0)]


def test_a_host_that_comes_back_has_its_new_speed() -> None:
    """Unless the simulation states its true speed."""
    again = HostAdded(2.0, Host("h1", {"task": 1}, speed=4.0))
    for speeds, seconds in (({}, 1.0), ({"h1": 2.0}, 2.0)):
        backend = backend_of(HostRemoved(1.0, "h1"), again, speeds=speeds)
        assert [*backend.wait(None), *backend.wait(None)] == [HostRemoved(1.0, "h1"), again]
        backend.perform(launch(0, "h1"))
        assert rest(backend) == [TaskFinished(2.0 + seconds, MAP, 0, 1, seconds)]


def test_nothing_is_heard_of_a_removed_host() -> None:
    """Neither that it is back, nor that it dropped a launch."""
    backend = backend_of(
        HostRemoved(2.0, "h1"), outages=(Outage("h1", 1, 3),), repeats=lambda launch: 3.0
    )
    backend.perform(launch(0, "h1"))
    assert rest(backend) == [
        HostLost(1.0, "h1"),
        TaskFailed(2.0, MAP, 0, 1, "host h1 was removed", lost=True),
        HostRemoved(2.0, "h1"),
    ]


def test_an_outage_of_a_host_that_is_not_there_is_not_reported() -> None:
    """It is when it begins after the host has joined."""
    added = HostAdded(3.0, Host("h3", {"task": 1}))
    backend = backend_of(added, outages=(Outage("h3", 1, 1), Outage("h3", 4, 1)))
    assert rest(backend) == [added, HostLost(4.0, "h3"), HostJoined(5.0, "h3")]


def test_an_attempt_on_a_host_that_joins_cut_off_waits_until_it_is_back() -> None:
    """It was added while nobody could reach it."""
    added = HostAdded(2.0, Host("h3", {"task": 1}))
    backend = backend_of(added, outages=(Outage("h3", 1, 4),))
    backend.wait(None)
    backend.perform(launch(0, "h3"))
    assert rest(backend) == [TaskFinished(9.0, MAP, 0, 1, 4.0)]


def test_a_block_is_read_from_a_host_that_is_there() -> None:
    """The copy on h1 is gone, so it is read from the other rack."""
    hosts = (Host("h1", {"task": 1}, "a"), Host("h2", {"task": 1}, "a"))
    cluster = Cluster((*hosts, Host("h3", {"task": 1}, "b")))
    tasks = Tasks(1, 1.0, (Block(frozenset({"h1", "h3"}), 100),))
    truth = Simulation(network=Network(100.0, core=10.0), changes=(HostRemoved(0.5, "h1"),))
    seconds = []
    for simulation in (replace(truth, changes=()), truth):
        backend = SimulatedBackend(cluster, [Job("a", (Phase("map", tasks),))], simulation)
        backend.wait(None)
        if simulation.changes:
            backend.wait(None)
        begun = backend.now
        backend.perform(Launch(MAP, 0, 1, "h2", Locality.RACK))
        (event,) = rest(backend)
        seconds.append(event.at - begun)
    assert seconds == [2.0, 11.0]


def test_a_host_of_a_network_keeps_its_rack() -> None:
    """Its links are those of its rack."""
    again = HostAdded(2.0, Host("h1", {"task": 1}, "other"))
    with pytest.raises(InputError, match="host 'h1' is added again in rack 'other' at 2 s"):
        backend_of(HostRemoved(1.0, "h1"), again, network=Network(1.0))
