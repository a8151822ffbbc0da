"""Giving up: a job that cannot succeed any more ends, and what runs of it is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.model.decision import Decision, GiveUp, Preempt
from slotwise.model.snapshot import Snapshot


def give_up(snapshot: Snapshot) -> Sequence[Decision]:
    """End one of the jobs that are doomed. O(its running tasks)."""
    job, reason = next(iter(snapshot.doomed.items()))
    stops = [Preempt(a.phase, a.task, a.attempt, a.host) for a in snapshot.attempts_of(job)]
    return [GiveUp(job, reason), *stops]
