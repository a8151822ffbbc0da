"""The resource allocation problem: validation, choices and convexity."""

from __future__ import annotations

import numpy as np
import pytest

from slotwise.core.errors import InputError
from slotwise.policy.rap import ResourceProblem, is_convex

INF, NAN = float("inf"), float("nan")


def test_min_units_beyond_the_total_are_refused() -> None:
    """The message names the place, both numbers and what to do."""
    with pytest.raises(InputError, match="min_share: the jobs need 5 units and there are 4; "):
        ResourceProblem.of_table(4, [[9, 8, 7], [9, 8, 7, 6]], min_share=[2, 3])


def test_contradicting_shares_are_refused() -> None:
    """Negative min shares, max shares below min shares, lists of different length."""
    with pytest.raises(InputError, match=r"min_share\[1\] is -1 units; give units >= 0"):
        ResourceProblem.of_table(4, [[1, 0], [1, 0]], min_share=[0, -1])
    with pytest.raises(InputError, match=r"max_share\[0\] is 0 units; give at least min_share"):
        ResourceProblem.of_table(4, [[1, 0]], min_share=[1], max_share=[0])
    with pytest.raises(InputError, match="1 min_share and 2 max_share; give one of each"):
        ResourceProblem.of_table(4, [[1, 0], [1, 0]], min_share=[1])


@pytest.mark.parametrize("row", [[1.0, 2.0], [3.0, NAN], [NAN, 1.0], [1.0, -INF], []])
def test_a_table_that_rises_or_holds_no_costs_is_refused(row: list[float]) -> None:
    """Costs do not rise with units, and are numbers or inf."""
    with pytest.raises(
        InputError, match=r"table\[1\] is .*; give costs > -inf that do not rise"
    ):
        ResourceProblem.of_table(4, [[1.0, 0.0], row])


@pytest.mark.parametrize(
    ("row", "convex"),
    [
        ([9, 5, 2, 0, 0], True),
        ([9, 6, 3, 0], True),
        ([INF, INF, 6, 3, 2], True),
        ([5, 5, 0], False),
        ([0.3, 0.2, 0.1, 0.0], True),  # Up to rounding.
        ([1.0, 0.5, 0.0, -0.5 - 1e-9], False),
        ([4], True),
    ],
)
def test_convexity_is_detected(row: list[float], convex: bool) -> None:
    """The second of two jobs is not convex; rounding errors do not matter."""
    assert is_convex(ResourceProblem.of_table(9, [[3, 2, 1], row])) == convex


def test_convexity_is_checked_only_within_the_shares() -> None:
    """A step that no job can reach with the available units does not count."""
    table = [[9.0, 5.0, 3.0, 2.0, 2.0, 0.0]]
    assert is_convex(ResourceProblem.of_table(4, table))
    assert not is_convex(ResourceProblem.of_table(5, table))
    assert is_convex(ResourceProblem.of_table(9, table, max_share=[4]))
    assert not is_convex(ResourceProblem.of_table(9, [[9.0, 9.0, 1.0, 0.0]]))
    assert is_convex(ResourceProblem.of_table(9, [[9.0, 9.0, 1.0, 0.0]], min_share=[1]))


def test_convexity_is_checked_in_batches() -> None:
    """300 jobs of 2,000 units: one violation in the last job is found."""

    def cost(jobs: np.ndarray, units: np.ndarray) -> np.ndarray:
        return np.asarray(1e4 / (units + 1.0) + ((jobs == 299) & (units < 1500)))

    assert not is_convex(ResourceProblem.of(2000, [0] * 300, [2000] * 300, cost))
    assert is_convex(ResourceProblem.of(2000, [0] * 299, [2000] * 299, cost))


def test_only_units_that_lower_the_cost_are_considered() -> None:
    """The corners of a staircase; with `drops`, only those are evaluated."""
    row = [9, 9, 4, 4, 4, 1, 1]
    problem = ResourceProblem.of_table(6, [row], min_share=[1])
    over, costs = problem.choices(0)
    assert (over.tolist(), costs.tolist()) == ([0, 1, 4], [9, 4, 1])
    named = ResourceProblem.of(
        6, [1], [6], problem.cost, drops=lambda job: np.array([0, 1, 2, 3, 5, 99])
    )
    over, costs = named.choices(0)
    assert (over.tolist(), costs.tolist()) == ([0, 1, 4], [9, 4, 1])
