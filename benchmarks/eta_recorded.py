"""Ranges by a regression, for records of another policy than the one that is simulated.

There the simulations say when jobs would begin under a policy that was not in use. What they
say is one of several inputs of a quantile regression, beside the queue, what the job requests,
and past waits. It is fitted each week on what had happened by then, and its ranges are
corrected by their past errors as those of simulations are (conformalized quantile regression:
Romano, Patterson and Candès, NeurIPS 2019).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import log, log1p, log2, pi

import numpy as np
from numpy.typing import NDArray

from slotwise.core.job import Job
from slotwise.forecast.calibration import Calibration, Issued
from slotwise.forecast.eta import Eta
from slotwise.forecast.situation import JobNow, Situation

Floats = NDArray[np.float64]

DAY, WEEK = 86_400.0, 7 * 86_400.0

CASES_MIN = 200
"""The cases that must have happened before the regression is fitted."""

QUANTILES = 0.1, 0.5, 0.9

KNOTS = 3
"""At so many places each input may bend what it adds."""

RIDGE, ROUNDS, CLOSE = 1.0, 25, 0.02
"""The penalty on squared coefficients; how often the weights of the cases are found again; the
logarithm of a ratio below which an error counts as none."""

USUAL_WAIT = 7.0
"""The logarithm of seconds that is assumed before any wait is known."""


def area_of(job: Job) -> int:
    """About the slot-seconds that a job requests: jobs of one number are alike."""
    return int(log2(max((job.time_requested or 1.0) * job.phases[0].slots, 1.0)) / 2)


class PastWaits:
    """The last waits of each user, of jobs of similar area, and of all; as logarithms."""

    def __init__(self) -> None:
        self._last = defaultdict[object, deque[float]](lambda: deque(maxlen=50))

    def note(self, job: Job, wait: float) -> None:
        """A job has begun."""
        for key in (job.user or job.pool, area_of(job), None):
            self._last[key].append(log1p(wait))

    def inputs(self, job: Job) -> list[float]:
        """The last wait of the user, and means of the last ones of each group."""
        every, own = self._last[None], self._last[job.user or job.pool]
        usual = sum(every) / len(every) if every else USUAL_WAIT
        means = [
            (sum(of) + usual) / (len(of) + 1)
            for of in (list(own)[-10:], self._last[area_of(job)])
        ]
        return [own[-1] if own else usual, *means, usual]


def inputs_of(job: Job, eta: Eta, situation: Situation, past: PastWaits) -> list[float]:
    """What is known of a job that has to wait, for the regression."""
    assert eta.start is not None
    queued = [one for one in situation.jobs if one.began > situation.now]
    now, ranges = eta.at, (eta.start, eta.end)
    times = [at - now for one in ranges for at in (one.low, one.median, one.high)]
    places = [2 * pi * (now % period) / period for period in (DAY, WEEK)]
    return [
        *(log1p(max(0.0, min(seconds, 1e9))) for seconds in times),
        *(log1p(sum(map(_area_left, jobs))) for jobs in (queued, situation.jobs)),
        log1p(len(queued)),
        log1p(job.time_requested or 0.0),
        log(job.phases[0].slots),
        *past.inputs(job),
        *(float(wave(place)) for place in places for wave in (np.sin, np.cos)),
    ]


def _area_left(job: JobNow) -> float:
    return sum(p.expected * p.width * (p.pending + len(p.begun)) for p in job.phases)


class QuantileRegression:
    """Quantiles of logarithms of seconds: sums of piecewise linear functions of the inputs."""

    def __init__(self, inputs: Floats, values: Floats) -> None:
        self._mean, self._deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9
        scaled = (inputs - self._mean) / self._deviation
        self._knots = np.quantile(scaled, np.linspace(0, 1, KNOTS + 2)[1:-1], axis=0)
        terms = self._terms(inputs)
        self._factors = np.column_stack([_fitted(terms, values, at) for at in QUANTILES])

    def __call__(self, inputs: Floats) -> Floats:
        """The quantiles of each row of inputs, in order."""
        return np.sort(self._terms(inputs) @ self._factors, axis=1)

    def _terms(self, inputs: Floats) -> Floats:
        scaled = (inputs - self._mean) / self._deviation
        bent = [np.maximum(0.0, scaled - knots) for knots in self._knots]
        return np.column_stack([np.ones(len(scaled)), scaled, *bent])


def _fitted(terms: Floats, values: Floats, quantile: float) -> Floats:
    """Factors that minimize the pinball loss: by least squares, weighted again and again."""
    penalty, weights = RIDGE * np.eye(terms.shape[1]), np.ones(len(values))
    for _ in range(ROUNDS):
        weighted = terms * weights[:, None]
        factors = np.linalg.solve(weighted.T @ terms + penalty, weighted.T @ values)
        error = values - terms @ factors
        weights = np.where(error > 0, quantile, 1 - quantile) / np.maximum(abs(error), CLOSE)
    return np.asarray(factors)


def by_regression(at: Floats, truth: Floats, inputs: Floats, classes: Sequence[str]) -> Floats:
    """Low end, median and high end of each case, in seconds from its instant `at`.

    In order of `at`; not a number before the first fit. `truth`: the instants that are known
    once they have passed.
    """
    raw = np.full((len(at), 3), np.nan)
    for week in np.unique((at - at[0]) // WEEK):
        begins = at[0] + week * WEEK
        known, rows = truth <= begins, (at >= begins) & (at < begins + WEEK)
        if known.sum() >= CASES_MIN:
            model = QuantileRegression(inputs[known], np.log1p(truth - at)[known])
            raw[rows] = np.expm1(np.maximum(model(inputs[rows]), 0.0))
    return _corrected(at, truth, raw, classes)


def _corrected(at: Floats, truth: Floats, raw: Floats, classes: Sequence[str]) -> Floats:
    """Ranges corrected by the errors that are known at each instant."""
    calibration, found = Calibration(), raw.copy()
    is_open: list[tuple[float, int, Issued]] = []
    for row in np.flatnonzero(np.isfinite(raw[:, 0])):
        while is_open and is_open[0][0] <= at[row]:
            happened, _, issued = heappop(is_open)
            calibration.note(issued, happened)
        for _, _, issued in is_open:
            calibration.note_present(issued, at[row])
        (found[row],) = calibration.correct(raw[[row]], [classes[row]])
        issued = calibration.issue(classes[row], at[row], raw[row], found[row])
        heappush(is_open, (truth[row], int(row), issued))
    return found
