"""Explains why tasks wait in the queues of hosts, for policies that plan queues."""

from __future__ import annotations

from slotwise.model.job import PhaseId
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.state import State


def why_queued(state: State, phase: PhaseState) -> str:
    """The queues that hold the pending tasks of a phase, and how many tasks are before them."""
    queues = state.queues
    waiting = []
    for host, queue in queues.by_host.items():
        places = [place for place, (name, _) in enumerate(queue) if name == phase.id]
        if places:
            others = f"behind {_tasks(places[0])}" if places[0] else "first"
            idle = _kept_idle(state, queue[0][0])
            waiting.append(f"{_tasks(len(places))} on {host}, {others}{idle}")
    if not waiting:
        silent = ", ".join(sorted(state.unresponsive)) or "none"
        return f"its tasks are in no queue; unresponsive hosts: {silent}"
    place = queues.jobs.index(phase.job.id) + 1
    return (
        f"its job was placed as number {place} of {len(queues.jobs)}, and its tasks wait in"
        f" queues: {'; '.join(waiting)}"
    )


def _kept_idle(state: State, first: PhaseId) -> str:
    """The phases that the first task of a queue waits for; empty if it only needs a slot."""
    waits_for = state.phase(first).waits_for
    if not waits_for:
        return ""
    return (
        f" (next is {first.job}/{first.phase}, which waits for {', '.join(sorted(waits_for))})"
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
