"""FLEX: the best malleable schedule that we know how to find, for any objective (FLEX 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slotwise.allocation.due_dates.minimax import minimax
from slotwise.allocation.due_dates.promises import Promises, tighten
from slotwise.allocation.due_dates.promising import promiser
from slotwise.allocation.due_dates.waterfill import water_fill
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.packing import Packer, Packing, packer_for
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.improve import improve
from slotwise.allocation.search.orders import ORDERS, Order, by_area
from slotwise.allocation.search.stepwise import choose_steps
from slotwise.objective.cost import Steps
from slotwise.objective.costs import Floats

PROMISES_MOST = 2000
"""Above so many jobs promises, O(J^2) an order, are left for the packing scheme."""

TIGHT_MOST = 400
"""Above so many jobs a maximum is not worth bringing every job forward, O(J^2)."""

BUDGET_STEPS = 2000
"""Of search, where nobody says."""

ROUNDS = 2
"""Of search over all neighbours, J^2 steps each, before branch and bound."""

SAME = 1e-9
"""Relative; completions that are earlier by less are not."""

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


def solve(problem: Malleable, budget: Budget | None = None) -> Solution:
    """The best schedule found within a budget of search steps.

    Minimax: the optimum, by due dates. Minisum: the best of all orders of priority and of what
    search makes of it; where all costs are steps, branch and bound goes on to the optimum
    if the budget lasts. Never worse than the packing scheme in the best order tried.
    """
    if not len(problem):
        return Solution([], np.zeros(0), 0.0)
    budget = budget or Budget(BUDGET_STEPS)
    if problem.aggregate == "max":
        due = minimax(problem)
        orders = (
            np.argsort(key, kind="stable").tolist() for key in (due, due - problem.heights)
        )
        return _simplest(problem, orders, due)
    are_steps = all(isinstance(cost, Steps) for cost in problem.costs)
    # Branch and bound needs a good start, but most of the budget for itself.
    search = budget.part(ROUNDS * len(problem) ** 2) if are_steps else budget
    order, due = _best_order(problem, search, _dates(problem, budget))
    if len(problem) > PROMISES_MOST:
        return _by_packing(problem, order)
    bound = -inf
    if are_steps:
        choice = choose_steps(problem, due, budget)
        due, bound = choice.due, choice.bound
    best = _simplest(problem, [order], due)
    if not problem.costs.are_lines:  # Due dates may leave others earlier at the same value.
        kept = _keeping(problem, due)
        is_earlier = kept.completion.sum() < best.completion.sum() * (1 - SAME)
        best = kept if is_earlier and _is_as_good(kept.value, best.value) else best
    return replace(best, bound=bound)


def _simplest(problem: Malleable, orders: Iterable[Order], due: Floats) -> Solution:
    """The packing scheme in one of these orders if it is as good as the due dates, or they.

    It has fewer pieces, and whole slots if shares are whole numbers.
    """
    kept = problem.value(np.minimum(due, problem.ends))
    for order in orders:
        packed = _by_packing(problem, order)
        if _is_as_good(packed.value, kept):
            return packed
    return _keeping(problem, due)


def _is_as_good(value: float, other: float) -> bool:
    return value <= other + ROUNDING * abs(other)


def _dates(problem: Malleable, budget: Budget) -> Callable[[Sequence[int]], Floats]:
    """What an order leads to: promises; the packing scheme where it is as good, and quicker."""
    is_packed = problem.costs.are_lines and not problem.least.any()
    if is_packed or len(problem) > PROMISES_MOST:
        return _packer(problem, budget.steps).completions
    return promiser(problem, budget.steps)


def _best_order(
    problem: Malleable, budget: Budget, dates: Callable[[Sequence[int]], Floats]
) -> tuple[Order, Floats]:
    """The best order that search finds from any of those tried; and its completion dates."""

    def value(order: Sequence[int]) -> float:
        return problem.value(np.minimum(dates(order), problem.ends))

    starts = sorted(_orders(problem), key=value)
    found = [improve(start, value, budget) for start in starts]
    order, _ = min(found, key=lambda one: one[1])
    return order, dates(order)


def _orders(problem: Malleable) -> Iterator[Order]:
    """The orders that are worth their time for so many jobs."""
    for ordering, jobs_most in ORDERS.values():
        if len(problem) <= jobs_most:
            yield ordering(problem)


def _keeping(problem: Malleable, due: Floats) -> Solution:
    """A schedule that keeps due dates: each job as early as the others leave it, by area.

    Of very many jobs, each is done just in time.
    """
    jobs_most = TIGHT_MOST if problem.aggregate == "max" else PROMISES_MOST
    if len(problem) <= jobs_most:
        promises, order = Promises(problem), by_area(problem)
        for job in order:
            promises.promise(job, float(due[job]))
        tighten(promises, order)
        due = promises.due
    due = np.minimum(due, np.minimum(problem.ends, _horizon(problem, due)))
    return _solution(problem, water_fill(problem, due))


def _horizon(problem: Malleable, due: Floats) -> float:
    """By when all can be done that have no due date, whatever the others do."""
    last = np.max(due[np.isfinite(due)], initial=0.0)
    return float(last + problem.work.sum() / problem.capacity + problem.heights.max())


def _by_packing(problem: Malleable, order: Sequence[int]) -> Solution:
    packing = _packer(problem).pieces(order).by_claim(len(problem))
    return _solution(problem, packing)


def _packer(problem: Malleable, packings: float = 1) -> Packer:
    return packer_for(problem.capacity, problem.work, problem.least, problem.most, packings)


def _solution(problem: Malleable, packing: Packing) -> Solution:
    completion = np.array([pieces[-1][1] for pieces in packing])
    return Solution(packing, completion, problem.value(completion))
