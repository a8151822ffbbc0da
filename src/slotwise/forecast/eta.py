"""Forecasts: when jobs will start and end, and what a change would do to that.

All instants are seconds on the clock of arrivals; infinity stands for a range that is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isinf
from typing import Any

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

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """`low` and `high`; None for infinity, as in JSON."""
        low, high = (at if isfinite(at) else None for at in (self.low, self.high))
        return low, high

    def moved(self, by: float) -> Range:
        """The same range on a clock whose 0 is this number of seconds earlier."""
        return Range(self.low + by, self.median + by, self.high + by)

    def to_plain(self) -> dict[str, float | None]:
        """As a JSON object; infinity is null."""
        found = {"low": self.low, "median": self.median, "high": self.high}
        return {name: round(at, 3) if isfinite(at) else None for name, at in found.items()}

    @classmethod
    def of_plain(cls, plain: Mapping[str, float | None]) -> Range:
        """The range from the result of `to_plain`."""
        low, median, high = (plain[name] for name in ("low", "median", "high"))
        return cls(*(inf if at is None else at for at in (low, median, high)))


@dataclass(frozen=True, slots=True)
class Eta:
    """The forecast for one job.

    start        None if it has begun
    at           the instant of the state that was simulated: the forecast is `now - at` old
    past         the number of earlier forecasts whose errors correct the ranges; 0: the ranges
                 are those of the simulations
    of_another   how many of these were made while another scheduler was in use
    """

    job: str
    start: Range | None
    end: Range
    at: float
    confidence: float = CONFIDENCE
    past: int = 0
    of_another: int = 0

    def moved(self, by: float) -> Eta:
        """The same forecast on a clock whose 0 is this number of seconds earlier."""
        start = None if self.start is None else self.start.moved(by)
        return replace(self, start=start, end=self.end.moved(by), at=self.at + by)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "job": self.job,
            "start": None if self.start is None else self.start.to_plain(),
            "end": self.end.to_plain(),
            "at": round(self.at, 3),
            "confidence": self.confidence,
            "past": self.past,
            "of_another": self.of_another,
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Eta:
        """The forecast from the result of `to_plain`; further keys are ignored."""
        start = plain["start"]
        return cls(
            plain["job"],
            None if start is None else Range.of_plain(start),
            Range.of_plain(plain["end"]),
            *(plain[name] for name in ("at", "confidence", "past", "of_another")),
        )


@dataclass(frozen=True, slots=True)
class Etas(Mapping[str, Eta]):
    """The forecasts of all jobs by id. Each is made when it is asked for: most never are.

    rows          of each job in the arrays
    waits         whether each waits; it has a start then
    starts, ends  low end, median and high end of each
    past          how many earlier forecasts correct those of jobs that have begun, and of those
                  that wait; each with how many more were made under another scheduler
    """

    rows: Mapping[str, int]
    waits: Any
    starts: Any
    ends: Any
    at: float
    confidence: float
    past: Sequence[tuple[int, int]]

    def __getitem__(self, job: str) -> Eta:
        row = self.rows[job]
        is_waiting = bool(self.waits[row])
        start = Range(*self.starts[row].tolist()) if is_waiting else None
        end = Range(*self.ends[row].tolist())
        own, others = self.past[is_waiting]
        return Eta(job, start, end, self.at, self.confidence, own + others, others)

    def __contains__(self, job: object) -> bool:
        return job in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


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

    @property
    def delay(self) -> float | None:
        """By how many seconds its median end is later; None if it is in one course only."""
        if self.before is None or self.after is None:
            return None
        return self.after.end.median - self.before.end.median

    def moved(self, by: float) -> Changed:
        """The same on a clock whose 0 is this number of seconds earlier."""
        before, after = (one and one.moved(by) for one in (self.before, self.after))
        return replace(self, before=before, after=after)

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object."""
        delay, both = self.delay, {"before": self.before, "after": self.after}
        return {
            "job": self.job,
            **{key: None if one is None else one.to_plain() for key, one in both.items()},
            "delay": None if delay is None or not isfinite(delay) else round(delay, 3),
            "late_before": self.late_before,
            "late_after": self.late_after,
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Changed:
        """The job from the result of `to_plain`; further keys are ignored."""
        before, after = (one and Eta.of_plain(one) for one in (plain["before"], plain["after"]))
        return cls(plain["job"], before, after, plain["late_before"], plain["late_after"])


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

    def moved(self, by: float) -> WhatIf:
        """The same on a clock whose 0 is this number of seconds earlier."""
        return replace(self, at=self.at + by, jobs=tuple(one.moved(by) for one in self.jobs))

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object; a measure that is not finite is null."""
        measures = {
            name: [one if isfinite(one) else None for one in both]
            for name, both in self.measures.items()
        }
        return {
            "at": round(self.at, 3),
            "jobs": [one.to_plain() for one in self.jobs],
            "measures": measures,
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> WhatIf:
        """The answer from the result of `to_plain`; further keys are ignored."""
        measures = {}
        for name, both in plain["measures"].items():
            before, after = (inf if one is None else one for one in both)
            measures[name] = before, after
        return cls(plain["at"], tuple(map(Changed.of_plain, plain["jobs"])), measures)
