"""How long tasks will take: a distribution for each phase, from phases that have ended.

The scheduler's estimate of a phase is a base. What is learned is by which factors such
estimates were wrong: those of the same user lately, mostly for the same program and for
estimates of the same size, and to a small part those of all. Factors are drawn as they were
observed, since a job that fails at once and one that runs to its limit have nothing between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import NormalDist
from typing import Any, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OF_USER = 40
"""How many of the last phases of a user count."""

OF_ALL = 400
"""How many of the last phases of all users count."""

FADE = 0.9
"""The weight of a phase of a user, by that of the next one."""

OTHER_PROGRAM = 0.3
"""The weight of a phase of another program of the same user."""

GLOBAL_WEIGHT = 0.5
"""The weight of all others together, as a number of phases of the same user."""

SCALE = 1.0
"""Estimates that differ by this factor (as a logarithm) count e times less."""

STEP = 0.5
"""Estimates whose logarithms differ by less than half of this have one distribution."""

CORRELATION = 0.9
"""Of the errors of one user's jobs at one time (reference: trials on KTH-SP2)."""

SPREAD, UNSTATED_SPREAD = 0.5, 2.0
"""The assumed standard deviation of logarithms before any phase has ended: of factors by which
stated times are wrong, and of times that are not stated."""

PRIOR_WEIGHT = 2.0
"""The weight of that assumption, as a number of phases."""

UNKNOWN_PART = 0.02
"""If less of a distribution is above the time that a task has run, it is not used."""

LATE = 0.5
"""A task that has run longer than all known ones needs this part of its time again, on
average."""

MIN_SECONDS = 1e-3
"""Shorter tasks count as this long."""

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Ended:
    """A phase that has ended: whose, of which program, the estimate before, and the truth.

    Both are logarithms of seconds of one task at speed 1.
    """

    program: str
    base: float
    factor: float


class PastWork:
    """By which factors estimates were wrong, of the last phases of each user and of all.

    Memory: `OF_USER` phases of each of `USERS_MAX` users. `note` is O(1), `draw` is
    O(OF_USER + OF_ALL).
    """

    USERS_MAX = 2_000

    def __init__(self) -> None:
        self._users: dict[str, deque[Ended]] = {}
        self._all: deque[Ended] = deque(maxlen=OF_ALL)
        self._columns: dict[str, _Columns] = {}  # Of those that did not change.
        self._known: dict[tuple[str, str, float, bool], tuple[Floats, Floats]] = {}
        self.noted = 0

    def note(self, user: str, program: str, base_seconds: float, seconds: float) -> None:
        """A phase has ended whose tasks took this long instead of the estimate."""
        base = log(max(base_seconds, MIN_SECONDS))
        one = Ended(program, base, log(max(seconds, MIN_SECONDS)) - base)
        own = self._users.pop(user, None)
        if own is None:
            own = deque(maxlen=OF_USER)
            if len(self._users) == self.USERS_MAX:
                del self._users[next(iter(self._users))]
        self._users[user] = own
        own.append(one)
        self._all.append(one)
        self._columns.pop(user, None)
        self._columns.pop(ALL, None)
        self._known.clear()
        self.noted += 1

    def plain(self) -> list[list[Any]]:
        """All that is known as values of JSON: the inverse of `of`."""
        return [
            [user, one.program, round(one.base, 6), round(one.factor, 6)]
            for user, own in self._users.items()
            for one in own
        ]

    @classmethod
    def of(cls, plain: Iterable[Sequence[Any]]) -> Self:
        """What was kept. ValueError or TypeError for anything else."""
        found = cls()
        for user, program, base, factor in plain:
            seconds = exp(_finite(base))
            found.note(str(user), str(program), seconds, seconds * exp(_finite(factor)))
        return found

    def draw(
        self,
        user: str,
        program: str,
        base_seconds: float | Floats,
        is_stated: bool,
        uniform: Floats,
        elapsed: float = 0.0,
        longest: float = inf,
    ) -> Floats:
        """Seconds of a task that has run for `elapsed`, at these quantiles of the distribution.

        base_seconds  of several tasks that have not begun: a column of the same `size_of`
        longest       the time at which it is stopped
        """
        base = np.log(np.maximum(base_seconds, MIN_SECONDS))
        key = user, program, size_of(np.min(base_seconds)), is_stated
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._distribution(*key)
        factors, upto = known
        passed = 0.0  # The weight of those that have ended by now.
        if elapsed > 0:
            place = int(np.searchsorted(factors, log(elapsed) - float(base), "right"))
            passed = float(upto[place - 1]) if place else 0.0
            if upto[-1] - passed < UNKNOWN_PART * upto[-1]:
                # None of the known ones took so long: an exponential tail.
                found = elapsed * (1 - LATE * np.log1p(-uniform * 0.999))
                return np.asarray(np.minimum(found, max(longest, elapsed)))
        places = np.searchsorted(upto, passed + uniform * (upto[-1] - passed))
        found = np.exp(base + factors[np.minimum(places, len(factors) - 1)])
        return np.asarray(np.minimum(found, max(longest, elapsed)))

    def _distribution(
        self, user: str, program: str, base: float, is_stated: bool
    ) -> tuple[Floats, Floats]:
        """The factors that count for a phase in order, and the sums of their weights."""
        everyone = self._columns_of(ALL, self._all)
        near = everyone.near(base)
        found, weights = [], []
        if total := float(near.sum()):
            found.append(everyone.factors)
            weights.append(near * (GLOBAL_WEIGHT * min(1.0, self.noted / FEW) / total))
        if own := self._users.get(user):
            columns = self._columns_of(user, own)
            alike = np.where(columns.programs == program, 1.0, OTHER_PROGRAM)
            found.append(columns.factors)
            weights.append(columns.near(base) * alike * FADING[-len(own) :])
        if self.noted < FEW:
            weights.append(
                np.full(len(PRIOR), PRIOR_WEIGHT / len(PRIOR) / (1 + self.noted / 4))
            )
            found.append(PRIOR * (SPREAD if is_stated else UNSTATED_SPREAD))
        factors = np.concatenate(found)
        order = np.argsort(factors)
        return factors[order], np.cumsum(np.concatenate(weights)[order])

    def _columns_of(self, name: str, ended: Iterable[Ended]) -> _Columns:
        if (columns := self._columns.get(name)) is None:
            columns = self._columns[name] = _Columns(list(ended))
        return columns


