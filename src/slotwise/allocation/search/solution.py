"""Solutions: schedules of a malleable problem, from an order or from due dates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from slotwise.allocation.due_dates.reservations import Promises, tighten
from slotwise.allocation.due_dates.waterfill import water_fill
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.packing import Packing, packer_for
from slotwise.allocation.search.orders import Order, by_area
from slotwise.allocation.tolerances import CLOSE, SAME
from slotwise.objective.costs import Floats

MAX_PROMISES = 2000
"""Above this number of jobs the packing scheme replaces promises, which take O(J^2)."""

MAX_TIGHT = 400
"""Above this number of jobs, jobs are not brought forward for a maximum, which takes O(J^2)."""


@dataclass(frozen=True, slots=True)
class MalleableSolution:
    """A schedule and its value.

    packing     pieces (start, end, slots) of each job, slots being any real number
    completion  of each job, seconds
    value       of the objective
    bound       lower bound that the method has proven; -inf if none
    """

    packing: Packing
    completion: Floats
    value: float
    bound: float = -inf

    @classmethod
    def of(cls, problem: Malleable, packing: Packing) -> MalleableSolution:
        """The schedule with its completion times and its value."""
        completion = np.array([pieces[-1][1] for pieces in packing])
        return cls(packing, completion, problem.value(completion))


def in_order(problem: Malleable, order: Sequence[int]) -> MalleableSolution:
    """The schedule by the packing scheme in an order of priority. O(J log J)."""
    packer = packer_for(problem.capacity, problem.work, problem.min_share, problem.max_share)
    return MalleableSolution.of(problem, packer.pieces(order).by_claim(len(problem)))


def keeping(problem: Malleable, due: Floats) -> MalleableSolution:
    """The schedule by due dates, each job as early as the others allow, by area. O(J^2)."""
    return filled(problem, brought_forward(problem, due))


def brought_forward(problem: Malleable, due: Floats) -> Floats:
    """Due dates as early as the others allow, by area. O(J^2).

    With very many jobs, they stay as they are.
    """
    jobs_most = MAX_TIGHT if problem.aggregate == "max" else MAX_PROMISES
    if len(problem) > jobs_most:
        return due
    promises = Promises(problem)
    promises.promise_together(due)
    tighten(promises, by_area(problem))
    return promises.due


def filled(problem: Malleable, due: Floats) -> MalleableSolution:
    """The schedule in which each job completes just in time for its due date. O(J^2).

    If rounding makes the due dates infeasible, the result is that of the packing scheme in
    order of due dates.
    """
    due = np.minimum(due, np.minimum(problem.ends, _horizon(problem, due)))
    packing = water_fill(problem, due)
    if packing is None:
        return in_order(problem, np.argsort(due, kind="stable").tolist())
    return MalleableSolution.of(problem, packing)


def simplest(problem: Malleable, orders: Iterable[Order], due: Floats) -> MalleableSolution:
    """The schedule by the packing scheme in the first of the orders as good as the due dates.

    It has fewer pieces, and whole slots if shares are whole numbers. If no order is as good,
    the schedule is that of the due dates.
    """
    packed = as_packed(problem, orders, due)
    return keeping(problem, due) if packed is None else packed


def as_packed(
    problem: Malleable, orders: Iterable[Order], due: Floats
) -> MalleableSolution | None:
    """The schedule by the packing scheme in the first order as good as the due dates."""
    value = problem.value(np.minimum(due, problem.ends))
    packer = packer_for(problem.capacity, problem.work, problem.min_share, problem.max_share)
    for order in orders:
        if is_as_good(problem.value(packer.completions(order)), value):
            return in_order(problem, order)
    return None


def earliest(problem: Malleable, orders: Iterable[Order], due: Floats) -> MalleableSolution:
    """`simplest`, unless the due dates, brought forward, have a lower sum of completions.

    So jobs whose completions do not matter are not late either.
    """
    forward = brought_forward(problem, due)
    packed = as_packed(problem, orders, due)
    if packed is not None and forward.sum() >= packed.completion.sum() * (1 - CLOSE):
        return packed
    kept = filled(problem, forward)
    return kept if packed is None or is_as_good(kept.value, packed.value) else packed


def is_as_good(value: float, other: float) -> bool:
    """Whether a value is no worse than another, up to rounding."""
    return value <= other + SAME * abs(other)


def _horizon(problem: Malleable, due: Floats) -> float:
    """An instant by which all jobs without a due date can be done, whatever the others do."""
    last = np.max(due[np.isfinite(due)], initial=0.0)
    return float(last + problem.work.sum() / problem.capacity + problem.heights.max())
