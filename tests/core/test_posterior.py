"""Normal estimates of logarithms: how they are combined, and what sums and late tasks tell."""

from __future__ import annotations

from math import exp, isclose, log, sqrt
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotwise.core.estimation import (
    COUNT,
    FADE,
    GROWTH,
    WITHIN,
    Normal,
    Slope,
    Sums,
    combined,
    expected_if_late,
)
from tiers import examples

MEANS = st.floats(-4, 4)
VARIANCES = st.floats(0.01, 4)


def integrated(logarithms: np.ndarray, value: np.ndarray) -> float:
    """The mean of a value under a density whose logarithms are known up to a summand."""
    weights = np.exp(logarithms - logarithms.max())  # Those of far densities underflow.
    return float((weights * value).sum() / weights.sum())


GRID = np.linspace(-40, 40, 160_001)


def log_density(one: Normal) -> np.ndarray:
    """The logarithm of the density on the grid, up to a summand."""
    return -((GRID - one.mean) ** 2) / (2 * one.variance)


@settings(max_examples=examples(20, slow=300), deadline=None)
@given(MEANS, VARIANCES, MEANS, VARIANCES)
@example(-4.0, 1 / 64, 3.0, 1 / 64)
def test_the_posterior_is_that_of_a_numerical_integration(
    mean: float, variance: float, other_mean: float, other_variance: float
) -> None:
    """The product of both densities has the combined mean and variance."""
    one, other = Normal(mean, variance), Normal(other_mean, other_variance)
    found = combined(one, other)
    product = log_density(one) + log_density(other)
    centre = integrated(product, GRID)
    assert found.mean == pytest.approx(centre, abs=1e-6)
    assert found.variance == pytest.approx(integrated(product, (GRID - centre) ** 2), rel=1e-5)


@settings(max_examples=examples(20, slow=300), deadline=None)
@given(MEANS, VARIANCES, st.floats(-4, 4))
def test_a_late_task_raises_the_mean_as_a_numerical_integration_says(
    mean: float, variance: float, logarithm: float
) -> None:
    """The mean of the phase, weighted by the probability that a task takes longer than that."""
    found = expected_if_late(Normal(mean, variance), exp(logarithm))
    tail = NormalDist()
    if (mean - logarithm) / sqrt(variance + WITHIN) < -5:
        assert found == max(Normal(mean, variance).expected, GROWTH * exp(logarithm))
        return
    grid = np.linspace(mean - 8 * sqrt(variance), mean + 9 * sqrt(variance), 4001)
    longer = np.array([tail.cdf((x - logarithm) / sqrt(WITHIN)) for x in grid.tolist()])
    weights = np.exp(-((grid - mean) ** 2) / (2 * variance)) * longer
    assert found == pytest.approx((weights * np.exp(grid)).sum() / weights.sum(), rel=1e-3)


def test_a_precise_estimate_outweighs_a_rough_one() -> None:
    """Of equal variances, the mean is in the middle; variance 0 counts alone."""
    assert combined(Normal(0, 1), Normal(4, 1)) == Normal(2, 0.5)
    assert combined(Normal(1, 0), Normal(4, 1)) == Normal(1, 0)
    assert combined(Normal(4, 1), Normal(1, 0)) == Normal(1, 0)
    assert combined(Normal(1, 0), Normal(4, 0)) == Normal(1, 0)


@given(MEANS, VARIANCES, st.floats(0, 100), st.floats(0, 100))
def test_the_longer_a_task_runs_the_longer_is_the_estimate(
    mean: float, variance: float, one: float, other: float
) -> None:
    """It never decreases with the age of the oldest task, and is never below the first one."""
    estimate = Normal(mean, variance)
    short, long = sorted((one, other))
    first = expected_if_late(estimate, short)
    assert first >= estimate.expected * (1 - 1e-9)
    assert expected_if_late(estimate, long) >= first * (1 - 1e-2)


def test_the_age_of_a_task_does_not_change_what_is_certain() -> None:
    """With variance 0 a task that takes longer is an exception."""
    assert expected_if_late(Normal(log(5), 0.0), 1000.0) == pytest.approx(5)


def sums_of(values: list[float]) -> Sums:
    """Sums with these observations, the latest one last."""
    found = Sums()
    for value in values:
        found.add(value)
    return found


