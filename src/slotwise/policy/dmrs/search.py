"""Improves DMRS: better orders of the jobs, other machines, and gaps before reduces filled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.core.tolerances import SAME
from slotwise.policy.dmrs.algorithm import by_completion, program_order
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.problem import RelatedMachines, Runs
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.solve import improve

BUDGET_STEPS = 500
"""Search steps by default."""

ASKED = 300
"""The approximate number of schedules in a search that a clock ends."""

MAX_FLOORS = 6
"""The maximum number of minimum speeds to choose from."""

PART = 0.7
"""The part of the remaining steps for orders, before machines are changed."""


def best_found(problem: RelatedMachines, budget: Budget | None = None) -> Runs:
    """The best schedule found within a budget of steps, one schedule per step.

    Never worse than DMRS. The search starts with the order of the linear program or by work
    over weight (Smith). Machines that wait for the maps of a job run tasks of later jobs
    meanwhile if that delays nothing. Then, alternately as long as it helps, jobs move in the
    order, and single stages stop or resume using slow machines.
    """
    budget = budget or Budget(BUDGET_STEPS)
    lister = TaskLister(problem, min(budget.steps, ASKED))
    dmrs, smith = _first_orders(problem)
    slowest = [0.0] * len(problem.columns.tasks)

    def value(order: Sequence[int]) -> float:
        return problem.value(lister.completions(order, True, slowest))

    order = min(dmrs, smith, key=value)
    lowest, before = value(order), float("inf")
    while lowest < before and budget.may_go_on():
        before = lowest
        order, lowest = improve(order, value, budget.part(PART * (budget.steps - budget.spent)))
        lowest = _leave_slow(problem, lister, order, slowest, lowest, budget)
    order, lowest = improve(order, value, budget)
    if problem.value(lister.completions(dmrs)) <= lowest:
        return lister.runs(dmrs)
    return lister.runs(order, True, slowest)


def best_order(lister: TaskLister, budget: Budget, before: Sequence[int]) -> Sequence[int]:
    """The best order of the jobs found within a budget, with gaps filled.

    Starts with one of the orders of `best_found` or with the previous order, and only moves
    jobs.
    """
    problem = lister.problem

    def value(order: Sequence[int]) -> float:
        return problem.value(lister.completions(order, fills=True))

    return improve(min([before, *_first_orders(problem)], key=value), value, budget)[0]


def _first_orders(problem: RelatedMachines) -> tuple[list[int], list[int]]:
    """The orders by the linear program and by work over weight (Smith)."""
    return program_order(problem), by_completion(problem.work / problem.weight)


def _leave_slow(
    problem: RelatedMachines,
    lister: TaskLister,
    order: Sequence[int],
    slowest: list[float],
    lowest: float,
    budget: Budget,
) -> float:
    """Change the minimum speed of the machines of stages where it helps.

    Updates `slowest` and returns the new value.
    """
    first = problem.columns.graphs.first.tolist()
    floors = _floors(problem)
    for stage in (stage for job in order for stage in range(first[job], first[job + 1])):
        for floor in floors:
            kept = slowest[stage]
            if floor == kept:
                continue
            if not budget.may_go_on():
                return lowest
            slowest[stage] = floor
            found = problem.value(lister.completions(order, True, slowest))
            if found < lowest - SAME * abs(lowest):
                lowest = found
            else:
                slowest[stage] = kept
    return lowest


def _floors(problem: RelatedMachines) -> list[float]:
    """Minimum speeds to try: 0, and some of the speeds of machines, including the largest."""
    speeds = np.unique(problem.speed)[1:]
    some = np.linspace(0, len(speeds) - 1, min(len(speeds), MAX_FLOORS)).round().astype(int)
    return [0.0, *speeds[some].tolist()]
