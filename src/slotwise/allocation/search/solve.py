"""FLEX: the best malleable schedule found, for any objective (FLEX 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from slotwise.allocation.due_dates.minimax import minimax
from slotwise.allocation.due_dates.reservations_compiled import promiser
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.packing import packer_for
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.improve import improve
from slotwise.allocation.search.orders import ORDERS, Order
from slotwise.allocation.search.solution import (
    PROMISES_MOST,
    MalleableSolution,
    in_order,
    is_as_good,
    keeping,
    simplest,
)
from slotwise.allocation.search.stepwise import choose_steps
from slotwise.allocation.tolerances import CLOSE
from slotwise.objective.cost import Steps
from slotwise.objective.costs import Floats

BUDGET_STEPS = 2000
"""Search steps by default."""

ROUNDS = 2
"""Rounds of search over all neighbours, J^2 steps each, before branch and bound."""

ORDERS_TRIED = 100
"""Estimate of the orders that an unlimited search tries, for each pair of jobs."""


def solve(problem: Malleable, budget: Budget | None = None) -> MalleableSolution:
    """The best schedule found within a budget of search steps.

    Minimax: the optimum, by due dates. Minisum: the best of several priority orders, each
    improved by search. If all costs are steps, branch and bound follows and reaches the optimum
    if the budget suffices. Never worse than the packing scheme in the best order tried.
    """
    if not len(problem):
        return MalleableSolution([], np.zeros(0), 0.0)
    if problem.aggregate == "max":
        return _solve_max(problem)
    return _solve_sum(problem, budget or Budget(BUDGET_STEPS))


def _solve_max(problem: Malleable) -> MalleableSolution:
    due = minimax(problem)
    keys = (due, due - problem.heights)  # Earliest due date, and minimum slack.
    orders = (np.argsort(key, kind="stable").tolist() for key in keys)
    return simplest(problem, orders, due)


def _solve_sum(problem: Malleable, budget: Budget) -> MalleableSolution:
    are_steps = all(isinstance(cost, Steps) for cost in problem.costs)
    # Branch and bound needs a good start, but most of the budget for itself.
    search = budget.part(ROUNDS * len(problem) ** 2) if are_steps else budget
    order, due = _best_order(problem, search, _dates(problem, budget))
    if len(problem) > PROMISES_MOST:
        return in_order(problem, order)
    bound = -inf
    if are_steps:
        choice = choose_steps(problem, due, budget)
        due, bound = choice.due, choice.bound
    kept = None if problem.costs.are_lines else keeping(problem, due)
    best = simplest(problem, [order], due, kept)
    if kept is not None:
        best = _earlier(best, kept)
    return replace(best, bound=bound)


def _earlier(one: MalleableSolution, other: MalleableSolution) -> MalleableSolution:
    """The first, unless the other is as good and has a lower sum of completions."""
    is_earlier = other.completion.sum() < one.completion.sum() * (1 - CLOSE)
    return other if is_earlier and is_as_good(other.value, one.value) else one


def _dates(problem: Malleable, budget: Budget) -> Callable[[Sequence[int]], Floats]:
    """A function from orders to due dates: promises, or the packing scheme if it is as good."""
    is_packed = problem.costs.are_lines and not problem.min_share.any()
    if is_packed or len(problem) > PROMISES_MOST:
        numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
        packings = min(budget.steps, ORDERS_TRIED * len(problem) ** 2)
        return packer_for(*numbers, packings).completions
    return promiser(problem, budget.steps)


def _best_order(
    problem: Malleable, budget: Budget, dates: Callable[[Sequence[int]], Floats]
) -> tuple[Order, Floats]:
    """The best order that search finds from any of the known ones, and its due dates."""
    starts, ends = list(_orders(problem)), problem.ends
    lowest = problem.value(problem.heights)  # No job completes before its height.
    # Each is needed several times, and with many equal jobs most of the orders are the same.
    known = {start: dates(list(start)) for start in dict.fromkeys(map(tuple, starts))}

    def dates_of(order: Sequence[int]) -> Floats:
        found = known.get(tuple(order))
        return dates(order) if found is None else found

    def value(order: Sequence[int]) -> float:
        reached = problem.value(np.minimum(dates_of(order), ends))
        if reached <= lowest:
            budget.end()
        return reached

    found = [improve(start, value, budget) for start in sorted(starts, key=value)]
    order, _ = min(found, key=lambda one: one[1])
    return order, dates_of(order)


def _orders(problem: Malleable) -> Iterator[Order]:
    """The orders that are worth their time for this number of jobs."""
    for ordering, jobs_most in ORDERS.values():
        if len(problem) <= jobs_most:
            yield ordering(problem)
