"""Hosts of the local backend are added, drained and removed while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.calling import TIMEOUT, await_end, call, exists
from backends.local.scene import Scene, let_go, marking, wait_for_marks
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import SlotwiseError
from slotwise.core.events import (
    HostAdded,
    HostDrained,
    HostLost,
    HostRemoved,
    TaskFailed,
    TaskFinished,
)
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Calls

HOSTS = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1})), grace=600.0)
"""As in a `Scene`."""


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """An open backend with a job of four tasks that last until their processes are let go."""
    monkeypatch.setattr("slotwise.backends.local.unresponsive.CHECK_SECONDS", 0.05)
    calls = Calls(Job("j", (Phase("p", Tasks(4)),)), marking(tmp_path))
    with LocalBackend([calls], HOSTS, is_open=True) as backend:
        backend.wait(1.0)
        yield Scene(backend, calls)


def kinds(events: list[Any]) -> list[type]:
    """The classes of events."""
    return [type(event) for event in events]


def test_an_added_host_runs_tasks(scene: Scene, tmp_path: Path) -> None:
    """Also one of another speed; its workers are its own."""
    before = set(scene.backend._processes.pids())
    scene.backend.inbox.put(HostAdded(0.0, Host("c", {"task": 1}, speed=0.5)))
    scene.await_events(HostAdded)
    (pid,) = {*scene.backend._processes.pids()} - before
    scene.launch(0, "c")
    let_go(tmp_path, [pid])
    scene.await_events(TaskFinished)


def test_a_removed_host_loses_its_tasks_first(scene: Scene, tmp_path: Path) -> None:
    """Its workers are killed; the tasks of the other host continue."""
    for task, host in enumerate("aab"):
        scene.launch(task, host)
    wait_for_marks(tmp_path, 3)
    pids = scene.pids("a")
    others = scene.pids("b")
    scene.backend.inbox.put(HostRemoved(0.0, "a"))
    events = scene.await_events(HostRemoved)
    assert kinds(events) == [TaskFailed, TaskFailed, HostRemoved]
    assert all(event.lost for event in events[:2])
    assert events[0].reason.endswith("host a was removed")
    scene.launch(0, "a", attempt=2)
    refused = scene.await_events(TaskFailed)[-1]
    assert refused.lost
    assert refused.reason == "p task 0 of job j: it cannot be started: a is not there"
    await_end(*pids)
    let_go(tmp_path, others)
    assert scene.await_events(TaskFinished)[-1].task == 2


def test_a_drained_host_ends_its_workers_after_its_last_task(
    scene: Scene, tmp_path: Path
) -> None:
    """Also those in which nothing runs; then its name is free."""
    scene.launch(0, "a")
    wait_for_marks(tmp_path, 1)
    pids = scene.pids("a")
    scene.backend.inbox.put(HostDrained(0.0, "a"))
    scene.backend.inbox.put(HostDrained(0.0, "a"))
    assert kinds(scene.await_events(HostDrained)) == [HostDrained]
    assert all(exists(pid) for pid in pids)
    let_go(tmp_path, pids)
    scene.await_events(TaskFinished)
    await_end(*pids)
    scene.backend.inbox.put(HostAdded(0.0, Host("a", {"task": 1})))
    assert kinds(scene.await_events(HostAdded)) == [HostAdded]


def test_an_unresponsive_host_is_removed(scene: Scene, tmp_path: Path) -> None:
    """Nothing more is heard of it, and its stopped processes are killed."""
    scene.launch(0, "b")
    wait_for_marks(tmp_path, 1)
    assert HostLost in kinds(scene.stop_host("b"))
    pids = scene.pids("b")
    scene.backend.inbox.put(HostRemoved(0.0, "b"))
    assert kinds(scene.await_events(HostRemoved)) == [TaskFailed, HostRemoved]
    await_end(*pids)
    assert scene.events_until(scene.backend.now + 0.2) == []


class Committing(Calls):
    """Calls whose output is committed when a test says so."""

    output = "out"

    def __init__(self, job: Job, function: Callable[[int], object]) -> None:
        super().__init__(job, function)
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def close(self, succeeded: bool) -> None:
        """The commit."""
        self.has_begun.set()
        assert self.may_end.wait(TIMEOUT) or not succeeded


def test_a_job_that_is_committed_is_not_lost_with_its_host() -> None:
    """The host is reported as drained: it leaves with the end of the last task."""
    calls = Committing(Job("j", (Phase("p", Tasks(1)),)), lambda task: task)
    with LocalBackend([calls], HOSTS, is_open=True) as backend:
        scene = Scene(backend, calls)
        backend.wait(1.0)
        scene.launch(0, "b")
        while not calls.has_begun.is_set():
            backend.wait(backend.now + 0.01)
        backend.inbox.put(HostRemoved(0.0, "b"))
        assert kinds(scene.await_events(HostDrained)) == [HostDrained]
        backend.inbox.put(HostRemoved(0.0, "b"))
        calls.may_end.set()
        assert kinds(scene.await_events(TaskFinished)) == [TaskFinished]


def test_slots_are_added_and_removed() -> None:
    """Numbers of slots are not used again, and the others keep theirs."""
    with Processes(2) as workers:
        first, second = workers.pids()
        assert workers.add([1.0, 0.5]) == [2, 3]
        assert call(workers, len, "abc", slot=3).value == 3
        workers.start(0, "key", len, ("ab",))
        workers.remove([0, 2])
        await_end(first)
        assert workers.pids()[0] == second
        assert workers.add([1.0]) == [4]
        assert call(workers, len, "abcd", slot=4).value == 4
        assert call(workers, len, "a", slot=1).value == 1


def test_slots_that_cannot_be_added_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers that were started before the failure are ended."""
    with Processes(1) as workers:
        start, count = workers._new_worker, iter(range(9))

        def new_worker(slot: int) -> object:
            if next(count) == 1:
                raise OSError(24, "Too many open files")
            return start(slot)

        before = workers.pids()
        monkeypatch.setattr(workers, "_new_worker", new_worker)
        with pytest.raises(SlotwiseError, match="only 1 of 3 worker processes"):
            workers.add([1.0] * 3)
        monkeypatch.undo()
        assert workers.pids() == before
        assert call(workers, len, "abc").value == 3
