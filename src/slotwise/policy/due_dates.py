"""Whether due dates can be kept: malleable jobs with min and max shares, all present at 0.

By each instant a job must have done some of its work, because of its due date and because it
never holds less than its min share. Due dates can be kept if and only if, at every instant, the
sum of this work is at most what all slots can have done. Proof: docs/algorithms/due-dates.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Self

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.tolerances import CLOSE, KEPT, LEVEL, PROMISED, SAFE
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import Packing


def fits(
    capacity: float,
    work: Floats,
    min_share: Floats,
    max_share: Floats,
    due: Floats,
    tolerance: float = SAFE,
) -> bool:
    """Whether a schedule exists in which each job is complete by its due date.

    work       seconds at speed 1, >= 0; shape (J,), as for the shares and due dates
    min_share  slots, >= 0, at most `max_share`; together at most the capacity
    max_share  slots, > 0
    due        seconds; inf for none
    tolerance  the result is True if the jobs fit with capacity and due dates larger by this
               part. So False is certain; for a certain True, give a negative tolerance

    O(J log J).
    """
    heights = work / max_share
    if (due * (1 + tolerance) < heights).any():
        return False
    instants, needed = needs(work, min_share, max_share, np.maximum(due, heights))
    return bool((needed <= capacity * instants * (1 + tolerance)).all())


def needs(
    work: Floats, min_share: Floats, max_share: Floats, due: Floats
) -> tuple[Floats, Floats]:
    """Instants from 0 on, and the work that all jobs must have done by each of them, seconds.

    Job j must have done max(min(W_j, m_j t), W_j - M_j (d_j - t)) by t, and W_j by d_j. The sum
    is linear between these instants and constant after the last one, except for the min shares
    of jobs that may run forever. O(J log J).
    """
    end, steady = np.maximum(due, 0.0), 0.0
    has_floors = bool(min_share.any())
    if has_floors:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            # The min share of a job completes it by then.
            end = np.minimum(end, np.where(min_share > 0, work / min_share, np.inf))
    finite = np.isfinite(end)
    if not finite.all():
        steady = float(min_share[~finite].sum())  # The slots of jobs that may run forever.
        work, min_share, max_share, end = (
            work[finite],
            min_share[finite],
            max_share[finite],
            end[finite],
        )
    heights = work / max_share
    late = float((max_share * np.maximum(heights - end, 0.0)).sum())
    # From its turn on a job must run at its max share; before it, its min share suffices.
    spare, lag = max_share, heights
    if has_floors:
        spare = max_share - min_share
        lag = np.divide(work - min_share * end, spare, out=end.copy(), where=spare > 0)
    count = len(end)
    instants = np.zeros(2 * count + 1)
    instants[1 : count + 1] = (end - lag).clip(0.0, end)
    instants[count + 1 :] = end
    by_time = instants[1:].argsort(kind="stable")
    instants[1:] = instants[1:][by_time]
    rate, needed = np.zeros(2 * count + 1), np.zeros(2 * count + 1)
    rate[1:] = np.concatenate((spare, -max_share))[by_time].cumsum()
    rate += steady + min_share.sum()
    needed[1:] = (rate[:-1] * (instants[1:] - instants[:-1])).cumsum()
    return instants, late + needed


# The exact minimum of the largest cost, with min shares too: bisection on due dates.

MAX_STEPS = 200
"""A bisection of floats ends within this number of steps."""


def minimax(problem: Malleable) -> Floats:
    """Due dates, seconds, that can be kept together and have the minimum largest cost.

    A level is feasible if and only if each job can complete by the latest instant at which it
    costs no more. The test is exact (`feasibility`, including min shares). So this is the
    optimum, up to rounding, for all non-decreasing costs. Due dates are inf for jobs that may
    complete at any time. O(J log J) for each of about 50 levels.
    """
    low = problem.value(problem.heights)  # Each job alone with its max share.
    if _can_keep(problem, _due(problem, low)):
        return _due(problem, low)
    # A schedule without idle slots completes each job by then.
    area = problem.work.sum() / problem.capacity
    high = problem.value(np.minimum(problem.heights + area, problem.ends))
    scale = max(abs(low), abs(high))
    for _ in range(MAX_STEPS):
        middle = (low + high) / 2
        if high - low <= LEVEL * scale or not low < middle < high:
            break
        if _can_keep(problem, _due(problem, middle)):
            high = middle
        else:
            low = middle
    return _due(problem, high)


def _due(problem: Malleable, level: float) -> Floats:
    """The due date of each job at a level of cost; rounding does not put it before the earliest
    completion of the job alone."""
    due: Floats = np.maximum(problem.costs.latest(level), problem.heights)
    return due


def _can_keep(problem: Malleable, due: Floats) -> bool:
    numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
    return fits(*numbers, due, KEPT)


# Water-filling: the slots that keep given due dates.


def water_fill(problem: Malleable, due: Floats) -> Packing | None:
    """A schedule in which each job completes by its finite due date, or None if there is none.

    In order of due dates, each job's work is poured into the time before its due date: first
    its min share, then where the fewest slots are in use, up to one level, within its max share
    (the normal form of Beaumont and others, 2012, here with min shares). The use of slots does
    not increase in time. Of all placements of a job, this one leaves the most useful room for
    later jobs, so it succeeds whenever the due dates can be kept. Rounding may make them
    infeasible for a job whose work is tiny compared with that of others. O(J^2).
    """
    due = np.minimum(due, problem.ends)
    order = np.argsort(due, kind="stable")
    ends = np.unique(due)
    lengths = np.diff(ends, prepend=0.0)
    column = np.searchsorted(ends, due)
    # Every job holds its min share until it is due; these slots are in use.
    ground = np.bincount(column, problem.min_share, len(ends))[::-1].cumsum()[::-1]
    used = ground.copy()
    pieces: Packing = [[] for _ in range(len(problem))]
    for job in order:
        width = column[job] + 1
        min_share, room = (
            problem.min_share[job],
            problem.max_share[job] - problem.min_share[job],
        )
        rest = problem.work[job] - min_share * due[job]
        level = _level(used[:width], lengths[:width], room, rest)
        above = min(level, problem.capacity) - used[:width]
        poured = np.minimum(np.maximum(above, 0.0), room)
        if rest - float(poured @ lengths[:width]) > CLOSE * problem.work[job]:
            return None
        used[:width] += poured
        pieces[job] = _pieces(ends[:width], min_share + poured)
        if not pieces[job]:
            return None
    return pieces


def _level(used: Floats, lengths: Floats, room: float, work: float) -> float:
    """The level of use up to which columns are filled, each by at most `room`, to hold `work`.

    `used` must not increase from column to column.
    """
    if work <= 0 or room <= 0:
        return 0.0
    # Below level L lies sum(lengths * (L - used)) over the columns in use below L.
    high, widths = used[::-1], lengths[::-1]
    area, moment = np.zeros(len(used) + 1), np.zeros(len(used) + 1)
    widths.cumsum(out=area[1:])
    (widths * high).cumsum(out=moment[1:])

    def below(level: Floats) -> Floats:
        count = high.searchsorted(level)
        return level * area[count] - moment[count]

    bends = np.concatenate((high, high + room))
    bends.sort()
    filled = below(bends) - below(bends - room)
    place = int(filled.searchsorted(work))
    if place == 0 or place == len(bends):  # Beyond the ends only because of rounding.
        return float(bends[min(place, len(bends) - 1)])
    part = (work - filled[place - 1]) / (filled[place] - filled[place - 1])
    return float(bends[place - 1] + part * (bends[place] - bends[place - 1]))


def _pieces(ends: Floats, slots: Floats) -> list[tuple[float, float, float]]:
    """The pieces of a job; adjacent columns with equal slots are joined."""
    (changes,) = (slots[1:] != slots[:-1]).nonzero()
    lasts = np.append(changes, len(slots) - 1)
    stops = ends[lasts].tolist()
    pieces = zip([0.0, *stops], stops, slots[lasts].tolist(), strict=False)
    return [(start, stop, held) for start, stop, held in pieces if held > 0]


# Promises: completion times that can all be kept together, given one by one.
#
# The work that must be done by each instant decides whether due dates can be kept (see
# `feasibility`). So a plan can consist of due dates alone; the slots follow (`waterfill`).


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
        past_end = np.maximum(0.0, instants - self._at[-1])
        room: Floats = np.interp(instants, self._at, self._room)
        room += self._problem.capacity * past_end
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
