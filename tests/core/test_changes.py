"""Phases that come and leave among many, in the state."""

from __future__ import annotations

import pytest

from slotwise.core.changes import SLIGHT
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Adjust, GiveUp, Launch, Locality, Reallocate
from slotwise.core.events import (
    JobArrived,
    JobCancelled,
    TaskFinished,
    TasksBlocked,
    TasksRunnable,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.state import State

FIRST, SECOND = PhaseId("j", "first"), PhaseId("j", "second")
SHARE = 0.01


def a_state(first: Phase, *others: Phase) -> State:
    """Many ready phases with equal shares of four slots; the first is that of job `j`."""
    state = State(Cluster.of_slots(4))
    state.at(0.0)
    state.apply(JobArrived(0.0, Job("j", (first, *others))))
    if first.gated:
        state.apply(TasksRunnable(0.0, FIRST, (0,)))
    for number in range(5 * SLIGHT):
        state.apply(JobArrived(0.0, Job(f"k{number}", (Phase("work", Tasks(2, 1.0)),))))
    slots = {phase.id: SHARE for phase in state.ready("task")}
    state.apply(Reallocate(slots, until=0.5))
    return state


def allocated(state: State) -> float:
    """The slots allocated to the pool, which must be those of its phases."""
    ready = list(state.ready("task"))
    pool = ready[0].pool.allocated
    assert pool == pytest.approx(sum(phase.allocated for phase in ready))
    return pool


def test_a_phase_that_has_left_takes_no_slots_with_it_again() -> None:
    """A phase is done, and later its job is cancelled."""
    after = Phase("second", Tasks(1, 1.0), after=frozenset({"first"}))
    state = a_state(Phase("first", Tasks(1, 1.0)), after)
    [host] = state.free("task")
    state.apply(Launch(FIRST, 0, 1, host, Locality.ANY))
    before = allocated(state)
    state.at(1.0)
    state.apply(TaskFinished(1.0, FIRST, 0, 1, 1.0))
    state.apply(Adjust({FIRST: 0.0, SECOND: SHARE}, until=1.5))
    assert allocated(state) == pytest.approx(before)
    state.apply(JobCancelled(1.0, "j"))
    state.apply(GiveUp("j", "cancelled"))
    assert [*state.changes.ended] == [SECOND]
    state.apply(Adjust({SECOND: 0.0}, until=1.5))
    assert allocated(state) == pytest.approx(before - SHARE)


def test_a_phase_that_comes_back_gets_slots_anew() -> None:
    """Its only task became blocked; meanwhile its slots were taken from its pool."""
    state = a_state(Phase("first", Tasks(1, 1.0), gated=True))
    before = allocated(state)
    state.apply(TasksBlocked(0.0, FIRST, (0,)))
    state.apply(Adjust({FIRST: 0.0}, until=0.5))
    assert allocated(state) == pytest.approx(before - SHARE)
    state.apply(TasksRunnable(0.0, FIRST, (0,)))
    assert state.phase(FIRST).allocated == 0
    state.apply(Adjust({FIRST: SHARE}, until=0.5))
    assert allocated(state) == pytest.approx(before)
