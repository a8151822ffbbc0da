"""Solutions: schedules of a malleable problem, made from an order or from due dates."""

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
from slotwise.objective.costs import Floats

PROMISES_MOST = 2000
"""Above so many jobs promises, O(J^2) for all jobs, are left for the packing scheme."""

TIGHT_MOST = 400
"""Above so many jobs a maximum is not worth bringing every job forward, O(J^2)."""

ROUNDING = 1e-12
"""Relative; what is worse by less is as good."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A schedule and what it is worth.

    packing     pieces (start, end, slots) of each job, slots being any real number
    completion  of each job, seconds
    value       of the objective
    bound       what the method has itself proven that nothing can go below; -inf if nothing
    """

    packing: Packing
    completion: Floats
    value: float
    bound: float = -inf

    @classmethod
    def of(cls, problem: Malleable, packing: Packing) -> Solution:
        """The schedule with its completion times and its value."""
        completion = np.array([pieces[-1][1] for pieces in packing])
        return cls(packing, completion, problem.value(completion))


def in_order(problem: Malleable, order: Sequence[int]) -> Solution:
    """By the packing scheme in an order of priority. O(J log J)."""
    packer = packer_for(problem.capacity, problem.work, problem.min_share, problem.max_share)
    return Solution.of(problem, packer.pieces(order).by_claim(len(problem)))


def keeping(problem: Malleable, due: Floats) -> Solution:
    """By due dates, each job as early as the others leave it, in order of area. O(J^2).

    Of very many jobs, each is done just in time. Where rounding has promised too much, the
    packing scheme in order of due dates does what it can.
    """
    jobs_most = TIGHT_MOST if problem.aggregate == "max" else PROMISES_MOST
    if len(problem) <= jobs_most:
        promises, order = Promises(problem), by_area(problem)
        for job in order:
            promises.promise(job, float(due[job]))
        tighten(promises, order)
        due = promises.due
    due = np.minimum(due, np.minimum(problem.ends, _horizon(problem, due)))
    packing = water_fill(problem, due)
    if packing is None:
        return in_order(problem, np.argsort(due, kind="stable").tolist())
    return Solution.of(problem, packing)


def simplest(problem: Malleable, orders: Iterable[Order], due: Floats) -> Solution:
    """By the packing scheme in the first of the orders that is as good as the due dates.

    It has fewer pieces, and whole slots if shares are whole numbers. By the due dates if none
    is as good.
    """
    value = problem.value(np.minimum(due, problem.ends))
    packer = packer_for(problem.capacity, problem.work, problem.min_share, problem.max_share)
    for order in orders:
        if is_as_good(problem.value(packer.completions(order)), value):
            return in_order(problem, order)
    return keeping(problem, due)


def is_as_good(value: float, other: float) -> bool:
    """Whether a value is no worse than another, but for rounding."""
    return value <= other + ROUNDING * abs(other)


def _horizon(problem: Malleable, due: Floats) -> float:
    """By when all can be done that have no due date, whatever the others do."""
    last = np.max(due[np.isfinite(due)], initial=0.0)
    return float(last + problem.work.sum() / problem.capacity + problem.heights.max())
