"""Workers that are killed all the time: nothing is lost, only what ran is repeated."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import slotwise
from slotwise.core.decisions import Decision, Launch
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled
from tiers import examples

pytestmark = pytest.mark.local_only("it kills the worker processes of this process")

Attempt = tuple[str, int, int]


@dataclass
class Killer:
    """A record for the loop that kills a worker of this process after each `every` launches."""

    every: int
    rng: random.Random
    due: int = 0
    kills: int = 0
    running: set[Attempt] = field(default_factory=set)
    at_kills: set[Attempt] = field(default_factory=set)
    lost: set[Attempt] = field(default_factory=set)
    failed: list[TaskFailed] = field(default_factory=list)
    launches: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Follow what runs; kill when it is time."""
        for event in events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                attempt = (event.phase.phase, event.task, event.attempt)
                self.running.discard(attempt)
                if isinstance(event, TaskFailed):
                    self.lost.add(attempt)
                    self.failed.append(event)
        for decision in decisions:
            if isinstance(decision, Launch):
                self.launches[decision.phase.phase, decision.task] += 1
                self.running.add((decision.phase.phase, decision.task, decision.attempt))
        if self.launches.total() > self.due and self.running:
            self.due = self.launches.total() + self.every
            self.at_kills |= self.running
            self.kills += 1
            end(self.rng.choice(workers()))

    @property
    def repeated(self) -> set[tuple[str, int]]:
        """The tasks that were launched more than once."""
        return {task for task, count in self.launches.items() if count > 1}


def end(pid: int) -> None:
    """Kill a process and wait until it is dead; it may not be reaped yet."""
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)


def workers() -> list[int]:
    """The worker processes of this process."""
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children") as listed:
        pids = [int(pid) for pid in listed.read().split()]
    return [
        pid for pid in pids if b"local/worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def check(killer: Killer) -> None:
    """Only attempts that ran at a kill were lost, at most one for each, and ran again."""
    assert all(event.lost for event in killer.failed)
    assert killer.lost <= killer.at_kills
    assert len(killer.lost) <= killer.kills
    assert killer.repeated == {(phase, task) for phase, task, _ in killer.lost}
    assert sum(killer.launches.values()) == len(killer.launches) + len(killer.lost)


def run_two_hundred(seconds: float, every: int) -> Killer:
    """200 tasks on two slots; a worker is killed at the first launch and then regularly."""
    job = slotwise.Job("sums", (slotwise.Phase("square", slotwise.Tasks(200, seconds)),))
    calls = slotwise.Calls(job, {"square": lambda n: (time.sleep(seconds), n * n)[1]})
    killer = Killer(every, random.Random(1))
    result = slotwise.run([calls], slots=2, progress=killer)
    assert not result.failed
    assert calls.results["square"] == {n: n * n for n in range(200)}
    assert not workers()
    return killer


def test_a_kill_costs_only_the_task_that_ran() -> None:
    """With regular kills all 200 results arrive; only killed tasks are repeated."""
    kills = examples(5, slow=12)
    killer = run_two_hundred(seconds=0.01, every=190 // kills)
    assert killer.kills >= kills
    check(killer)


@pytest.mark.slow
def test_kills_of_long_tasks() -> None:
    """The same with longer tasks."""
    killer = run_two_hundred(seconds=0.1, every=10)
    assert killer.kills >= 16
    check(killer)


def test_a_word_count_survives_kills(tmp_path: Path, few_books: Counter[str]) -> None:
    """Each word is counted exactly although workers are killed, and no file is left."""
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "from slotwise import MapReduce\n"
        "class Count(MapReduce):\n"
        "    def map(self, offset, line):\n"
        "        if offset == 0: time.sleep(0.02)\n"
        "        for word in line.split(): yield word, 1\n"
        "    def reduce(self, word, counts):\n"
        "        time.sleep(0.002)\n"
        "        yield word, sum(counts)\n"
    )
    job = slotwise.mapreduce(
        f"{tmp_path}/slow.py:Count",
        f"{tmp_path}/in/*.txt",
        tmp_path / "out",
        reducers=3,
        split_bytes=3000,
        work_dir=str(tmp_path / "work"),
    )
    killer = Killer(10, random.Random(2))
    result = slotwise.run([job], slots=2, progress=killer)
    assert not result.failed
    check(killer)
    assert killer.kills >= 3
    pairs = (
        line.split("\t") for part in (tmp_path / "out").glob("part-*") for line in part.open()
    )
    assert Counter({word: int(count) for word, count in pairs}) == few_books
    assert not (tmp_path / "out" / "_temporary").exists()
    assert list((tmp_path / "work").iterdir()) == []
