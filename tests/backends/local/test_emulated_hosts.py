"""Emulated hosts: the speed that a task sees, and the hosts that are refused."""

from __future__ import annotations

import pytest

from slotwise import task as running
from slotwise.backends.local.backend import LocalBackend, emulated
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputError
from slotwise.core.events import TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.jobs.calls import Calls


def test_a_task_knows_the_speed_of_its_host() -> None:
    """The value that the worker got at its start; outside of a worker it is 1."""
    job = Job("j", (Phase("p", Tasks(3)),))
    calls = Calls(job, lambda task: running.host_speed())
    assert running.host_speed() == 1.0
    cluster = emulated(
        Cluster((Host("a", {"task": 1}, speed=0.25), Host("b", {"task": 1}, speed=1.0)))
    )
    with LocalBackend([calls], cluster) as backend:
        backend.wait(1.0)
        for task, host in enumerate("ab"):
            backend.perform(Launch(PhaseId("j", "p"), task, 1, host, Locality.ANY))
        finished: list[object] = []
        while len(finished) < 2:
            finished += [
                e for e in backend.wait(backend.now + 5) if isinstance(e, TaskFinished)
            ]
    assert calls.results["p"] == {0: 0.25, 1: 1.0}


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        (None, "give it some, each with name, slots and speed"),
        (Cluster.of_slots(4), "the workload has no `cluster: hosts`"),
        (
            Cluster((Host("a", {"task": 1}, speed=3.0), Host("b", {"task": 1}, speed=2.0))),
            "host 'a': speed is 3, and a slot of this machine has speed 1: only slower ones can"
            " be emulated; divide all speeds by 3, the largest",
        ),
        (
            Cluster((Host("a", {"task": 1}, speed=1e-12),)),
            "host 'a': speed is 1e-12; no host slower than 0.001 can be emulated",
        ),
    ],
)
def test_hosts_that_cannot_be_emulated_are_refused(cluster: Cluster | None, says: str) -> None:
    """The message has place, value and remedy."""
    with pytest.raises(InputError) as refused:
        emulated(cluster)
    assert says in str(refused.value)


def test_emulated_hosts_have_no_heartbeat() -> None:
    """All else of the cluster stays: names, racks, slots, speeds, grace."""
    hosts = (Host("a", {"map": 2, "reduce": 1}, "r1"), Host("b", {"map": 1}, "r2", 0.5))
    given = Cluster(hosts, heartbeat=3.0, grace=7.0)
    assert emulated(given) == Cluster(hosts, heartbeat=0.0, grace=7.0)
