"""FLEX: the best malleable schedule found, for any objective (FLEX 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.tolerances import CLOSE, SAME
from slotwise.policy.due_dates import Promises, minimax, tighten, water_fill
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import Packer, Packing
from slotwise.policy.reservations_compiled import promiser
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.orders import ORDERS, Order, by_area
from slotwise.policy.search.stepwise import choose_steps

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
    order, due = best_order(problem, budget)
    if len(problem) > MAX_PROMISES:
        return in_order(problem, order)
    bound = -inf
    if problem.costs.are_steps:
        choice = choose_steps(problem, due, budget)
        due, bound = choice.due, choice.bound
    find = simplest if problem.costs.are_lines else earliest
    return replace(find(problem, [order], due), bound=bound)


def best_order(problem: Malleable, budget: Budget) -> tuple[Order, Floats]:
    """The best order of a sum that search finds, and its due dates.

    With more than `MAX_PROMISES` jobs these are the completions by the packing scheme.
    """
    # Branch and bound needs a good start, but most of the budget for itself.
    are_steps = problem.costs.are_steps
    search = budget.part(ROUNDS * len(problem) ** 2) if are_steps else budget
    lowest = problem.value(problem.heights)  # No job completes before its height.
    return _best_order(problem, search, _dates(problem, budget), lowest)


def _dates(problem: Malleable, budget: Budget) -> Callable[[Sequence[int]], Floats]:
    """A function from orders to due dates: promises, or the packing scheme if it is as good."""
    is_packed = problem.costs.are_lines and not problem.min_share.any()
    if is_packed or len(problem) > MAX_PROMISES:
        numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
        packings = min(budget.steps, ORDERS_TRIED * len(problem) ** 2)
        return Packer(*numbers, packings).completions
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
    found = [improve(start, value, budget, reached) for reached, start in starts]
    order, _ = min(found, key=lambda one: one[1])
    due = known.get(tuple(order))
    return order, dates(order) if due is None else due


def _orders(problem: Malleable) -> Iterator[Order]:
    """The orders that are worth their time for this number of jobs."""
    for ordering, jobs_most in ORDERS.values():
        if len(problem) <= jobs_most:
            yield ordering(problem)


# Local search for a better priority order: moves one job or exchanges two.


def improve(
    order: Sequence[int],
    evaluate: Callable[[Sequence[int]], float],
    budget: Budget,
    known: float | None = None,
) -> tuple[list[int], float]:
    """An order that is at least as good, and its value.

    It accepts the first better order found, one evaluation per step. It ends when no insertion
    of one job and no exchange of two helps, or when the budget is spent. O(J^2) steps for each
    round over all neighbours. The value of the order may be `known`.
    """
    best = list(order)
    value = evaluate(best) if known is None else known
    helped = True
    while helped:
        helped = False
        for move in _moves(len(best)):
            if not budget.may_go_on():
                return best, value
            candidate = move(best)
            found = evaluate(candidate)
            if found < value - SAME * abs(value):
                best, value, helped = candidate, found, True
    return best, value


Move = Callable[[list[int]], list[int]]


def _moves(count: int) -> Iterator[Move]:
    """Exchanges of adjacent jobs, the smallest changes; then insertions; then exchanges."""
    for first in range(count - 1):
        yield _exchange(first, first + 1)
    for source in range(count):
        for target in range(count):
            if abs(source - target) > 1:
                yield _insertion(source, target)
    for first, other in combinations(range(count), 2):
        if other - first > 1:
            yield _exchange(first, other)


def _insertion(source: int, target: int) -> Move:
    def move(order: list[int]) -> list[int]:
        rest = order[:source] + order[source + 1 :]
        return [*rest[:target], order[source], *rest[target:]]

    return move


def _exchange(first: int, other: int) -> Move:
    def move(order: list[int]) -> list[int]:
        changed = order.copy()
        changed[first], changed[other] = order[other], order[first]
        return changed

    return move


# Solutions: schedules of a malleable problem, from an order or from due dates.

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
    packer = Packer(problem.capacity, problem.work, problem.min_share, problem.max_share)
    return MalleableSolution.of(problem, packer.pieces(order).by_claim(len(problem)))


def at_start(problem: Malleable, order: Sequence[int]) -> Floats:
    """The slots of each job in the first interval of `in_order`. O(J)."""
    slots, slack = problem.min_share.copy(), problem.capacity
    for floor in problem.min_share[problem.min_share > 0].tolist():
        slack -= floor
    for j in order:  # As `packing.sweep` at the instant 0.
        if slack <= 0.0:
            break
        top, share = float(problem.max_share[j]), float(slots[j])
        slots[j] = share + slack if slack < top - share else top
        slack -= min(slack, top - share)
    return slots


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
    packer = Packer(problem.capacity, problem.work, problem.min_share, problem.max_share)
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
    """Whether a value is at most another, up to rounding."""
    return value <= other + SAME * abs(other)


def _horizon(problem: Malleable, due: Floats) -> float:
    """An instant by which all jobs without a due date can be done, whatever the others do."""
    last = np.max(due[np.isfinite(due)], initial=0.0)
    return float(last + problem.work.sum() / problem.capacity + problem.heights.max())
