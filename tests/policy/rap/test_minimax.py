"""The minimax transformation: its definition, and that it finds the least maximum."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from oracles.lowest_level import lowest_level
from slotwise.core.objective import Aggregate
from slotwise.policy.rap import (
    ResourceProblem,
    dynamic_programme,
    fox,
    frederickson_johnson,
    galil_megiddo,
    minimax_gains,
    solve,
)
from tiers import examples

Making = Callable[[Random, bool], ResourceProblem]
Searching = Callable[[ResourceProblem, Aggregate], float]
Checking = Callable[[ResourceProblem, np.ndarray], None]


@pytest.mark.parametrize("seed", range(8))
def test_the_least_maximum_of_all(
    seed: int, random_problem: Making, best_of_all: Searching, assert_allowed: Checking
) -> None:
    """100 problems of any shape each: by the transformation, three times, and by levels."""
    random = Random(seed)
    for _ in range(examples(25, slow=100)):
        problem = random_problem(random, random.random() < 0.5)
        gains = minimax_gains(problem)
        found = [select(gains) for select in (fox, galil_megiddo, frederickson_johnson)]
        assert found[0].tolist() == found[1].tolist() == found[2].tolist()
        direct = lowest_level(problem)
        for units in (problem.min_share + found[0], direct, solve(problem, "max")):
            assert_allowed(problem, units)
            assert problem.value(units, "max") == best_of_all(problem, "max")


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_the_transformed_costs_has_the_same_optimum(
    seed: int, random_problem: Making, best_of_all: Searching
) -> None:
    """G(s), the sum of F(i) from s to the end, is convex; its best sum has the best maximum.

    The sum is solved by the dynamic programme, which does not use gains.
    """
    random = Random(100 + seed)
    for _ in range(examples(25, slow=100)):
        problem = random_problem(random, False)
        rows = [np.minimum(problem.row(j), 1e6) for j in range(len(problem))]
        lowest = min(row.min() for row in rows) - 1  # Costs are to be > 0.
        table = [[sum(row[s:-1] - lowest) for s in range(len(row))] for row in rows]
        given = dynamic_programme(ResourceProblem.of_table(problem.slack, table))
        value = problem.value(problem.min_share + given, "max")
        assert value == best_of_all(problem, "max")


def test_summing_from_the_front_is_wrong_for_costs_that_fall() -> None:
    """The sum of F(i) up to s, read as if s were slots, gives the wrong job the slot.

    Two jobs that cost 9 6 and 4 1 with 1 and 2 units, 3 units. Its first differences are F(2),
    6 and 1, so that the least sum gives the unit to the job that costs less already: 9 stays.
    Summed from the end the differences are -F(1), -9 and -4: the least maximum is 6.
    """
    problem = ResourceProblem.of_table(3, [[99, 9, 6], [98, 4, 1]], min_share=[1, 1])
    front = {(2, 1): 9 + 6 + 4, (1, 2): 9 + 4 + 1}
    assert min(front, key=front.__getitem__) == (1, 2)
    assert problem.value(np.array([1, 2]), "max") == 9
    assert solve(problem, "max").tolist() == [2, 1]
    assert problem.value(np.array([2, 1]), "max") == 6


def test_no_unit_goes_below_the_level_that_must_stay() -> None:
    """A job that costs 8 with all it can get: the other needs no more units than for 8."""
    problem = ResourceProblem.of_table(50, [[20, 8], [100, 50, 8, 4, 2, 1]])
    assert solve(problem, "max").tolist() == lowest_level(problem).tolist() == [1, 2]


def test_both_methods_agree_on_a_larger_problem() -> None:
    """300 jobs that cost work over units, 5,000 units: the same maximum, found otherwise."""
    random = Random(3)
    work = np.array([random.uniform(1, 1000) for _ in range(300)])
    problem = ResourceProblem.of(
        5000, [1] * 300, [5000] * 300, lambda jobs, units: np.asarray(work[jobs] / units)
    )
    one, other = solve(problem, "max"), lowest_level(problem)
    assert problem.value(one, "max") == problem.value(other, "max")
    assert other.sum() <= 5000


def test_too_few_units_for_a_finite_cost() -> None:
    """Three jobs that cost inf without a unit, two units: every way costs inf, and is found."""
    problem = ResourceProblem.of_table(2, [[np.inf, 1]] * 3)
    assert problem.value(lowest_level(problem), "max") == np.inf
    assert problem.value(solve(problem, "max"), "max") == np.inf
    assert problem.value(solve(problem)) == np.inf
