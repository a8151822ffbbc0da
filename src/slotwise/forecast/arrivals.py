"""Later arrivals: those of the past, replayed from now on.

Each course repeats the arrivals that followed another instant of the past: at the same time of
another day where some days are known, else at any instant. Without them, more jobs start later
than forecast (21 % instead of 15 % of those of KTH-SP2 under EASY).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import ceil, floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slotwise.core.resources import Resources
from slotwise.forecast.situation import JobNow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEPT = 20_000
"""How many phases of the last arrivals are kept."""

DAY = 86_400.0
"""Seconds."""

DAYS_MAX, DAYS_MIN = 60, 3
"""How many days back arrivals are repeated from, and from how many known days on at the same
time of the day."""

HISTORY_MIN = 20
"""With fewer arrivals none are repeated."""

LAPS_MAX = 50
"""How often the same arrivals are repeated at most."""

BATCHES = 16
"""The most tasks of a phase that are simulated; more are simulated in batches."""

FLOATS = ("at", "seconds", "width", "weight", "priority", "patience", "size")
INTS = ("job", "pending", "batch", "room", "pool", "takes", "waits")


@cache
def _part(course: int) -> float:
    """A random number from 0 to 1 for each course."""
    return float(np.random.default_rng([course, 2]).random())


class ReplayedRows(NamedTuple):
    """Rows of past arrivals that follow each other, and by how much later they come again."""

    first: int
    last: int
    shift: float


class PastArrivals:
    """The phases of the jobs that arrived, in columns. `note` takes O(phases), amortized.

    at        when its job arrived
    seconds   of a task: as measured, or as estimated until its job is over
    patience  seconds from the arrival to the deadline
    size      estimated slot-seconds of its job
    job       a number of its job; phases of a job follow each other
    pool, takes  places in `pools`, and in `requests`
    waits     the phases that it waits for; `successors` has those that wait for it, as
              distances
    """

    def __init__(self) -> None:
        self.pools: dict[str, int] = {}
        self.requests: dict[Resources, int] = {}
        self.floats: dict[str, Floats] = {name: np.zeros(64) for name in FLOATS}
        self.ints: dict[str, Ints] = {name: np.zeros(64, np.int64) for name in INTS}
        self.successors: list[tuple[int, ...]] = []
        self.has_links = False
        self._count = self._jobs = 0
        self._open: dict[str, dict[str, int]] = {}

    def note(self, job: JobNow) -> None:
        """A job has arrived, later than all before it."""
        if self._count + len(job.phases) > len(self.floats["at"]):
            self._make_room(len(job.phases))
        rows = {phase.name: self._count + k for k, phase in enumerate(job.phases)}
        size = sum([p.expected * p.width * p.pending for p in job.phases])
        last = float(self.floats["at"][self._count - 1]) if self._count else job.arrival
        at = max(job.arrival, last)
        successors: dict[str, list[int]] = {}
        for phase in job.phases:
            for before in phase.waits_for:
                successors.setdefault(before, []).append(rows[phase.name])
        for phase in job.phases:
            row, floats, ints = rows[phase.name], self.floats, self.ints
            floats["at"][row], floats["seconds"][row] = at, phase.expected
            floats["width"][row], floats["weight"][row] = phase.width, job.weight
            floats["priority"][row], floats["size"][row] = job.priority, size
            floats["patience"][row] = job.deadline - job.arrival
            ints["job"][row], ints["pending"][row] = self._jobs, phase.pending
            ints["batch"][row] = max(1, ceil(phase.pending / BATCHES))
            ints["room"][row] = phase.room
            ints["pool"][row] = self.pools.setdefault(job.pool, len(self.pools))
            ints["takes"][row] = self.requests.setdefault(phase.takes, len(self.requests))
            ints["waits"][row] = len(phase.waits_for)
            after = [other - row for other in successors.get(phase.name, ())]
            self.successors.append(tuple(after))
            self.has_links = self.has_links or bool(after)
        self._count += len(job.phases)
        self._jobs += 1
        self._open[job.id] = rows

    def note_end(self, job: str, seconds: dict[str, float]) -> None:
        """A job is over, whose tasks took this long, by phase."""
        for name, row in self._open.pop(job, {}).items():
            if row >= 0 and name in seconds:
                self.floats["seconds"][row] = seconds[name]

    def replay(self, now: float, course: int, most: int) -> Iterator[ReplayedRows]:
        """The arrivals of one course in order, at most `most` rows."""
        at = self.floats["at"][: self._count]
        if self._count < HISTORY_MIN or now <= at[0]:
            return
        shift = self._shift(now - float(at[0]), course)
        first, lap = int(np.searchsorted(at, now - shift, "right")), 0
        while first < self._count and most > 0 and lap < LAPS_MAX:
            lap += 1  # When the present is reached, the same arrivals come again.
            last = min(first + most, self._count)
            while last < self._count and self.ints["job"][last] == self.ints["job"][last - 1]:
                last += 1  # Jobs are whole.
            yield ReplayedRows(first, last, lap * shift)
            most -= last - first

    def _shift(self, known: float, course: int) -> float:
        """How long ago the arrivals of a course were."""
        days = int(min(known // DAY, DAYS_MAX))
        part = _part(course)
        if days >= DAYS_MIN:
            return DAY * (1 + floor(part * days))
        return known * (0.1 + 0.9 * part)

    def _make_room(self, more: int) -> None:
        """Twice as many rows, or without the older half if they are too many."""
        drop = 0
        if self._count > 2 * KEPT:
            drop = self._count - KEPT
            job = self.ints["job"]
            while drop < self._count and job[drop] == job[drop - 1]:
                drop += 1
        kept, wide = self._count - drop, max(64, 2 * (self._count - drop) + more)
        for columns in (self.floats, self.ints):
            for name, column in columns.items():
                columns[name] = np.zeros(wide, column.dtype)
                columns[name][:kept] = column[drop : self._count]
        del self.successors[:drop]
        self._count = kept
        if drop:
            self._forget("pool", self.pools)
            self._forget("takes", self.requests)
        for rows in self._open.values():
            for name in rows:
                rows[name] -= drop

    def _forget(self, name: str, known: dict[Any, int]) -> None:
        """Forget pools or requests of which no row is left; else they would only grow."""
        column, keys = self.ints[name][: self._count], list(known)
        used, column[:] = np.unique(column, return_inverse=True)
        known.clear()
        known.update({keys[old]: place for place, old in enumerate(used.tolist())})
