"""Jobs in execution without any process: what is reported of output that is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.executing import Executing
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import LaunchDropped, OutputLost, TaskFailed, TaskFinished
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.jobs.execution import Execution, LostInputError
from tiers import examples

MAP, REDUCE = PhaseId("j", "map"), PhaseId("j", "reduce")


class Files(Execution):
    """Two maps and two reduces; the output of maps is in files, and may be lost."""

    folder = output = ""

    def __init__(self, continues: str | None = None) -> None:
        after = frozenset[str]() if continues else frozenset({"map"})
        reduces = Phase("reduce", Tasks(2), after=after, continues=continues)
        self.job = Job("j", (Phase("map", Tasks(2)), reduces))
        self.runner: Callable[..., object] = print
        self.lost: list[tuple[str, tuple[int, ...]]] = []
        self.error: OSError | None = None

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """None."""
        return ()

    def describe(self, phase: str, task: int) -> str:
        """The phase and the number."""
        return f"{phase} {task}"

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Note the call."""
        if self.error is not None:
            raise self.error
        self.lost.append((phase, tuple(tasks)))
        return tasks


@dataclass
class Scene:
    """A job in execution and what it has reported; both maps are done."""

    files: Files = field(default_factory=Files)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bell = threading.Event()
        self.forgotten: list[tuple[str, str]] = []
        self.jobs = Executing(
            lambda: 5.0,
            self.events.append,
            self.bell.set,
            lambda key, folder: self.forgotten.append((key, folder)),
        )
        self.jobs.add(self.files)
        for task in (0, 1):
            self.finish(self.launch(MAP, task))
        self.events.clear()

    def launch(self, phase: PhaseId, task: int, attempt: int = 1) -> Launch:
        """Begin an attempt."""
        launch = Launch(phase, task, attempt, "h", Locality.ANY)
        self.jobs.begin(launch)
        return launch

    def finish(self, launch: Launch) -> None:
        """An attempt has succeeded."""
        self.jobs.finished(launch, None, 1.0)

    def lose(self, *tasks: int) -> None:
        """The output of maps is lost."""
        self.jobs.lost_output("j", "map", tasks, "host x is lost")


@pytest.fixture
def scene() -> Scene:
    """Two maps are done, and two reduces are not."""
    return Scene()


def missing(*outputs: tuple[int, int]) -> LostInputError:
    """The error of a reduce that misses output of maps: tasks and attempts."""
    return LostInputError("map", outputs, "/tmp/f")


def test_a_backend_reports_the_output_of_a_lost_host(scene: Scene) -> None:
    """The tasks may begin again, with new attempts, and the job ends when all is done."""
    scene.lose(1, 0)
    assert scene.events == [OutputLost(5.0, MAP, (0, 1), "host x is lost")]
    assert scene.files.lost == [("map", (0, 1))]
    for phase, attempt in ((MAP, 2), (REDUCE, 1)):
        for task in (0, 1):
            scene.finish(scene.launch(phase, task, attempt))
    assert [type(event) for event in scene.events[1:]] == [TaskFinished] * 4
    assert "j" not in scene.jobs


def test_all_files_of_a_host_are_lost() -> None:
    """Those of a job with folders of its own on each host; others see all files everywhere."""
    own, shared = Files(), Files()
    own.folder = "slotwise-1"
    for files in (own, shared):
        scene = Scene(files)
        scene.jobs.lost_files("x")
        assert scene.events == []
        scene.jobs.lost_files("h")
        assert [event.tasks for event in scene.events] == [(0, 1)] * (files is own)
    scene = Scene(own)
    scene.jobs.give_up("j")
    assert scene.forgotten == [("j", ("slotwise-1",))]


def test_an_attempt_that_was_done_does_not_begin_again(scene: Scene) -> None:
    """A repeated launch of a task whose output was lost is dropped."""
    scene.lose(0)
    scene.launch(MAP, 0, attempt=1)
    dropped = scene.events[-1]
    assert isinstance(dropped, LaunchDropped)
    assert dropped.reason == "attempt 1 of the task was begun before, and is over"


def test_output_is_lost_once(scene: Scene) -> None:
    """A task that is not done has none."""
    scene.lose(0)
    scene.lose(0, 1)
    assert [event.tasks for event in scene.events] == [(0,), (1,)]


def test_output_that_nothing_needs_is_not_reported() -> None:
    """Neither when all that read it is done, nor of a job that is over or unknown."""
    scene = Scene(Files())
    for task in (0, 1):
        launch = scene.launch(REDUCE, task)
        if task == 0:
            scene.finish(launch)
    scene.jobs.lost_output("j", "reduce", [0], "")
    scene.jobs.lost_output("other", "map", [0], "")
    scene.finish(launch)
    scene.lose(0)
    assert [type(event) for event in scene.events] == [TaskFinished] * 2


def test_only_the_task_that_continues_another_needs_its_output() -> None:
    """Its output is no longer needed when that one is done."""
    scene = Scene(Files(continues="map"))
    scene.finish(scene.launch(REDUCE, 0))
    scene.lose(0, 1)
    assert scene.events[1:] == [OutputLost(5.0, MAP, (1,), "host x is lost")]


