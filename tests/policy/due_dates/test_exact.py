"""Feasibility and optima, against linear programs over all orders of completion.

The oracle does not use our theorems. First it is tested itself on examples solved by hand.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from oracles.checking import check_packing
from oracles.instances import MINIMAX, MINISUM, Metric, instances
from oracles.orders import optimum
from slotwise.core.costs import Floats
from slotwise.core.objective import Cost, Hinge, Line, Steps
from slotwise.policy.due_dates import fits
from slotwise.policy.malleable import Malleable
from tiers import examples

STEPS = [metric for metric in MINISUM if metric.name in ("weighted tardy", "sla")]
LATENESS = next(metric for metric in MINIMAX if metric.name == "weighted lateness")

NEAR = 1e-6
"""Seconds; the error of HiGHS is about a tenth of it."""

FAR = 1e3
"""Seconds; by then every job is done."""


def best_of(problem: Malleable, costs: list[Cost], aggregate: str) -> float:
    """The optimum of the same jobs for other costs."""
    return optimum(
        problem.capacity, problem.work, problem.min_share, problem.max_share, costs, aggregate
    )


def test_two_jobs_are_best_done_together() -> None:
    """Work 40 each, at most 8 of 10 slots: both are done at 8, five slots each."""
    assert optimum(10, [40, 40], [0, 0], [8, 8], [Line(1)] * 2, "max") == pytest.approx(8)


def test_due_dates_that_no_order_of_priority_keeps() -> None:
    """On 2 slots work 2.5, at most 2, is done at 1.5 and work 2, at most 1, at 3."""
    steps = [Steps(((1.5, 1.0),)), Steps(((3.0, 1.0),))]
    hinges = [Hinge(1.0, 1.5), Hinge(1.0, 3.0)]
    for costs in (steps, hinges):
        assert optimum(2, [2.5, 2], [0, 0], [2, 1], costs, "sum") == pytest.approx(0, abs=1e-6)


def test_a_min_share_delays_the_other_job() -> None:
    """Work 10 and 8 on 4 slots: without min shares the first is done at 2.5.

    If the second holds 2 as long as it is not done, then the first is done at 5 before it, or
    at 4.5 after it.
    """
    first_only: list[Cost] = [Line(1.0), Hinge(1.0, 100.0)]
    assert optimum(4, [10, 8], [0, 0], [4, 4], first_only, "sum") == pytest.approx(2.5)
    assert optimum(4, [10, 8], [0, 2], [4, 4], first_only, "sum") == pytest.approx(4.5)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("metric", STEPS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("with_least", [False, True])
def test_the_chosen_steps_are_the_best_of_all_combinations(
    metric: Metric, aggregate: str, with_least: bool
) -> None:
    """The cheapest combination of steps whose due dates can all be kept."""
    count = examples(2, slow=15)
    for problem in instances(metric, seed=1, count=count, with_least=with_least):
        if len(problem) > 3:
            continue
        choices = [[*cost.kinks, FAR] for cost in problem.costs]
        charges = [
            problem.costs.at(np.array(due))
            for due in product(*choices)
            if best_of(problem, [Line(1.0, d) for d in due], "max") <= NEAR
        ]
        cheapest = min(map(max if aggregate == "max" else sum, charges))
        found = best_of(problem, list(problem.costs), aggregate)
        assert found == pytest.approx(cheapest, abs=NEAR)


@pytest.mark.parametrize("with_least", [False, True])
def test_due_dates_fit_exactly_up_to_the_limit(with_least: bool) -> None:
    """The work needed by each instant decides exactly which due dates some order can keep.

    Random due dates, all moved by the least delay (divided by a weight) with which some order
    of completion keeps them, are on the border: a millionth of a second later they fit, and a
    millionth earlier they do not.
    """
    count = examples(8, slow=1000)
    for problem in instances(LATENESS, 2, count, with_least):
        slope, due = problem.costs.slope, problem.costs.origin
        delay = best_of(problem, list(problem.costs), "max")
        for more in (1e-6, 1e-3, 1.0):
            assert keeps(problem, due + (delay + more) / slope), f"{problem} with {more} more"
            assert not keeps(problem, due + (delay - more) / slope), f"{problem}, {more} less"


def keeps(problem: Malleable, due: Floats) -> bool:
    """Whether these due dates can be kept, by the theorem."""
    return fits(problem.capacity, problem.work, problem.min_share, problem.max_share, due)


ONE_AT_A_TIME = ([(0.0, 2.0, 4.0)], [(2.0, 4.0, 4.0)])
"""Work 8 each on 4 slots, one job after the other."""

WRONG = {
    "more slots than there are": ([(0.0, 2.0, 4.0)], [(1.0, 3.0, 4.0)]),
    "more than the max share": ([(0.0, 2.0, 4.0)], [(2.0, 3.6, 5.0)]),
    "less work than there is": ([(0.0, 2.0, 4.0)], [(2.0, 3.9, 4.0)]),
    "two pieces at once": ([(0.0, 2.0, 2.0), (1.0, 3.0, 2.0)], [(3.0, 5.0, 4.0)]),
    "a job never run": ([(0.0, 2.0, 4.0)], []),
}


def two_jobs(min_share: float = 0.0) -> Malleable:
    """Two jobs of work 8 on 4 slots."""
    return Malleable.of(4, [8, 8], [min_share] * 2, [4, 4], [Line(1.0)] * 2)


def test_the_checker_accepts_a_schedule() -> None:
    """One job after the other is a schedule, but not if both have min shares."""
    check_packing(two_jobs(), ONE_AT_A_TIME, [2.0, 4.0])
    with pytest.raises(AssertionError, match="job 1 holds nothing"):
        check_packing(two_jobs(min_share=1.0), ONE_AT_A_TIME, [2.0, 4.0])


@pytest.mark.parametrize("what", WRONG)
def test_the_checker_rejects_a_broken_schedule(what: str) -> None:
    """Each rule of a schedule, broken alone."""
    ends = [pieces[-1][1] if pieces else 0.0 for pieces in WRONG[what]]
    with pytest.raises(AssertionError):
        check_packing(two_jobs(), WRONG[what], ends)
