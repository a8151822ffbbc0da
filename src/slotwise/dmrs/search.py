"""Beyond DMRS: better orders of the jobs, and gaps before reduces filled."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.improve import improve
from slotwise.dmrs.listing import Lister, by_completion
from slotwise.dmrs.problem import Uneven
from slotwise.dmrs.program import linear_program
from slotwise.dmrs.schedule import Runs

BUDGET_STEPS = 500
"""Of search, where nobody says."""


def best_found(problem: Uneven, budget: Budget | None = None) -> Runs:
    """The best schedule found within a budget of steps, each one schedule.

    Never worse than DMRS. Jobs begin in the order of the linear program or by their work over
    their weight (Smith); machines that wait for the maps of a job run tasks of later ones
    meanwhile, where nothing is delayed; then jobs are moved in the order as long as it helps.
    """
    budget = budget or Budget(BUDGET_STEPS)
    lister = Lister(problem, budget.steps)
    dmrs = by_completion(linear_program(problem).completion)
    smith = by_completion(problem.work / problem.weight)

    def value(order: Sequence[int]) -> float:
        return problem.value(lister.completions(order, fills=True))

    order, least = improve(min(dmrs, smith, key=value), value, budget)
    if problem.value(lister.completions(dmrs)) <= least:
        return lister.runs(dmrs)
    return lister.runs(order, fills=True)
