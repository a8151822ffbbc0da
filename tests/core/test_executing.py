"""Jobs in execution without any process: what is reported of attempts, results and commits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from slotwise.backends.executing import Executing
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import InputChanged, InputDiffers
from slotwise.core.events import LaunchDropped, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.jobs.execution import Execution

PHASE = PhaseId("j", "p")
TIMEOUT = 120.0


class Writer(Execution):
    """A job whose commit waits until the test lets it go on, and may fail."""

    output = "out"

    def __init__(self, tasks: int = 1) -> None:
        self.job = Job("j", (Phase("p", Tasks(tasks)),))
        self.runner: Callable[..., object] = print
        self.calls: list[Any] = []
        self.goes_on = threading.Event()
        self.error: BaseException | None = None

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The number of the task."""
        return (task,)

    def describe(self, phase: str, task: int) -> str:
        """The number of the task."""
        return f"task {task}"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Note the call."""
        self.calls.append(("finished", task, attempt, result))

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Note the call."""
        self.calls.append(("discard", task, attempt))

    def close(self, succeeded: bool) -> None:
        """Note the call, when it has ended."""
        if succeeded:
            assert self.goes_on.wait(TIMEOUT)
            error, self.error = self.error, None
            if error is not None:
                raise error
        self.calls.append(("close", succeeded))


@dataclass
class Scene:
    """Jobs in execution, what they have reported, and a bell that commits ring."""

    writer: Writer
    events: list[Any] = field(default_factory=list)
    bell: threading.Event = field(default_factory=threading.Event)
    forgotten: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = Executing(
            lambda: 5.0,
            self.events.append,
            self.bell.set,
            lambda key, folder: self.forgotten.append(key),
        )
        self.jobs.add(self.writer)

    def launch(self, task: int = 0, attempt: int = 1) -> Launch:
        """Begin an attempt."""
        launch = Launch(PHASE, task, attempt, "h", Locality.ANY)
        self.jobs.begin(launch)
        return launch

    def on_turn(self) -> None:
        """Let the commit go on, and hear of its end."""
        self.writer.goes_on.set()
        assert self.bell.wait(TIMEOUT)
        self.bell.clear()
        self.jobs.finish_commits()


@pytest.fixture
def scene() -> Scene:
    """One job of one task."""
    return Scene(Writer())


def test_the_peak_of_an_attempt_is_reported_with_its_end(scene: Scene) -> None:
    """Also of one that has failed, and of the last one, which is reported after a commit."""
    scene.jobs.failed(scene.launch(), "no", peak=7 << 20)
    scene.jobs.finished(scene.launch(attempt=2), "result", 2.0, 9 << 20)
    scene.on_turn()
    assert [event.peak for event in scene.events] == [7 << 20, 9 << 20]


def test_the_last_task_is_reported_after_the_commit(scene: Scene) -> None:
    """The commit runs in a thread: other jobs go on meanwhile."""
    scene.jobs.finished(scene.launch(), "result", 2.0)
    scene.jobs.finish_commits()
    assert scene.events == []
    scene.on_turn()
    assert scene.events == [TaskFinished(5.0, PHASE, 0, 1, 2.0)]
    assert scene.writer.calls == [("finished", 0, 1, "result"), ("close", True)]
    assert scene.forgotten == ["j"]
    assert "j" not in scene.jobs


def test_a_task_that_is_being_committed_is_not_launched_again(scene: Scene) -> None:
    """To schedulers it still runs. A repeated launch is dropped, a new attempt is lost."""
    scene.jobs.finished(scene.launch(), None, 2.0)
    scene.launch(attempt=1)
    scene.launch(attempt=2)
    dropped, refused = scene.events
    assert isinstance(dropped, LaunchDropped)
    assert dropped.reason == "attempt 1 of the task runs"
    reason = f"task 0: it cannot be started: {dropped.reason}"
    assert refused == TaskFailed(5.0, PHASE, 0, 2, reason, lost=True)
    scene.on_turn()
    assert scene.events[2:] == [TaskFinished(5.0, PHASE, 0, 1, 2.0)]


def test_a_failed_commit_fails_the_last_task(scene: Scene) -> None:
    """It is tried again, and then the commit too."""
    scene.writer.error = OSError(28, "No space left on device", "out")
    scene.jobs.finished(scene.launch(), None, 2.0)
    scene.on_turn()
    scene.jobs.finished(scene.launch(attempt=2), None, 3.0)
    scene.on_turn()
    reason = "task 0: its result cannot be kept: No space left on device (out)"
    assert scene.events == [
        TaskFailed(5.0, PHASE, 0, 1, reason),
        TaskFinished(5.0, PHASE, 0, 2, 3.0),
    ]
    assert ("close", True) in scene.writer.calls


