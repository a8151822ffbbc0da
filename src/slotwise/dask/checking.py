"""Checks that the tables of the gate agree with Dask's tables and with slotwise's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from slotwise.core.job import PhaseId
from slotwise.core.state import State
from slotwise.dask.computations import Computations
from slotwise.dask.holding import HELD, Restricted, TaskHolds

STATES: Mapping[str, Collection[str]] = {
    "blocked": ("waiting", "no-worker"),
    "deferred": ("no-worker",),
    "runnable": ("no-worker",),
    "running": ("processing",),
}
"""The possible states of a task in Dask, by its status in the gate."""


def check(
    scheduler: Any,
    holding: TaskHolds,
    computations: Computations,
    state: State,
    restricted: Restricted,
) -> None:
    """Assert that all tables agree after a turn. O(tasks); for `Scheduler(validate=True)`.

    Keys that have changed since the turn may differ until the next one.
    """
    news = computations.pending_keys
    _check_held(scheduler, holding, computations)
    counts: dict[PhaseId, Counter[str]] = {}
    stale = set()
    for key, task in computations.tasks.items():
        counts.setdefault(task.phase, Counter())[task.status] += 1
        assert computations.alive[task.phase.job].keys[task.phase.phase][task.number] == key
        if key in news:
            stale.add(task.phase)
        elif task.status in STATES:
            one = scheduler.tasks[key]
            assert one.state in STATES[task.status], (key, task.status, one.state)
            if task.status == "running":
                assert one not in one.processing_on.long_running, "it has seceded"
            else:
                assert key in holding, "what waits is held"
            if task.status == "blocked" and one.state == "no-worker":
                assert restricted.is_parked(key), "the worker that it may use is busy"
    assert computations.running == sum(count["running"] for count in counts.values())
    for name, computation in computations.alive.items():
        phases = [PhaseId(name, prefix) for prefix in computation.keys]
        known = [counts.get(phase, Counter()) for phase in phases]
        left = sum(count.total() - count["done"] for count in known)
        if stale.isdisjoint(phases):
            assert computation.left == left, "tasks of a computation are counted"
            assert computation.running == sum(count["running"] for count in known)
            frontier = computation.frontier
            assert frontier.deferred == sum(count["deferred"] for count in known)
            assert frontier.offered == sum(count["runnable"] for count in known)
            assert computations.offers_enough(name), "no slot is free for a deferred task"
    _check_state(state, computations, counts, stale)


def _check_held(scheduler: Any, holding: TaskHolds, computations: Computations) -> None:
    """Assert that all held tasks are known to Dask, and runnable ones also to slotwise."""
    for key, task in scheduler.tasks.items():
        needs = task.resource_restrictions or {}
        assert (HELD in needs) == (key in holding), (key, task.state)
        if key in holding:
            assert task.state not in ("processing", "queued", "memory"), (key, task.state)
            assert task.state != "no-worker" or computations.knows(key), key
    assert all(key in scheduler.tasks for key in holding), "forgotten tasks are not held"
    assert all(key in scheduler.tasks for key in holding.exempted)
    assert all(key in scheduler.tasks for key in computations.submitters)


def _check_state(
    state: State,
    computations: Computations,
    counts: Mapping[PhaseId, Counter[str]],
    stale: Collection[PhaseId],
) -> None:
    """Assert that the state has the jobs that are alive, with the same numbers of tasks."""
    state.check()
    jobs = {phases[0].job.id for phases in state.jobs_left()} | {*state.awaiting_admission}
    assert jobs == computations.alive.keys(), jobs ^ computations.alive.keys()
    for phase in (phase for job in jobs for phase in state.phases_of(job)):
        if phase.id not in stale:
            count = counts.get(phase.id, Counter())
            found = phase.pending, phase.blocked, phase.running
            blocked = count["blocked"] + count["deferred"]
            assert found == (count["runnable"], blocked, count["running"]), phase.id
