"""Helpers for the tests of resource allocation: random problems and exhaustive search."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random

import numpy as np
import pytest

from slotwise.core.objective import Aggregate
from slotwise.policy.rap import ResourceProblem

INF = float("inf")


@pytest.fixture(scope="session")
def random_problem() -> Callable[[Random, bool], ResourceProblem]:
    """Small tables: ties, infinite costs, least and most units, more jobs than units."""

    def make(random: Random, convex: bool) -> ResourceProblem:
        table = [_row(random, convex) for _ in range(random.randint(1, 4))]
        total = random.randint(1, 9)
        min_share = [min(random.choice([0, 0, 1, 2]), len(row) - 1) for row in table]
        while sum(min_share) > total:
            min_share[random.randrange(len(min_share))] = 0
        max_share = [
            random.randint(low, len(row) + 2) for low, row in zip(min_share, table, strict=True)
        ]
        return ResourceProblem.of_table(total, table, min_share, max_share)

    return make


def _row(random: Random, convex: bool) -> list[float]:
    gains = [random.choice([0, 0, 1, 1, 2, 3, 5]) for _ in range(random.randint(1, 8))]
    if convex:
        gains.sort(reverse=True)
    row = [float(random.choice([0, 3, -2]) + sum(gains))]
    for gain in gains:
        row.append(row[-1] - gain)
    for units in range(random.choice([0, 0, 1, 2])):
        row[units] = INF
    return row


@pytest.fixture(scope="session")
def best_of_all() -> Callable[[ResourceProblem, Aggregate], float]:
    """The least sum or maximum over all ways to give the units."""

    def search(problem: ResourceProblem, aggregate: Aggregate) -> float:
        ways = product(*(range(int(room) + 1) for room in problem.room))
        return min(
            problem.value(problem.min_share + np.array(way), aggregate)
            for way in ways
            if sum(way) <= problem.slack
        )

    return search


@pytest.fixture(scope="session")
def assert_allowed() -> Callable[[ResourceProblem, np.ndarray], None]:
    """Units within min and max shares, together at most the total."""

    def check(problem: ResourceProblem, units: np.ndarray) -> None:
        assert (problem.min_share <= units).all()
        assert (units <= problem.max_share).all()
        assert units.sum() <= problem.total

    return check