def size_of(base_seconds: float) -> float:
    """About how large an estimate is: its logarithm in steps. All of a step are alike."""
    return round(log(max(base_seconds, MIN_SECONDS)) / STEP) * STEP


class _Columns:
    """Ended phases as arrays, the oldest first."""

    def __init__(self, ended: Sequence[Ended]) -> None:
        self.bases = np.array([one.base for one in ended])
        self.factors = np.array([one.factor for one in ended])
        self.programs = np.array([one.program for one in ended], dtype=object)

    def near(self, base: float) -> Floats:
        """How much each counts for an estimate of this size."""
        return np.asarray(np.exp(-np.abs(self.bases - base) / SCALE))


ALL = "\0"
"""Stands for all users; no user has this name."""

FEW = 20
"""With fewer ended phases, what is assumed beforehand counts, too."""

FADING = FADE ** np.arange(OF_USER - 1, -1, -1.0)

PRIOR = np.array([NORMAL.inv_cdf((k + 0.5) / 15) for k in range(15)])
"""Standard normal values that stand for the distribution assumed before any phase has ended."""


class Draws:
    """Random numbers of jobs: the same for the same job in every course and every situation.

    So two situations are compared by common random numbers, and a forecast does not jitter.
    """

    ORDERS = 4_096
    """In how many orders the numbers occur: by checksums of names."""

    def __init__(self, courses: int) -> None:
        self.courses = courses
        strata = (np.arange(courses) + 0.5) / courses
        normal = np.array([NORMAL.inv_cdf(float(u)) for u in strata])
        rng = np.random.default_rng(courses)
        self._orders = rng.permuted(np.tile(normal, (self.ORDERS, 1)), axis=1)

    def uniform(self, jobs: Sequence[tuple[str, str]]) -> Floats:
        """For each pair of a user and a job, a number from 0 to 1 for each course.

        They are correlated among the jobs of a user.
        """
        users, names = zip(*jobs, strict=True) if jobs else ((), ())
        own = sqrt(1 - CORRELATION) * self.of("job", names)
        return normal_part(sqrt(CORRELATION) * self.of("user", users) + own)

    def of(self, what: str, names: Iterable[str]) -> Floats:
        """Standard normal numbers for each name, in an order of their own."""
        first = crc32(what.encode())
        places = [crc32(name.encode(errors="surrogatepass"), first) for name in names]
        return self._orders[np.array(places, np.int64) % self.ORDERS]


def normal_part(values: Floats) -> Floats:
    """The standard normal distribution function (Abramowitz and Stegun 26.2.17; 1e-7)."""
    t = 1 / (1 + 0.2316419 * np.abs(values))
    poly = t * (
        0.319381530
        + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-values * values / 2) / np.sqrt(2 * np.pi) * poly
    return np.asarray(np.where(values >= 0, 1 - tail, tail))


def _finite(value: Any) -> float:
    number = float(value)
    if not -200 < number < 200:
        raise ValueError("a logarithm is out of range")
    return number
