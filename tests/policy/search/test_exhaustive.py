"""The best priority order: equal to exhaustive trials, in Python and compiled."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from slotwise.core.errors import InputError
from slotwise.core.objective import Cost, Curve, Hinge, Line, Steps
from slotwise.policy.compiled import has_numba
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions
from slotwise.policy.search.exhaustive import (
    COMPILED_FROM,
    MAX_JOBS,
    best_by_trying,
    best_order,
    search,
)
from slotwise.policy.search.prefix import empty_prefix, jobs_of
from tiers import examples

needs_numba = pytest.mark.skipif(not has_numba(), reason="needs slotwise[fast]")


def random_cost(random: Random) -> Cost:
    """A line, a due date, or some steps; weights that often tie."""
    weight = random.choice([1.0, 1.0, 2.0, random.uniform(0.1, 3)])
    due = random.uniform(0, 12)
    return random.choice(
        [
            Line(weight),
            Line(weight, due),
            Hinge(weight, due),
            Steps(((due, weight),)),
            Steps(((due, weight), (due + 2, weight + 1), (due + 5, 9.0))),
        ]
    )


def random_problem(random: Random, count: int, is_mixed: bool = True) -> Malleable:
    """Jobs that often tie, many without a min share, of mixed penalties or of one kind."""
    capacity = random.randint(1, 12)
    max_share = [float(random.randint(1, capacity)) for _ in range(count)]
    costs = [random_cost(random) for _ in range(count)]
    if not is_mixed:
        costs = [costs[0]] * count
    return Malleable.of(
        capacity,
        [random.choice([1.0, 2.0, 4.0, 12.0, random.uniform(0.1, 20)]) for _ in max_share],
        [float(random.choice([0, 0, 1, random.uniform(0, m)])) for m in max_share],
        max_share,
        costs,
        random.choice(["sum", "max"]),
    )


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


def value_of(problem: Malleable, order: list[int]) -> float:
    """The cost of a packed order."""
    p = problem
    return p.value(completions(p.capacity, p.work, p.min_share, p.max_share, order))


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


def test_the_search_needs_no_good_order_to_begin_with() -> None:
    """From any order, and with an initial value of inf, it finds the same value."""
    random = Random(5)
    for _ in range(30):
        problem = random_problem(random, 5)
        found = value_of(problem, search(problem, [4, 3, 2, 1, 0], float("inf")))
        assert found == pytest.approx(best_by_trying(problem)[1], rel=1e-9, abs=1e-12)


def test_a_placed_job_keeps_its_completion() -> None:
    """Prefix by prefix, each job's end is that of the packing of any whole order."""
    random = Random(6)
    for _ in range(examples(100, slow=300)):
        problem = random_problem(random, random.randint(1, 9))
        order = list(range(len(problem)))
        random.shuffle(order)
        p, jobs, prefix = problem, jobs_of(problem), empty_prefix(problem)
        wanted = completions(p.capacity, p.work, p.min_share, p.max_share, order)
        for j in order:
            placement = prefix.earliest(jobs[j])
            prefix = prefix.after(jobs[j], placement)
            assert placement.completion == pytest.approx(wanted[j], rel=1e-9)


def test_a_placed_job_ends_as_early_as_possible() -> None:
    """Any due date before its end, with those before it, needs more than all slots.

    This does not hold for a job that its min share completes while others hold the slack: it
    could complete earlier and leave its min share to them afterwards.
    """

    def must_have(job: int, due: float, at: float) -> float:
        work, min_share, max_share = (
            problem.work[job],
            problem.min_share[job],
            problem.max_share[job],
        )
        held = min(work, min_share * at)
        return float(work if due <= at else max(held, work - max_share * (due - at)))

    random = Random(7)
    for _ in range(examples(40, slow=100)):
        problem = random_problem(random, random.randint(1, 7))
        order = list(range(len(problem)))
        random.shuffle(order)
        p, prefix, jobs = problem, empty_prefix(problem), jobs_of(problem)
        due = dict(enumerate(p.ends.tolist()))  # A job that is not placed holds its min share.
        for j in order:
            if jobs[j].end <= prefix.times[0]:
                continue
            placement = prefix.earliest(jobs[j])
            prefix = prefix.after(jobs[j], placement)
            for factor, fits in ((1 + 1e-7, True), (1 - 1e-6, False)):
                due[j] = placement.completion * factor
                instants = [at for at in due.values() if at < np.inf]
                need = [sum(must_have(k, due[k], at) for k in due) for at in instants]
                is_within = all(
                    n <= p.capacity * at * (1 + 1e-9)
                    for n, at in zip(need, instants, strict=True)
                )
                is_long_enough = due[j] >= p.heights[j] * (1 - 1e-9)
                assert (is_within and is_long_enough) == fits
            due[j] = placement.completion


@needs_numba
@pytest.mark.parametrize("seed", range(examples(2, slow=5)))
def test_machine_code_finds_the_same_order(seed: int) -> None:
    """30 random instances each of up to 8 jobs: the same order as in Python, job for job."""
    from slotwise.policy.search.exhaustive_compiled import search_compiled

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


def test_user_defined_costs_are_searched() -> None:
    """Only the values of a curve are used, in Python."""
    curves = [Curve(lambda t, w=w: w * t * t) for w in (1.0, 3.0, 2.0, 5.0)]
    problem = Malleable.of(4, [6.0, 3.0, 8.0, 2.0], [0.5] * 4, [3.0, 2.0, 4.0, 1.0], curves)
    assert best_order(problem)[1] == pytest.approx(best_by_trying(problem)[1])


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
