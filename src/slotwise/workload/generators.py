"""Workloads drawn at random: the generator of the FLEX paper's simulations (FLEX 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from slotwise.model.errors import InputError

Floats = NDArray[np.float64]

STEP_HEIGHT_MOST = 1.0
"""Heights of steps, as the weights of jobs, are drawn between 0 and this."""


@dataclass(frozen=True, slots=True)
class FlexGenerator:
    """Jobs of one phase as FLEX 4.1 draws them, all present at 0.

    As in the paper:

    jobs, slots      how many there are of each
    small            share of the jobs that are small, 0 to 1; that many, rounded, are small
    slack            share of the slots that least shares leave free on average, in (0, 1)
    large_by_small   how many times the mean work of a large job is that of a small one

    The paper states no numbers for these, so they are ours and can be chosen:

    work_total       seconds, of all jobs of an experiment. Only a unit of time.
    tasks_total      `work_total` in tasks of average work. It says how wide jobs are: with no
                     more tasks than slots nobody waits, with very many every job can use all
                     slots.
    deadline_most    deadlines are drawn between 0 and this many times work_total / slots, the
                     time that all jobs take if no slot ever idles
    steps            steps of an SLA cost, each with a pseudo-deadline and a height
    whole            whether least shares are rounded to whole slots, to one at least
    """

    jobs: int = 10
    slots: int = 100
    small: float = 0.8
    slack: float = 0.75
    large_by_small: float = 10.0
    work_total: float = 10_000.0
    tasks_total: float = 3_000.0
    deadline_most: float = 1.0
    steps: int = 3
    whole: bool = False

    def __post_init__(self) -> None:
        _refuse("jobs", self.jobs, self.jobs >= 1, "at least 1")
        _refuse("slots", self.slots, self.slots >= 1, "at least 1")
        _refuse("small", self.small, 0 <= self.small <= 1, "a share from 0 to 1")
        _refuse("slack", self.slack, 0 < self.slack < 1, "a share between 0 and 1")
        _refuse("steps", self.steps, self.steps >= 1, "at least 1")
        for name in ("large_by_small", "work_total", "tasks_total", "deadline_most"):
            value = getattr(self, name)
            _refuse(name, value, 0 < value < np.inf, "a number > 0")

    def draw(self, rng: np.random.Generator) -> DrawnJobs:
        """One experiment. The same state of `rng` gives the same jobs. O(jobs * steps).

        Whatever the parameters, a job takes the same random numbers, so experiments of one seed
        that differ in `slack` alone have the same work, weights and deadlines.
        """
        count = self.jobs
        quantiles = rng.random((3, count))
        arrived = rng.permutation(count)
        work = self._work(quantiles[0])[arrived]
        most = np.minimum(np.ceil(work * self.tasks_total / self.work_total), self.slots)
        horizon = self.deadline_most * self.work_total / self.slots
        return DrawnJobs(
            slots=self.slots,
            work=work,
            least=self._least(quantiles[1], most),
            most=most,
            weight=1.0 - quantiles[2],  # In (0, 1], since a weight must not be 0.
            deadline=horizon * (1.0 - rng.random(count)),
            step_instants=np.sort(horizon * (1.0 - rng.random((count, self.steps)))),
            step_heights=np.sort(STEP_HEIGHT_MOST * (1.0 - rng.random((count, self.steps)))),
        )

    def _work(self, quantiles: Floats) -> Floats:
        """Work in seconds, the small jobs first."""
        small = round(self.small * self.jobs)
        means = [1.0] * small + [self.large_by_small] * (self.jobs - small)
        drawn = np.array([_cut_normal(m, q) for m, q in zip(means, quantiles, strict=True)])
        work: Floats = drawn * (self.work_total / drawn.sum())
        return work

    def _least(self, quantiles: Floats, most: Floats) -> Floats:
        """Least shares; above 0 and at most the most share.

        To discard what lies above and to draw again, as the paper says, is to draw from what
        lies below.
        """
        mean = (1.0 - self.slack) * self.slots / self.jobs
        drawn = np.array(
            [_cut_normal(mean, q, top) for q, top in zip(quantiles, most, strict=True)]
        )
        if self.whole:
            drawn = np.clip(np.round(drawn), 1.0, most)
        return drawn


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """The jobs of one experiment, as arrays in a random order of arrival; all are there at 0.

    work, deadline   seconds
    least, most      slots; the least shares may exceed `slots` together
    step_instants    of each job its pseudo-deadlines in seconds, increasing
    step_heights     the cost of each of them once passed, increasing
    """

    slots: int
    work: Floats
    least: Floats
    most: Floats
    weight: Floats
    deadline: Floats
    step_instants: Floats
    step_heights: Floats

    def __len__(self) -> int:
        return len(self.work)


def _cut_normal(mean: float, quantile: float, most: float = np.inf) -> float:
    """The quantile of a normal distribution with a deviation of a third, cut to (0, most]."""
    normal = NormalDist(mean, mean / 3)
    below, above = normal.cdf(0.0), normal.cdf(most) if most < np.inf else 1.0
    # Of the ends of an interval only the upper one belongs to it, and cdf(inf) has no inverse.
    share = above - (above - below) * quantile
    value = normal.inv_cdf(min(share, 1 - 1e-16))
    return float(np.clip(value, 1e-9 * mean, most))


def _refuse(name: str, value: float, good: bool, remedy: str) -> None:
    if not good:
        raise InputError(f"{name} is {value}; give {remedy}")
