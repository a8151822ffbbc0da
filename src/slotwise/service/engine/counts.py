"""What has happened since a server started, as numbers for `/metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from slotwise.core.decisions import Decision, Preempt
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled

WAIT_BOUNDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""The bounds of the histogram of waits, in seconds."""


class WaitHistogram:
    """How long jobs waited for their first task: how many up to each bound, and the sum."""

    def __init__(self) -> None:
        self.counts, self.seconds = [0] * (len(WAIT_BOUNDS) + 1), 0.0

    def add(self, seconds: float) -> None:
        """Count a wait."""
        self.counts[bisect_left(WAIT_BOUNDS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class ServiceCounts:
    """The numbers. Each is changed by one thread only, and others may read it.

    decisions  by kind; `preemptions` by the pool that took the slots, "" for none
    attempts   of tasks, by how they ended
    jobs       that are over, by pool and state; `waits`: of those that have begun, by pool
    requests   by method and status
    """

    decisions: Counter[str] = field(default_factory=Counter)
    preemptions: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: dict[str, WaitHistogram] = field(default_factory=dict)
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)

    def turn(self, events: Iterable[Event], decisions: Iterable[Decision]) -> None:
        """Count what a turn of the loop has brought."""
        for event in events:
            if isinstance(event, TaskFinished):
                self.attempts["done"] += 1
            elif isinstance(event, TaskFailed):
                self.attempts["lost" if event.lost else "failed"] += 1
            elif isinstance(event, TaskKilled):
                self.attempts["stopped"] += 1
        for decision in decisions:
            self.decisions[type(decision).__name__.lower()] += 1
            if isinstance(decision, Preempt):
                self.preemptions[decision.pool or ""] += 1

    def begins(self, pool: str, seconds: float) -> None:
        """Count a job whose first task begins, so long after its submission."""
        self.waits.setdefault(pool, WaitHistogram()).add(max(0.0, seconds))
