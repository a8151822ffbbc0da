"""Unresponsive hosts: their worker processes are stopped from outside, and continued."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from backends.local.calling import TIMEOUT
from backends.local.scene import (
    PHASE,
    STEP,
    Play,
    Scene,
    let_go,
    marking,
    marks,
    wait_for_marks,
)
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.unresponsive import ResponseChange, ResponseMonitor
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Preempt
from slotwise.core.events import (
    HostJoined,
    HostLost,
    JobArrived,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Calls

pytestmark = [
    pytest.mark.usefixtures("frequent_checks"),
    pytest.mark.local_only("it stops the worker processes of this machine"),
]


def test_the_grace_of_an_unresponsive_host_ends_on_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the given clock: the check comes at that instant, and not before."""
    monkeypatch.setattr("slotwise.backends.local.unresponsive.SOON_SECONDS", 1 / 16)
    stopped: set[int] = set()
    stop_host = ResponseMonitor({"a": [0, 1], "b": [2]}, 0.2, stopped.__contains__)
    assert stop_host.check(1.0) == []
    stopped |= {0, 1}
    assert stop_host.check(2.0) == [("a", ResponseChange.LOST)]
    looks = [stop_host.next_check]
    while stop_host.next_check < 2.2:
        assert stop_host.check(stop_host.next_check) == []
        looks.append(stop_host.next_check)
    assert looks == [2.0625, 2.125, 2.1875, 2.2]
    assert stop_host.check(2.2) == [("a", ResponseChange.OVERDUE)]
    assert stop_host.check(2.25) == []
    assert stop_host.seconds("a", 2.25) == 0.25
    stopped.clear()
    assert stop_host.check(2.5) == [("a", ResponseChange.JOINED)]
    assert stop_host.seconds_stopped == pytest.approx({0: 0.25, 1: 0.25})


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_within_the_grace_tasks_continue_unaffected(
    play: Play, tmp_path: Path, speed: float
) -> None:
    """Stopped and continued: nothing is lost or done twice; the host was away meanwhile.

    On a slow host the pauses by pacing neither make it unresponsive nor end that state.
    """
    scene = play(marking(tmp_path), grace=600.0, speed=speed)
    while not all(worker.ready for worker in scene.backend._processes._workers.values()):
        assert scene.events_until(scene.backend.now + 0.01) == []
    begun = scene.backend.now
    for task in range(2):
        scene.launch(task, "a")
    wait_for_marks(tmp_path, 2, steps=10)
    lost = scene.stop_host("a")
    assert [(type(event), event.host) for event in lost] == [(HostLost, "a")]
    stood = marks(tmp_path)
    assert scene.events_until(scene.backend.now + 0.5) == []
    assert marks(tmp_path) == stood, "they stood still"
    let_go(tmp_path, scene.pids("a"))
    scene.signal(signal.SIGCONT, scene.pids("a"))
    scene.await_events(HostJoined)
    while len(scene.received) < 6:
        scene.await_events(TaskFinished)
    assert sorted(event.task for event in scene.received[-2:]) == [0, 1]
    assert scene.calls.results["p"] == {0: 0, 1: 1}
    assert len(marks(tmp_path)) == 2, "each was begun once"
    for event in scene.received[-2:]:
        assert 9 * STEP < event.seconds < event.at - begun - 0.4, "a stop is not computing"


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_beyond_the_grace_tasks_are_lost_and_their_results_dropped(
    play: Play, tmp_path: Path, speed: float
) -> None:
    """They run elsewhere; when the host is back its old attempts are killed, then it joins."""
    scene = play(marking(tmp_path), speed=speed)
    for task in range(2):
        scene.launch(task, "a")
    wait_for_marks(tmp_path, 2)
    old = scene.pids("a")
    events = scene.stop_host("a")
    if len(events) == 1:
        events += scene.await_events(TaskFailed)
    assert isinstance(events[0], HostLost)
    failed = [event for event in events if isinstance(event, TaskFailed)]
    assert {(event.task, event.attempt, event.lost) for event in failed} == {
        (0, 1, True), (1, 1, True),
    }  # fmt: skip
    for event in failed:
        assert event.reason.startswith(f"p task {event.task} of job j: host a has not")
        assert event.reason.endswith(" s")
    assert all(event.at >= events[0].at + 0.3 for event in failed)
    let_go(tmp_path, scene.pids("b"))
    scene.launch(0, "b", attempt=2)
    (finished,) = scene.await_events(TaskFinished)
    assert (finished.task, finished.attempt) == (0, 2)
    assert scene.pids("a") == old, "an unresponsive worker is left alone"
    scene.signal(signal.SIGCONT, old)
    (joined,) = scene.await_events(HostJoined)
    assert joined.host == "a"
    assert not {*scene.pids("a")} & {*old}
    let_go(tmp_path, scene.pids("a"))
    scene.launch(1, "a", attempt=2)
    scene.launch(2, "a")
    ended: list[Any] = []
    while len(ended) < 2:
        ended += scene.await_events(TaskFinished)
    assert {(event.task, event.attempt) for event in ended} == {(1, 2), (2, 1)}
    assert scene.events_until(scene.backend.now + 0.3) == []
    assert scene.calls.results["p"] == {0: 0, 1: 1, 2: 4}


