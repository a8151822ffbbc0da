"""Tasks that are asked to stop on the local backend: what they keep, when they are killed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slotwise import task as running
from slotwise.backends.local.backend import HOST, LocalBackend
from slotwise.core.decisions import GiveUp, Launch, Locality, Preempt
from slotwise.core.events import Event, JobArrived, JobsClosed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.jobs import Calls, Execution, Sleep
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

LONG = 600.0
"""Seconds; much longer than any of these tests takes."""


@dataclass
class Stage:
    """A local backend with one job of one phase, driven by a test."""

    backend: LocalBackend
    phase: PhaseId
    attempts: Counter[int] = field(default_factory=Counter)

    def launch(self, task: int = 0) -> None:
        """Start the next attempt of a task."""
        self.attempts[task] += 1
        launch = Launch(self.phase, task, self.attempts[task], HOST, Locality.ANY)
        self.backend.perform(launch)

    def preempt(self, seconds: float | None, task: int = 0) -> None:
        """Ask it to stop within this many seconds; None: kill it at once."""
        until = None if seconds is None else self.backend.now + seconds
        preempt = Preempt(self.phase, task, self.attempts[task], HOST, until)
        self.backend.perform(preempt)

    def next(self) -> Any:
        """The next event; waits without a time-out."""
        (event,) = self.backend.wait(None)
        return event


Play = Callable[[Execution], Stage]


@pytest.fixture
def play(processes: Any) -> Iterator[Play]:
    """Makes stages of two slots; none of their processes is left afterwards."""
    backends: list[LocalBackend] = []
    before = set(processes.children(os.getpid()))

    def make(execution: Execution) -> Stage:
        backends.append(LocalBackend([execution], 2))
        stage = Stage(backends[-1], PhaseId(execution.job.id, execution.job.phases[0].name))
        assert [type(event) for event in stage.backend.wait(None)] == [JobArrived, JobsClosed]
        return stage

    yield make
    for backend in backends:
        backend.close()
    assert set(processes.children(os.getpid())) <= before


def calls(function: Callable[[int], object], count: int = 1) -> Calls:
    """A job of one phase whose tasks are calls of a function."""
    return Calls(Job("j", (Phase("p", Tasks(count)),)), function)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The path of a file that a task makes when it begins."""
    return tmp_path / "begun"


def steps(folder: str) -> Callable[[int], object]:
    """A task of 20 steps, each of which writes a line; asked to stop, it keeps its place.

    Before a step that is held, it waits for the request to stop or for the release of the step.
    """

    def work(task: int) -> int:
        for step in range(running.kept(0), 20):
            while os.path.exists(f"{folder}/hold-{step}") and not running.stop_requested():
                time.sleep(0.001)
            if running.stop_requested():
                running.stop(keep=step)
            with open(f"{folder}/steps", "a") as file:
                file.write(f"{step} {os.getpid()}\n")
            time.sleep(0.005)
        return 20

    return work


def hold(folder: Path, *steps: int) -> None:
    """Make tasks wait before these steps, and before no others."""
    for path in folder.glob("hold-*"):
        path.unlink()
    for step in steps:
        (folder / f"hold-{step}").touch()


def wait_for(path: Path, lines: int = 0) -> None:
    """Block until a file exists and has this many lines."""
    until = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.005)


def test_a_task_that_ends_within_its_grace_is_done(play: Play) -> None:
    """It counts as finished, and its worker survives the end of the grace."""

    def work(task: int) -> str:
        while not running.stop_requested():
            time.sleep(0.001)
        time.sleep(0.05)
        return "done"

    one = calls(work)
    stage = play(one)
    stage.launch()
    stage.preempt(LONG)
    event = stage.next()
    assert isinstance(event, TaskFinished)
    assert event.seconds >= 0.05
    assert one.results["p"] == {0: "done"}
    pids = stage.backend._processes.pids()
    stage.backend._zero -= 2 * LONG  # Its clock is past the grace.
    assert stage.backend.wait(stage.backend.now + 0.05) == []
    assert stage.backend._processes.pids() == pids