def test_without_observations_the_next_one_is_as_known_before() -> None:
    """Mean and variance are those before."""
    assert Sums().next(Normal(2, 3)) == Normal(2, 3)
    assert not Sums().added


def test_observations_outweigh_what_was_known_before() -> None:
    """Three alike move the mean by three quarters; the variance falls by half."""
    found = sums_of([4.0, 4.0, 4.0]).next(Normal(0.0, 1.0))
    count = 1 + FADE + FADE**2
    assert found.mean == pytest.approx(4 * count / (1 + count))
    square = count * (4 - found.mean) ** 2
    assert found.variance == pytest.approx((COUNT + square) / (COUNT + count))


@given(MEANS, VARIANCES, MEANS, VARIANCES)
def test_a_member_tells_the_mean_of_its_group_as_its_precision_says(
    mean: float, variance: float, value: float, within: float
) -> None:
    """One member is an observation of the mean; the next one deviates from it on its own."""
    group = Normal(mean, variance)
    of_mean = combined(group, Normal(value, within))
    found = sums_of([value]).next_member(group, Normal(0.0, within))
    assert found.mean == pytest.approx(of_mean.mean)
    seen = (COUNT * within + (value - found.mean) ** 2) / (COUNT + 1)
    assert found.variance == pytest.approx(seen * (1 + of_mean.variance / within))


@given(st.lists(MEANS, min_size=200, max_size=200))
def test_many_observations_tell_their_mean_and_variance(values: list[float]) -> None:
    """Weighted by their age, which is what fading means."""
    weights = [FADE**age for age in range(len(values))][::-1]
    count = sum(weights)
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / count
    found = sums_of(values).next(Normal(0.0, 0.5))
    assert found.mean == pytest.approx(mean * count / (count + 1))
    square = sum(w * (v - found.mean) ** 2 for w, v in zip(weights, values, strict=True))
    assert found.variance == pytest.approx((COUNT * 0.5 + square) / (COUNT + count), abs=1e-9)


@given(st.lists(MEANS, min_size=1, max_size=30), st.data())
def test_an_observation_can_be_replaced(values: list[float], data: st.DataObject) -> None:
    """As if it had been the new one from the beginning."""
    place = data.draw(st.integers(0, len(values) - 1))
    changed = sums_of(values)
    changed.change(place + 1, values[place], 1.5)
    values[place] = 1.5
    known = Normal(0.3, 1.0)
    found, expected = changed.next(known), sums_of(values).next(known)
    assert found.mean == pytest.approx(expected.mean, abs=1e-9)
    assert found.variance == pytest.approx(expected.variance, abs=1e-9)


def test_sums_of_zeros_stay_exact() -> None:
    """Work that is always as stated is trusted."""
    exact = sums_of([0.0] * 50)
    assert exact.added == 50
    assert exact.next(Normal(0.0, 0.0)) == Normal(0.0, 0.0)


def test_what_changes_is_learned_again() -> None:
    """After 100 tasks of the new length the old one counts for an eighth."""
    found = sums_of([0.0] * 1000 + [2.0] * 100).next(Normal(0.0, 1.0))
    assert found.mean == pytest.approx(2 * (1 - FADE**100), rel=0.03)


def test_the_factor_of_a_job_is_applied_as_far_as_it_was_right() -> None:
    """Phases that deviate like earlier ones of their job keep the slope at 1; others end it."""
    alike, unlike = Slope(1.0), Slope(1.0)
    for n in range(50):
        sign = 1 if n % 2 else -1
        alike.add(sign * 2.3, sign * 2.3)
        unlike.add(sign * 2.3, 2.3 if n % 4 < 2 else -2.3)
    alone = Normal(0.0, 5.0)
    assert isclose(alike.slope, 1.0)
    assert alike.next(2.3, alone).mean == pytest.approx(2.3)
    assert alike.next(2.3, alone).variance < 0.05 * alone.variance
    assert unlike.slope < 0.1
    assert fmean((unlike.next(2.3, alone).mean, 0.0)) < 0.2


def test_without_observations_the_slope_is_the_one_before() -> None:
    """The factor of a job applies to its later phases; a part of the variance remains."""
    assert Slope(1.0).next(2.0, Normal(0.5, 1.0)) == pytest.approx((2.5, 0.1))
    assert Slope(0.0).next(2.0, Normal(0.5, 1.0)) == Normal(0.5, 1.0)
