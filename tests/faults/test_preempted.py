"""Tasks that are told to stop, in the live world: nothing done twice, nothing left behind."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slotwise import task as running
from slotwise.model.cluster import Cluster
from slotwise.model.decision import Decision, GiveUp, Launch, Locality, Preempt
from slotwise.model.event import Event, JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.model.job import Job, Phase, PhaseId, Tasks
from slotwise.model.snapshot import Snapshot
from slotwise.programs import Calls, Execution, Sleep, plan_mapreduce
from slotwise.runtime.local.backend import HOST, LocalBackend
from slotwise.runtime.loop import Decider, run
from slotwise.runtime.state import State
from slotwise.scheduler import make_scheduler
from tiers import examples

LONG = 600.0
"""Seconds of which hardly any pass here."""


@dataclass
class Stage:
    """A live world with one job of one phase, played by hand."""

    backend: LocalBackend
    phase: PhaseId
    attempts: Counter[int] = field(default_factory=Counter)

    def launch(self, task: int = 0) -> None:
        """Start the next attempt of a task."""
        self.attempts[task] += 1
        launch = Launch(self.phase, task, self.attempts[task], HOST, Locality.ANY)
        self.backend.perform(launch)

    def tell(self, seconds: float | None, task: int = 0) -> None:
        """Have it stopped within so many seconds; None: at once."""
        until = None if seconds is None else self.backend.now + seconds
        preempt = Preempt(self.phase, task, self.attempts[task], HOST, until)
        self.backend.perform(preempt)

    def next(self) -> Any:
        """The next event, which is waited for without any end."""
        (event,) = self.backend.wait(None)
        return event


Play = Callable[[Execution], Stage]


@pytest.fixture
def play(processes: Any) -> Iterator[Play]:
    """Makes stages of two slots; no process of theirs is left afterwards."""
    backends: list[LocalBackend] = []
    before = set(processes.children(os.getpid()))

    def make(execution: Execution) -> Stage:
        backends.append(LocalBackend([execution], 2))
        stage = Stage(backends[-1], PhaseId(execution.job.id, execution.job.phases[0].name))
        assert isinstance(stage.next(), JobArrived)
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
    """The path of a file that tells that a task has begun."""
    return tmp_path / "begun"


def steps(folder: str) -> Callable[[int], object]:
    """A task of 20 steps, each of which leaves a line; it keeps its place when it is told.

    Before a step that is held, it waits until it is told, or the step is held no more.
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
    """Have tasks wait before these steps."""
    for path in folder.glob("hold-*"):
        path.unlink()
    for step in steps:
        (folder / f"hold-{step}").touch()


def wait_for(path: Path, lines: int = 0) -> None:
    """Block until a file is there and has so many lines."""
    until = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.005)


# What becomes of a task that is told to stop


def test_a_task_that_ends_in_its_grace_is_done(play: Play) -> None:
    """It counts as finished, and its slot is not hurt when the grace is over."""

    def work(task: int) -> str:
        while not running.stop_requested():
            time.sleep(0.001)
        time.sleep(0.05)
        return "done"

    one = calls(work)
    stage = play(one)
    stage.launch()
    stage.tell(LONG)
    event = stage.next()
    assert isinstance(event, TaskFinished)
    assert event.seconds >= 0.05
    assert one.results["p"] == {0: "done"}
    pids = stage.backend._workers.pids()
    stage.backend._zero -= 2 * LONG  # So much later on its clock.
    assert stage.backend.wait(stage.backend.now + 0.05) == []
    assert stage.backend._workers.pids() == pids


def test_what_was_done_before_a_stop_is_not_done_again(play: Play, tmp_path: Path) -> None:
    """Of 20 steps each is done once, though the task was stopped in the middle."""
    one = calls(steps(str(tmp_path)))
    stage = play(one)
    hold(tmp_path, 5)
    stage.launch()
    wait_for(tmp_path / "steps", 5)
    stage.tell(LONG)
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


def test_what_was_kept_outlives_attempts_that_keep_nothing(play: Play, tmp_path: Path) -> None:
    """A second attempt is killed at once, in another process: the third still finds it."""
    one = calls(steps(str(tmp_path)))
    stage = play(one)
    hold(tmp_path, 5)
    stage.launch()
    wait_for(tmp_path / "steps", 5)
    stage.tell(LONG)
    place = stage.next()
    assert place.kept > 0
    hold(tmp_path, 8)
    stage.launch()
    wait_for(tmp_path / "steps", 8)
    stage.tell(None)
    assert stage.next().kept == 0
    hold(tmp_path)
    stage.launch()
    assert isinstance(stage.next(), TaskFinished)
    done = Counter(line.split()[0] for line in (tmp_path / "steps").read_text().splitlines())
    assert done == {str(step): 2 if step in (5, 6, 7) else 1 for step in range(20)}


