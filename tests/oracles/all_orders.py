"""The best priority order of few jobs by packing every order, and random problems for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

from slotwise.core.objective import Cost, Hinge, Line, Steps
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions


def best_by_trying(problem: Malleable) -> tuple[list[int], float]:
    """An order of minimum value, and that value. J! packings."""
    best = min(permutations(range(len(problem))), key=lambda order: value_of(problem, order))
    return list(best), value_of(problem, best)


def value_of(problem: Malleable, order: Sequence[int]) -> float:
    """The cost of a packed order."""
    p = problem
    return p.value(completions(p.capacity, p.work, p.min_share, p.max_share, order))


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
