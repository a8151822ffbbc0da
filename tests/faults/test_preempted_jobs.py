"""MapReduce jobs whose tasks are preempted, and the command while a task has its grace."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slotwise.backends.local.backend import LocalBackend
from slotwise.core.decisions import Decision, Preempt
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.loop import Decider, run
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.jobs import plan_mapreduce
from slotwise.policy.scheduler import make_scheduler
from tiers import examples


@dataclass
class Preempter:
    """A scheduler that preempts a running task from time to time.

    `graces` has the seconds of grace, for each phase in reverse order; None: kill at once.
    """

    inner: Decider
    rng: random.Random
    graces: dict[str, list[float | None]]
    due: float = 0.0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What the inner scheduler decides; when that is nothing, a preemption that is due."""
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
        time.sleep(0.0005)
        for word in line.split():
            yield word, 1
    def reduce(self, word, counts):
        time.sleep(0.0015)
        yield word, sum(counts)

class Yielding(Count):
    def on_preempt(self, seconds_left):
        task.stop()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", ["Count", "Yielding"])
def test_a_word_count_survives_preemptions(
    program: str, tmp_path: Path, few_books: Counter[str], processes: Any
) -> None:
    """Maps and reduces are stopped or killed halfway: each word is counted exactly once."""
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
        "map": [10.0, 0.05, None, 0.01, None][-examples(3, slow=5) :],
        "reduce": [10.0, 0.05, None],
    }
    preempter = Preempter(make_scheduler("fair"), random.Random(4), graces)
    cluster = LocalBackend.cluster(2)
    state = State(cluster)
    log: list[Event] = []

    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        log.extend(events)

    before = set(processes.children(os.getpid()))
    with LocalBackend([execution], 2) as backend:
        run(preempter, backend, state, record)
    assert set(processes.children(os.getpid())) <= before
    assert [event.reason for event in log if isinstance(event, TaskFailed)] == []
    assert state.completed.keys() == {"words"}
    killed = Counter(event.phase.phase for event in log if isinstance(event, TaskKilled))
    assert killed["map"] >= examples(1, slow=2)
    assert killed["reduce"] >= 1
    done = Counter(
        (event.phase.phase, event.task) for event in log if isinstance(event, TaskFinished)
    )
    assert set(done.values()) == {1}
    assert processes.counted(tmp_path / "out") == few_books
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_SUCCESS",
        *(f"part-r-{number:05}" for number in range(3)),
    ]
    assert not list((tmp_path / "work").iterdir())


PROGRAM = """\
import os, time
from pathlib import Path
from slotwise import MapReduce

class Stuck(MapReduce):
    def __init__(self, folder):
        self.folder = folder
    def on_preempt(self, seconds_left):
        (Path(self.folder) / f"asked-{os.getpid()}").touch()
    def map(self, offset, line):
        time.sleep(600)
"""

JOBS = """\
slotwise: 1
pools:
  - {name: old}
  - {name: new, preemption: {fair_after: 0.1, grace: 6000}}
jobs:
  - {id: stuck, pool: old, program: "stuck.py:Stuck", parameters: {folder: asked},
     inputs: "in/*.txt", split_bytes: 3000, output: out/stuck}
  - {id: late, pool: new, arrival: 0.5, phases: [{name: map, work: 600, tasks: 4}]}
"""


def test_a_run_is_stopped_while_a_task_has_its_grace(
    command: Any, few_books: object, processes: Any
) -> None:
    """SIGTERM to the run does not wait for the end of the grace, and leaves nothing."""
    command.write(PROGRAM, "stuck.py")
    command.write(JOBS)
    (command.folder / "asked").mkdir()
    process = command.start("run", "jobs.yaml", "--slots", "2", "--scheduler", "fair")
    processes.wait_for(lambda: list((command.folder / "asked").iterdir()))
    workers = processes.children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(processes.TIMEOUT) == 130
    processes.wait_for(lambda: not any(map(processes.lives, workers)))
    assert len(list((command.folder / "asked").iterdir())) == 1
    assert command.left() == []
    assert "Traceback" not in command.stderr
