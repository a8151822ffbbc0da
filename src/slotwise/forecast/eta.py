"""Forecasts: when jobs will start and end, and what a change would do to that.

All instants are seconds on the clock of arrivals; infinity stands for a range that is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isinf

CONFIDENCE = 0.8
"""The part of ranges that are to hold what happens."""


@dataclass(frozen=True, slots=True)
class Range:
    """An instant that is not known: it is within `low` and `high` with the stated confidence.

    `median` is as likely too early as too late.
    """

    low: float
    median: float
    high: float

    @property
    def is_open(self) -> bool:
        """Whether it has no end."""
        return isinf(self.high)

    @property
    def width(self) -> float:
        """Seconds from the one end to the other."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Eta:
    """The forecast for one job.

    start        None if it has begun
    at           the instant of the state that was simulated: the forecast is `now - at` old
    past         the number of earlier forecasts whose errors correct the ranges; 0: the ranges
                 are those of the simulations
    is_simulated whether it comes from simulations of the scheduler in use; False if only from
                 the waits of earlier jobs
    """

    job: str
    start: Range | None
    end: Range
    at: float
    confidence: float = CONFIDENCE
    past: int = 0
    is_simulated: bool = True


@dataclass(frozen=True, slots=True)
class Changed:
    """One job in the present course and in another one: the medians and ends of ranges.

    `before` is None for a job that only the other course has, `after` for one that only the
    present one has. `late_before` and `late_after` are the parts of the courses in which it
    misses its deadline; 0 if it has none.
    """

    job: str
    before: Eta | None
    after: Eta | None
    late_before: float = 0.0
    late_after: float = 0.0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The present course beside the course after a change, by the same random numbers.

    jobs      those whose median end changes by more than a second and 1 %, or that are new; the
              largest delay first
    measures  each measure, such as `mean response`, before and after
    """

    at: float
    jobs: tuple[Changed, ...]
    measures: Mapping[str, tuple[float, float]] = field(default_factory=dict)
