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
from hashlib import blake2b
from math import exp, inf, log
from statistics import NormalDist
from typing import Any, Self

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

CORRELATION = 0.9
"""Of the errors of one user's jobs at one time (reference: trials on KTH-SP2)."""

SPREAD, UNSTATED_SPREAD = 0.5, 2.0
"""The assumed standard deviation of logarithms before any phase has ended: of factors by which
stated times are wrong, and of times that are not stated."""

PRIOR_WEIGHT = 2.0
"""The weight of that assumption, as a number of phases."""

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
        self._arrays: tuple[Floats, Floats] | None = None
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
        self._arrays = None
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
        base_seconds: float,
        is_stated: bool,
        uniform: Floats,
        elapsed: float = 0.0,
        longest: float = inf,
    ) -> Floats:
        """Seconds of a task that has run for `elapsed`, at these quantiles of the distribution.

        longest  the time at which it is stopped
        """
        base = log(max(base_seconds, MIN_SECONDS))
        factors, weights = self._similar(user, program, base, is_stated)
        seconds = np.exp(base + factors)
        if elapsed > 0:
            is_left = seconds > elapsed
            if weights[is_left].sum() < 0.02 * weights.sum():
                # An exponential tail: none of the known ones took so long.
                found = elapsed * (1 - LATE * np.log1p(-uniform * 0.999))
                return np.asarray(np.minimum(found, max(longest, elapsed)))
            seconds, weights = seconds[is_left], weights[is_left]
        order = np.argsort(seconds)
        seconds, upto = seconds[order], np.cumsum(weights[order])
        places = np.searchsorted(upto, uniform * upto[-1])
        found = seconds[np.minimum(places, len(seconds) - 1)]
        return np.asarray(np.minimum(found, max(longest, elapsed)))

    def _similar(
        self, user: str, program: str, base: float, is_stated: bool
    ) -> tuple[Floats, Floats]:
        """The factors that count for a phase, and their weights."""
        if self._arrays is None:
            self._arrays = (
                np.array([one.base for one in self._all]),
                np.array([one.factor for one in self._all]),
            )
        bases, factors = self._arrays
        near = np.exp(-np.abs(bases - base) / SCALE)
        total = near.sum()
        weights = [near * (GLOBAL_WEIGHT * min(1.0, self.noted / 20) / total)] if total else []
        found = [factors] if total else []
        own = self._users.get(user)
        if own:
            last = list(own)[::-1]
            weight = np.array(
                [
                    FADE**k
                    * (1.0 if one.program == program else OTHER_PROGRAM)
                    * exp(-abs(one.base - base) / SCALE)
                    for k, one in enumerate(last)
                ]
            )
            weights.append(weight)
            found.append(np.array([one.factor for one in last]))
        if self.noted < 20:
            weights.append(
                np.full(len(PRIOR), PRIOR_WEIGHT / len(PRIOR) / (1 + self.noted / 4))
            )
            found.append(PRIOR * (SPREAD if is_stated else UNSTATED_SPREAD))
        return np.concatenate(found), np.concatenate(weights)


PRIOR = np.array([NORMAL.inv_cdf((k + 0.5) / 15) for k in range(15)])
"""Standard normal values that stand for the distribution assumed before any phase has ended."""


class Draws:
    """Random numbers of jobs: the same for the same job in every course and every picture.

    So two pictures are compared by common random numbers, and a forecast does not jitter.
    """

    def __init__(self, courses: int) -> None:
        self.courses = courses
        strata = (np.arange(courses) + 0.5) / courses
        self._normal = np.array([NORMAL.inv_cdf(float(u)) for u in strata])

    def uniform(self, user: str, job: str) -> Floats:
        """A number from 0 to 1 for each course, correlated among the jobs of a user."""
        mixed = CORRELATION**0.5 * self.of("user", user) + (1 - CORRELATION) ** 0.5 * self.of(
            "job", job
        )
        return normal_part(mixed)

    def of(self, what: str, name: str) -> Floats:
        """Standard normal numbers, in an order of their own."""
        seed = int.from_bytes(blake2b(f"{what} {name}".encode(), digest_size=8).digest(), "big")
        return np.random.default_rng(seed).permutation(self._normal)


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