def test_steps_done_before_a_stop_are_not_repeated(play: Play, tmp_path: Path) -> None:
    """Each of 20 steps is done once although the task was stopped after the fifth."""
    one = calls(steps(str(tmp_path)))
    stage = play(one)
    hold(tmp_path, 5)
    stage.launch()
    wait_for(tmp_path / "steps", 5)
    stage.preempt(LONG)
    killed = stage.next()
    assert isinstance(killed, TaskKilled)
    assert 5 * 0.005 <= killed.kept <= stage.backend.now
    hold(tmp_path)
    stage.launch()
    finished = stage.next()
    assert isinstance(finished, TaskFinished)
    assert one.results["p"] == {0: 20}
    done = [line.split()[0] for line in (tmp_path / "steps").read_text().splitlines()]
    assert done == [str(step) for step in range(20)]


def test_a_kept_value_survives_an_attempt_that_keeps_nothing(
    play: Play, tmp_path: Path
) -> None:
    """The second attempt is killed; the third one still gets the value of the first."""
    one = calls(steps(str(tmp_path)))
    stage = play(one)
    hold(tmp_path, 5)
    stage.launch()
    wait_for(tmp_path / "steps", 5)
    stage.preempt(LONG)
    place = stage.next()
    assert place.kept > 0
    hold(tmp_path, 8)
    stage.launch()
    wait_for(tmp_path / "steps", 8)
    stage.preempt(None)
    assert stage.next().kept == 0
    hold(tmp_path)
    stage.launch()
    assert isinstance(stage.next(), TaskFinished)
    done = Counter(line.split()[0] for line in (tmp_path / "steps").read_text().splitlines())
    assert done == {str(step): 2 if step in (5, 6, 7) else 1 for step in range(20)}


