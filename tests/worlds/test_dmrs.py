"""Queues of hosts in every world: order is kept, and trouble ends no other job."""

from __future__ import annotations

from collections import Counter

import pytest

from slotwise.analysis.metrics import Meter
from slotwise.model.decision import Enqueue, Launch
from slotwise.model.event import TaskFailed, TaskFinished
from slotwise.model.job import Job
from worlds.test_flowflex import (
    assert_order_is_kept,
    assert_replays,
    diamond,
    fan,
    line,
    phase,
)
from worlds.test_worlds import Stage, Trouble

every_name = pytest.mark.parametrize(
    "name", ["dmrs", "dmrs-best", "identical-machine", "map-only"]
)


@every_name
def test_jobs_end_in_their_order_whatever_happens(stage: Stage, name: str) -> None:
    """Some come late, a task fails, a slot dies, and a job that always fails is given up.

    All others are done, each task once, and the log explains every decision.
    """
    jobs = [
        diamond("d"), fan("f"), line("bad"),
        line("l", arrival=0.05), diamond("late", arrival=0.1),
    ]  # fmt: skip
    troubles = {
        ("d", "left", 1): Trouble(1),
        ("f", "p3", 0): Trouble(1, kills=True),
        ("bad", "p2", 0): Trouble(99),
    }
    play = stage(jobs, troubles, name=name, attempts_max=2)
    assert play.completed.keys() == {"d", "f", "l", "late"}
    assert play.failed.keys() == {"bad"}
    assert_order_is_kept(play.log, jobs)
    done = Counter((*e.phase, e.task) for e in play.events(TaskFinished))
    assert set(done.values()) == {1}
    assert sum(one[0] != "bad" for one in done) == 7 + 7 + 5 + 7
    assert {e.phase.job for e in play.events(TaskFailed)} == {"d", "f", "bad"}
    assert_replays(play)
    outcome = Meter.of_log(play.log).outcome()
    assert 0 < outcome.bound <= outcome.metrics["value"]


@pytest.mark.parametrize("name", ["dmrs", "dmrs-best"])
def test_the_job_that_weighs_more_for_its_work_runs_first(stage: Stage, name: str) -> None:
    """Both were queued before anything ran, the heavy one before the long one."""
    long = Job("long", (phase("map", 12),))
    heavy = Job("heavy", (phase("map", 4), phase("reduce", 1, "map")), weight=5)
    play = stage([long, heavy], name=name)
    first = next(decision for decision in play.decisions(Enqueue) if decision.jobs[1:])
    assert first.jobs == ("heavy", "long")
    launched = [launch.phase.job for launch in play.decisions(Launch)]
    assert launched[:2] == ["heavy", "heavy"]
    assert play.completed["heavy"] < play.completed["long"]
    assert_replays(play)
