"""The best priority order: equal to exhaustive trials, in Python and compiled."""

from __future__ import annotations

from random import Random

import pytest

from experiments.flex.best_order import COMPILED_FROM, best_order
from oracles.all_orders import best_by_trying, random_problem, value_of
from slotwise.core.errors import InputError
from slotwise.core.objective import Hinge, Line
from slotwise.policy.compiled import has_numba
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.exhaustive import MAX_JOBS, search
from tiers import examples

needs_numba = pytest.mark.skipif(not has_numba(), reason="needs slotwise[fast]")


def paper_problem(random: Random, count: int, make: type[Line] | type[Hinge]) -> Malleable:
    """Much as in FLEX 4.1: four of five jobs small, 100 slots, three quarters of them slack."""
    work = [random.uniform(50, 150) * (10 if j % 5 == 0 else 1) for j in range(count)]
    horizon = sum(work) / 100
    return Malleable.of(
        100,
        work,
        [random.uniform(1, 4) for _ in work],
        [max(4.0, w // 8) for w in work],
        [make(random.uniform(0.1, 1), random.uniform(0, horizon)) for _ in work],
    )


@pytest.mark.parametrize("seed", range(examples(3, slow=10)))
def test_the_best_order_is_the_best_of_all(seed: int) -> None:
    """20 random instances each of up to 6 jobs, sum and max, mixed or not: all orders tried."""
    random = Random(seed)
    for number in range(20):
        problem = random_problem(random, random.randint(1, 6), is_mixed=number % 2 == 0)
        order, value = best_order(problem)
        assert sorted(order) == list(range(len(problem)))
        assert value == pytest.approx(best_by_trying(problem)[1], rel=1e-9, abs=1e-12)
        assert value == value_of(problem, order)


@needs_numba
@pytest.mark.parametrize("seed", range(examples(2, slow=5)))
@pytest.mark.slow
def test_machine_code_finds_the_same_order(seed: int) -> None:
    """30 random instances each of up to 8 jobs: the same order as in Python, job for job."""
    from experiments.flex.best_order_compiled import search_compiled

    random = Random(100 + seed)
    for number in range(30):
        problem = random_problem(random, random.randint(1, 8), is_mixed=number % 3 > 0)
        start = list(range(len(problem)))
        random.shuffle(start)
        value = value_of(problem, start)
        assert search_compiled(problem, start, value) == search(problem, start, value)


@needs_numba
@pytest.mark.parametrize("make", [Line, Hinge])
def test_ten_jobs_of_the_paper(make: type[Line] | type[Hinge]) -> None:
    """Machine code and Python agree at full size, and no neighbouring order is better."""
    problem = paper_problem(Random(8), COMPILED_FROM, make)
    order, value = best_order(problem)
    assert value == pytest.approx(value_of(problem, search(problem, order, value)))
    for place in range(len(order) - 1):
        other = order.copy()
        other[place : place + 2] = reversed(other[place : place + 2])
        assert value <= value_of(problem, other) + 1e-9


def test_equal_jobs_are_not_tried_in_all_their_orders() -> None:
    """Twelve equal jobs have one schedule: the answer comes at once."""
    problem = Malleable.of(10, [6.0] * 12, [0.5] * 12, [3.0] * 12, [Line(1.0)] * 12)
    order, value = best_order(problem)
    assert value == value_of(problem, order) == value_of(problem, list(range(12)))


def test_no_jobs_cost_nothing() -> None:
    """An empty problem has an empty order."""
    assert best_order(Malleable.of(4, [], [], [], [])) == ([], 0.0)


def test_too_many_jobs_are_refused() -> None:
    """Thirteen jobs have six thousand million orders; the message gives the maximum."""
    many = [1.0] * (MAX_JOBS + 1)
    problem = Malleable.of(4, many, [0.0] * len(many), many, [Line(1.0)] * len(many))
    with pytest.raises(
        InputError, match="13 jobs have too many orders to try; give at most 12"
    ):
        best_order(problem)