class NoFiles(Files):
    """A job without intermediate output."""

    lose = Execution.lose


def test_a_job_without_intermediate_output_loses_nothing() -> None:
    """Its execution has the default function."""
    scene = Scene(NoFiles())
    scene.lose(0)
    assert scene.events == []


def test_a_task_that_misses_input_reports_it_and_is_not_to_blame(scene: Scene) -> None:
    """The loss comes first, and then the end of the attempt, with place and remedy."""
    scene.jobs.failed(scene.launch(REDUCE, 0), missing((0, 1)))
    place = "/tmp/f is missing or incomplete; find out what removes or changes files there"
    assert scene.events == [
        OutputLost(5.0, MAP, (0,), f"{place} while jobs run"),
        TaskFailed(
            5.0, REDUCE, 0, 1, f"reduce 0: {place} while jobs run", lost=True, lacks_input=True
        ),
    ]


def test_a_loss_that_is_known_is_not_reported_again(scene: Scene) -> None:
    """The second reduce has missed the attempt that was lost, not the one made since."""
    first, second = scene.launch(REDUCE, 0), scene.launch(REDUCE, 1)
    scene.jobs.failed(first, missing((0, 1)))
    scene.finish(scene.launch(MAP, 0, attempt=2))
    scene.jobs.failed(second, missing((0, 1)))
    lost, *_, failed = scene.events
    assert lost.tasks == (0,)
    assert [type(event) for event in scene.events].count(OutputLost) == 1
    assert failed.lacks_input


def test_a_loss_without_tasks_counts_as_a_loss(scene: Scene) -> None:
    """What is missing is not output of a task, so no task is repeated for it."""
    scene.jobs.failed(scene.launch(REDUCE, 0), missing())
    (failed,) = scene.events
    assert (failed.lost, failed.lacks_input) == (True, False)


def test_a_loss_that_cannot_be_recorded_fails_the_reader(scene: Scene) -> None:
    """For example on a full disk: the attempt is tried again."""
    scene.files.error = OSError(28, "No space left on device")
    scene.jobs.failed(scene.launch(REDUCE, 0), missing((0, 1)))
    (failed,) = scene.events
    assert (failed.lost, failed.lacks_input) == (False, False)
    assert failed.reason.endswith("its loss cannot be recorded: No space left on device")


def test_nothing_is_lost_of_a_job_that_was_given_up(scene: Scene) -> None:
    """Its last attempts end, and it is closed."""
    launch = scene.launch(REDUCE, 0)
    scene.jobs.give_up("j")
    scene.jobs.failed(launch, missing((0, 1)))
    assert [type(event) for event in scene.events] == [TaskFailed]
    assert "j" not in scene.jobs


def test_nothing_is_lost_of_a_job_that_is_being_committed() -> None:
    """All its tasks are done; if the commit fails, the last one runs again."""
    files = Files()
    files.output = "out"
    scene = Scene(files)
    for task in (0, 1):
        scene.finish(scene.launch(REDUCE, task))
    scene.lose(0, 1)
    scene.jobs.end_commits()
    scene.jobs.finish_commits()
    assert [type(event) for event in scene.events] == [TaskFinished] * 2


def done_in(scene: Scene) -> set[tuple[PhaseId, int]]:
    """The tasks that are done, as reported."""
    done = {(MAP, 0), (MAP, 1)}
    for event in scene.events:
        if isinstance(event, TaskFinished):
            assert (event.phase, event.task) not in done, "a task is done once for each loss"
            done.add((event.phase, event.task))
        elif isinstance(event, OutputLost):
            lost = {(event.phase, task) for task in event.tasks}
            assert lost <= done, "only the output of a done task is lost"
            done -= lost
    return done


@given(st.lists(st.tuples(st.sampled_from(["lose", "miss", "reduce"]), st.integers(0, 3))))
@settings(max_examples=examples(50, slow=2000))
def test_a_job_ends_when_each_loss_is_made_good(steps: list[tuple[str, int]]) -> None:
    """Whatever is lost by the backend or missed by a reduce meanwhile."""
    scene, tries = Scene(), Counter({(MAP, 0): 1, (MAP, 1): 1})

    def begin(phase: PhaseId, task: int) -> Launch:
        tries[phase, task] += 1
        return scene.launch(phase, task, tries[phase, task])

    def finish(phase: PhaseId, *tasks: int) -> None:
        for task in tasks:
            if (phase, task) not in done_in(scene):
                scene.finish(begin(phase, task))

    for step, number in [*steps, ("reduce", 0), ("reduce", 1)]:
        maps, task = [one for one in (0, 1) if number & (1 << one)], number % 2
        if step == "lose":
            scene.lose(*maps)
        elif step == "reduce":
            finish(MAP, 0, 1)
            finish(REDUCE, task)
        elif (REDUCE, task) not in done_in(scene):
            outputs = [(one, tries[MAP, one]) for one in maps]
            scene.jobs.failed(begin(REDUCE, task), missing(*outputs))
    finish(MAP, 0, 1)
    assert done_in(scene) == {(phase, task) for phase in (MAP, REDUCE) for task in (0, 1)}
    assert "j" not in scene.jobs
