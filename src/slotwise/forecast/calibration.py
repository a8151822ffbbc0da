"""Ranges that hold: simulated ones, corrected by the errors of earlier forecasts.

The correction is conformal, each end of a range apart. An error is the distance of the truth
from the median, by the distance that the simulations gave to that end. The range ends where
the share of larger past errors is what the confidence leaves to that end. That share adapts,
slowly, to each class of jobs, since good coverage on the whole hides classes with bad coverage
(adaptive conformal inference: Gibbs and Candes, NeurIPS 2021).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Self

import numpy as np

from slotwise.forecast.durations import Floats
from slotwise.forecast.eta import CONFIDENCE, Range

KEPT = 1_000
"""How many of the last errors count."""

ENOUGH = 30
"""With fewer errors, ranges are widened by `UNSURE` instead."""

UNSURE = 1.3
"""How much wider than simulated ranges are before errors are known."""

RATE = 0.003
"""How fast the share of a class adapts: 0.01 opens 4 % of the ranges (trials on KTH-SP2)."""

SHARE_LIMITS = 0.01, 0.35
"""The share of forecasts that may miss a range at one end is kept within these."""

FLOOR_SECONDS, FLOOR_PART = 1.0, 0.1
"""Added to both distances of an error: seconds, and a part of the median."""

FEW_JOBS, SHORT_QUEUE, LONG_QUEUE = 20, 10, 40
"""Classes differ by the earlier jobs of the user, and by the jobs that wait."""


def class_of(jobs_of_user: int, waiting: int) -> str:
    """The class of a job."""
    queue = "short" if waiting <= SHORT_QUEUE else "long" if waiting <= LONG_QUEUE else "huge"
    return f"{'few' if jobs_of_user < FEW_JOBS else 'many'}-{queue}"


class _Tail:
    """The last errors at one end of ranges, and the shares that may miss it, by class."""

    def __init__(self) -> None:
        self.last: deque[float] = deque()
        self._sorted: list[float] = []
        self.shares: dict[str, float] = {}

    def add(self, error: float) -> None:
        self.last.append(error)
        insort(self._sorted, error)
        if len(self.last) > KEPT:
            del self._sorted[bisect_left(self._sorted, self.last.popleft())]

    def factor(self, name: str, allowed: float) -> float:
        """By how much the distance from the median to this end is multiplied."""
        count = len(self._sorted)
        if count < ENOUGH:
            return UNSURE
        place = ceil((count + 1) * (1 - self.shares.get(name, allowed))) - 1
        return self._sorted[min(max(place, 0), count - 1)]

    def adapt(self, name: str, allowed: float, has_missed: bool) -> None:
        least, most = SHARE_LIMITS
        share = self.shares.get(name, allowed) + RATE * (allowed - has_missed)
        self.shares[name] = min(most, max(least, share))


@dataclass(frozen=True, slots=True)
class Issued:
    """A forecast of which the truth will be known: seconds from its instant.

    raw    as simulated
    given  as corrected
    """

    name: str
    at: float
    raw: Range
    given: Range


class Calibration:
    """Corrects ranges of one kind, such as starts. `note` is O(log n)."""

    def __init__(self, confidence: float = CONFIDENCE) -> None:
        self._allowed = (1 - confidence) / 2
        self._low, self._high = _Tail(), _Tail()
        self.noted = 0

    def correct(self, raw: Floats, names: Sequence[str], least: Floats | float = 0.0) -> Floats:
        """The ranges of forecasts: rows of low end, median and high end, in seconds from now.

        raw    the simulated ones; a range without a finite median stays as it is
        names  the classes of the jobs
        least  what is known to be passed, such as the present
        """
        low, median, high = raw.T
        floor = FLOOR_SECONDS + FLOOR_PART * np.maximum(0.0, median)
        with np.errstate(invalid="ignore"):  # Of ranges that are open.
            below = (median - low + floor) * self._factors(self._low, names) - floor
            above = (high - median + floor) * self._factors(self._high, names) - floor
            middle = np.maximum(least, median)
            first = np.maximum(least, np.minimum(middle, median - below))
            last = np.where(np.isfinite(high), np.maximum(middle, median + above), high)
        found = np.column_stack((first, middle, last))
        return np.where(np.isfinite(median)[:, None], found, raw)

    def _factors(self, tail: _Tail, names: Sequence[str]) -> Floats:
        of = {name: tail.factor(name, self._allowed) for name in set(names)}
        return np.array([of[name] for name in names])

    def note(self, issued: Issued, truth: float) -> None:
        """What was forecast has happened, at this instant."""
        raw, given, seconds = issued.raw, issued.given, truth - issued.at
        if not isfinite(raw.high):
            return
        floor = FLOOR_SECONDS + FLOOR_PART * max(0.0, raw.median)
        self._low.add((raw.median - seconds + floor) / (raw.median - raw.low + floor))
        self._high.add((seconds - raw.median + floor) / (raw.high - raw.median + floor))
        self._low.adapt(issued.name, self._allowed, seconds < given.low)
        self._high.adapt(issued.name, self._allowed, seconds > given.high)
        self.noted += 1

    def plain(self) -> dict[str, Any]:
        """All of it as values of JSON: the inverse of `of`."""
        tails = self._low, self._high
        return {
            "noted": self.noted,
            "errors": [[round(error, 6) for error in tail.last] for tail in tails],
            "shares": [dict(tail.shares) for tail in tails],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any], confidence: float = CONFIDENCE) -> Self:
        """What was kept. ValueError, KeyError or TypeError for anything else."""
        found = cls(confidence)
        tails = found._low, found._high
        for tail, errors, shares in zip(tails, plain["errors"], plain["shares"], strict=True):
            for error in errors:
                tail.add(_finite(error))
            tail.shares = {str(name): _finite(share) for name, share in shares.items()}
        found.noted = int(plain["noted"])
        return found


def _finite(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError("a number is not finite")
    return number
