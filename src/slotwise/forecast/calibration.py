"""Ranges that hold: simulated ones, corrected by the errors of earlier forecasts.

The correction is conformal, each end of a range apart. An error is the distance of the truth
from the median, by the distance that the simulations gave to that end. The range ends where
the share of larger past errors is what the confidence leaves to that end; those of the same
class of jobs count most, since good coverage on the whole hides classes with bad coverage.
That share adapts to each class: slowly to all misses (adaptive conformal inference: Gibbs and
Candes, NeurIPS 2021), and at once to the last ones (conformal PID control: Angelopoulos, Candes
and Tibshirani, NeurIPS 2023), since the jobs of a week share its surprises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slotwise.forecast.durations import Floats
from slotwise.forecast.eta import CONFIDENCE, Range

KEPT = 500
"""How many of the last errors of each class count: a rare class has a long memory."""

OTHER_CLASS = 0.2
"""The weight of an error of another class of jobs, by that of one of the same class."""

ENOUGH = 30
"""With fewer errors, ranges are widened by `UNSURE` instead."""

UNSURE = 1.3
"""How much wider than simulated ranges are before errors are known."""

RATE = 0.003
"""How fast the share of a class adapts: 0.01 opens 4 % of the ranges (trials on KTH-SP2)."""

ANOTHER = "another scheduler"
"""The class of the errors that are kept when the scheduler is changed."""

LATELY, AT_ONCE, FEW_MISSES = 50, 0.3, 10
"""How many of the last ranges of a class are watched; by what part of the excess of misses
among them its share is lowered; and how many exact ones count beside them."""

SHARE_LIMITS = 0.01, 0.35
"""The share of forecasts that may miss a range at one end is kept within these."""

FLOOR_SECONDS, FLOOR_PART, FLOOR_USUAL = 1.0, 0.1, 0.3
"""Added to both distances of an error: seconds, a part of the median, and of the usual error.

