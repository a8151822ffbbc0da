"""FLEX for sums in its plain form: no result is kept that is needed twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from unittest.mock import patch

import numpy as np

from slotwise.core.costs import Costs
from slotwise.core.objective import Steps
from slotwise.core.tolerances import CLOSE
from slotwise.policy import flex
from slotwise.policy.allocator import Claims
from slotwise.policy.claims import with_measuring
from slotwise.policy.due_dates import Promises
from slotwise.policy.flex import Flex, contended_first
from slotwise.policy.grant import grant
from slotwise.policy.malleable import Malleable
from slotwise.policy.search import solve
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.solve import (
    MalleableSolution,
    improve,
    in_order,
    is_as_good,
    keeping,
    simplest,
)
from slotwise.policy.search.stepwise import choose_steps


def share_plainly(allocator: Flex, claims: Claims) -> list[float]:
    """`Flex.share` for sums, always from the whole problem."""
    claims = with_measuring(claims)
    problem = allocator.problem(claims)
    if not allocator.budget_seconds and problem.costs.are_lines:
        return grant(claims, contended_first(claims, problem.costs.slope.tolist()))
    costs = Costs([allocator._cost(claims, j) for j in range(len(claims))])
    problem = replace(problem, costs=costs)
    with patch.object(Promises, "_add_points", add_points):
        return begin_plainly(allocator, claims, problem)


def begin_plainly(allocator: Flex, claims: Claims, problem: Malleable) -> list[float]:
    """`Flex._begin`, which reads the first interval from the whole schedule."""
    seconds = allocator.budget_seconds
    seconds = flex.BUDGET_SECONDS if seconds is None else seconds
    steps = seconds / (flex.STEP_SECONDS * max(1, len(claims)))
    solution = solve_plainly(problem, Budget(steps))
    first = np.zeros(len(claims))
    for j, pieces in enumerate(solution.packing):
        if pieces and pieces[0][0] == 0:
            first[j] = pieces[0][2]
    order = np.argsort(solution.completion, kind="stable")
    return grant(claims, order.tolist(), flex._within_limits(claims, problem, first))


def solve_plainly(problem: Malleable, budget: Budget) -> MalleableSolution:
    """`solve` for sums, where each order is evaluated each time that it is needed."""
    are_steps = all(isinstance(cost, Steps) for cost in problem.costs)
    search = budget.part(solve.ROUNDS * len(problem) ** 2) if are_steps else budget
    dates = solve._dates(problem, budget)

    def value(order: Sequence[int]) -> float:
        return problem.value(np.minimum(dates(order), problem.ends))

    starts = sorted(solve._orders(problem), key=value)
    found = [improve(start, value, search) for start in starts]
    order, _ = min(found, key=lambda one: one[1])
    due, bound = dates(order), -inf
    if len(problem) > solve.MAX_PROMISES:
        return in_order(problem, order)
    if are_steps:
        choice = choose_steps(problem, due, budget)
        due, bound = choice.due, choice.bound
    best = simplest(problem, [order], due)
    if not problem.costs.are_lines:
        kept = keeping(problem, due)
        is_earlier = kept.completion.sum() < best.completion.sum() * (1 - CLOSE)
        best = kept if is_earlier and is_as_good(kept.value, best.value) else best
    return replace(best, bound=bound)


def add_points(promises: Promises, *instants: float) -> None:
    """`Promises._add_points` in its plain form."""
    for instant in instants:
        place = int(np.searchsorted(promises._at, instant))
        if place < len(promises._at) and promises._at[place] == instant:
            continue
        room = promises.room(np.array([instant]))[0]
        promises._at = np.insert(promises._at, place, instant)
        promises._room = np.insert(promises._room, place, room)
