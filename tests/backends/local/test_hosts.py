"""Several hosts on this machine: each has its own worker processes."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable

from backends.local.scene import PHASE, Play
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.jobs.calls import Calls

CLUSTER = Cluster((Host("a", {"map": 1, "reduce": 1}), Host("b", {"task": 1})))


def pids_of(job: Job) -> Calls:
    """Calls that return their process, long enough for several to run at once."""
    return Calls(job, lambda task: (time.sleep(0.02), os.getpid())[1])


def test_a_launch_goes_to_a_worker_of_its_host(watched: Callable[..., object]) -> None:
    """Two workers run the launches on a, and another one those on b."""
    job = Job("j", (Phase("p", Tasks(12)),))
    calls = pids_of(job)
    hosts = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1})))
    with LocalBackend([calls], hosts) as backend:
        watch = watched(backend, [job], hosts, backend_name="live")
    pids: dict[str, set[object]] = defaultdict(set)
    for turn in watch.log.turns:
        for decision in turn.decisions:
            if isinstance(decision, Launch):
                pids[decision.host].add(calls.results["p"][decision.task])
    assert {host: len(of_host) for host, of_host in pids.items()} == {"a": 2, "b": 1}
    assert not pids["a"] & pids["b"]


def test_any_worker_of_a_host_runs_any_kind() -> None:
    """Two reduces at once on a host of one map and one reduce slot: workers run all kinds."""
    job = Job("j", (Phase("p", Tasks(2), "reduce"),))
    calls = pids_of(job)
    with LocalBackend([calls], CLUSTER) as backend:
        _arrived, _closed = backend.wait(1.0)
        for task in range(2):
            backend.perform(Launch(PhaseId("j", "p"), task, 1, "a", Locality.ANY))
        events: list[object] = []
        while len(events) < 2:
            events += backend.wait(backend.now + 20)
    assert [type(event) for event in events] == [TaskFinished] * 2
    assert len(set(calls.results["p"].values())) == 2


def test_a_task_that_cannot_be_sent_fails_and_frees_its_slot(play: Play) -> None:
    """It fails at its launch, so that a later preemption has no effect."""
    generator = (letter for letter in "ab")
    scene = play(lambda _: generator)
    for attempt in (1, 2):
        scene.launch(0, "b", attempt)
        scene.backend.perform(Preempt(PHASE, 0, attempt, "b"))
        (event,) = scene.await_events(TaskFailed)
        assert "the task cannot be sent to a worker process: " in event.reason
