"""Why a gang does not start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import path_to
from slotwise.runtime.state import State


def why_gang_waits(state: State, phase: PhaseState) -> str:
    """The first reason that keeps the pending tasks of a gang from starting; empty if none."""
    count, kind = phase.pending, phase.slot_kind
    if phase.running:
        return (
            "an attempt of its gang has ended without a result: its running tasks are stopped,"
            " then all of them start again together"
        )
    if (most := places_in_all(state, phase)) < count:
        return (
            f"the {count} tasks of its gang start together, and the hosts that can begin tasks"
            f" now have slots for {most} of them"
        )
    for pool in path_to(phase.pool):
        if pool.room < phase.unit:
            return (
                f"the tasks of its gang hold {phase.unit} slots together, and pool"
                f" {pool.name!r} may hold {max(0, int(pool.room))} more"
            )
    free = _places(phase, state.free(kind).values())
    if free >= count:
        return ""
    since = phase.deferred_since
    begun = "it waits" if since is None else f"it has waited since {since:.6g} s"
    each = "" if phase.width == 1 else f", {phase.width} on one host for each task"
    return (
        f"{begun} for {phase.unit} free slots on the hosts together{each}; there are free slots"
        f" for {free} of the {count} tasks of its gang"
    )


def places_in_all(state: State, phase: PhaseState) -> int:
    """How many tasks of a gang could run at once on the hosts that can begin tasks now."""
    hosts = (host for host in state.cluster.hosts if host.name not in state.lost)
    return _places(phase, (host.slots.get(phase.slot_kind, 0) for host in hosts))


def lacks_slots(phase: PhaseState, free: Mapping[str, int]) -> bool:
    """Whether hosts with these free slots have no room for all pending tasks of a gang."""
    return _places(phase, free.values()) < phase.pending


def _places(phase: PhaseState, slots: Iterable[int]) -> int:
    return sum(count // phase.width for count in slots)
