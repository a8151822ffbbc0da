"""Fixtures for tests of worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.local.calling import exists
from backends.local.scene import Play, Scene
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.processes import Processes
from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import JobArrived
from slotwise.core.job import Job, Phase, Tasks
from slotwise.jobs.calls import Calls


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> Iterator[Processes]:
    """`SLOTS` slots, or two if the module has none; no process is left afterwards."""
    pool = Processes(getattr(request.module, "SLOTS", 2))
    try:
        yield pool
        pids = pool.pids()
    finally:
        pool.close()
    assert not any(exists(pid) for pid in pids)


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    """A pipe through which a running task can send messages to the test."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


@pytest.fixture
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend checks more often than usual whether hosts respond."""
    monkeypatch.setattr("slotwise.backends.local.unresponsive.CHECK_SECONDS", 0.1)


@pytest.fixture
def play(frequent_checks: None) -> Iterator[Play]:
    """Makes scenes of eight calls of a function; all of their processes end with them."""
    scenes: list[Scene] = []

    def make(
        function: Callable[[int], object],
        grace: float = 0.3,
        speed: float = 1.0,
        slots: int = 1,
    ) -> Scene:
        calls = Calls(Job("j", (Phase("p", Tasks(8), slots=slots),)), function)
        hosts = (Host("a", {"task": 2}, speed=speed), Host("b", {"task": 1}, speed=speed))
        backend = LocalBackend([calls], Cluster(hosts, grace=grace))
        scenes.append(Scene(backend, calls))
        assert isinstance(scenes[-1].await_events(JobArrived)[0], JobArrived)
        return scenes[-1]

    yield make
    for scene in scenes:
        pids = scene.backend._processes.pids()
        scene.backend.close()
        assert not any(map(exists, pids))