def test_who_ignores_it_is_killed_when_the_grace_is_over(
    play: Play, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and the world wakes up for it, though nothing else happens."""
    monkeypatch.setattr("slotwise.runtime.local.unresponsive.LOOK_SECONDS", LONG)

    def deaf(task: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        begun.touch()
        while True:
            pass

    stage = play(calls(deaf))
    stage.launch()
    wait_for(begun)
    waits: list[float] = []
    wait = stage.backend._workers.wait
    monkeypatch.setattr(
        stage.backend._workers, "wait", lambda timeout: waits.append(timeout) or wait(timeout)
    )
    before = stage.backend.now
    stage.tell(0.3)
    killed = stage.next()
    assert isinstance(killed, TaskKilled)
    assert killed.kept == 0
    assert killed.at >= before + 0.3
    assert max(waits) <= 0.3
    stage.launch()  # The slot is free again.
    stage.tell(None)
    assert isinstance(stage.next(), TaskKilled)


def test_a_task_that_catches_everything_is_killed_all_the_same(play: Play, begun: Path) -> None:
    """User code can keep `stop` from ending it, but not the kill."""

    def stubborn(task: int) -> None:
        running.on_stop_request(lambda seconds: running.stop(keep=1))
        begun.touch()
        while True:
            with suppress(BaseException):
                time.sleep(600)

    stage = play(calls(stubborn))
    stage.launch()
    wait_for(begun)
    stage.tell(0.3)
    killed = stage.next()
    assert (type(killed), killed.kept) == (TaskKilled, 0)


def test_the_hook_of_a_function_is_called(play: Play) -> None:
    """A function's `on_preempt` gets the seconds left, and may fail; the task goes on."""

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
    stage.tell(LONG)
    assert isinstance(stage.next(), TaskFinished)
    (seconds,) = one.results["p"][0]  # type: ignore[misc]
    assert LONG - 120 < seconds <= LONG


def test_deciding_twice_does_no_harm(play: Play) -> None:
    """The earlier instant counts, whichever is said first; the task is killed once."""
    for first, second in ((LONG, 0.3), (0.3, LONG), (LONG, None)):
        stage = play(calls(lambda task: time.sleep(2 * LONG), count=2))
        stage.launch()
        stage.tell(first)
        stage.tell(second)
        assert isinstance(stage.next(), TaskKilled)
        assert stage.backend.now < LONG
        stage.tell(0.0)  # It has gone, and nobody else is hit.
        stage.launch(1)
        assert stage.backend.wait(stage.backend.now + 0.2) == []


def test_told_as_it_ends_a_task_is_told_of_once(play: Play) -> None:
    """Tasks are told at the very instant of their ends: each has one end, and keeps nothing."""
    rng, count = random.Random(3), examples(25, slow=60)
    stage = play(calls(lambda task: task, count=count))
    for task in range(count):
        stage.launch(task)
        until = time.monotonic() + rng.random() * 400e-6
        while time.monotonic() < until:
            pass
        stage.tell(rng.choice([60.0] * 8 + [0.0, None]), task)
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
    stage.tell(60.0)
    assert isinstance(stage.next(), TaskKilled)
    stage.launch()
    assert isinstance(stage.next(), TaskFinished)
    assert one.results["p"] == {0: size}


def test_sleep_sleeps_each_second_once(play: Play) -> None:
    """Stopped three times, it keeps what it has slept in all; the next attempt has that."""
    stage = play(Sleep(Job("j", (Phase("p", Tasks(1, LONG)),))))
    slept, kept = 0.0, [0.0]
    for _ in range(3):
        stage.launch()
        assert stage.backend.wait(stage.backend.now + 0.1) == []
        stage.tell(2 * LONG)
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


def test_a_job_that_is_given_up_loses_what_it_kept_and_what_still_runs(play: Play) -> None:
    """Tasks within their grace are killed at once when their job is over."""
    stage = play(calls(lambda task: time.sleep(2 * LONG), count=2))
    stage.launch(0)
    stage.launch(1)
    stage.tell(2 * LONG, 0)
    stage.backend.perform(GiveUp("j", "no luck"))
    stage.tell(None, 0)
    stage.tell(None, 1)
    events: list[Event] = []
    while len(events) < 2:
        events += stage.backend.wait(None)
    assert stage.backend.now < LONG
    assert {(event.task, event.kept) for event in events} == {(0, 0.0), (1, 0.0)}  # type: ignore[union-attr]


def test_slots_by_kind() -> None:
    """Two map slots and one for reduces: three workers, any of which runs anything."""
    slots = {"map": 2, "reduce": 1}
    assert LocalBackend.cluster(slots).capacity == slots
    assert LocalBackend.cluster(3) == Cluster.of_slots(3, HOST)
    job = Job("j", (Phase("m", Tasks(4), kind="map"), Phase("r", Tasks(2), kind="reduce")))
    one = Calls(job, {"m": lambda task: time.sleep(0.05), "r": lambda task: os.getpid()})
    state = State(LocalBackend.cluster(slots), jobs_expected=1)
    with LocalBackend([one], slots) as backend:
        run(make_scheduler("fair"), backend, state, lambda *_: None)
    assert state.completed.keys() == {"j"}
    assert len(one.results["r"]) == 2


# MapReduce jobs


@dataclass
class Robber:
    """A scheduler that now and then takes a slot from whoever runs, at once or softly.

    `graces` has how, for each phase; None: at once.
    """

    inner: Decider
    rng: random.Random
    graces: dict[str, list[float | None]]
    due: float = 0.0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What the scheduler inside decides, and a robbery when it is time."""
        decisions = self.inner.decide(snapshot)
        runs = [run for run in snapshot.attempts_of("words") if self.graces[run.phase.phase]]
        if decisions or not runs or snapshot.now < self.due:
            return decisions
        launch = self.rng.choice(runs)
        grace = self.graces[launch.phase.phase].pop()
        self.due = snapshot.now + 0.1
        until = None if grace is None else snapshot.now + grace
        return [Preempt(launch.phase, launch.task, launch.attempt, launch.host, until)]


COUNT = """\
import time
from slotwise import MapReduce, task

class Count(MapReduce):
    def map(self, offset, line):
        time.sleep(0.0002)
        for word in line.split():
            yield word, 1
    def reduce(self, word, counts):
        time.sleep(0.003)
        yield word, sum(counts)

class Yielding(Count):
    def on_preempt(self, seconds_left):
        task.stop()
"""


@pytest.mark.parametrize("program", ["Count", "Yielding"])
def test_a_word_count_survives_robberies(
    program: str, tmp_path: Path, books: Counter[str], processes: Any
) -> None:
    """Maps and reduces are killed in the middle: each word is counted exactly, once."""
    (tmp_path / "count.py").write_text(COUNT)
    execution = plan_mapreduce(
        "words",
        f"{tmp_path}/count.py:{program}",
        f"{tmp_path}/in/*.txt",
        tmp_path / "out",
        reducers=3,
        split_bytes=20_000,
        work_dir=str(tmp_path / "work"),
    )
    graces: dict[str, list[float | None]] = {
        "map": [10.0, 0.05, None, 0.01, None],
        "reduce": [10.0, 0.05, None],
    }
    robber = Robber(make_scheduler("fair"), random.Random(4), graces)
    cluster = LocalBackend.cluster(2)
    state = State(cluster, jobs_expected=1)
    log: list[Event] = []

    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        log.extend(events)

    before = set(processes.children(os.getpid()))
    with LocalBackend([execution], 2) as backend:
        run(robber, backend, state, record)
    assert set(processes.children(os.getpid())) <= before
    assert [event.reason for event in log if isinstance(event, TaskFailed)] == []
    assert state.completed.keys() == {"words"}
    killed = Counter(event.phase.phase for event in log if isinstance(event, TaskKilled))
    assert killed["map"] >= 2
    assert killed["reduce"] >= 1
    done = Counter(
        (event.phase.phase, event.task) for event in log if isinstance(event, TaskFinished)
    )
    assert set(done.values()) == {1}
    assert processes.counted(tmp_path / "out") == books
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_SUCCESS",
        *(f"part-r-{number:05}" for number in range(3)),
    ]
    assert not list((tmp_path / "work").iterdir())


# The command

PROGRAM = """\
import os, time
from pathlib import Path
from slotwise import MapReduce

class Stuck(MapReduce):
    def __init__(self, folder):
        self.folder = folder
    def on_preempt(self, seconds_left):
        (Path(self.folder) / f"told-{os.getpid()}").touch()
    def map(self, offset, line):
        time.sleep(600)
"""

JOBS = """\
slotwise: 1
pools:
  - {name: old}
  - {name: new, preemption: {fair_after: 0.1, grace: 6000}}
jobs:
  - {id: stuck, pool: old, program: "stuck.py:Stuck", parameters: {folder: told},
     inputs: "in/*.txt", split_bytes: 3000, output: out/stuck}
  - {id: late, pool: new, arrival: 0.5, phases: [{name: map, work: 600, tasks: 4}]}
"""


def test_a_run_is_stopped_while_a_task_has_its_grace(
    command: Any, books: object, processes: Any
) -> None:
    """SIGTERM to the run itself does not wait for anybody's grace, and leaves nothing."""
    command.write(PROGRAM, "stuck.py")
    command.write(JOBS)
    (command.folder / "told").mkdir()
    process = command.start("run", "jobs.yaml", "--slots", "2", "--scheduler", "fair")
    processes.wait_for(lambda: list((command.folder / "told").iterdir()))
    workers = processes.children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(processes.TIMEOUT) == 130
    processes.wait_for(lambda: not any(map(processes.lives, workers)))
    assert len(list((command.folder / "told").iterdir())) == 1
    assert command.left() == []
    assert "Traceback" not in command.stderr