def test_a_host_is_unresponsive_when_all_its_workers_are(play: Play, tmp_path: Path) -> None:
    """One of two stopped: the host is responsive. Both: unresponsive, until none is stopped."""
    scene = play(marking(tmp_path), grace=600.0)
    first, second = scene.pids("a")
    scene.signal(signal.SIGSTOP, [first])
    assert scene.events_until(scene.backend.now + 0.3) == []
    scene.signal(signal.SIGSTOP, [second])
    scene.await_events(HostLost)
    scene.signal(signal.SIGCONT, [first])
    assert scene.events_until(scene.backend.now + 0.3) == []
    scene.signal(signal.SIGCONT, [second])
    scene.await_events(HostJoined)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_worker_that_is_stopped_for_longer_than_the_grace_is_replaced(
    hosts: int, tmp_path: Path
) -> None:
    """A task stops its own process: it fails after the grace, and runs again in a new one."""

    def work(task: int, path: str = str(tmp_path)) -> int:
        import signal

        if not os.path.exists(f"{path}/{task}"):
            open(f"{path}/{task}", "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        return task

    calls = Calls(Job("j", (Phase("p", Tasks(2)),)), work)
    (tmp_path / "1").touch()
    cluster = Cluster(tuple(Host(name, {"task": 2}) for name in "ab"[:hosts]), grace=0.3)
    with LocalBackend([calls], cluster) as backend:
        scene = Scene(backend, calls)
        scene.await_events(JobArrived)
        scene.launch(0, "a")
        scene.launch(1, "a")
        events = scene.await_events(TaskFinished, TaskFailed)
        (failed,) = (event for event in events if isinstance(event, TaskFailed))
        assert not failed.lost
        assert failed.reason.startswith(
            "p task 0 of job j: its worker process has been stopped"
        )
        scene.launch(0, "a", attempt=2)
        (finished,) = scene.await_events(TaskFinished)
        assert finished.task == 0
        assert not any(isinstance(event, HostLost) for event in scene.received)


def test_the_only_host_of_a_machine_is_never_unresponsive() -> None:
    """If all workers of a single host are stopped, each is replaced."""
    calls = Calls(Job("j", (Phase("p", Tasks(2)),)), abs)
    with LocalBackend([calls], Cluster((Host("a", {"task": 2}),), grace=0.3)) as backend:
        scene = Scene(backend, calls)
        scene.await_events(JobArrived)
        before = scene.pids("a")
        scene.signal(signal.SIGSTOP, before)
        until = time.monotonic() + 60.0
        while {*scene.pids("a")} & {*before}:
            assert time.monotonic() < until
            assert scene.events_until(backend.now + 0.1) == []
        scene.launch(0, "a")
        scene.await_events(TaskFinished)


def test_a_result_at_the_last_moment_counts(play: Play, tmp_path: Path) -> None:
    """A task continued within the grace may end before the next check: its end is reported."""
    scene = play(marking(tmp_path), grace=600.0)
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(HostLost)
    let_go(tmp_path, scene.pids("b"))
    scene.signal(signal.SIGCONT, scene.pids("b"))
    events = scene.await_events(HostJoined, TaskFinished)
    assert [type(event) for event in events] == [HostJoined, TaskFinished]


def test_a_result_that_comes_after_the_grace_is_dropped(play: Play, tmp_path: Path) -> None:
    """The task ends at once when it is continued; after it was given up, its end is ignored."""
    scene = play(marking(tmp_path))
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(TaskFailed)
    let_go(tmp_path, scene.pids("b"))
    channel = scene.backend._processes._workers[2].channel
    scene.signal(signal.SIGCONT, scene.pids("b"))
    assert select.select([channel], [], [], TIMEOUT)[0], "its reply is there before we look"
    assert [type(event) for event in scene.await_events(HostJoined)] == [HostJoined]
    assert scene.calls.results["p"] == {}
    let_go(tmp_path, scene.pids("b"))
    scene.launch(0, "b", attempt=2)
    (finished,) = scene.await_events(TaskFinished)
    assert (finished.task, finished.attempt) == (0, 2)


def test_a_kill_on_an_unresponsive_host_waits_for_it(play: Play, tmp_path: Path) -> None:
    """An unresponsive host does not get the request to stop a task until it is back."""
    scene = play(marking(tmp_path), grace=600.0)
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(HostLost)
    scene.backend.perform(Preempt(PHASE, 0, 1, "b"))
    assert scene.events_until(scene.backend.now + 0.2) == []
    scene.signal(signal.SIGCONT, scene.pids("b"))
    events = scene.await_events(TaskKilled)
    assert [type(event) for event in events] == [HostJoined, TaskKilled]


def test_a_worker_killed_while_its_host_is_unresponsive(play: Play, tmp_path: Path) -> None:
    """Its task is lost at once, before the end of the grace; a new worker brings it back."""
    scene = play(marking(tmp_path), grace=600.0)
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(HostLost)
    scene.signal(signal.SIGKILL, scene.pids("b"))
    events = scene.await_events(HostJoined, TaskFailed)
    (failed,) = (event for event in events if isinstance(event, TaskFailed))
    assert failed.lost
    assert "was killed by signal 9" in failed.reason
    let_go(tmp_path, scene.pids("b"))
    scene.launch(0, "b", attempt=2)
    scene.await_events(TaskFinished)


def test_unresponsive_hosts_cost_no_processor_time(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend waits and checks periodically; it does not spin, also after the grace."""
    scene = play(marking(tmp_path))
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.backend._processes.pids())
    events = scene.await_events(TaskFailed)
    assert [type(event) for event in events].count(HostLost) == 2
    waits: list[float] = []
    wait = scene.backend._workers.wait
    monkeypatch.setattr(
        scene.backend._workers, "wait", lambda timeout: waits.append(timeout) or wait(timeout)
    )
    assert scene.events_until(scene.backend.now + 0.6) == []
    assert len(waits) < 30, "some twelve looks"


def test_closing_ends_unresponsive_workers(play: Play, tmp_path: Path) -> None:
    """Within the grace, beyond it, and with a job given up: nothing is left (see `play`)."""
    for grace, kind in ((600.0, HostLost), (0.1, TaskFailed)):
        scene = play(marking(tmp_path), grace=grace)
        scene.launch(0, "a")
        scene.launch(1, "b")
        scene.signal(signal.SIGSTOP, scene.backend._processes.pids())
        scene.await_events(kind)
        scene.backend.perform(GiveUp("j", "enough"))
