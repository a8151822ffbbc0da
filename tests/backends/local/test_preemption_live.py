"""Preemption on the local backend with a real scheduler: in time, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import slotwise
from slotwise import Calls, Job, Phase, Tasks
from slotwise import task as running
from slotwise.core.decisions import Decision, Launch, Preempt
from slotwise.core.events import Event, JobArrived, TaskFinished, TaskKilled
from slotwise.core.log import Log
from slotwise.core.loop import Record
from slotwise.core.pools import Pool, Preemption
from slotwise.results import RunInterrupted

AFTER, GRACE = 0.2, 0.3
"""The time-out of the new pool, and the grace of the others, in seconds."""

PREEMPTION = Preemption(fair_after=AFTER, grace=GRACE)


def new() -> Job:
    """A job of another pool that comes when all slots are taken."""
    return Job("new", (Phase("p", Tasks(2, 0.05)),), arrival=0.3, pool="new")


def at_its_end(act: Callable[[], object]) -> Record:
    """Acts when the new job is done: until then the old one keeps its slots."""
    left = 2

    def progress(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        nonlocal left
        for event in events:
            if isinstance(event, TaskFinished) and event.phase.job == "new":
                left -= 1
                if not left:
                    act()

    return progress


def held_from(log: Log, job: str, slots: int) -> float:
    """When a job first held the given number of slots."""
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


def entries(log: Log, kind: type) -> list[object]:
    """All events or decisions of a kind."""
    return [e for t in log.turns for e in (*t.events, *t.decisions) if isinstance(e, kind)]


def test_a_new_pool_gets_its_share_from_tasks_that_stop() -> None:
    """Sleepers stop as soon as they are asked, long before they are done or killed."""
    old = Job("old", (Phase("p", Tasks(4, 600.0)),), pool="old")

    def enough() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted) as interrupted:
        slotwise.run(
            [old, new()],
            "fair",
            slots=4,
            preemption=Preemption(fair_after=AFTER, grace=600.0),
            progress=at_its_end(enough),
        )
    log = interrupted.value.result.log
    assert held_from(log, "new", 2) >= arrival(log, "new") + AFTER
    assert len(entries(log, Preempt)) == len(entries(log, TaskKilled)) == 2
    assert all(killed.kept > 0 for killed in entries(log, TaskKilled))  # type: ignore[attr-defined]
    assert slotwise.replay(log).is_identical


SLOW = """\
import time
from pathlib import Path
from slotwise import MapReduce

class Slow(MapReduce):
    num_reducers = 1
    def __init__(self, go):
        self.go = Path(go)
    def map(self, offset, line):
        until = time.monotonic() + 120
        while not self.go.exists() and time.monotonic() < until:
            time.sleep(0.01)
        yield line, 1
    def reduce(self, line, ones):
        yield line, sum(ones)
"""


def test_a_new_pool_gets_its_share_from_tasks_that_ignore_the_request(tmp_path: Path) -> None:
    """Maps in mid-record are killed after their grace; they are whole in the end, each once.

    None of them gets on before the new job is done, so it is kills that make room for it.
    """
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
        parameters={"go": str(tmp_path / "go")},
    )
    result = slotwise.run(
        [job, new()],
        "fair",
        slots=4,
        preemption=PREEMPTION,
        progress=at_its_end((tmp_path / "go").touch),
    )
    assert result.metrics["jobs_done"] == 2
    assert held_from(result.log, "new", 2) >= arrival(result.log, "new") + AFTER + GRACE
    killed = entries(result.log, TaskKilled)
    assert killed
    assert all(event.kept == 0 for event in killed)  # type: ignore[attr-defined]
    lines = [f"line {n} {k}\t{1 + (k < 5)}" for n in range(4) for k in range(20)]
    assert sorted((tmp_path / "out/part-r-00000").read_text().splitlines()) == sorted(lines)
    assert [path.name for path in (tmp_path / "out").glob("_*")] == ["_SUCCESS"]
    assert not list((tmp_path / "work").iterdir())
    assert slotwise.replay(result.log).is_identical


def test_tasks_that_end_in_their_grace_are_not_killed(tmp_path: Path) -> None:
    """They are done before the kill: nothing is lost, and the new pool gets its share."""
    go = str(tmp_path / "go")

    def work(task: int) -> int:
        until = time.monotonic() + 120
        while not running.stop_requested() and not Path(go).exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        return task

    old = Calls(Job("old", (Phase("p", Tasks(4)),), pool="old"), work)
    generous = Preemption(fair_after=AFTER, grace=600.0)
    result = slotwise.run(
        [old, new()], "fair", slots=4, preemption=generous, progress=at_its_end(Path(go).touch)
    )
    assert old.results["p"] == {task: task for task in range(4)}
    assert len(entries(result.log, Preempt)) == 2
    assert not entries(result.log, TaskKilled)
    assert result.metrics["jobs_done"] == 2


def test_one_task_dies_for_one_slot_beside_a_pool_that_lacks_one_too(tmp_path: Path) -> None:
    """The slot is kept for the pool that took it back, although another comes first."""
    go = str(tmp_path / "go")

    def work(task: int) -> int:
        until = time.monotonic() + 120
        while not Path(go).exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        return task

    old = Calls(Job("old", (Phase("p", Tasks(4)),), pool="old"), work)
    other = Job("other", (Phase("p", Tasks(2, 0.05)),), arrival=0.3, pool="other")
    taker = Job("taker", (Phase("p", Tasks(1, 0.05)),), arrival=0.3, pool="taker")
    takes = Preemption(fair_after=AFTER, fraction=1.0, grace=GRACE)

    def progress(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        if any(isinstance(e, TaskFinished) and e.phase.job == "taker" for e in events):
            Path(go).touch()

    pools = (Pool("old"), Pool("other"), Pool("taker", preemption=takes))
    workload = slotwise.Workload((old, other, taker), pools=pools)
    result = slotwise.run(workload, "fair", slots=4, progress=progress)
    (killed,) = entries(result.log, TaskKilled)
    assert killed.phase.job == "old"  # type: ignore[attr-defined]
    turn = next(turn for turn in result.log.turns if killed in turn.events)
    launched = [d.phase.job for d in turn.decisions if isinstance(d, Launch)]
    assert launched == ["taker"]
    assert result.metrics["jobs_done"] == 3
    assert slotwise.replay(result.log).is_identical
