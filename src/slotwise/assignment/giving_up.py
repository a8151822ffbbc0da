"""Giving up: a job that can no longer succeed ends, and its running tasks are stopped."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.model.decision import Decision, GiveUp, Preempt
from slotwise.model.snapshot import Snapshot


def give_up(snapshot: Snapshot) -> Sequence[Decision]:
    """End one of the doomed jobs; there must be one. O(its running tasks)."""
    job, reason = next(iter(snapshot.doomed.items()))
    stops = [Preempt(a.phase, a.task, a.attempt, a.host) for a in snapshot.attempts_of(job)]
    return [GiveUp(job, reason), *stops]
