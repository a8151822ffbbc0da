"""Attempts that occupy several worker processes of a host."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from backends.local.scene import PHASE, Play, let_go, marking, wait_for_marks
from backends.local.test_dropped_launches import lost
from slotwise.core.decisions import Preempt
from slotwise.core.events import HostJoined, TaskFailed, TaskFinished, TaskKilled


def test_an_attempt_takes_several_workers_and_runs_in_one(play: Play, tmp_path: Path) -> None:
    """Both workers of host a are taken until it ends; host b is too small."""
    scene = play(marking(tmp_path), slots=2)
    scene.launch(0, "a")
    wait_for_marks(tmp_path, 1)
    assert lost(scene, 1, "a").endswith(": no worker of a is free")
    assert lost(scene, 1, "b", attempt=2).endswith(": fewer than 2 workers of b are free")
    let_go(tmp_path, scene.pids("a"))
    scene.await_events(TaskFinished)
    scene.launch(1, "a", attempt=3)
    scene.await_events(TaskFinished)
    assert scene.calls.results["p"] == {0: 0, 1: 1}


def test_a_killed_attempt_gives_all_workers_back(play: Play, tmp_path: Path) -> None:
    """The next one has room at once."""
    scene = play(marking(tmp_path), slots=2)
    scene.launch(0, "a")
    wait_for_marks(tmp_path, 1)
    scene.backend.perform(Preempt(PHASE, 0, 1, "a"))
    scene.await_events(TaskKilled)
    scene.launch(1, "a")
    wait_for_marks(tmp_path, 2)
    let_go(tmp_path, scene.pids("a"))
    scene.await_events(TaskFinished)


@pytest.mark.local_only("it asks which process has which slot")
def test_an_attempt_on_an_unresponsive_host_gives_them_back_later(
    play: Play, tmp_path: Path
) -> None:
    """After the grace it is lost; when the host is back, all of its workers are free."""
    scene = play(marking(tmp_path), slots=2)
    scene.launch(0, "a")
    wait_for_marks(tmp_path, 1)
    scene.signal(signal.SIGSTOP, scene.pids("a"))
    scene.await_events(TaskFailed)
    assert (
        lost(scene, 1, "a")
        == "p task 1 of job j: it cannot be started: fewer than 2 workers of a are free"
    )
    scene.signal(signal.SIGCONT, scene.pids("a"))
    scene.await_events(HostJoined)
    let_go(tmp_path, scene.pids("a"))
    scene.launch(0, "a", attempt=2)
    scene.await_events(TaskFinished)


@pytest.mark.local_only("it asks which process has which slot")
def test_a_stuck_idle_worker_is_replaced(play: Play, tmp_path: Path) -> None:
    """It is stopped from outside while the other one runs the task, which continues."""
    scene = play(marking(tmp_path), slots=2)
    scene.launch(0, "a")
    wait_for_marks(tmp_path, 1)
    ((slot, idle),) = scene.backend._slots._idle.items()
    pids = scene.backend._processes.pids()
    scene.signal(signal.SIGSTOP, [pids[idle[0]]])
    while scene.backend._processes.pids()[idle[0]] == pids[idle[0]]:
        scene.events_until(scene.backend.now + 0.1)
    assert scene.backend._processes.pids()[slot] == pids[slot]
    let_go(tmp_path, scene.pids("a"))
    scene.await_events(TaskFinished)
