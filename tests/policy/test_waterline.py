"""The water-line against other methods: bisection on the level, and lexicographic LPs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from slotwise.policy.waterline import scale_to, water_line
from tiers import examples

Problem = tuple[float, list[float], list[float], list[float]]


def by_bisection(
    capacity: float,
    weight: Sequence[float],
    min_share: Sequence[float],
    max_share: Sequence[float],
) -> list[float]:
    """The same shares by 200 halvings of the level; the Hadoop Fair Scheduler uses 25."""
    floors = min_share
    if sum(min_share) > capacity:
        floors = [share * capacity / sum(min_share) for share in min_share]

    def shares(level: float) -> list[float]:
        return [
            min(high, max(level * w, low))
            for w, low, high in zip(weight, floors, max_share, strict=True)
        ]

    target = min(capacity, sum(max_share))
    low, high = 0.0, max(high / w for w, high in zip(weight, max_share, strict=True)) + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(shares(middle)) < target else (low, middle)
    return shares(high)


def by_linear_programs(
    capacity: float,
    weight: Sequence[float],
    min_share: Sequence[float],
    max_share: Sequence[float],
) -> list[float]:
    """The shares whose smallest share over weight is largest, then the next, and so on."""
    total, count = min(capacity, sum(max_share)), len(weight)
    level_at: dict[int, float] = {}
    while len(level_at) < count:
        rows = [
            [-1.0 if k == j else 0.0 for k in range(count)] + [weight[j]]
            for j in range(count)
            if j not in level_at
        ]
        bounds = [
            (level_at[j], level_at[j]) if j in level_at else (min_share[j], max_share[j])
            for j in range(count)
        ]

        def solve(objective: list[float], rows: list[list[float]], bounds: list) -> np.ndarray:
            found = linprog(
                objective,
                A_ub=rows,
                b_ub=[0.0] * len(rows),
                A_eq=[[1.0] * count + [0.0]],
                b_eq=[total],
                bounds=bounds,
            )
            assert found.status == 0
            return found.x

        # The largest common level of all that are not settled; min shares may lie above it.
        level = solve([0.0] * count + [-1.0], rows, [*bounds, (0, None)])[-1]
        settled = dict(level_at)
        for j in range(count):
            if j in level_at:
                continue
            # Settled are those that cannot have more while all others have at least the level.
            goal = [-1.0 if k == j else 0.0 for k in range(count)] + [0.0]
            best = solve(goal, rows, [*bounds, (level - 1e-9, level - 1e-9)])[j]
            if best <= max(level * weight[j], min_share[j]) + 1e-6:
                settled[j] = best
        assert len(settled) > len(level_at)
        level_at = settled
    return [level_at[j] for j in range(count)]


def random_problem(random: Random) -> Problem:
    """Few shares, with equal weights, shares without room and minima that may not fit."""
    count = random.randint(1, 5)
    weight = [random.choice([1.0, 1.0, 2.0, 0.5, random.uniform(0.1, 3)]) for _ in range(count)]
    max_share = [float(random.randint(1, 8)) for _ in range(count)]
    min_share = [
        random.choice([0.0, 0.0, 1.0, float(random.randint(0, int(m)))]) for m in max_share
    ]
    return random.uniform(0.5, 1.2 * sum(max_share)), weight, min_share, max_share


numbers = st.floats(0.01, 10)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Random problems, including some that are difficult because of rounding."""
    count = draw(st.integers(1, 8))
    weight = draw(
        st.lists(
            st.sampled_from([0.1, 0.3, 0.7, 1, 2]) | numbers, min_size=count, max_size=count
        )
    )
    max_share = draw(st.lists(st.integers(1, 9) | numbers, min_size=count, max_size=count))
    min_share = [draw(st.sampled_from([0.0, 0.5, 1.0])) * high for high in max_share]
    capacity = draw(
        st.sampled_from([1, 1 - 1e-16, 1 - 2e-16, 1 - 3e-16, 0.5]) | st.floats(0.01, 1.5)
    ) * sum(max_share)
    return capacity, weight, min_share, max_share


def test_equal_weights_share_equally_above_least_shares() -> None:
    """Of 100 slots, one job has 60 guaranteed and the other three share the rest."""
    assert water_line(100, [1] * 4, [60, 0, 0, 0], [100] * 4) == pytest.approx(
        [60, 40 / 3, 40 / 3, 40 / 3]
    )


def test_unused_slots_go_to_the_others_by_weight() -> None:
    """A job that can use 2 of 12 slots leaves 10 to two jobs of weights 1 and 4."""
    assert water_line(12, [1, 1, 4], [0, 0, 0], [2, 12, 12]) == pytest.approx([2, 2, 8])


def test_min_shares_that_do_not_fit_are_scaled_down_in_proportion() -> None:
    """Guarantees of 30 and 10 on 20 slots become 15 and 5, and weights do not matter."""
    assert water_line(20, [1, 100], [30, 10], [30, 30]) == [15, 5]
    assert scale_to(20, [30, 10]) == [15, 5]
    assert scale_to(40, [30, 10]) == [30, 10]


def test_sharing_among_no_claims() -> None:
    """No claims, no shares."""
    assert water_line(10, [], [], []) == []


@pytest.mark.parametrize("seed", range(examples(8, slow=30)))
def test_it_is_the_lexicographic_optimum(seed: int) -> None:
    """The smallest share per weight is maximal, then the next, and so on (by HiGHS)."""
    random = Random(seed)
    capacity, weight, min_share, max_share = random_problem(random)
    min_share = scale_to(capacity, min_share)
    assert water_line(capacity, weight, min_share, max_share) == pytest.approx(
        by_linear_programs(capacity, weight, min_share, max_share), abs=1e-5
    )


@given(problems())
# Rounding at the last bend: the level exceeds all max shares by a rounding error.
@example(
    (
        13.962795650997931,
        [0.7, 0.7, 0.3, 1, 0.7, 0.1],
        [1, 0, 0, 1.6718545715267321, 0.9495874627232023, 0],
        [1, 3, 2, 1.9627956509979316, 3, 3],
    )
)
# Rounding at an inner bend: the slope there is only a rounding error.
@example(
    (
        19,
        [0.10931808071870011, 0.7, 0.8217154552487341, 0.9194176081277713, 0.3],
        [2, 1, 1, 0, 1],
        [4, 2, 6, 8, 1],
    )
)
def test_it_equals_bisection(problem: Problem) -> None:
    """The level among the bends is the one that 200 halvings find."""
    assert water_line(*problem) == pytest.approx(by_bisection(*problem), abs=1e-9)


@given(problems())
def test_shares_fill_the_capacity_within_their_limits(problem: Problem) -> None:
    """Shares sum to min(capacity, all max shares), none above its most or below its floor."""
    capacity, _, min_share, max_share = problem
    shares = water_line(*problem)
    assert sum(shares) == pytest.approx(min(capacity, sum(max_share)), rel=1e-12)
    floors = scale_to(capacity, min_share)
    for share, low, high in zip(shares, floors, max_share, strict=True):
        assert low <= share * (1 + 1e-12)
        assert share <= high
