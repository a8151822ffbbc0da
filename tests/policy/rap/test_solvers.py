"""The solvers of the sum, against trying everything and against each other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotwise.core.objective import Aggregate
from slotwise.policy.rap import (
    Gains,
    ResourceProblem,
    dynamic_programme,
    fox,
    frederickson_johnson,
    galil_megiddo,
    is_convex,
    minisum_gains,
    solve,
)
from tiers import examples

SELECTIONS = (fox, galil_megiddo, frederickson_johnson)
Making = Callable[[Random, bool], ResourceProblem]
Searching = Callable[[ResourceProblem, Aggregate], float]
Checking = Callable[[ResourceProblem, np.ndarray], None]


def by_work(random: Random, jobs: int, total: int) -> ResourceProblem:
    """Jobs that cost weight * work / units, infinitely much without any."""
    work = np.array([random.uniform(0.1, 1) * random.uniform(1, 1000) for _ in range(jobs)])

    def cost(jobs: np.ndarray, units: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(work[jobs] / units)

    return ResourceProblem.of(total, [0] * jobs, [total] * jobs, cost)


def test_a_problem_by_hand() -> None:
    """Gains 10 4 1 and 6 5 5: of 4 units the first job gets 1 and the second 3, at cost 5."""
    problem = ResourceProblem.of_table(4, [[15, 5, 1, 0], [16, 10, 5, 0]])
    for select in SELECTIONS:
        assert select(minisum_gains(problem)).tolist() == [1, 3]
    assert dynamic_programme(problem).tolist() == [1, 3]
    assert problem.value(np.array([1, 3])) == 5


@pytest.mark.parametrize("seed", range(8))
def test_selections_find_the_best_of_all(
    seed: int, random_problem: Making, best_of_all: Searching, assert_allowed: Checking
) -> None:
    """100 convex problems each: the least sum there is, and the same units by all three."""
    random = Random(seed)
    for _ in range(examples(25, slow=100)):
        problem = random_problem(random, True)
        assert is_convex(problem)
        found = [problem.min_share + select(minisum_gains(problem)) for select in SELECTIONS]
        for units in found:
            assert_allowed(problem, units)
            assert problem.value(units) == best_of_all(problem, "sum")
            assert units.tolist() == found[0].tolist()


@pytest.mark.parametrize("seed", range(8))
def test_the_dynamic_program_finds_the_best_of_all(
    seed: int, random_problem: Making, best_of_all: Searching, assert_allowed: Checking
) -> None:
    """100 problems of any shape each, by the dynamic programme and by the solver chosen."""
    random = Random(1000 + seed)
    for _ in range(examples(25, slow=100)):
        problem = random_problem(random, False)
        for units in (dynamic_programme(problem), solve(problem)):
            assert_allowed(problem, units)
            assert problem.value(units) == best_of_all(problem, "sum")


@given(
    lists=st.lists(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.0, 7.25]), max_size=40), max_size=30
    ),
    units=st.integers(0, 200),
)
def test_selections_take_the_largest_gains(lists: list[list[float]], units: int) -> None:
    """In sorted lists with many ties, the selected gains sum to the largest ones."""
    columns = [sorted(values, reverse=True) for values in lists]
    longest = max(map(len, columns), default=0)
    cells = np.array([values + [0.0] * (longest + 1 - len(values)) for values in columns])
    room = np.array([len(values) for values in columns], dtype=np.int64)
    gains = Gains(units, room, lambda jobs, given: cells[jobs, given])
    best = sum(sorted((gain for values in columns for gain in values), reverse=True)[:units])
    found = [select(gains).tolist() for select in SELECTIONS]
    assert found[0] == found[1] == found[2]
    assert sum(found[0]) <= units
    assert sum(sum(v[:n]) for v, n in zip(columns, found[0], strict=True)) == best


@pytest.mark.parametrize(
    ("jobs", "total"), [(3, 4000), (60, 1000), (200, 200), (300, 40), (1, 500)]
)
def test_selections_agree_on_larger_problems(jobs: int, total: int) -> None:
    """Few jobs and many units, as many, and more jobs than units."""
    problem = by_work(Random(jobs), jobs, total)
    found = [select(minisum_gains(problem)).tolist() for select in SELECTIONS]
    assert found[0] == found[1] == found[2]
    assert sum(found[0]) == total


def test_the_dynamic_program_agrees_on_a_larger_convex_problem() -> None:
    """30 jobs and 300 units: the same sum as marginal analysis."""
    problem = by_work(Random(5), 30, 300)
    by_gains = problem.value(fox(minisum_gains(problem)))
    assert problem.value(dynamic_programme(problem)) == pytest.approx(by_gains, rel=1e-12)


def test_equal_gains_go_to_the_first_jobs() -> None:
    """Ten units among three equal jobs with equal gains: the first two have room for 4 each."""
    gains = Gains(10, np.array([4, 4, 4]), lambda jobs, given: np.ones(len(jobs)))
    for select in SELECTIONS:
        assert select(gains).tolist() == [4, 4, 2]


def test_a_unit_that_gains_nothing_is_not_given() -> None:
    """Two jobs that cost nothing with 1 and 2 units leave 97 of 100."""
    problem = ResourceProblem.of_table(100, [[3] + [0] * 60, [9, 2] + [0] * 60])
    for select in SELECTIONS:
        assert select(minisum_gains(problem)).tolist() == [1, 2]
    assert dynamic_programme(problem).tolist() == [1, 2]


def test_rounding_in_the_gains_does_no_harm() -> None:
    """With gains that rise by rounding errors, exactly the available units are given."""
    noise = np.random.default_rng(7).uniform(-1e-12, 1e-12, (40, 60))
    gains = Gains(900, np.full(40, 60), lambda jobs, given: 1.0 + noise[jobs, given])
    for select in SELECTIONS:
        given = select(gains)
        assert given.sum() == 900
        assert (given <= 60).all()


def test_selection_reads_few_gains() -> None:
    """100 jobs and 100,000 units: Frederickson and Johnson's bound, J log(S/J), times 15."""
    problem, looked = by_work(Random(2), 100, 100_000), 0
    gains = minisum_gains(problem)

    def counted(jobs: np.ndarray, given: np.ndarray) -> np.ndarray:
        nonlocal looked
        looked += len(jobs)
        return gains.gain(jobs, given)

    frederickson_johnson(Gains(gains.units, gains.room, counted))
    assert looked <= 15 * 100 * np.log2(1000)


@pytest.mark.parametrize("units", [0, 7])
def test_no_jobs_get_no_units(units: int) -> None:
    """All solvers accept an empty problem."""
    problem = ResourceProblem.of_table(units, [])
    for select in SELECTIONS:
        assert select(minisum_gains(problem)).tolist() == []
    assert dynamic_programme(problem).tolist() == solve(problem).tolist() == []
    assert solve(problem, "max").tolist() == []
