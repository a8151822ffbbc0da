"""FLEX 2.1: every metric of the paper, minisum and minimax, compared with the true optimum.

The problems are small ones after FLEX 4.1. Every schedule is checked, no value is below the
optimum and no bound above it, and a value that is called exact equals it. The full table:
scripts/bench quality.
"""

from __future__ import annotations

from random import Random

import pytest

from oracles.instances import MINIMAX, MINISUM, Metric
from oracles.quality import SAME, Row, line, measure
from slotwise.core.objective import Line
from slotwise.policy.bounds import BoundJobs, lower_bound
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.solve import solve

LINEAR = ("response", "stretch", "slowdown", "lateness")
"""Metrics whose costs are linear, so that the packing scheme suffices."""

FEW, MANY = 1, 150
"""Problems with min shares, and equally many without, by default and with --slow."""


@pytest.fixture(params=[False, True], ids=["no min shares", "min shares"])
def with_min_shares(request: pytest.FixtureRequest) -> bool:
    """Whether jobs have min shares."""
    return bool(request.param)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    """The number of problems."""
    return MANY if request.config.getoption("--slow") else FEW


def name_of(metric: Metric) -> str:
    """The id of a test."""
    return metric.name


@pytest.mark.parametrize("metric", MINIMAX, ids=name_of)
@pytest.mark.sampled(4)
def test_the_maximum_cost_is_optimal(metric: Metric, with_min_shares: bool, count: int) -> None:
    """Every minimax metric is solved exactly, also with min shares, and equals the bound."""
    row = measured(metric, with_min_shares, count)
    assert row.worst_ratio <= 1 + SAME
    assert row.share_optimal == 1
    assert row.mean_bound_gap <= SAME


@pytest.mark.parametrize("metric", MINISUM, ids=name_of)
@pytest.mark.sampled(4)
def test_the_sum_of_costs_is_near_the_optimum(
    metric: Metric, with_min_shares: bool, count: int
) -> None:
    """Linear costs are within 0.01 % on average, all others within 1 %.

    The averages are those of many problems, so a few problems may use the whole tolerance.
    """
    row = measured(metric, with_min_shares, count)
    goal = 1e-4 if metric.name.split()[-1] in LINEAR else 1e-2
    assert row.mean_ratio <= 1 + goal * MANY / count
    assert row.without_ratio <= MANY / 100


def measured(metric: Metric, with_min_shares: bool, count: int) -> Row:
    """A row of the table, which is printed if a test fails."""
    row = measure(metric, with_min_shares, count)
    print(line(row))
    return row


def test_a_thousand_jobs_are_within_a_fifth_of_a_percent_of_the_lower_bound() -> None:
    """Weighted response of jobs as in FLEX 4.1 without min shares, without any search."""
    random = Random(1)
    work = [max(1.0, random.gauss(m, m / 3)) for m in [100.0] * 800 + [1000.0] * 200]
    max_share = [min(1000.0, amount // 5 + 1) for amount in work]
    costs = [Line(random.uniform(0.01, 1)) for _ in work]
    problem = Malleable.of(1000, work, [0.0] * 1000, max_share, costs)
    found = solve(problem, Budget(0))
    nothing, heights = [0.0] * 1000, problem.heights
    jobs = BoundJobs.of(problem.costs, nothing, work, max_share, heights)
    bound = lower_bound(jobs, 1000, "sum", found.value)
    assert bound <= found.value <= 1.002 * bound
