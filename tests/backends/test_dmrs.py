"""Queues of hosts on every backend. test_flowflex.py covers failures that end no other job."""

from __future__ import annotations

import pytest

from backends.test_backends import Stage
from backends.test_flowflex import assert_replays, phase
from slotwise.core.decisions import Enqueue, Launch
from slotwise.core.job import Job


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
