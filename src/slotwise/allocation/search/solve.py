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
    MAX_PROMISES,
    MalleableSolution,
    earliest,
    in_order,
    simplest,
)
from slotwise.allocation.search.stepwise import choose_steps
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
    lowest = problem.value(problem.heights)  # No job completes before its height.
    order, due = _best_order(problem, search, _dates(problem, budget), lowest)
    if len(problem) > MAX_PROMISES:
        return in_order(problem, order)
    bound = -inf
    if are_steps:
        choice = choose_steps(problem, due, budget)
        due, bound = choice.due, choice.bound
    find = simplest if problem.costs.are_lines else earliest
    return replace(find(problem, [order], due), bound=bound)


def _dates(problem: Malleable, budget: Budget) -> Callable[[Sequence[int]], Floats]:
    """A function from orders to due dates: promises, or the packing scheme if it is as good."""
    is_packed = problem.costs.are_lines and not problem.min_share.any()
    if is_packed or len(problem) > MAX_PROMISES:
        numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
        packings = min(budget.steps, ORDERS_TRIED * len(problem) ** 2)
        return packer_for(*numbers, packings).completions
    return promiser(problem, budget.steps)


def _best_order(
    problem: Malleable,
    budget: Budget,
    dates: Callable[[Sequence[int]], Floats],
    lowest: float,
) -> tuple[Order, Floats]:
    """The best order that search finds from any of the known ones, and its due dates.

    An order that reaches `lowest`, a lower bound on the value, ends the search: in many
    decisions of a plan of flows, the first order does.
    """
    ends = problem.ends
    known: dict[tuple[int, ...], Floats] = {}  # With many equal jobs most orders are the same.

    def value(order: Sequence[int]) -> float:
        found = known.get(tuple(order))
        reached = problem.value(np.minimum(dates(order) if found is None else found, ends))
        if reached <= lowest:
            budget.end()
        return reached

    starts: list[tuple[float, Order]] = []
    for start in _orders(problem):
        key = tuple(start)
        known[key] = known[key] if key in known else dates(start)
        starts.append((value(start), start))
        if starts[-1][0] <= lowest:
            return start, known[key]
    starts.sort(key=lambda one: one[0])
    found = [improve(start, value, budget) for _, start in starts]
    order, _ = min(found, key=lambda one: one[1])
    due = known.get(tuple(order))
    return order, dates(order) if due is None else due


def _orders(problem: Malleable) -> Iterator[Order]:
    """The orders that are worth their time for this number of jobs."""
    for ordering, jobs_most in ORDERS.values():
        if len(problem) <= jobs_most:
            yield ordering(problem)