def test_a_bug_in_a_commit_is_raised_in_the_loop(scene: Scene) -> None:
    """What is no error of a user does not disappear in the thread."""
    scene.writer.error = KeyboardInterrupt()
    scene.jobs.finished(scene.launch(), None, 2.0)
    with pytest.raises(KeyboardInterrupt):
        scene.on_turn()


def test_closing_waits_for_a_commit(scene: Scene) -> None:
    """An output is in place as a whole or not at all."""
    scene.jobs.finished(scene.launch(), None, 2.0)
    threading.Timer(0.05, scene.writer.goes_on.set).start()
    scene.jobs.end_commits()
    assert ("close", True) in scene.writer.calls
    scene.jobs.close()
    assert scene.writer.calls[-1] == ("close", False)


def test_an_attempt_is_discarded_after_the_commit() -> None:
    """The calls of one execution are never concurrent."""
    scene = Scene(Writer(2))
    first, other = scene.launch(0), scene.launch(1)
    scene.jobs.abandoned(first, "its host does not respond")
    scene.jobs.finished(scene.launch(0, 2), None, 1.0)
    scene.jobs.finished(other, None, 1.0)
    scene.writer.calls.clear()
    scene.jobs.over(first)
    assert scene.writer.calls == []
    scene.on_turn()
    assert scene.writer.calls == [("close", True), ("discard", 0, 1)]


def test_a_cancelled_job_is_not_committed() -> None:
    """Also if all of its tasks end well: its output goes."""
    scene = Scene(Writer(2))
    launches = [scene.launch(0), scene.launch(1)]
    scene.jobs.give_up("j")
    for launch in launches:
        scene.jobs.finished(launch, None, 1.0)
    assert [type(event) for event in scene.events] == [TaskFinished, TaskFinished]
    assert scene.writer.calls == [("close", False)]
    assert scene.forgotten == ["j"]


def test_a_kept_value_is_passed_on_until_the_task_is_done() -> None:
    """Its seconds count as kept work; an attempt that keeps nothing leaves it in place."""
    scene = Scene(Writer(2))
    scene.jobs.stopped(scene.launch(0, 1), b"kept", 4.0)
    scene.jobs.stopped(scene.launch(0, 2), b"", 4.0)
    assert [event.kept for event in scene.events] == [4.0, 0.0]
    assert all(isinstance(event, TaskKilled) for event in scene.events)
    launch = Launch(PHASE, 0, 3, "h", Locality.ANY)
    start = scene.jobs.begin(launch)
    assert start is not None
    assert start.kept == b"kept"
    scene.jobs.finished(launch, None, 1.0)
    assert scene.jobs["j"].kept == {}


def test_an_attempt_with_an_obstacle_is_lost(scene: Scene) -> None:
    """It does not begin later. The next attempt may."""
    launch = Launch(PHASE, 0, 1, "h", Locality.ANY)
    assert scene.jobs.begin(launch, "no worker of h is free") is None
    reason = "task 0: it cannot be started: no worker of h is free"
    assert scene.events == [TaskFailed(5.0, PHASE, 0, 1, reason, lost=True)]
    assert scene.jobs.begin(launch) is None
    assert isinstance(scene.events[1], LaunchDropped)
    assert scene.jobs.begin(replace(launch, attempt=2)) is not None


@pytest.mark.parametrize(
    ("reason", "told", "told_further"),
    [
        (InputChanged("it changed"), {"lost": False}, {"final": True}),
        (InputDiffers("elsewhere"), {"lost": False}, {"final": False}),
        ("it broke", {"lost": True}, {"lost": True}),
        ("it exited", {"lost": True, "is_own": True}, {"lost": False}),
    ],
)
def test_whose_fault_the_end_of_an_attempt_is(
    scene: Scene, reason: object, told: dict[str, bool], told_further: dict[str, bool]
) -> None:
    """Changed input is final, unless only one host sees it so; an exit is the task's own."""
    scene.jobs.failed(scene.launch(), reason, **told)
    assert scene.events == [TaskFailed(5.0, PHASE, 0, 1, f"task 0: {reason}", **told_further)]


def test_what_does_not_write_is_not_committed_in_a_thread() -> None:
    """Small calls are reported at once."""
    writer = Writer()
    writer.output = ""
    writer.goes_on.set()
    scene = Scene(writer)
    scene.jobs.finished(scene.launch(), None, 2.0)
    assert scene.events == [TaskFinished(5.0, PHASE, 0, 1, 2.0)]
