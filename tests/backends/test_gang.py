"""Phases whose tasks start together, on every backend."""

from __future__ import annotations

from collections import Counter

import pytest

from backends.test_backends import WORK, Stage, Trouble
from slotwise.core.decisions import Launch, Preempt
from slotwise.core.events import OutputLost, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log

GANG = PhaseId("gang", "p")


def gang(count: int, work: float | tuple[float, ...] = WORK, slots: int = 1) -> Job:
    """A job of one gang."""
    return Job("gang", (Phase("p", Tasks(count, work), slots=slots, gang=True),))


def narrow(count: int, work: float = WORK) -> Job:
    """A job of tasks of one slot each."""
    return Job("narrow", (Phase("p", Tasks(count, work)),))


def starts_of(log: Log, phase: PhaseId) -> list[list[tuple[int, int]]]:
    """For each turn in which tasks of a phase were launched, these and their attempts."""
    launches = [
        [
            (d.task, d.attempt)
            for d in turn.decisions
            if isinstance(d, Launch) and d.phase == phase
        ]
        for turn in log.turns
    ]
    return [found for found in launches if found]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
def test_all_tasks_start_in_one_turn(stage: Stage, name: str) -> None:
    """Three tasks wait for three slots at once, beside narrow tasks."""
    play = stage([narrow(9), gang(3)], name=name, slots=3)
    assert play.completed.keys() == {"narrow", "gang"}
    assert starts_of(play.log, GANG) == [[(0, 1), (1, 1), (2, 1)]]
    assert replay_log(play.log).is_identical


def test_each_task_may_occupy_several_slots(stage: Stage) -> None:
    """Two tasks of two slots each hold all four slots."""
    play = stage([narrow(4), gang(2, slots=2)], slots=4)
    assert play.completed.keys() == {"narrow", "gang"}
    assert starts_of(play.log, GANG) == [[(0, 1), (1, 1)]]


def test_the_failure_of_one_task_restarts_all(stage: Stage) -> None:
    """The running task, which would take ten minutes, is stopped; then both start again."""
    jobs = [gang(2, (WORK, 600.0)), narrow(3)]
    play = stage(jobs, {("gang", "p", 0): Trouble(9)}, slots=3, attempts_max=2)
    assert starts_of(play.log, GANG) == [[(0, 1), (1, 1)], [(0, 2), (1, 2)]]
    assert play.log.turns[-1].now < 600.0
    assert play.failed.keys() == {"gang"}
    assert "no luck, 2" in play.failed["gang"]
    assert play.completed.keys() == {"narrow"}
    stopped = [(d.task, d.attempt, d.until) for d in play.decisions(Preempt)]
    assert stopped == [(1, 1, None), (1, 2, None)]
    assert [(e.task, e.attempt) for e in play.events(TaskKilled)] == [(1, 1), (1, 2)]
    assert replay_log(play.log).is_identical


def test_done_tasks_are_done_again(stage: Stage) -> None:
    """If others are done when one task fails, they run once more; no result counts twice."""
    play = stage([gang(3, (WORK, WORK, 0.5))], {("gang", "p", 2): Trouble(1)}, slots=3)
    assert play.completed.keys() == {"gang"}
    assert [f.task for f in play.events(TaskFailed)] == [2]
    assert starts_of(play.log, GANG) == [[(t, 1) for t in range(3)], [(t, 2) for t in range(3)]]
    undone = Counter(task for lost in play.events(OutputLost) for task in lost.tasks)
    done = Counter(e.task for e in play.events(TaskFinished))
    assert done - undone == {0: 1, 1: 1, 2: 1}
    if play.begun is not None:
        assert play.begun["gang", "p", 2] == 2
        assert max(play.begun.values()) == 2
        assert play.results["gang"] == {"p": {0: 0, 1: 1, 2: 4}}
    outcome = MetricsCollector.of_log(play.log).outcome()
    assert outcome.bound <= outcome.metrics["value"]
    assert replay_log(play.log).is_identical


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kills", [False, True])
def test_a_failed_start_counts_once(stage: Stage, kills: bool) -> None:
    """Both tasks fail once; a task that is stopped before it begins fails one start later."""
    troubles = {("gang", "p", task): Trouble(1, kills) for task in range(2)}
    play = stage([gang(2)], troubles, slots=2, attempts_max=3)
    assert play.completed.keys() == {"gang"}
    assert len(starts_of(play.log, GANG)) in (2, 3)


def test_what_waits_for_a_gang_begins_when_all_of_it_is_done(stage: Stage) -> None:
    """A gang that restarts is complete once, and then its follower runs."""
    job = Job(
        "gang",
        (
            Phase("p", Tasks(2, WORK), gang=True),
            Phase("q", Tasks(2, WORK), after="p"),
        ),
    )
    play = stage([job], {("gang", "p", 1): Trouble(2)}, slots=2)
    assert play.completed.keys() == {"gang"}
    last = max(e.at for e in play.events(TaskFinished) if e.phase == GANG)
    begun = [
        turn.now
        for turn in play.log.turns
        for d in turn.decisions
        if isinstance(d, Launch) and d.phase.phase == "q"
    ]
    assert len(begun) == 2
    assert min(begun) >= last


def test_two_gangs_that_do_not_fit_together_take_turns(stage: Stage) -> None:
    """Each needs two of three slots: no deadlock, and each starts once."""
    one, other = gang(2), Job("other", (Phase("p", Tasks(2, WORK), gang=True),))
    play = stage([one, other, narrow(5)], slots=3)
    assert play.completed.keys() == {"gang", "other", "narrow"}
    assert len(starts_of(play.log, GANG)) == 1
    assert len(starts_of(play.log, PhaseId("other", "p"))) == 1
