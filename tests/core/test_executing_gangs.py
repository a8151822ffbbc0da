"""Gangs in execution without any process: what is reported, discarded and begun again."""

from __future__ import annotations

import threading
from typing import Any

from core.test_executing_lost_outputs import Files
from slotwise.backends.executing import Executing
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import LaunchDropped, OutputLost, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks

MAP = PhaseId("j", "map")


class GangFiles(Files):
    """A gang of three tasks, and one task that reads its output."""

    def __init__(self) -> None:
        super().__init__()
        gang = Phase("map", Tasks(3), gang=True)
        self.job = Job("j", (gang, Phase("reduce", Tasks(1), after="map")))
        self.discarded: list[tuple[int, int]] = []

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Note the call."""
        self.discarded.append((task, attempt))


class Scene:
    """The gang runs."""

    def __init__(self) -> None:
        self.files, self.events = GangFiles(), list[Any]()
        self.bell = threading.Event()
        self.jobs = Executing(
            lambda: 5.0, self.events.append, self.bell.set, lambda key, folder: None
        )
        self.jobs.add(self.files)
        self.launches = [self.launch(task) for task in range(3)]

    def launch(self, task: int, attempt: int = 1) -> Launch:
        """Begin an attempt."""
        launch = Launch(MAP, task, attempt, "h", Locality.ANY)
        self.jobs.begin(launch)
        return launch

    def heard(self) -> list[Any]:
        """The events since the last call."""
        events = self.events.copy()
        self.events.clear()
        return events


def test_the_results_of_a_broken_gang_are_discarded() -> None:
    """One task is done, one fails, and one ends afterwards: only the next start counts."""
    scene = Scene()
    one, two, three = scene.launches
    scene.jobs.finished(one, None, 1.0)
    assert [type(event) for event in scene.heard()] == [TaskFinished]
    scene.jobs.failed(two, "broke")
    failed, lost = scene.heard()
    assert isinstance(failed, TaskFailed)
    assert lost == OutputLost(5.0, MAP, (0,))
    scene.jobs.finished(three, None, 1.0)
    assert scene.heard() == [TaskKilled(5.0, MAP, 2, 1)]
    assert scene.files.discarded == [(1, 1), (0, 1), (2, 1)]
    for task in range(3):
        scene.jobs.finished(scene.launch(task, attempt=2), None, 1.0)
    assert [type(event) for event in scene.heard()] == [TaskFinished] * 3


def test_a_killed_attempt_keeps_nothing() -> None:
    """What it has kept would not fit to what the others do again."""
    scene = Scene()
    scene.jobs.stopped(scene.launches[0], b"kept", 3.0)
    assert scene.heard() == [TaskKilled(5.0, MAP, 0, 1)]
    scene.jobs.killed(scene.launches[1])
    scene.jobs.killed(scene.launches[2])
    start = scene.jobs.begin(Launch(MAP, 0, 2, "h", Locality.ANY))
    assert start is not None
    assert start.kept == b""


def test_lost_output_of_one_task_is_reported_for_all() -> None:
    """All three are done; the reader waits."""
    scene = Scene()
    for launch in scene.launches:
        scene.jobs.finished(launch, None, 1.0)
    scene.heard()
    scene.jobs.lost_output("j", "map", [1], "its host is lost")
    assert scene.heard() == [OutputLost(5.0, MAP, (0, 1, 2), "its host is lost")]
    assert scene.files.discarded == [(0, 1), (1, 1), (2, 1)]
    scene.launch(0, attempt=1)
    (dropped,) = scene.heard()
    assert isinstance(dropped, LaunchDropped)
    for task in range(3):
        scene.jobs.finished(scene.launch(task, attempt=2), None, 1.0)
    assert [type(event) for event in scene.heard()] == [TaskFinished] * 3


def test_an_attempt_of_before_that_is_heard_of_late_changes_nothing() -> None:
    """An abandoned attempt has broken the gang; then it ends on its host, too."""
    scene = Scene()
    one, two, three = scene.launches
    scene.jobs.abandoned(one, "host h has not responded")
    scene.jobs.killed(two)
    scene.jobs.killed(three)
    again = [scene.launch(task, attempt=2) for task in range(3)]
    scene.jobs.finished(again[0], None, 1.0)
    scene.heard()
    scene.jobs.over(one)
    assert not scene.heard()
    scene.jobs.finished(again[1], None, 1.0)
    scene.jobs.finished(again[2], None, 1.0)
    assert [type(event) for event in scene.heard()] == [TaskFinished] * 2
