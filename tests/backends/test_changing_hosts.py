"""Hosts are added, drained and removed on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostDrained,
    HostRemoved,
    JobsClosed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Sleep

HOSTS = Cluster((Host("a", {"task": 1}),))
JOB = Job("j", (Phase("p", Tasks(5, 0.1)), Phase("q", Tasks(2, 0.05), after="p")))
CHANGES = (
    HostAdded(0.05, Host("b", {"task": 1})),
    HostDrained(0.15, "a"),
    HostAdded(0.2, Host("c", {"task": 2})),
    HostRemoved(0.25, "b"),
)


class Changing(LocalBackend):
    """Changes its hosts at the instants that are given, and is closed then."""

    def __init__(self, job: Job, changes: Sequence[HostChange]) -> None:
        super().__init__([Sleep(job)], HOSTS, is_open=True)
        self.left = [*changes, JobsClosed(changes[-1].at)]

    def wait(self, until: float | None) -> Sequence[Event]:
        """Also put the changes that are due."""
        while self.left and self.left[0].at <= self.now:
            self.inbox.put(self.left.pop(0))
        at = [self.left[0].at] if self.left else []
        return super().wait(min(at + ([] if until is None else [until]), default=None))


@contextmanager
def backend_of(name: str) -> Iterator[object]:
    """The backend with these changes."""
    if name == "simulated":
        yield SimulatedBackend(HOSTS, [JOB], Simulation(changes=CHANGES))
    else:
        with Changing(JOB, CHANGES) as backend:
            yield backend


@pytest.mark.parametrize("name", ["simulated", "live"])
def test_hosts_come_and_go(name: str, watched: Callable[..., object]) -> None:
    """Each task is done once, nothing begins where it cannot, and the replay is identical."""
    with backend_of(name) as backend:
        log = watched(backend, [JOB], HOSTS, backend_name=name).log
    there, done, heard = {"a"}, [], []
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, HostAdded):
                there.add(event.host.name)
            elif isinstance(event, HostDrained | HostRemoved):
                there.discard(event.host)
            elif isinstance(event, TaskFinished):
                done.append((event.phase.phase, event.task))
            if isinstance(event, HostChange):
                heard.append(type(event))
        assert {d.host for d in turn.decisions if isinstance(d, Launch)} <= there
    assert sorted(done) == [*(("p", n) for n in range(5)), ("q", 0), ("q", 1)]
    assert heard == [type(change) for change in CHANGES]
    assert replay_log(log).is_identical
