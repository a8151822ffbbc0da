"""Convex envelopes: below the costs, convex, and hardly worse when solved instead of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from slotwise.allocation.rap import (
    ResourceProblem,
    convex_envelope,
    dynamic_programme,
    frederickson_johnson,
    is_convex,
    minisum_gains,
)

Making = Callable[[Random, bool], ResourceProblem]


def test_an_envelope_by_hand() -> None:
    """Of two staircases the first, 9 9 8 0 0, becomes the line 9 6 3 0 and then 0."""
    problem = ResourceProblem.of_table(8, [[9, 9, 8, 0, 0], [7, 7, 0]])
    envelope = convex_envelope(problem, [0])
    assert envelope.row(0) == pytest.approx([9, 6, 3, 0, 0])
    assert envelope.row(1).tolist() == [7, 7, 0]


def test_what_is_infinite_stays_so() -> None:
    """Units that a job cannot do without cost inf in the envelope, too."""
    envelope = convex_envelope(
        ResourceProblem.of_table(8, [[np.inf, 9, 9, 1], [np.inf]]), [0, 1]
    )
    assert envelope.row(0) == pytest.approx([np.inf, 9, 5, 1])
    assert envelope.row(1).tolist() == [np.inf]


@pytest.mark.parametrize("seed", range(6))
def test_an_envelope_is_convex_and_below(seed: int, random_problem: Making) -> None:
    """100 problems each; what is convex already is its own envelope."""
    random = Random(seed)
    for _ in range(100):
        is_given_convex = random.random() < 0.3
        problem = random_problem(random, is_given_convex)
        envelope = convex_envelope(problem, range(len(problem)))
        assert is_convex(envelope)
        for job in range(len(problem)):
            assert (envelope.row(job) <= problem.row(job) + 1e-9).all()
            if is_given_convex:
                assert envelope.row(job) == pytest.approx(problem.row(job))


@pytest.mark.parametrize("seed", range(6))
def test_the_envelopes_solution_lies_within_one_step_of_the_optimum(seed: int) -> None:
    """Knapsacks of jobs with a step each: the bound holds, and one step covers the rest."""
    random = np.random.default_rng(seed)
    for _ in range(50):
        count = int(random.integers(1, 12))
        weight, needed = random.uniform(1, 9, count), random.integers(1, 15, count)
        table = [
            [w] * int(n) + [0.0] * (16 - int(n)) for w, n in zip(weight, needed, strict=True)
        ]
        problem = ResourceProblem.of_table(int(random.integers(1, 60)), table)
        envelope = convex_envelope(problem, range(count))
        units = frederickson_johnson(minisum_gains(envelope))
        optimum = problem.value(dynamic_programme(problem))
        assert envelope.value(units) <= optimum + 1e-9
        assert optimum - 1e-9 <= problem.value(units) <= optimum + weight.max() + 1e-9
