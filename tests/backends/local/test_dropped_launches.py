"""Launches that come late or twice are dropped; new attempts that cannot begin are lost."""

from __future__ import annotations

import signal
from pathlib import Path

from backends.local.scene import PHASE, Play, Scene, let_go, marking, marks, wait_for_marks
from slotwise.backends.local.backend import LocalBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, GiveUp, Preempt
from slotwise.core.events import HostJoined, LaunchDropped, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs.calls import Calls
from slotwise.policy.scheduler import make_scheduler


def dropped(scene: Scene, task: int, host: str, attempt: int = 1) -> str:
    """The reason of a dropped launch."""
    scene.launch(task, host, attempt)
    event = scene.await_events(LaunchDropped)[-1]
    assert (event.phase, event.task, event.attempt, event.host) == (PHASE, task, attempt, host)
    return str(event.reason)


def lost(scene: Scene, task: int, host: str, attempt: int = 1) -> str:
    """Why a new attempt is reported as lost at once."""
    scene.launch(task, host, attempt)
    event = scene.await_events(TaskFailed)[-1]
    assert (event.phase, event.task, event.attempt, event.lost) == (PHASE, task, attempt, True)
    return str(event.reason)


def test_an_attempt_is_begun_once(play: Play, tmp_path: Path) -> None:
    """While it runs, when it has ended, when it was killed: a repeated launch does nothing."""
    scene = play(marking(tmp_path))
    scene.launch(0, "a")
    assert dropped(scene, 0, "a") == "attempt 1 of the task runs"
    assert dropped(scene, 0, "b") == "attempt 1 of the task runs"
    why = "p task 0 of job j: it cannot be started: attempt 1 of the task runs"
    assert lost(scene, 0, "a", attempt=2) == why
    wait_for_marks(tmp_path, 1)
    let_go(tmp_path, scene.pids("a"))
    scene.await_events(TaskFinished)
    assert dropped(scene, 0, "a") == "the task is done"
    why = "p task 0 of job j: it cannot be started: the task is done"
    assert lost(scene, 0, "a", attempt=2) == why
    scene.launch(1, "a")
    scene.backend.perform(Preempt(PHASE, 1, 1, "a"))
    scene.await_events(TaskKilled)
    assert dropped(scene, 1, "a") == "attempt 1 of the task was begun before, and is over"
    assert scene.events_until(scene.backend.now + 0.3) == []
    assert scene.calls.results["p"] == {0: 0}
    assert sum(name.startswith("0-") for name in marks(tmp_path)) == 1


def test_an_abandoned_attempt_is_not_begun_again(play: Play, tmp_path: Path) -> None:
    """Although its host is back; a new attempt is begun."""
    scene = play(marking(tmp_path))
    scene.launch(0, "b")
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(TaskFailed)
    assert dropped(scene, 0, "a") == "attempt 1 of the task was begun before, and is over"
    scene.signal(signal.SIGCONT, scene.pids("b"))
    scene.await_events(HostJoined)
    assert dropped(scene, 0, "b") == "attempt 1 of the task was begun before, and is over"
    let_go(tmp_path, scene.pids("b"))
    scene.launch(0, "b", attempt=2)
    (finished,) = scene.await_events(TaskFinished)
    assert finished.attempt == 2


def test_a_launch_without_a_free_worker_is_lost(play: Play, tmp_path: Path) -> None:
    """No attempt begins in a slot whose abandoned attempt has not ended."""
    scene = play(marking(tmp_path))
    scene.launch(0, "b")
    why = "p task 1 of job j: it cannot be started: no worker of b is free"
    assert lost(scene, 1, "b") == why
    assert dropped(scene, 1, "a") == "attempt 1 of the task was begun before, and is over"
    scene.signal(signal.SIGSTOP, scene.pids("b"))
    scene.await_events(TaskFailed)
    assert lost(scene, 1, "b", attempt=2) == why
    let_go(tmp_path, scene.pids("a"))
    scene.launch(1, "a", attempt=3)
    scene.await_events(TaskFinished)


def test_a_run_ends_although_backend_and_state_disagree_about_slots() -> None:
    """The state counts two slots, and there is one: a job that gets no second one fails."""

    def nap(task: int) -> None:
        import time

        time.sleep(60)

    job, host = Job("j", (Phase("p", Tasks(2)),)), Host("a", {"task": 1})
    state = State(Cluster((Host("a", {"task": 2}),)))
    decided: list[Decision] = []
    with LocalBackend([Calls(job, nap)], Cluster((host,))) as backend:
        run(
            make_scheduler("fair"), backend, state, lambda at, heard, made: decided.extend(made)
        )
    (reason,) = (made.reason for made in decided if isinstance(made, GiveUp))
    assert "no worker of a is free" in reason


def test_a_launch_of_a_finished_job_is_dropped(play: Play) -> None:
    """The job is done or given up: none of its attempts begins."""
    scene = play(lambda task: task)
    scene.backend.perform(GiveUp("j", "enough"))
    assert dropped(scene, 0, "a") == "its job is over"