def test_a_task_that_ignores_the_request_is_killed_after_its_grace(
    play: Play, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not earlier; the backend wakes up for it although nothing else happens."""
    monkeypatch.setattr("slotwise.backends.local.unresponsive.CHECK_SECONDS", LONG)

    def ignore(task: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun.touch()
        while True:
            pass

    stage = play(calls(ignore))
    stage.launch()
    wait_for(begun)
    waits: list[float] = []
    wait = stage.backend._workers.wait
    monkeypatch.setattr(
        stage.backend._workers, "wait", lambda timeout: waits.append(timeout) or wait(timeout)
    )
    before = stage.backend.now
    stage.preempt(0.1)
    killed = stage.next()
    assert isinstance(killed, TaskKilled)
    assert killed.kept == 0
    assert killed.at >= before + 0.1
    assert max(waits) <= 0.1
    stage.launch()  # The slot is free again.
    stage.preempt(None)
    assert isinstance(stage.next(), TaskKilled)


def test_a_task_that_catches_all_exceptions_is_killed(play: Play, begun: Path) -> None:
    """User code can catch what `stop` raises, but cannot prevent the kill."""

    def stubborn(task: int) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=1))
        while True:
            with suppress(BaseException):
                begun.touch()  # Here, so that the request comes when all is caught.
                time.sleep(600)

    stage = play(calls(stubborn))
    stage.launch()
    wait_for(begun)
    stage.preempt(0.1)
    killed = stage.next()
    assert (type(killed), killed.kept) == (TaskKilled, 0)


def test_the_preemption_hook_of_a_function_is_called(play: Play) -> None:
    """`on_preempt` gets the seconds left; if it fails, the task continues."""

    class Work:
        def __init__(self) -> None:
            self.heard: list[float] = []

        def on_preempt(self, seconds_left: float) -> None:
            self.heard.append(seconds_left)
            raise ValueError("a hook may fail")

        def __call__(self, task: int) -> list[float]:
            while not self.heard:
                time.sleep(0.001)
            return self.heard

    one = calls(Work())
    stage = play(one)
    stage.launch()
    stage.preempt(LONG)
    assert isinstance(stage.next(), TaskFinished)
    (seconds,) = one.results["p"][0]  # type: ignore[misc]
    assert LONG - 120 < seconds <= LONG


def test_a_second_preemption_of_a_task_does_no_harm(play: Play) -> None:
    """The earlier instant counts, whichever comes first; the task is killed once."""
    for first, second in ((LONG, 0.1), (0.1, LONG), (LONG, None)):
        stage = play(calls(lambda task: time.sleep(2 * LONG), count=2))
        stage.launch()
        stage.preempt(first)
        stage.preempt(second)
        assert isinstance(stage.next(), TaskKilled)
        assert stage.backend.now < LONG
        stage.preempt(0.0)  # The attempt has ended; no other task is affected.
        stage.launch(1)
        assert stage.backend.wait(stage.backend.now + 0.05) == []


def test_a_task_preempted_as_it_ends_is_reported_once(play: Play) -> None:
    """Requests arrive around the ends of tasks: each task has exactly one end."""
    rng, count = random.Random(3), examples(25, slow=60)
    stage = play(calls(lambda task: task, count=count))
    for task in range(count):
        stage.launch(task)
        until = time.monotonic() + rng.random() * 400e-6
        while time.monotonic() < until:
            pass
        stage.preempt(rng.choice([60.0] * 8 + [0.0, None]), task)
        event = stage.next()
        assert isinstance(event, TaskFinished | TaskKilled)
        assert (event.task, event.attempt) == (task, 1)


def test_large_values_are_kept(play: Play) -> None:
    """Megabytes of state go to the next attempt."""
    size = examples(10_000_000, slow=50_000_000)

    def work(task: int) -> int:
        state = running.kept(b"")
        if not state:
            running.on_stop_request(lambda seconds: running.stop(keep=bytes(size)))
            time.sleep(600)
        return len(state)

    one = calls(work)
    stage = play(one)
    stage.launch()
    stage.preempt(60.0)
    assert isinstance(stage.next(), TaskKilled)
    stage.launch()
    assert isinstance(stage.next(), TaskFinished)
    assert one.results["p"] == {0: size}


def test_a_stopped_sleep_keeps_the_seconds_that_it_slept(play: Play) -> None:
    """Stopped three times, it keeps their sum, with which the next attempt begins."""
    stage = play(Sleep(Job("j", (Phase("p", Tasks(1, LONG)),))))
    slept, kept = 0.0, [0.0]
    for _ in range(3):
        stage.launch()
        assert stage.backend.wait(stage.backend.now + 0.1) == []
        stage.preempt(2 * LONG)
        killed = stage.next()
        assert isinstance(killed, TaskKilled)
        slept += killed.kept
        kept.append(pickle.loads(stage.backend._jobs["j"].kept["p", 0]))
        assert kept[-2] < kept[-1] <= slept < LONG
    stage.backend._jobs["j"].kept["p", 0] = pickle.dumps(LONG - 0.1)
    stage.launch()
    finished = stage.next()
    assert isinstance(finished, TaskFinished)
    assert 0.09 <= finished.seconds < LONG


def test_tasks_of_a_job_that_is_given_up_are_killed(play: Play) -> None:
    """Also those within their grace; nothing is kept."""
    stage = play(calls(lambda task: time.sleep(2 * LONG), count=2))
    stage.launch(0)
    stage.launch(1)
    stage.preempt(2 * LONG, 0)
    stage.backend.perform(GiveUp("j", "no luck"))
    stage.preempt(None, 0)
    stage.preempt(None, 1)
    events: list[Event] = []
    while len(events) < 2:
        events += stage.backend.wait(None)
    assert stage.backend.now < LONG
    assert {(event.task, event.kept) for event in events} == {(0, 0.0), (1, 0.0)}  # type: ignore[union-attr]


def test_slots_by_kind() -> None:
    """Two map slots and one reduce slot: three workers, each of which can run any task."""
    slots = {"map": 2, "reduce": 1}
    assert LocalBackend.cluster(slots).capacity == slots
    assert LocalBackend.cluster(3).capacity == {"task": 3}
    job = Job("j", (Phase("m", Tasks(4), kind="map"), Phase("r", Tasks(2), kind="reduce")))
    one = Calls(job, {"m": lambda task: time.sleep(0.05), "r": lambda task: os.getpid()})
    state = State(LocalBackend.cluster(slots))
    with LocalBackend([one], slots) as backend:
        run(make_scheduler("fair"), backend, state, lambda *_: None)
    assert state.completed.keys() == {"j"}
    assert len(one.results["r"]) == 2
