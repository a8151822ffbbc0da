"""The jobs of a real backend: those known at the start, and those that threads add later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from math import inf

from slotwise.model.event import JobCancelled, JobsClosed
from slotwise.programs.execution import Execution

Request = JobCancelled | JobsClosed
"""What another thread may ask for, besides a job: an event as it stands."""


class Arrivals:
    """What arrives at a backend, in order: jobs at their arrival, requests when they are put.

    Unless it `is_open`, `JobsClosed` follows the last job. `put` may be called from any thread;
    all else belongs to the thread of the loop.
    """

    def __init__(self, executions: Iterable[Execution], *, is_open: bool) -> None:
        self._given = deque(sorted(executions, key=lambda execution: execution.job.arrival))
        self._is_open = is_open
        self._has_closed = False
        self._inbox: deque[Execution | Request] = deque()

    @property
    def next_at(self) -> float:
        """When the next arrival is due, as far as known."""
        if self._given:
            return self._given[0].job.arrival
        return inf if self._is_open or self._has_closed else -inf

    def put(self, entry: Execution | Request) -> None:
        """Add a job that arrives now, or a request."""
        assert self._is_open, "only an open backend hears of jobs later"
        self._inbox.append(entry)

    def take(self, now: float) -> Iterator[Execution | Request]:
        """What has arrived by now and was not taken before."""
        while self._given and self._given[0].job.arrival <= now:
            yield self._given.popleft()
        if not (self._given or self._is_open or self._has_closed):
            self._has_closed = True
            yield JobsClosed(now)
        while self._inbox:
            yield self._inbox.popleft()
