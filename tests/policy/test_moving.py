"""Moves: tasks that read from another host start again beside their input.

Three hosts with one slot each: h1 and h2 in rack r1, h3 in rack r2.
"""

from __future__ import annotations

import pytest

from policy.test_assigners import A, B, decide, job, occupy, state_of
from policy.test_flow import sized
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.events import TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool
from slotwise.core.state import State
from slotwise.policy.assignment.flow import Flow

pytest.importorskip("ortools")

BUSY = PhaseId("busy", "map")


def remote_on_h2(*jobs: Job, pools: tuple[Pool, ...] = ()) -> State:
    """A task of job a reads from h1 on h2 since 0; h1 becomes free at 1, h3 stays busy."""
    state = state_of(job("busy", count=2), job("a", "h1"), *jobs, pools=pools)
    occupy(state, "h1", "h3")
    state.apply(Launch(A, 0, 1, "h2", Locality.RACK))
    state.at(1.0)
    state.apply(TaskFinished(1.0, BUSY, 0, 1, 1.0))
    return state


def test_a_task_moves_to_its_input() -> None:
    """It is stopped, and its next attempt runs beside its input."""
    state = remote_on_h2()
    assert decide(state, Flow(move_within=5.0)) == [Preempt(A, 0, 1, "h2")]
    state.apply(TaskKilled(1.0, A, 0, 1))
    assert decide(state, Flow(move_within=5.0)) == [Launch(A, 0, 2, "h1", Locality.NODE)]


def test_a_task_stays_after_its_time() -> None:
    """And always without the option."""
    assert decide(remote_on_h2(), Flow(move_within=1.0)) == []
    assert decide(remote_on_h2(), Flow()) == []


def test_a_task_moves_once() -> None:
    """A later attempt stays, so a task cannot be stopped again and again."""
    state = state_of(job("busy"), job("a", "h1"))
    occupy(state, "h1")
    state.apply(Launch(A, 0, 1, "h2", Locality.RACK))
    state.apply(Preempt(A, 0, 1, "h2"))
    state.apply(TaskKilled(0.0, A, 0, 1))
    state.apply(Launch(A, 0, 2, "h3", Locality.ANY))
    state.at(1.0)
    state.apply(TaskFinished(1.0, BUSY, 0, 1, 1.0))
    assert decide(state, Flow(move_within=5.0)) == []


def test_pending_tasks_get_the_slot_first() -> None:
    """Job b takes h1, although its input is nowhere."""
    state = remote_on_h2(job("b"))
    assert decide(state, Flow(move_within=5.0)) == [Launch(B, 0, 1, "h1", Locality.NODE)]


def test_tasks_of_limited_pools_stay() -> None:
    """Another job may wait for the slots that they hold."""
    state = remote_on_h2(pools=(Pool("default", slots_max=3),))
    assert decide(state, Flow(move_within=5.0)) == []


def test_the_largest_input_moves() -> None:
    """Two tasks could move to the slot of h1, and both have run for one second."""
    state = state_of(job("busy"), *(sized(name, size) for name, size in (("a", 5), ("b", 9))))
    occupy(state, "h1")
    state.apply(Launch(A, 0, 1, "h2", Locality.RACK))
    state.apply(Launch(B, 0, 1, "h3", Locality.ANY))
    state.at(1.0)
    state.apply(TaskFinished(1.0, BUSY, 0, 1, 1.0))
    assert decide(state, Flow(move_within=5.0)) == [Preempt(B, 0, 1, "h3")]


def test_as_many_move_as_can() -> None:
    """The task that could go to either free host leaves h1 to the one that cannot."""
    both, one = Block(frozenset({"h1", "h2"})), Block(frozenset({"h1"}))
    slots_on_lost_hosts = Job("a", (Phase("map", Tasks(2, 1.0, (both, one))),))
    state = state_of(job("busy", count=2), slots_on_lost_hosts, hosts=("h1", "h2", "h3", "h4"))
    occupy(state, "h1", "h2")
    state.apply(Launch(A, 0, 1, "h3", Locality.ANY))
    state.apply(Launch(A, 1, 1, "h4", Locality.ANY))
    state.at(1.0)
    for task in 0, 1:
        state.apply(TaskFinished(1.0, BUSY, task, 1, 1.0))
    stopped = decide(state, Flow(move_within=5.0))
    assert {(d.task, d.host) for d in stopped if isinstance(d, Preempt)} == {
        (0, "h3"),
        (1, "h4"),
    }
