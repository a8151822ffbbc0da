"""Broken gangs: their running tasks are stopped, since all of them are done again together."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.model.decision import Preempt
from slotwise.model.snapshot import Snapshot


def stop_broken(snapshot: Snapshot) -> Sequence[Preempt]:
    """Stop what runs of broken gangs at once, also tasks that have a grace for preemption."""
    return [
        Preempt(a.phase, a.task, a.attempt, a.host)
        for phase in snapshot.broken
        for a in snapshot.attempts_of(phase.job)
        if a.phase == phase
    ]
