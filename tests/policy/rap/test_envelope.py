"""Convex envelopes: below the costs, convex, and nearly optimal when solved instead."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from slotwise.policy.rap import (
    Gains,
    ResourceProblem,
    dynamic_programme,
    envelope_gains,
    frederickson_johnson,
    minisum_gains,
)
from tiers import examples

Making = Callable[[Random, bool], ResourceProblem]


def gains_of(gains: Gains, job: int) -> list[float]:
    """All gains of a job, as they are."""
    given = np.arange(gains.room[job])
    return list(gains.gain(np.full(len(given), job), given))


def test_an_envelope_by_hand() -> None:
    """Of two staircases the first, 9 9 8 0 0, becomes the line 9 6 3 0 and then 0."""
    problem = ResourceProblem.of_table(8, [[9, 9, 8, 0, 0], [7, 7, 0]])
    gains = envelope_gains(problem, [0])
    assert gains_of(gains, 0) == [3, 3, 3, 0]
    assert gains_of(gains, 1) == [0, 7]


def test_infinite_costs_stay_infinite() -> None:
    """Units that a job must have gain inf in the envelope, too."""
    problem = ResourceProblem.of_table(8, [[np.inf, 9, 9, 1], [np.inf]])
    gains = envelope_gains(problem, [0, 1])
    assert gains_of(gains, 0) == [np.inf, 4, 4]
    assert gains_of(gains, 1) == []


@pytest.mark.parametrize("seed", range(6))
def test_an_envelope_is_convex_and_below(seed: int, random_problem: Making) -> None:
    """100 problems each; what is convex already keeps its gains."""
    random = Random(seed)
    for _ in range(examples(25, slow=100)):
        is_given_convex = random.random() < 0.3
        problem = random_problem(random, is_given_convex)
        gains = envelope_gains(problem, range(len(problem)))
        for job in range(len(problem)):
            found, row = np.array(gains_of(gains, job)), problem.row(job)
            assert (found[:-1] >= found[1:] - 1e-12).all()
            if np.isfinite(row[0]):
                assert (row[0] - np.cumsum(found) <= row[1:] + 1e-9).all()
            if is_given_convex and np.isfinite(row[-1]):
                assert found == pytest.approx(gains_of(minisum_gains(problem), job))


@pytest.mark.parametrize("seed", range(6))
def test_the_envelopes_solution_lies_within_one_step_of_the_optimum(seed: int) -> None:
    """Knapsacks of jobs with a step each: the bound holds, and one step covers the rest."""
    random = np.random.default_rng(seed)
    for _ in range(examples(15, slow=50)):
        count = int(random.integers(1, 12))
        weight, needed = random.uniform(1, 9, count), random.integers(1, 15, count)
        table = [
            [w] * int(n) + [0.0] * (16 - int(n)) for w, n in zip(weight, needed, strict=True)
        ]
        problem = ResourceProblem.of_table(int(random.integers(1, 60)), table)
        gains = envelope_gains(problem, range(count))
        units = frederickson_johnson(gains)
        gained = sum(sum(gains_of(gains, j)[:n]) for j, n in enumerate(units.tolist()))
        optimum = problem.value(dynamic_programme(problem))
        assert weight.sum() - gained <= optimum + 1e-9
        assert optimum - 1e-9 <= problem.value(units) <= optimum + weight.max() + 1e-9


def test_equal_jobs_are_served_one_after_the_other() -> None:
    """Ten equal jobs that need 7 units each for their step: 38 units serve five of them."""
    problem = ResourceProblem.of_table(38, [[0.1] * 7 + [0.0]] * 10)
    units = frederickson_johnson(envelope_gains(problem, range(10)))
    assert units.tolist() == [7] * 5 + [3] + [0] * 4
