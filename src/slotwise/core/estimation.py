"""The remaining work of a phase, from its finished tasks (FLEX 2.5 and 4.2)."""

from __future__ import annotations

from math import erfc, exp, log, sqrt
from typing import NamedTuple

DEFAULT_WORK = 10.0
"""Seconds; the assumed work of a task without an estimate (FlowFlex 5.2)."""

RUNNING_FLOOR = 0.1
"""A running task that exceeds its estimate is assumed to need this part of it in addition."""

MIN_WORK = 1e-9
"""The minimum remaining work of an unfinished phase, seconds."""


def work_left(
    expected_pending: float,
    expected_running: float,
    expected_finished: float,
    observed: float,
    elapsed: float,
    factor_before: float = 1.0,
) -> float:
    """The extrapolated remaining work of a phase, in seconds at speed 1, > 0.

    The `expected` sums are the initial estimates of the pending, running and finished tasks.
    `observed` is the real work of the finished tasks, `elapsed` the work done so far on the
    running ones. The ratio of `observed` to `expected_finished` is applied to the remaining
    tasks; it is `factor_before` until the first task finishes. With equal tasks this is the
    paper's rule: the average so far times the number of remaining tasks. O(1).
    """
    factor = observed / expected_finished if expected_finished > MIN_WORK else factor_before
    running = expected_running * factor
    running_left = max(running - elapsed, RUNNING_FLOOR * running)
    return max(expected_pending * factor + running_left, MIN_WORK)


# Estimates of the tasks of a phase from other phases: normal distributions of a logarithm.
#
# The time of a task is positive, and errors are factors. So all estimates are of logarithms,
# and are normal: a mean and a variance. docs/algorithms/unknown-sizes.md has the formulas.

FADE = 0.98
"""The weight of an observation, by that of the next one: what changes is forgotten."""

COUNT = 3.0
"""The weight of the variance known beforehand, as a number of observations."""

MEAN_COUNT = 1.0
"""The same of the mean known beforehand."""

WITHIN = 0.09
"""The assumed variance of the logarithms of the tasks of one phase: they differ by 30 %."""

UNEXPLAINED = 0.1
"""The least part of a variance that is assumed to remain when one phase predicts another."""

FAR = 5.0
"""Standard deviations beyond which a tail is not computed."""

GROWTH = 1.2
"""The time of a task that has run for longer than any tail predicts, by the time it has run."""


class Normal(NamedTuple):
    """A normal distribution of the logarithm of a positive number."""

    mean: float
    variance: float

    @property
    def expected(self) -> float:
        """The mean of the number itself."""
        return exp(self.mean + self.variance / 2)


def combined(one: Normal, other: Normal) -> Normal:
    """The product of two independent estimates: precisions add up. O(1)."""
    total = one.variance + other.variance
    if not total:
        return one
    mean = (one.mean * other.variance + other.mean * one.variance) / total
    return Normal(mean, one.variance * other.variance / total)


def expected_if_late(estimate: Normal, elapsed: float) -> float:
    """The mean time of the tasks of a phase of which one has run for `elapsed` and still runs.

    The logarithm of the phase's mean has this estimate, and those of its tasks vary around it
    by `WITHIN`. A phase of known mean (variance 0) stays as it is: a single task is late. O(1).
    """
    mean = estimate.expected
    if elapsed <= 0 or not estimate.variance:
        return mean
    deviation = sqrt(estimate.variance + WITHIN)
    ahead = (estimate.mean - log(elapsed)) / deviation
    if ahead < -FAR:
        return max(mean, GROWTH * elapsed)
    return mean * _below(ahead + estimate.variance / deviation) / _below(ahead)


def _below(value: float) -> float:
    """The standard normal distribution function."""
    return erfc(-value / sqrt(2)) / 2


class Sums:
    """Sums of observed logarithms, in which older ones fade. Each method is O(1).

    added  the number of observations
    """

    __slots__ = ("_count", "_square", "_total", "added")

    def __init__(self) -> None:
        self.added = 0
        self._count = self._total = self._square = 0.0

    @property
    def mean(self) -> float:
        """The mean of the observations, of which there is one at least."""
        return self._total / self._count

    def add(self, value: float) -> int:
        """Add an observation. Its number, for `change`."""
        self.added += 1
        self._count = self._count * FADE + 1
        self._total = self._total * FADE + value
        self._square = self._square * FADE + value * value
        return self.added

    def change(self, number: int, old: float, new: float) -> None:
        """Replace the observation of this number."""
        weight = FADE ** (self.added - number)
        self._total += weight * (new - old)
        self._square += weight * (new * new - old * old)

    def next(self, before: Normal, mean_count: float = MEAN_COUNT) -> Normal:
        """The next observation, by these and by what was known before them.

        Both parameters are means of the observed and the known value, which counts for
        `mean_count` and `COUNT` observations.
        """
        mean = (mean_count * before.mean + self._total) / (mean_count + self._count)
        square = self._square - 2 * mean * self._total + self._count * mean * mean
        variance = (COUNT * before.variance + max(0.0, square)) / (COUNT + self._count)
        return Normal(mean, variance)

    def next_member(self, group: Normal, within: Normal) -> Normal:
        """The next observation, if these are members of a group whose mean is one of `group`.

        within  how members deviate from their group: the known variance for all groups
        """
        mean_count = within.variance / group.variance
        found = self.next(Normal(group.mean, within.variance), mean_count)
        return Normal(found.mean, found.variance * (1 + 1 / (mean_count + self._count)))


class Slope:
    """How far the phases of a job deviate alike, as a regression. Each method is O(1).

    The mean deviation of the earlier phases of a job predicts that of the next one.
    """

    __slots__ = ("_before", "_count", "_cross", "_square", "_x_square")

    def __init__(self, before: float) -> None:
        """`before`: the slope without observations."""
        self._before = before
        self._count = self._x_square = self._cross = self._square = 0.0

    def add(self, earlier: float, value: float) -> None:
        """Add the deviation of a phase, and the mean one of the earlier phases of its job."""
        self._count = self._count * FADE + 1
        self._x_square = self._x_square * FADE + earlier * earlier
        self._cross = self._cross * FADE + earlier * value
        self._square = self._square * FADE + value * value

    @property
    def slope(self) -> float:
        """Ridge regression through the origin, 0 or more."""
        return max(0.0, (self._before + self._cross) / (1 + self._x_square))

    def next(self, earlier: float, alone: Normal) -> Normal:
        """A phase whose estimate is `alone` without the earlier phases of its job."""
        slope = self.slope
        square = self._square - 2 * slope * self._cross + slope * slope * self._x_square
        part = max(UNEXPLAINED, 1 - slope * slope)
        left = (COUNT * part * alone.variance + max(0.0, square)) / (COUNT + self._count)
        return Normal(alone.mean + slope * earlier, min(left, alone.variance))
