"""Slots taken back on this machine, by the real scheduler: in time, and nothing done twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import slotwise
from slotwise import Calls, Job, Phase, Tasks
from slotwise.model.decision import Launch, Preempt
from slotwise.model.event import JobArrived, TaskFinished, TaskKilled
from slotwise.model.pool import Preemption
from slotwise.record.log import Log

SLACK = 1.0
"""Seconds by which this machine may be late."""

AFTER, GRACE = 0.3, 0.4
"""How long the new pool puts up with too little, and how long others have to end."""

PREEMPTION = Preemption(fair_after=AFTER, grace=GRACE)


def new(count: int = 2, work: float = 0.2) -> Job:
    """A job of another pool that comes when all slots are taken."""
    return Job("new", (Phase("p", Tasks(count, work)),), arrival=0.8, pool="new")


def held_from(log: Log, job: str, slots: int) -> float:
    """When a job first held so many slots."""
    held = 0
    for turn in log.turns:
        for decision in turn.decisions:
            held += isinstance(decision, Launch) and decision.phase.job == job
        if held >= slots:
            return turn.now
        for event in turn.events:
            held -= isinstance(event, TaskFinished | TaskKilled) and event.phase.job == job
    raise AssertionError(f"{job} never held {slots} slots")


def arrival(log: Log, job: str) -> float:
    """When a job arrived."""
    arrived = {
        event.job.id: event.at
        for turn in log.turns
        for event in turn.events
        if isinstance(event, JobArrived)
    }
    return arrived[job]


def seconds_worked(log: Log, job: str) -> Mapping[int, float]:
    """The seconds of each task of a job that count: those that were kept, and the last."""
    worked: Counter[int] = Counter()
    for turn in log.turns:
        for event in turn.events:
            if isinstance(event, TaskFinished) and event.phase.job == job:
                worked[event.task] += event.seconds
            elif isinstance(event, TaskKilled) and event.phase.job == job:
                worked[event.task] += event.kept
    return worked


def entries(log: Log, kind: type) -> list[object]:
    """All events or decisions of a kind."""
    return [e for t in log.turns for e in (*t.events, *t.decisions) if isinstance(e, kind)]


def test_a_new_pool_gets_its_share_from_tasks_that_stop(tmp_path: Path) -> None:
    """Sleepers stop as soon as they are told, and sleep their time in all, no more."""
    old = Job("old", (Phase("p", Tasks(4, 1.5)),), pool="old")
    result = slotwise.run([old, new()], "fair", slots=4, preemption=PREEMPTION)
    assert result.metrics["jobs_done"] == 2
    due = arrival(result.log, "new") + AFTER
    assert due <= held_from(result.log, "new", 2) <= due + SLACK
    assert len(entries(result.log, Preempt)) == len(entries(result.log, TaskKilled)) == 2
    assert all(killed.kept > 0 for killed in entries(result.log, TaskKilled))  # type: ignore[attr-defined]
    worked = seconds_worked(result.log, "old")
    assert worked == {task: pytest.approx(1.5, abs=0.2) for task in range(4)}
    assert slotwise.replay(result.log).is_identical


SLOW = """\
import time
from slotwise import MapReduce

class Slow(MapReduce):
    num_reducers = 1
    def map(self, offset, line):
        time.sleep(0.1)
        yield line, 1
    def reduce(self, line, ones):
        yield line, sum(ones)
"""


def test_a_new_pool_gets_its_share_from_tasks_that_do_not_heed_it(tmp_path: Path) -> None:
    """Maps in mid-record are killed after their grace; they are whole in the end, each once."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = "".join(f"line {number} {line % 20}\n" for line in range(25))
        (tmp_path / "in" / f"{number}.txt").write_text(lines)
    job = slotwise.mapreduce(
        f"{tmp_path}/slow.py:Slow",
        f"{tmp_path}/in/*.txt",
        tmp_path / "out",
        id="old",
        pool="old",
        split_bytes=300,
        work_dir=str(tmp_path / "work"),
    )
    result = slotwise.run([job, new()], "fair", slots=4, preemption=PREEMPTION)
    assert result.metrics["jobs_done"] == 2
    due = arrival(result.log, "new") + AFTER + GRACE
    assert held_from(result.log, "new", 2) <= due + SLACK
    killed = entries(result.log, TaskKilled)
    assert killed
    assert all(event.kept == 0 for event in killed)  # type: ignore[attr-defined]
    lines = [f"line {n} {k}\t{1 + (k < 5)}" for n in range(4) for k in range(20)]
    assert sorted((tmp_path / "out/part-r-00000").read_text().splitlines()) == sorted(lines)
    assert [path.name for path in (tmp_path / "out").glob("_*")] == ["_SUCCESS"]
    assert not list((tmp_path / "work").iterdir())
    assert slotwise.replay(result.log).is_identical


def test_tasks_that_end_in_their_grace_are_not_killed() -> None:
    """Told and done: nothing is lost, and the new pool has its share by their ends."""
    old = Calls(
        Job("old", (Phase("p", Tasks(4)),), pool="old"), lambda task: time.sleep(1.5) or task
    )
    generous = Preemption(fair_after=AFTER, grace=30.0)
    result = slotwise.run([old, new()], "fair", slots=4, preemption=generous)
    assert old.results["p"] == {task: task for task in range(4)}
    assert entries(result.log, Preempt)
    assert not entries(result.log, TaskKilled)
    assert result.metrics["jobs_done"] == 2
