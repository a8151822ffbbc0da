"""Promises in order of priority for many orders: one source, run by Python or compiled.

The same as `promise_in_order`, in plain loops over lists or arrays, for searches that try
thousands of orders. `reservations.py` explains the method and is the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.objective import MET
from slotwise.core.tolerances import PROMISED
from slotwise.policy.compiled import FLOATS, INTS, Numbers, compiled, has_numba
from slotwise.policy.due_dates import Promises, promise_in_order
from slotwise.policy.malleable import Malleable

COMPILED_FROM = 20
"""Number of jobs from which a search is worth importing numba, about a third of a second."""

COMPILED_STEPS = 200
"""Number of orders from which numba is worth its import."""

ARRAYS_FROM = 40
"""Number of jobs from which arrays are faster than loops in Python."""


def promiser(problem: Malleable, orders: float) -> Callable[[Sequence[int]], Floats]:
    """A function from an order to the due dates that it leads to, seconds, shape (J,).

    orders  the approximate number of calls; machine code pays off for many

    Each call costs O(J^2) in all implementations; creating the function costs O(J^2) once.
    """
    count = len(problem)
    is_known = problem.costs.are_known
    if is_known and count >= COMPILED_FROM and orders >= COMPILED_STEPS and has_numba():
        return _compiled(problem)
    return _plain(problem) if is_known and count < ARRAYS_FROM else _by_arrays(problem)


def _by_arrays(problem: Malleable) -> Callable[[Sequence[int]], Floats]:
    promises = Promises(problem)

    def dates(order: Sequence[int]) -> Floats:
        fresh = promises.copy()
        promise_in_order(fresh, problem, order)
        return fresh.due

    return dates


def _plain(problem: Malleable) -> Callable[[Sequence[int]], Floats]:
    work, min_share, max_share = (
        v.tolist() for v in (problem.work, problem.min_share, problem.max_share)
    )
    ends = problem.ends.tolist()
    plateaus = problem.costs.plateaus.tolist()
    at, room = (values.tolist() for values in Promises(problem).line)
    spare = [0.0] * (2 * len(problem))

    def dates(order: Sequence[int]) -> Floats:
        due = [inf] * len(problem)
        line, points = at + spare, room + spare
        promise_all(
            problem.capacity,
            work,
            min_share,
            max_share,
            ends,
            plateaus,
            order,
            line,
            points,
            len(at),
            due,
        )
        return np.array(due)

    return dates


def _compiled(problem: Malleable) -> Callable[[Sequence[int]], Floats]:
    signature = f"void(float64, {', '.join([FLOATS] * 4)}, float64[:, ::1], {INTS}, "
    signature += f"{FLOATS}, {FLOATS}, int64, {FLOATS})"
    kernel = compiled(promise_all, signature)
    jobs = (problem.work, problem.min_share, problem.max_share, problem.ends)
    plateaus = problem.costs.plateaus
    at, room = Promises(problem).line
    spare = np.zeros(2 * len(problem))

    def dates(order: Sequence[int]) -> Floats:
        due = np.full(len(problem), inf)
        line, points = np.concatenate((at, spare)), np.concatenate((room, spare))
        places = np.asarray(order)
        kernel(problem.capacity, *jobs, plateaus, places, line, points, len(at), due)
        return due

    return dates


def promise_all(
    capacity: float,
    work: Numbers,
    min_share: Numbers,
    max_share: Numbers,
    ends: Numbers,
    plateaus: Numbers,
    order: Numbers,
    at: Numbers,
    room: Numbers,
    count: int,
    due: Numbers,
) -> None:
    """Fills in `due`, inf to begin with, for the jobs of `order`. O(J^2).

    plateaus   for each job, the ends of the intervals in which its cost is constant, in order;
               -inf after the last
    at, room   the `count` points of the room without promises, and space for 2 J more
    """
    tolerance = PROMISED * capacity
    for job in order:
        total, low, top = work[job], min_share[job], max_share[job]
        # The earliest completion: see `Promises.earliest`.
        date, last, level = 0.0, 0, 0.0
        for i in range(count):
            free = room[i]
            if low > 0.0:
                free += min(total, low * at[i])
            if free + tolerance * at[i] < total:
                until = at[i] + (total - free) / top
                if until > date:
                    date = until
                last, level = i, free
        if last + 1 < count:
            room_after = room[last + 1] + min(total, low * at[last + 1])
            slope = (room_after - level) / (at[last + 1] - at[last])
        else:
            slope = capacity
        if slope > 0.0:
            date = max(date, at[last] + (total - level) / slope)
        # The latest completion that costs no more: see `promise_in_order`.
        for plateau in plateaus[job]:
            # `met_until` inlined: machine code cannot call it.
            if plateau + MET * abs(plateau) >= date:
                date = max(date, plateau)
                break
        date = min(date, ends[job])
        due[job] = date
        if date == inf:
            continue
        # The reduction of the room by the promise, from its turn on: see `Promises.promise`.
        turn = date
        if top > low:
            turn = max(0.0, date - max(0.0, total - low * date) / (top - low))
        place, start = 0, count
        for instant in (turn, date):
            while place < count and at[place] < instant:
                place += 1
            start = min(start, place)
            if place < count and at[place] == instant:
                continue
            if place == count:
                height = room[count - 1] + capacity * (instant - at[count - 1])
            else:
                part = (instant - at[place - 1]) / (at[place] - at[place - 1])
                height = room[place - 1] + part * (room[place] - room[place - 1])
            for i in range(count, place, -1):
                at[i], room[i] = at[i - 1], room[i - 1]
            at[place], room[place] = instant, height
            count += 1
        for i in range(start, count):
            floor = min(total, low * at[i]) if low > 0.0 else 0.0
            needed = total if at[i] >= date else total - top * (date - at[i])
            if needed > floor:
                room[i] -= needed - floor
