"""The best of all priority orders by the packing scheme: the FLEX paper's reference (4.1).

It is the optimum over orders. Schedules that no order produces may be better
(docs/algorithms/flex.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import inf

import numpy as np

from slotwise.core.errors import InputError
from slotwise.core.tolerances import SAME
from slotwise.policy.compiled import has_numba
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import Packer, packer_for
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.orders import ORDERS
from slotwise.policy.search.prefix import Placed, Prefix, empty_prefix, jobs_of, twins
from slotwise.policy.search.solve import MalleableSolution, improve, in_order

MAX_JOBS = 12
"""Above this number of jobs too many orders may remain after pruning."""

COMPILED_FROM = 10
"""Jobs from which numba is worth its import."""


def best_order(problem: Malleable) -> tuple[list[int], float]:
    """An order of minimum value, and that value. InputError for more than `MAX_JOBS` jobs.

    Depth-first search over prefixes. A prefix is pruned if its cost, with each other job done
    as early as the prefix alone allows, is not below the best known value. J! orders in the
    worst case; ten jobs take some milliseconds compiled (extra `fast`), otherwise some tenths
    of a second.
    """
    if len(problem) > MAX_JOBS:
        raise InputError(
            f"{len(problem)} jobs have too many orders to try; give at most {MAX_JOBS}"
        )
    if not len(problem):
        return [], 0.0
    packer = _packer(problem)
    start, value = _good_order(problem, packer)
    if len(problem) >= COMPILED_FROM and problem.costs.are_known and has_numba():
        from slotwise.policy.search.exhaustive_compiled import search_compiled

        order = search_compiled(problem, start, value)
    else:
        order = search(problem, start, value)
    return order, problem.value(packer.completions(order))


def not_above_any_order(
    problem: Malleable, solution: MalleableSolution, budget: Budget
) -> MalleableSolution:
    """The solution of a sum for at most `MAX_JOBS` jobs, or that of an order of lower value.

    If the budget suffices, no order has a lower value. One node of the tree of prefixes per
    step. Nothing is searched if the solution is optimal, or the budget was short before.
    """
    value = solution.value
    is_optimal = solution.bound >= value or value <= problem.value(problem.heights)
    if is_optimal or len(problem) > MAX_JOBS or budget.was_short:
        return solution
    order = np.argsort(solution.completion, kind="stable").tolist()
    found = search(problem, order, value, budget)
    return solution if found == order else in_order(problem, found)


def best_by_trying(problem: Malleable) -> tuple[list[int], float]:
    """The same as `best_order` by packing every order. J! packings: the oracle for few jobs."""
    packer = _packer(problem)

    def value(order: Sequence[int]) -> float:
        return problem.value(packer.completions(order))

    best = min(permutations(range(len(problem))), key=value)
    return list(best), value(best)


def search(
    problem: Malleable, order: Sequence[int], value: float, budget: Budget | None = None
) -> list[int]:
    """An order of lower value than this one if there is one, else this one. At worst J!.

    A budget ends the search earlier.
    """
    branches = _Branches(problem, order, value, budget or Budget())
    branches.visit(empty_prefix(problem), list(order), -inf if branches.is_max else 0.0, None)
    return branches.best


class _Branches:
    """The search: the best order so far, and the current prefix."""

    def __init__(
        self, problem: Malleable, order: Sequence[int], value: float, budget: Budget
    ) -> None:
        self.best, self._value, self._budget = list(order), value, budget
        self.is_max = problem.aggregate == "max"
        self._costs, self._jobs = tuple(problem.costs), jobs_of(problem)
        self._trial: list[int] = []
        self._rank = {j: rank for rank, j in enumerate(order)}
        self._twin = twins(problem, order)

    def visit(self, prefix: Prefix, rest: list[int], spent: float, last: int | None) -> None:
        """Try all orders of the rest after this prefix.

        spent   the cost of the placed jobs
        last    the job placed last if it had its max share immediately, otherwise None
        """
        if not rest:
            if spent < self._value:
                self.best, self._value = self._trial.copy(), spent
            return
        if not self._budget.may_go_on():
            return
        placements = {j: prefix.earliest(self._jobs[j]) for j in rest}
        costs = {j: self._costs[j].at(p.completion) for j, p in placements.items()}
        if self._total(spent, *costs.values()) >= self._value - SAME * abs(self._value):
            return
        for j in self._choices(prefix, rest, placements, last):
            self._trial.append(j)
            is_at_once = placements[j].full == prefix.times[0] < placements[j].completion
            self.visit(
                prefix.after(self._jobs[j], placements[j]),
                [k for k in rest if k != j],
                self._total(spent, costs[j]),
                j if is_at_once else None,
            )
            self._trial.pop()

    def _choices(
        self,
        prefix: Prefix,
        rest: list[int],
        placements: dict[int, Placed],
        last: int | None,
    ) -> list[int]:
        """The jobs to try next; of orders that lead to the same schedule, one is enough."""
        begin = prefix.times[0]
        for j in rest:
            if placements[j].completion <= begin:  # Its min share completes it.
                return [j]
        return [
            j
            for j in rest
            # Equal jobs stay in order. So do two jobs that both get their max share at once.
            if self._twin.get(j) not in rest
            and not (
                last is not None
                and self._rank[j] < self._rank[last]
                and placements[j].full == begin
            )
        ]

    def _total(self, *costs: float) -> float:
        return max(costs) if self.is_max else sum(costs)


def _packer(problem: Malleable) -> Packer:
    return packer_for(problem.capacity, problem.work, problem.min_share, problem.max_share)


def _good_order(problem: Malleable, packer: Packer) -> tuple[list[int], float]:
    """The best of the known orderings, improved until no move of one or two jobs helps."""

    def value(order: Sequence[int]) -> float:
        return problem.value(packer.completions(order))

    known = (make(problem) for make, jobs_most in ORDERS.values() if len(problem) <= jobs_most)
    return improve(min(known, key=value), value, Budget())