The last keeps ranges narrow where simulations are surer than they should be: without it they
are 20 times as wide on KTH-SP2 as recorded, whose waits come from another policy, and 4 % wider
where the policy is that of the simulations.
"""

FEW_JOBS, SHORT_QUEUE, LONG_QUEUE = 20, 10, 40
"""Classes differ by the earlier jobs of the user, and by the jobs that wait."""


def class_of(jobs_of_user: int, waiting: int) -> str:
    """The class of a job, unless it has run for a time already: see `RUNNING`."""
    queue = "short" if waiting <= SHORT_QUEUE else "long" if waiting <= LONG_QUEUE else "huge"
    return f"{'few' if jobs_of_user < FEW_JOBS else 'many'}-{queue}"


RUNNING = "-running"
"""Added to the class of a job that has begun before: its end was forecast too late, since it is
longer than most, so its errors are others."""


class _Tail:
    """The last errors at one end of ranges, and the shares that may miss it, by class."""

    def __init__(self) -> None:
        self.errors: dict[str, deque[float]] = {}
        self.shares: dict[str, float] = {}
        self.misses: dict[str, deque[bool]] = {}
        self._ordered: tuple[Floats, NDArray[np.int64]] | None = None  # Until one is added.

    def add(self, error: float, name: str) -> None:
        self.errors.setdefault(name, deque(maxlen=KEPT)).append(error)
        if others := self.errors.get(ANOTHER):
            others.popleft()
        self._ordered = None

    def factor(self, name: str, allowed: float) -> float:
        """By how much the distance from the median to this end is multiplied."""
        if self._ordered is None:
            lengths = [len(one) for one in self.errors.values()]
            errors = np.array([error for one in self.errors.values() for error in one], float)
            order = np.argsort(errors)
            self._ordered = errors[order], np.repeat(np.arange(len(lengths)), lengths)[order]
        errors, classes = self._ordered
        if len(errors) < ENOUGH:
            return UNSURE
        number = list(self.errors).index(name) if name in self.errors else -1
        sums = np.cumsum(np.where(classes == number, 1.0, OTHER_CLASS))
        part = 1 - self._share(name, allowed)
        place = int(np.searchsorted(sums, part * (sums[-1] + 1)))  # The next one counts, too.
        return float(errors[min(place, len(errors) - 1)])

    def _share(self, name: str, allowed: float) -> float:
        """The share that may miss: as adapted, less what was missed too often lately."""
        misses = self.misses.get(name, ())
        excess = (sum(misses) - allowed * len(misses)) / (len(misses) + FEW_MISSES)
        return _limited(self.shares.get(name, allowed) - AT_ONCE * excess)

    def adapt(self, name: str, allowed: float, has_missed: bool) -> None:
        step = RATE * (allowed - has_missed)
        self.shares[name] = _limited(self.shares.get(name, allowed) + step)
        self.misses.setdefault(name, deque(maxlen=LATELY)).append(has_missed)

    def change_scheduler(self) -> None:
        """The errors so far are those of another scheduler: another class."""
        kept = [error for name, one in self.errors.items() if name != ANOTHER for error in one]
        kept = [*self.errors.get(ANOTHER, ()), *kept][-KEPT:]
        self.errors, self.shares, self.misses = {ANOTHER: deque(kept)}, {}, {}
        self._ordered = None

    def plain(self) -> dict[str, Any]:
        """All of it as values of JSON: the inverse of `restore`."""
        return {
            "errors": {n: [round(error, 6) for error in e] for n, e in self.errors.items()},
            "shares": self.shares,
            "misses": {name: list(map(int, last)) for name, last in self.misses.items()},
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """What was kept.

        AttributeError, KeyError, TypeError or ValueError for anything else.
        """
        for name, errors in plain["errors"].items():
            self.errors[str(name)] = deque(map(_finite, errors), maxlen=KEPT)
        self.shares = {str(name): _finite(one) for name, one in plain["shares"].items()}
        for name, last in plain["misses"].items():
            self.misses[str(name)] = deque(map(bool, last), maxlen=LATELY)


def _limited(share: float) -> float:
    least, most = SHARE_LIMITS
    return min(most, max(least, share))


@dataclass(slots=True)
class Issued:
    """A forecast of which the truth will be known: seconds from its instant.

    raw      as simulated
    given    as corrected
    usual    the usual size of an error at that time, seconds
    is_late  whether the range has passed, which counts as a miss already
    """

    name: str
    at: float
    raw: Range
    given: Range
    usual: float
    is_late: bool = False


class Calibration:
    """Corrects ranges of one kind, such as starts.

    `note` is O(1), `correct` O(KEPT) for each class.
    """

    def __init__(self, confidence: float = CONFIDENCE) -> None:
        self._allowed = (1 - confidence) / 2
        self._low, self._high = _Tail(), _Tail()
        self.noted = 0
        self._sizes: deque[float] = deque(maxlen=KEPT)  # Of errors, seconds.
        self._usual: float | None = None  # The median of these, until one is added.

    @property
    def usual(self) -> float:
        """The median size of the last errors, seconds; 0 if there are none."""
        if self._usual is None:
            self._usual = float(np.median(self._sizes)) if self._sizes else 0.0
        return self._usual

    @property
    def of_another(self) -> int:
        """How many of the errors that count were made under another scheduler."""
        return len(self._low.errors.get(ANOTHER, ()))

    def change_scheduler(self) -> None:
        """From now on another scheduler is simulated.

        The last errors are kept until others replace them: without, three of ten ranges of
        starts are missed until some are known.
        """
        self.noted = 0
        for tail in (self._low, self._high):
            tail.change_scheduler()

    def correct(self, raw: Floats, names: Sequence[str], least: Floats | float = 0.0) -> Floats:
        """The ranges of forecasts: rows of low end, median and high end, in seconds from now.

        raw    the simulated ones; a range without a finite median stays as it is
        names  the classes of the jobs
        least  what is known to be passed, such as the present
        """
        low, median, high = raw.T
        floor = _floor(np.maximum(0.0, median), self.usual)
        with np.errstate(invalid="ignore"):  # Of ranges that are open.
            below = (median - low + floor) * self._factors(self._low, names) - floor
            above = (high - median + floor) * self._factors(self._high, names) - floor
            middle = np.maximum(least, median)
            first = np.maximum(least, np.minimum(middle, median - below))
            last = np.where(np.isfinite(high), np.maximum(middle, median + above), high)
        found = np.column_stack((first, middle, last))
        return np.where(np.isfinite(median)[:, None], found, raw)

    def issue(self, name: str, at: float, raw: Floats, given: Floats) -> Issued:
        """A row of `raw` and of its correction: to be compared with what will happen."""
        return Issued(name, at, Range(*raw.tolist()), Range(*given.tolist()), self.usual)

    def _factors(self, tail: _Tail, names: Sequence[str]) -> Floats:
        of = {name: tail.factor(name, self._allowed) for name in set(names)}
        return np.array([of[name] for name in names])

    def note_present(self, issued: Issued, now: float) -> None:
        """What was forecast has not happened yet: if the range has passed, that is a miss.

        Where many jobs wait, the truth is known hours later.
        """
        if (
            not issued.is_late
            and isfinite(issued.raw.high)
            and now - issued.at > issued.given.high
        ):
            issued.is_late = True
            self._high.adapt(issued.name, self._allowed, has_missed=True)

    def note(self, issued: Issued, truth: float) -> None:
        """What was forecast has happened, at this instant."""
        raw, given, seconds = issued.raw, issued.given, truth - issued.at
        if not isfinite(raw.high):
            return
        floor = _floor(max(0.0, raw.median), issued.usual)
        below = (raw.median - seconds + floor) / (raw.median - raw.low + floor)
        above = (seconds - raw.median + floor) / (raw.high - raw.median + floor)
        self._low.add(below, issued.name)
        self._high.add(above, issued.name)
        self._low.adapt(issued.name, self._allowed, seconds < given.low)
        if not issued.is_late:
            self._high.adapt(issued.name, self._allowed, seconds > given.high)
        self._sizes.append(abs(seconds - raw.median))
        self._usual = None
        self.noted += 1

    def plain(self) -> dict[str, Any]:
        """All of it as values of JSON: the inverse of `of`."""
        return {
            "noted": self.noted,
            "sizes": [round(size, 3) for size in self._sizes],
            "tails": [self._low.plain(), self._high.plain()],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any], confidence: float = CONFIDENCE) -> Self:
        """What was kept.

        AttributeError, KeyError, TypeError or ValueError for anything else.
        """
        found = cls(confidence)
        for tail, kept in zip((found._low, found._high), plain["tails"], strict=True):
            tail.restore(kept)
        found._sizes.extend(map(_finite, plain["sizes"]))
        found.noted = int(plain["noted"])
        return found


def _floor(median: Any, usual: float) -> Any:
    return FLOOR_SECONDS + FLOOR_PART * median + FLOOR_USUAL * usual


def _finite(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError("a number is not finite")
    return number
