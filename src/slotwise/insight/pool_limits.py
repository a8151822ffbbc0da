"""Limits of pools on resources beside slots, in words: what is held, and by which jobs."""

from __future__ import annotations

from collections import Counter

from slotwise.core.phase_state import PhaseState
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import amount_text
from slotwise.core.state import State


def limit_reached(phase: PhaseState) -> ResourceLimit | None:
    """The innermost limit without room for one more task of a phase, or for its gang."""
    limits = phase.resource_limits
    return next((one for one in limits if one.slots_for(phase) < phase.unit), None)


def holders_of(state: State, limit: ResourceLimit) -> list[str]:
    """The jobs that hold the resource of a limit, the most first. O(running tasks)."""
    held: Counter[str] = Counter()
    for phases in state.jobs_left():
        for phase in phases:
            for launch, *_ in phase.launches.values() if limit in phase.resource_limits else ():
                held[phase.id.job] += phase.held(launch).get(limit.name, 0)
    return [job for job, amount in held.most_common() if amount]


def room_left(limit: ResourceLimit) -> str:
    """What of a limit is held: "holds memory 6 GiB of at most 8 GiB"."""
    held, most = (amount_text(limit.name, one) for one in (limit.held, limit.most))
    return f"{limit.name} {held} of at most {most}"


def larger(limit: ResourceLimit, phase: PhaseState) -> str:
    """The limit with which one more task of a phase, or its gang, would begin."""
    most = amount_text(limit.name, limit.held + limit.taken_by(phase))
    return f"resources_max {{{limit.name}: {most}}} of pool {limit.pool!r}"
