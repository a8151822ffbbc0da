"""Unresponsive hosts and repeated launches, on every backend: they do no harm.

In a simulation a host is cut off; locally, its worker processes are stopped and continued.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import slotwise
from backends.test_backends import Play, body
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Reallocate
from slotwise.core.events import (
    Event,
    HostJoined,
    HostLost,
    LaunchDropped,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.insight.replay import replay_log
from slotwise.jobs.calls import Calls
from slotwise.workload.workload import Workload

HOSTS = (Host("a", {"task": 1}), Host("b", {"task": 1}))

HostStage = Callable[..., Play]


@dataclass
class Disturbed:
    """A local backend whose hosts are stopped and continued, and which gets each launch twice.

    A host is stopped at the beginning of its outage or later, when it has
    something to do; it is continued when it has been lost for the length of the outage.
    """

    backend: LocalBackend
    outages: Sequence[Outage]
    repeats_launches: bool
    signals: list[tuple[float, signal.Signals, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.signals = [(outage.at, signal.SIGSTOP, outage.host) for outage in self.outages]
        self.signals.sort()

    @property
    def now(self) -> float:
        """As in the local backend."""
        return self.backend.now

    def perform(self, decision: Any) -> None:
        """Carry out the decision; repeat a launch."""
        self.backend.perform(decision)
        if self.repeats_launches and isinstance(decision, Launch):
            self.backend.perform(decision)

    def wait(self, until: float | None) -> Sequence[Event]:
        """As in the local backend, plus the actions that are due meanwhile."""
        while self.signals:
            at, number, host = self.signals[0]
            if until is not None and until <= at:
                break
            if events := self.backend.wait(at):
                return self.plan_continuation(events)
            del self.signals[0]
            self.send(number, host)
            if number == signal.SIGSTOP and self.is_done(host):
                self.send(signal.SIGCONT, host)
                self.plan(self.now + 0.01, number, host)
        return self.plan_continuation(self.backend.wait(until))

    def plan_continuation(self, events: Sequence[Event]) -> Sequence[Event]:
        """Plan to continue each lost host at the end of its outage. The same events."""
        for event in events:
            if isinstance(event, HostLost):
                (seconds,) = (o.seconds for o in self.outages if o.host == event.host)
                self.plan(event.at + seconds, signal.SIGCONT, event.host)
        return events

    def plan(self, at: float, number: signal.Signals, host: str) -> None:
        """Plan a signal."""
        self.signals.append((at, number, host))
        self.signals.sort()

    def send(self, number: signal.Signals, host: str) -> None:
        """Send a signal to the only worker of a host."""
        with suppress(ProcessLookupError):
            os.killpg(self.backend._processes.pids()[self.slot(host)], number)

    def is_done(self, host: str) -> bool:
        """Whether the task on a host had ended before the stop, but was not reported."""
        worker = self.backend._processes._workers[self.slot(host)]
        channel, status = worker.channel, Path(f"/proc/{worker.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        return bool(select.select([channel], [], [], 0)[0])

    def slot(self, host: str) -> int:
        """The only slot of a host."""
        return [host.name for host in HOSTS].index(host)


STOPS = pytest.mark.local_only("it looks into the channels of worker processes")


@pytest.fixture(params=["simulated", pytest.param("live", marks=STOPS)])
def stage(
    request: pytest.FixtureRequest,
    watched: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> HostStage:
    """Runs a job on hosts a and b, each of one slot, by fair sharing or a given scheduler."""
    monkeypatch.setattr("slotwise.backends.local.unresponsive.CHECK_SECONDS", 0.05)

    def simulated(job: Job, cluster: Cluster, outages: Sequence[Outage], twice: bool) -> Play:
        repeats = (lambda launch: 0.0) if twice else None
        truth = Simulation(outages=tuple(outages), repeats=repeats)
        backend = SimulatedBackend(cluster, (job,), truth)
        watch = watched(backend, [job], cluster)
        return Play(watch.log, watch.state.completed, watch.state.failed)

    def live(job: Job, cluster: Cluster, outages: Sequence[Outage], twice: bool) -> Play:
        calls = Calls(job, {p.name: body(job.id, p, str(tmp_path), {}) for p in job.phases})
        with LocalBackend([calls], cluster) as backend:
            disturbed = Disturbed(backend, outages, twice)
            watch = watched(disturbed, [job], cluster, backend_name="live")
        begun: Counter[tuple[str, str, int]] = Counter()
        for mark in tmp_path.glob("begun-*"):
            _, job_id, phase, task, _ = mark.name.split("-")
            begun[job_id, phase, int(task)] += 1
        results: Mapping[str, object] = {job.id: calls.results}
        return Play(watch.log, watch.state.completed, watch.state.failed, results, begun)

    backend = simulated if request.param == "simulated" else live

    def play(count: int, *outages: Outage, grace: float = 30.0, twice: bool = False) -> Play:
        job = Job("j", (Phase("p", Tasks(count, 0.1)),))
        found = backend(job, Cluster(HOSTS, grace=grace), outages, twice)
        assert found.completed.keys() == {"j"}
        done = Counter(event.task for event in found.events(TaskFinished))
        assert done == Counter(range(count)), "each task is done once"
        assert replay_log(found.log).is_identical
        assert_shared_as_they_are(found, count)
        return found

    return play


def assert_shared_as_they_are(play: Play, left: int) -> None:
    """While it has tasks for both hosts, the job is allocated the responsive ones."""
    unresponsive: set[str] = set()
    for turn in play.log.turns:
        for event in turn.events:
            if isinstance(event, HostLost):
                unresponsive.add(event.host)
            elif isinstance(event, HostJoined):
                unresponsive.remove(event.host)
            left -= isinstance(event, TaskFinished)
        has_changed = any(isinstance(event, HostLost | HostJoined) for event in turn.events)
        decided = [d for d in turn.decisions if isinstance(d, Reallocate)]
        assert decided or not has_changed
        for decision in decided:
            (slots,) = decision.slots.values() or (0,)
            assert slots <= 2 - len(unresponsive)
        if has_changed and left >= 4:
            assert slots == 2 - len(unresponsive)


def host_events(play: Play) -> list[tuple[type, str]]:
    """The events of hosts, in order."""
    return [(type(event), event.host) for event in play.events(HostLost | HostJoined)]


def test_a_host_unresponsive_within_the_grace_loses_nothing(stage: HostStage) -> None:
    """Nothing begins on a meanwhile; the task there ends normally."""
    play = stage(16, Outage("a", 0.25, 0.5))
    assert host_events(play) == [(HostLost, "a"), (HostJoined, "a")]
    assert not play.events(TaskFailed)
    launches = [(turn.now, d) for turn in play.log.turns for d in turn.decisions
                if isinstance(d, Launch)]  # fmt: skip
    assert len(launches) == 16
    (lost,), (joined,) = play.events(HostLost), play.events(HostJoined)
    assert not any(d.host == "a" for at, d in launches if lost.at < at < joined.at)
    assert any(d.host == "a" for at, d in launches if at > joined.at)
    if play.begun is not None:
        assert set(play.begun.values()) == {1}


def test_a_host_unresponsive_beyond_the_grace_loses_its_tasks(stage: HostStage) -> None:
    """It runs again on b; when a is back, it gets other tasks."""
    play = stage(20, Outage("a", 0.25, 0.8), grace=0.2)
    assert host_events(play) == [(HostLost, "a"), (HostJoined, "a")]
    (failed,) = play.events(TaskFailed)
    assert failed.lost
    assert "host a has not responded for" in failed.reason
    (again,) = (d for d in play.decisions(Launch) if d.attempt == 2)
    assert (again.task, again.host) == (failed.task, "b")
    (joined,) = play.events(HostJoined)
    assert any(
        isinstance(d, Launch) and d.host == "a"
        for turn in play.log.turns if turn.now >= joined.at for d in turn.decisions
    )  # fmt: skip
    if play.begun is not None:
        # That which was stopped had perhaps not yet left its mark.
        assert sum(play.begun.values()) in (20, 21)


def test_all_hosts_may_be_unresponsive_for_a_while(stage: HostStage) -> None:
    """All hosts are unresponsive; then all continue."""
    play = stage(8, Outage("a", 0.15, 0.5), Outage("b", 0.15, 0.5))
    events = host_events(play)
    assert {*events} == {(kind, host) for kind in (HostLost, HostJoined) for host in "ab"}
    assert len(events) == 4
    assert not play.events(TaskFailed)


def test_repeated_launches_run_once(stage: HostStage) -> None:
    """Each second launch is dropped and reported with a reason."""
    play = stage(6, twice=True)
    launches = play.decisions(Launch)
    dropped = play.events(LaunchDropped)
    assert len(launches) == 6
    assert {(d.phase, d.task, d.attempt, d.host) for d in dropped} == {
        (d.phase, d.task, d.attempt, d.host) for d in launches
    }
    assert len(dropped) == 6
    assert all(d.reason for d in dropped)
    if play.begun is not None:
        assert set(play.begun.values()) == {1}


def test_the_grace_of_the_workload_holds_for_this_machine() -> None:
    """A local run has its own slots, but the grace of the file."""
    cluster = Cluster(HOSTS, grace=7.0)
    workload = Workload((Job("nap", (Phase("map", Tasks(1, 0.01)),)),), cluster=cluster)
    for given in ({}, {"slots": 1}, {"emulate_hosts": True}):
        assert slotwise.run(workload, "fair", **given).log.header.cluster.grace == 7.0
    bare = Workload(workload.jobs)
    assert slotwise.run(bare, "fair", slots=1).log.header.cluster.grace == Cluster(HOSTS).grace
