"""The generic order: by completion in the best moldable schedule."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from slotwise.core.objective import Aggregate, Cost, Curve, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable
from slotwise.policy.search import orders
from slotwise.policy.search.orders import Moldable, generic_order, moldable_units


def random_problem(random: Random, count: int, slots: int, aggregate: Aggregate) -> Malleable:
    """Jobs with costs of all kinds, mixed."""
    work = [random.uniform(1, 60) for _ in range(count)]
    return Malleable.of(
        slots,
        work,
        [random.choice([0, 0, 1]) for _ in work],
        [random.randint(1, slots) for _ in work],
        [random_cost(random, 3 * sum(work) / slots) for _ in work],
        aggregate,
    )


def random_cost(random: Random, horizon: float) -> Cost:
    """A line, a hinge, steps, or a curve that bends down."""
    weight, due = random.uniform(0.1, 1), random.uniform(0, horizon)
    return random.choice(
        [
            Line(weight, due),
            Hinge(weight, due),
            Steps(((due, 10 * weight),)),
            Steps(((due / 2, weight), (due, 20 * weight))),
            Curve(lambda end: weight * end**0.5),
        ]
    )


def best_of_all(moldable: Moldable) -> float:
    """The least sum or maximum over all whole numbers of units."""
    resources = moldable.resources
    ways = product(*(range(int(room) + 1) for room in resources.room))
    return min(
        resources.value(resources.min_share + np.array(way), moldable.problem.aggregate)
        for way in ways
        if sum(way) <= resources.slack
    )


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("seed", range(6))
def test_the_moldable_schedule_is_the_best(seed: int, aggregate: Aggregate) -> None:
    """Costs of all kinds on few slots: no other numbers of units cost less."""
    random = Random(seed)
    for _ in range(15):
        problem = random_problem(random, random.randint(1, 4), random.randint(4, 9), aggregate)
        moldable = Moldable.of(problem)
        value = moldable.resources.value(moldable_units(moldable), aggregate)
        assert value == pytest.approx(best_of_all(moldable), rel=1e-9, abs=1e-9)


def test_the_order_by_hand() -> None:
    """Work 4, 36 and 16 on 12 slots: 2, 6 and 4 slots end at 2, 6 and 4."""
    problem = Malleable.of(12, [4, 36, 16], [0] * 3, [12] * 3, [Line(1)] * 3)
    moldable = Moldable.of(problem)
    assert moldable_units(moldable).tolist() == [2, 6, 4]
    assert generic_order(problem) == [0, 2, 1]


def test_for_weighted_response_it_is_smiths_order() -> None:
    """Without limits the best slots go with sqrt(w W), so the ends with sqrt(W / w)."""
    random = np.random.default_rng(4)
    ratio = random.permutation(1.3 ** np.arange(30))
    weight = random.uniform(0.1, 1, 30)
    problem = Malleable.of(
        1e5, ratio * weight, [0] * 30, [1e5] * 30, [Line(w) for w in weight.tolist()]
    )
    assert generic_order(problem) == np.argsort(ratio).tolist()


def test_for_the_greatest_response_it_is_the_order_of_weights() -> None:
    """If all weighted ends are equal, the job with the largest weight ends first."""
    random = np.random.default_rng(5)
    weight = random.permutation(1.1 ** np.arange(30))
    work = random.uniform(1, 50, 30)
    problem = Malleable.of(
        1e5, work, [0] * 30, [1e5] * 30, [Line(w) for w in weight.tolist()], "max"
    )
    assert generic_order(problem) == np.argsort(-weight).tolist()


def test_due_dates_that_can_all_be_met_give_their_order() -> None:
    """A job gets only the slots that its due date needs, so the ends follow the due dates."""
    due = [9.0, 3.0, 20.0, 5.0]
    problem = Malleable.of(
        1000, [90.0] * 4, [0] * 4, [1000] * 4, [Hinge(1, instant) for instant in due]
    )
    assert generic_order(problem) == [1, 3, 0, 2]


def test_a_job_that_is_given_up_comes_last() -> None:
    """10 slots cannot meet all of three due dates: the job of lowest weight waits."""
    costs = [Steps(((4.0, 3.0),)), Steps(((4.0, 1.0),)), Steps(((4.0, 2.0),))]
    problem = Malleable.of(10, [16.0, 16.0, 16.0], [0] * 3, [10] * 3, costs)
    assert generic_order(problem) == [0, 2, 1]


def test_ties_go_by_place() -> None:
    """Equal jobs keep their order; no jobs have none; one job has one."""
    problem = Malleable.of(10, [5.0] * 5, [0] * 5, [10] * 5, [Line(1)] * 5)
    assert generic_order(problem) == [0, 1, 2, 3, 4]
    assert generic_order(Malleable.of(10, [], [], [], [])) == []
    assert generic_order(Malleable.of(0.3, [7], [0], [1], [Steps(((1, 1),))])) == [0]


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_every_problem_has_an_order(aggregate: Aggregate) -> None:
    """More jobs than slots, fractions of slots, min shares that sum to all: each job once."""
    random = Random(8)
    for count, slots in [(1, 1), (40, 3), (7, 7), (25, 200)]:
        problem = random_problem(random, count, slots, aggregate)
        assert sorted(generic_order(problem)) == list(range(count))


def test_above_the_size_limit_it_is_about_one_step_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps solved by their envelopes, as for large problems: at most one step above."""
    random = Random(9)
    for _ in range(20):
        work = [random.uniform(5, 90) for _ in range(25)]
        steps = [Steps(((random.uniform(2, 40), random.uniform(1, 3)),)) for _ in work]
        problem = Malleable.of(60, work, [0] * 25, [60] * 25, steps)
        moldable = Moldable.of(problem)
        monkeypatch.setattr(orders, "AFFORDABLE", 10**9)
        optimum = moldable.resources.value(moldable_units(moldable))
        monkeypatch.setattr(orders, "AFFORDABLE", 0)
        value = moldable.resources.value(moldable_units(moldable))
        assert optimum - 1e-9 <= value <= optimum + 3 + 1e-9
        assert sorted(generic_order(problem)) == list(range(25))


def test_large_problems_are_ordered() -> None:
    """2,000 jobs with costs of all kinds on 10,000 slots, by sum and by maximum."""
    for aggregate in ("sum", "max"):
        problem = random_problem(Random(10), 2000, 10_000, aggregate)
        assert sorted(generic_order(problem)) == list(range(2000))
