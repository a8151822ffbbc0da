"""Promises: completion times that can all be kept together, given one by one.

The work that must be done by each instant decides whether due dates can be kept (see
`feasibility`). So a plan can consist of due dates alone; the slots follow (`waterfill`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Self

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.allocation.tolerances import PROMISED
from slotwise.objective.costs import Floats


class Promises:
    """The due dates promised so far, seconds, and the room that they leave.

    The room at an instant is capacity * instant less the work that all jobs must have done by
    then. A job with a promised due date must have done what it cannot do after that instant at
    its max share. Every job must have its min share until it is done. The room is stored as a
    piecewise linear function. Each query and each change costs O(J).
    """

    def __init__(self, problem: Malleable) -> None:
        self._problem = problem
        self.due: Floats = np.full(len(problem), inf)
        self._ends = ends = problem.ends
        at = np.unique(np.concatenate(([0.0], ends[np.isfinite(ends)])))
        floors = np.zeros_like(at)
        for work, min_share in zip(problem.work, problem.min_share, strict=True):
            if min_share > 0:
                floors += np.minimum(work, min_share * at)
        self._at, self._room = at, problem.capacity * at - floors
        jobs = (problem.work, problem.min_share, problem.max_share)
        self._jobs = list(zip(*(numbers.tolist() for numbers in jobs), strict=True))

    def copy(self) -> Self:
        """An independent copy."""
        other = object.__new__(type(self))
        other._problem, other._ends, other._jobs = self._problem, self._ends, self._jobs
        other.due = self.due.copy()
        other._at, other._room = self._at, self._room.copy()
        return other

    def earliest(self, job: int) -> float:
        """The earliest completion, seconds, that a job without promise can be promised.

        Work that finds no room before an instant t is done after t, at most at the max share:
        C >= t + (work - room(t)) / max_share wherever room(t) < work.
        """
        (work, min_share, max_share), at = self._jobs[job], self._at
        capacity, room = self._problem.capacity, self._room
        if min_share > 0:  # The work on its own min share is part of its work.
            room = room + np.minimum(work, min_share * at)
        (tight,) = (room + PROMISED * capacity * at < work).nonzero()
        earliest = float((at[tight] + (work - room[tight]) / max_share).max())
        # The work begins to fit between the last such point and the next one.
        last, slope = int(tight[-1]), capacity
        if last + 1 < len(at):
            slope = (room[last + 1] - room[last]) / (at[last + 1] - at[last])
        if slope > 0:  # Rounding may make it 0.
            earliest = max(earliest, float(at[last] + (work - room[last]) / slope))
        return earliest

    def promise(self, job: int, due: float) -> None:
        """Promise a completion, seconds, not before the earliest one; inf promises nothing."""
        due = min(due, float(self._ends[job]))
        if due == inf:
            return
        self._add_points(self._turn(job, due), due)
        self.due[job] = due
        self._room -= self.needed(job, due, self._at)

    def promise_together(self, due: Floats) -> None:
        """Promise the due dates of all jobs, which can be kept together: faster than singly."""
        self.due = np.minimum(due, self._ends)
        dates = [(job, at) for job, at in enumerate(self.due.tolist()) if at < inf]
        points = [instant for job, at in dates for instant in (self._turn(job, at), at)]
        at = np.unique(np.concatenate((self._at, points)))
        self._at, self._room = at, self.room(at)
        for job, date in dates:
            self._room -= self.needed(job, date, at)

    def _turn(self, job: int, due: float) -> float:
        """The instant t from which on it needs its max share until it is due.

        min_share * t = work - max_share * (due - t).
        """
        work, min_share, max_share = self._jobs[job]
        if max_share <= min_share:
            return due
        turn = due - max(0.0, work - min_share * due) / (max_share - min_share)
        return float(max(0.0, turn))

    def withdraw(self, job: int) -> None:
        """Remove the promise of a job."""
        self._room += self.needed(job, self.due[job], self._at)
        self.due[job] = inf

    def room(self, instants: Floats) -> Floats:
        """The room at these instants, slot seconds, after min shares and promises."""
        behind = np.maximum(0.0, instants - self._at[-1])
        room: Floats = np.interp(instants, self._at, self._room)
        room += self._problem.capacity * behind
        return room

    @property
    def line(self) -> tuple[Floats, Floats]:
        """The instants at which the slope of the room may change, and the room there."""
        return self._at, self._room

    def needed(self, job: int, due: float, instants: Floats) -> Floats:
        """The work beyond its min share that a job with this due date must do by `instants`."""
        if due == inf:
            return np.zeros_like(instants)
        work, min_share, max_share = self._jobs[job]
        needed: Floats = work - max_share * (due - instants)
        floor = np.minimum(work, min_share * instants) if min_share > 0 else 0.0
        needed = np.minimum(np.maximum(needed, floor), work)
        return needed - floor if min_share > 0 else needed

    def _add_points(self, *instants: float) -> None:
        for instant in instants:
            at, room = self._at, self._room
            place = int(at.searchsorted(instant))
            if place < len(at) and at[place] == instant:
                continue
            # As `room`, which takes several times as long for one instant.
            before = place - 1  # The first point is 0, so there is one.
            slope = self._problem.capacity
            if place < len(at):
                slope = (room[place] - room[before]) / (at[place] - at[before])
            value = slope * (instant - at[before]) + room[before]
            self._at, self._room = _with(at, place, instant), _with(room, place, value)


def _with(values: Floats, place: int, value: float) -> Floats:
    """As `numpy.insert`, which takes several times as long for one value."""
    longer = np.empty(len(values) + 1)
    longer[:place], longer[place], longer[place + 1 :] = values[:place], value, values[place:]
    return longer


def promise_in_order(promises: Promises, problem: Malleable, order: Iterable[int]) -> None:
    """Promise each job, in order of priority, the latest completion of its minimum cost.

    That cost is the one of the earliest completion that the previous promises allow. So a job
    with a deadline is promised its deadline and leaves the room before it to others, which no
    priority order of the packing scheme can do. If costs always rise, each job is promised its
    earliest completion, and the result is that of the packing scheme. O(J^2).
    """
    for job in order:
        earliest = promises.earliest(job)
        cost = problem.costs[job]
        promises.promise(job, max(earliest, cost.latest(cost.at(earliest))))


def tighten(promises: Promises, order: Iterable[int]) -> None:
    """Move each job's promise to the earliest completion that the others allow. O(J^2).

    Afterwards every job has a promise, no promise can be earlier without breaking another, and
    no slot idles that a job could use.
    """
    for job in order:
        promised = float(promises.due[job])
        promises.withdraw(job)
        promises.promise(job, min(promised, promises.earliest(job)))
