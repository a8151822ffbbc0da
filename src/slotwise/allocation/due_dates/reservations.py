"""Promises: completion times that can all be kept together, given out one by one.

What must be done by each instant decides whether due dates can be kept at all (see
`feasibility`), so a plan can be made of due dates alone; the slots follow (`waterfill`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Self

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.objective.costs import Floats

ROUNDING = 4e-13
"""Work fits that does not by so little, as a part of all that the slots do until then."""


class Promises:
    """Due dates promised so far, and the room that they leave.

    The room at an instant is capacity * instant less what all jobs must have had by then: a job
    that is promised a due date what it cannot do behind that instant at its max share, and
    every job its min share until it is done. The room is kept as a line through points.
    Each question and each change costs O(J).
    """

    def __init__(self, problem: Malleable) -> None:
        self._problem = problem
        self.due: Floats = np.full(len(problem), inf)
        ends = problem.ends
        at = np.unique(np.concatenate(([0.0], ends[np.isfinite(ends)])))
        floors = np.zeros_like(at)
        for work, min_share in zip(problem.work, problem.min_share, strict=True):
            if min_share > 0:
                floors += np.minimum(work, min_share * at)
        self._at, self._room = at, problem.capacity * at - floors

    def copy(self) -> Self:
        """Another set of the same promises."""
        other = object.__new__(type(self))
        other._problem = self._problem
        other.due = self.due.copy()
        other._at, other._room = self._at, self._room.copy()
        return other

    def earliest(self, job: int) -> float:
        """The earliest completion of a job without a promise that breaks no promise.

        What of its work finds no room before an instant t is done behind t, at its max share
        at best: C >= t + (work - room(t)) / most wherever room(t) < work.
        """
        problem, at = self._problem, self._at
        work, max_share = problem.work[job], problem.max_share[job]
        # Its own min share is part of its work.
        room = self._room + np.minimum(work, problem.min_share[job] * at)
        tight = np.flatnonzero(room + ROUNDING * problem.capacity * at < work)
        earliest = np.max(at[tight] + (work - room[tight]) / max_share)
        # Between the last such point and the next one the work begins to fit.
        last = tight[-1]
        slope = problem.capacity
        if last + 1 < len(at):
            slope = (room[last + 1] - room[last]) / (at[last + 1] - at[last])
        if slope > 0:  # By rounding it may be 0.
            earliest = max(earliest, at[last] + (work - room[last]) / slope)
        return float(earliest)

    def promise(self, job: int, due: float) -> None:
        """Promise a completion, not before the earliest one; inf promises nothing."""
        problem = self._problem
        work, min_share, max_share = (
            problem.work[job],
            problem.min_share[job],
            problem.max_share[job],
        )
        due = min(due, float(problem.ends[job]))
        if due == inf:
            return
        # From its turn on it needs its max share: least * t = work - most * (due - t).
        turn = (
            due
            if max_share <= min_share
            else due - max(0.0, work - min_share * due) / (max_share - min_share)
        )
        self._add_points(max(0.0, turn), due)
        self.due[job] = due
        self._room -= self.needed(job, due, self._at)

    def withdraw(self, job: int) -> None:
        """Take back what a job was promised."""
        self._room += self.needed(job, self.due[job], self._at)
        self.due[job] = inf

    def room(self, instants: Floats) -> Floats:
        """The room at these instants, slot-seconds: min shares and promises are taken off."""
        behind = np.maximum(0.0, instants - self._at[-1])
        room: Floats = np.interp(instants, self._at, self._room)
        room += self._problem.capacity * behind
        return room

    @property
    def line(self) -> tuple[Floats, Floats]:
        """The instants at which the room may change its slope, and the room at them."""
        return self._at, self._room

    def needed(self, job: int, due: float, instants: Floats) -> Floats:
        """What a job must have had by these instants beyond its min share, to be due then."""
        problem = self._problem
        work, min_share, max_share = (
            problem.work[job],
            problem.min_share[job],
            problem.max_share[job],
        )
        floor = np.minimum(work, min_share * instants)
        if due == inf:
            return np.zeros_like(instants)
        before = np.maximum(floor, work - max_share * (due - instants))
        beyond: Floats = np.where(instants >= due, work, before) - floor
        return beyond

    def _add_points(self, *instants: float) -> None:
        for instant in instants:
            place = int(np.searchsorted(self._at, instant))
            if place < len(self._at) and self._at[place] == instant:
                continue
            room = self.room(np.array([instant]))[0]
            self._at = np.insert(self._at, place, instant)
            self._room = np.insert(self._room, place, room)


def promise_in_order(promises: Promises, problem: Malleable, order: Iterable[int]) -> None:
    """Promise each job, in order of priority, the latest completion that costs no more.

    No more, that is, than the earliest completion that the promises before leave it. A job
    with a deadline is so promised its deadline and leaves the room before it to others, which
    no priority order of the packing scheme can do. Where costs always rise, each job is
    promised its earliest completion, and these are those of the packing scheme. O(J^2).
    """
    for job in order:
        earliest = promises.earliest(job)
        cost = problem.costs[job]
        promises.promise(job, max(earliest, cost.latest(cost.at(earliest))))


def tighten(promises: Promises, order: Iterable[int]) -> None:
    """Bring each job's promise forward to the earliest that all other promises leave. O(J^2).

    Afterwards every job has a promise, none could be met earlier without breaking another,
    and no slot idles that anybody could use.
    """
    for job in order:
        promised = float(promises.due[job])
        promises.withdraw(job)
        promises.promise(job, min(promised, promises.earliest(job)))
