"""The state when a gang breaks: what is pending again, what counts, what is stopped."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import (
    Event,
    JobArrived,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.state import State

GANG, NEXT = PhaseId("j", "gang"), PhaseId("j", "next")
JOB = Job("j", (Phase("gang", Tasks(3, 1.0), gang=True), Phase("next", Tasks(1), after="gang")))


class Stage:
    """A state in which a gang of three tasks runs."""

    def __init__(self, **limits: int) -> None:
        self.state = State(Cluster.of_slots(3), **limits)
        self.apply(JobArrived(0.0, JOB))
        self.start(1)

    def start(self, attempt: int) -> None:
        """Launch all tasks."""
        for task in range(3):
            launch = Launch(GANG, task, attempt, "cluster", Locality.NODE)
            assert self.state.phase(GANG).attempt_of(task) == attempt
            self.state.apply(launch)
        self.state.check()

    def apply(self, *events: Event) -> None:
        """Apply events in a turn."""
        self.state.at(self.state.now)
        for event in events:
            self.state.apply(event)
            self.state.check()

    def counts(self) -> tuple[int, int, int]:
        """The pending, running and done tasks of the gang."""
        gang = self.state.phase(GANG)
        return gang.pending, gang.running, gang.done


def finished(task: int, attempt: int = 1) -> TaskFinished:
    """A task has succeeded."""
    return TaskFinished(0.0, GANG, task, attempt, 1.0)


def failed(task: int, attempt: int = 1, lost: bool = False) -> TaskFailed:
    """A task has failed."""
    return TaskFailed(0.0, GANG, task, attempt, "broke", lost)


@pytest.mark.parametrize(
    "end", [failed(1), failed(1, lost=True), TaskKilled(0.0, GANG, 1, 1, 0.5)]
)
def test_done_tasks_are_pending_again(end: Event) -> None:
    """The running task is to be stopped; when it ends, the gang has its next attempt."""
    stage = Stage()
    stage.apply(finished(0), end)
    assert stage.counts() == (2, 1, 0)
    assert not stage.state.phase(GANG).may_launch
    assert list(stage.state.broken) == [GANG]
    stage.state.apply(Preempt(GANG, 2, 1, "cluster"))
    assert not stage.state.broken
    stage.apply(TaskKilled(0.0, GANG, 2, 1))
    assert stage.counts() == (3, 0, 0)
    stage.start(2)


def test_what_a_broken_gang_still_finishes_does_not_count() -> None:
    """It counts as killed, whatever the backend says."""
    stage = Stage()
    stage.apply(failed(0), finished(1), finished(2))
    assert stage.counts() == (3, 0, 0)
    assert not stage.state.broken
    stage.start(2)


def test_a_failed_start_counts_once() -> None:
    """Two attempts are allowed: all three tasks may fail in the first one, one in the next."""
    stage = Stage(attempts_max=2)
    stage.apply(failed(0), failed(1), failed(2))
    assert not stage.state.doomed
    stage.start(2)
    stage.apply(failed(2, attempt=2))
    assert stage.state.doomed == {"j": "broke"}


def test_a_lost_slot_counts_as_a_loss() -> None:
    """Failures and losses are counted apart; the first report of a start tells which."""
    stage = Stage(attempts_max=1, losses_max=2)
    stage.apply(failed(0, lost=True), failed(1))
    stage.apply(TaskKilled(0.0, GANG, 2, 1))
    assert not stage.state.doomed
    stage.start(2)
    stage.apply(failed(0, attempt=2, lost=True))
    assert stage.state.doomed == {"j": "broke"}


def test_lost_output_of_one_task_undoes_all() -> None:
    """The phase behind waits again; the loss counts once."""
    stage = Stage(losses_max=2)
    stage.apply(finished(0), finished(1), finished(2))
    assert stage.state.phase(NEXT).is_ready
    stage.apply(OutputLost(0.0, GANG, (1,)))
    assert stage.counts() == (3, 0, 0)
    assert not stage.state.phase(NEXT).is_ready
    assert not stage.state.doomed
    stage.start(2)
    stage.apply(*(finished(task, attempt=2) for task in range(3)))
    stage.apply(OutputLost(0.0, GANG, (0, 1, 2)))
    assert "the output of gang gang was lost" in stage.state.doomed["j"]


def test_lost_output_stops_what_still_runs() -> None:
    """One task is done and loses its output while the others run."""
    stage = Stage()
    stage.apply(finished(0), OutputLost(0.0, GANG, (0,)))
    assert stage.counts() == (1, 2, 0)
    assert list(stage.state.broken) == [GANG]


def test_a_report_of_what_is_undone_already_has_no_effect() -> None:
    """Backends report the output of a broken gang as lost, for those who read the log."""
    stage = Stage(losses_max=1)
    stage.apply(finished(0), failed(1), OutputLost(0.0, GANG, (0,)))
    assert stage.counts() == (2, 1, 0)
    assert not stage.state.doomed
