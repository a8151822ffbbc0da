"""The state of a run: late and repeated messages, failures, waits, and cleanup."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Defer, GiveUp, Launch, Locality, Reallocate
from slotwise.core.events import (
    Event,
    JobArrived,
    JobsClosed,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State

MAP, REDUCE = PhaseId("j", "map"), PhaseId("j", "reduce")


def launch(task: int, attempt: int = 1, phase: PhaseId = MAP) -> Launch:
    """An attempt on the only host."""
    return Launch(phase, task, attempt, "h", Locality.NODE)


@pytest.fixture
def state() -> State:
    """Two slots, a job of two maps and a reduce, allocated both slots, at time 0."""
    state = State(Cluster.of_slots(2, "h"), attempts_max=2, losses_max=3)
    phases = (
        Phase("map", Tasks(2, 1.0)),
        Phase("reduce", Tasks(1, 1.0), after=frozenset({"map"})),
    )
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", phases)))
    state.apply(JobsClosed(0.0))
    state.apply(Reallocate({MAP: 2.0}, until=0.5))
    return state


def summary(state: State) -> tuple[object, ...]:
    """The parts of the state that an event can change."""
    phases = [
        (phase.id, phase.pending, phase.running, phase.done, phase.work_left(state.now))
        for phase in state.ready("task")
    ]
    return (
        phases,
        dict(state.free("task")),
        state.completed.copy(),
        state.failed.copy(),
        state.doomed.copy(),
        state.is_stale,
        state.is_done,
    )


def test_tasks_run_reduces_become_ready_and_the_job_completes(state: State) -> None:
    """Two maps, then the reduce, then the job is over and removed."""
    for task in (0, 1):
        state.apply(launch(task))
    state.check()
    assert state.free("task") == {}
    state.at(1.0)
    for task in (0, 1):
        state.apply(TaskFinished(1.0, MAP, task, 1, 1.0))
        state.check()
    assert state.is_stale
    assert [phase.id for phase in state.ready("task")] == [REDUCE]
    assert list(state.freed("task")) == ["h", "h"]
    state.apply(launch(0, phase=REDUCE))
    state.at(2.0)
    assert list(state.freed("task")) == []
    state.apply(TaskFinished(2.0, REDUCE, 0, 1, 1.0))
    state.check()
    assert state.completed == {"j": 2.0}
    assert state.is_done
    assert list(state.ready("task")) == []


@pytest.mark.parametrize(
    "late",
    [
        TaskFinished(2.0, MAP, 0, 1, 9.0),
        TaskFailed(2.0, MAP, 0, 1, "late"),
        TaskFailed(2.0, MAP, 0, 1, "late", lost=True),
        TaskKilled(2.0, MAP, 0, 1),
        TaskFinished(2.0, MAP, 1, 2, 9.0),  # an attempt that never was
        TaskFinished(2.0, REDUCE, 0, 1, 9.0),  # a phase that has not begun
        TaskFinished(2.0, PhaseId("k", "map"), 0, 1, 9.0),  # a job that is not there
    ],
)
def test_late_and_repeated_messages_change_nothing(state: State, late: Event) -> None:
    """Later events of an attempt that is over are ignored."""
    state.apply(launch(0))
    state.apply(launch(1))
    state.at(1.0)
    state.apply(TaskFinished(1.0, MAP, 0, 1, 1.0))
    state.at(2.0)
    before = summary(state)
    for _ in range(3):
        state.apply(late)
        state.check()
    assert summary(state) == before


def test_messages_of_an_earlier_attempt_do_not_end_a_later_one(state: State) -> None:
    """The first attempt failed; a late report that it finished does not finish the second."""
    state.apply(launch(0))
    state.apply(TaskFailed(0.0, MAP, 0, 1, "it broke"))
    state.apply(launch(0, attempt=2))
    before = summary(state)
    state.apply(TaskFinished(0.0, MAP, 0, 1, 5.0))
    assert summary(state) == before


def test_a_failure_that_no_further_attempt_can_mend_dooms_the_job_at_once(
    state: State,
) -> None:
    """Its input has changed: the first of two attempts is the last."""
    state.apply(launch(0))
    state.apply(TaskFailed(0.0, MAP, 0, 1, "it changed", final=True))
    state.check()
    assert state.doomed == {"j": "it changed"}


def test_a_task_that_fails_too_often_dooms_its_job(state: State) -> None:
    """The second of two attempts fails: the job is doomed, until it is given up."""
    for attempt in (1, 2):
        assert not state.doomed
        state.apply(launch(0, attempt))
        state.apply(TaskFailed(0.0, MAP, 0, attempt, f"it broke, {attempt}"))
    assert state.doomed == {"j": "it broke, 2"}
    state.apply(launch(1))
    assert state.attempts_of("j") == [launch(1)]
    state.apply(GiveUp("j", "it broke, 2"))
    state.check()
    assert state.failed == {"j": "it broke, 2"}
    assert not state.doomed
    assert not state.is_done, "one attempt still holds a slot"
    assert list(state.backlogged("task")) == []
    state.apply(TaskKilled(0.0, MAP, 1, 1))
    state.check()
    assert state.is_done
    assert state.free("task") == {"h": 2}


def test_lost_slots_are_counted_apart_from_failures(state: State) -> None:
    """Of two attempts and three losses, a failure and two losses are still no reason."""
    for attempt, lost in ((1, True), (2, False), (3, True)):
        state.apply(launch(0, attempt))
        state.apply(TaskFailed(0.0, MAP, 0, attempt, "gone", lost))
        assert not state.doomed
    state.apply(launch(0, 4))
    state.apply(TaskFailed(0.0, MAP, 0, 4, "gone", lost=True))
    assert state.doomed == {"j": "gone"}


def test_killed_attempts_are_no_failures(state: State) -> None:
    """A task may be stopped as often as the scheduler likes."""
    for attempt in range(1, 20):
        state.apply(launch(0, attempt))
        state.apply(TaskKilled(0.0, MAP, 0, attempt))
        state.check()
    assert not state.doomed


def test_a_returned_task_is_launched_next(state: State) -> None:
    """Task 0 comes back: it goes before task 1, as attempt 2."""
    (phase,) = state.ready("task")
    assert phase.next_task() == (0, 1)
    state.apply(launch(0))
    assert phase.next_task() == (1, 1)
    state.apply(TaskFailed(0.0, MAP, 0, 1, "it broke"))
    assert phase.next_task() == (0, 2)


def test_the_state_wakes_up_for_waits_and_epochs(state: State) -> None:
    """The nearest of a wait and the end of the epoch; a launch ends the wait."""
    state.apply(launch(0))
    assert state.next_wakeup() == 0.5
    state.apply(Defer(MAP, 0.0, 0.25))
    assert state.next_wakeup() == 0.25
    state.apply(launch(1))
    assert state.next_wakeup() == 0.5
    state.at(0.5)
    assert state.next_wakeup() is None, "the epoch has ended, and was asked for already"


def test_without_changes_no_epoch_is_needed(state: State) -> None:
    """As long as nothing was applied since the allocation, there is no wake-up."""
    assert state.next_wakeup() is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Reallocate({}, until=0.0), "every epoch ends in the future"),
        (Defer(MAP, 0.0, 0.0), "every wake lies ahead"),
        (launch(0, attempt=2), "attempts are numbered in order"),
    ],
)
def test_impossible_decisions_stop_the_run(
    state: State, wrong: Reallocate | Defer | Launch, reason: str
) -> None:
    """They are bugs of a scheduler."""
    with pytest.raises(AssertionError, match=reason):
        state.apply(wrong)


def test_limits_are_asserted_at_every_launch() -> None:
    """Neither its own max share nor that of its pool may be exceeded."""
    for limits, pool_most in ((1, {}), (None, {"task": 1})):
        state = State(Cluster.of_slots(4, "h"), [Pool("p", slots_max=pool_most)])
        state.at(0.0)
        phase = Phase("map", Tasks(3, 1.0), slots_max=limits)
        state.apply(JobArrived(0.0, Job("j", (phase,), pool="p")))
        state.apply(launch(0))
        with pytest.raises(AssertionError, match="no share is exceeded"):
            state.apply(launch(1))


def test_time_never_goes_back(state: State) -> None:
    """A snapshot of an earlier instant is a bug."""
    state.at(3.0)
    with pytest.raises(AssertionError, match="time never runs back"):
        state.at(2.0)
