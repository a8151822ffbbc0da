"""Costs: the cost of one job as a function of its completion time alone (FLEX 2.1, Fig. 1)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import Protocol

MET = 1e-9
"""Relative; a deadline exceeded by at most this part counts as met, because of rounding."""


def is_met(due: float, completion: float) -> bool:
    """Whether this completion meets the due date, up to rounding (`MET`)."""
    return completion <= met_until(due)


def met_until(instant: float) -> float:
    """The latest completion that still counts as meeting this instant, seconds."""
    return instant + MET * abs(instant)


class Cost(Protocol):
    """A non-decreasing function of completion time, in seconds.

    Its values have the unit of the penalty: seconds for a response time, none for a stretch,
    money for an SLA.
    """

    def at(self, completion: float) -> float:
        """The cost of this completion. O(1), with K steps O(log K)."""
        ...

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`; inf if all do, -inf if none.

        O(1), with K steps O(log K). A `Curve` is evaluated about 100 times.
        """
        ...

    @property
    def kinks(self) -> tuple[float, ...]:
        """The instants, seconds, at which its slope changes or after which it jumps, in order.

        Between them it is a straight line, except for a `Curve`. O(1), with K steps O(K).
        """
        ...

    def since(self, instant: float) -> Cost:
        """The same cost on a clock that shows 0 at this instant. O(1), with K steps O(K)."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """slope * (C - origin), with slope > 0: response, stretch, slowdown, lateness, makespan."""

    slope: float
    origin: float = 0.0

    def at(self, completion: float) -> float:
        """The cost of this completion; negative before the origin."""
        return self.slope * (completion - self.origin)

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`."""
        return self.origin + level / self.slope

    @property
    def kinks(self) -> tuple[float, ...]:
        """None: it is straight."""
        return ()

    def since(self, instant: float) -> Line:
        """The same line on a clock that shows 0 at this instant."""
        return Line(self.slope, self.origin - instant)


@dataclass(frozen=True, slots=True)
class Hinge:
    """slope * max(0, C - due), with slope > 0: tardiness."""

    slope: float
    due: float

    def at(self, completion: float) -> float:
        """The cost of this completion; 0 up to the due date."""
        return self.slope * max(0.0, completion - self.due)

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`; -inf for a level below 0."""
        return self.due + level / self.slope if level >= 0 else -inf

    @property
    def kinks(self) -> tuple[float, ...]:
        """The due date."""
        return (self.due,)

    def since(self, instant: float) -> Hinge:
        """The same hinge on a clock that shows 0 at this instant."""
        return Hinge(self.slope, self.due - instant)


@dataclass(frozen=True, slots=True)
class Steps:
    """The cost of the last step passed, 0 before the first: tardy jobs and SLAs.

    steps  (instant, cost) with increasing instants and non-decreasing costs >= 0; a step is
           passed by completing later than its instant, up to rounding (`MET`).
    """

    steps: tuple[tuple[float, float], ...]

    def at(self, completion: float) -> float:
        """The cost of this completion."""
        passed = bisect_left(self.steps, completion, key=lambda step: met_until(step[0]))
        return self.steps[passed - 1][1] if passed else 0.0

    def latest(self, level: float) -> float:
        """The latest completion that costs at most `level`: the instant of the next step."""
        if level < 0:
            return -inf
        cheap = bisect_right(self.steps, level, key=lambda step: step[1])
        return self.steps[cheap][0] if cheap < len(self.steps) else inf

    @property
    def kinks(self) -> tuple[float, ...]:
        """The instants of the steps."""
        return tuple(instant for instant, _ in self.steps)

    def since(self, instant: float) -> Steps:
        """The same steps on a clock that shows 0 at this instant."""
        return Steps(tuple((at - instant, cost) for at, cost in self.steps))


@dataclass(frozen=True, slots=True)
class Curve:
    """Any non-decreasing function of the completion time, for custom penalties.

    Only its values are known. So its inverse is found by bisection, and lower bounds replace it
    by a staircase below it. Use one of the classes above if it fits.
    """

    function: Callable[[float], float]
    begins: float = 0.0

    def at(self, completion: float) -> float:
        """The cost of this completion."""
        return self.function(self.begins + completion)

    def latest(self, level: float) -> float:
        """The latest completion from 0 on that costs at most `level`, by bisection.

        About 100 evaluations.
        """
        if self.at(0.0) > level:
            return -inf
        early, late = 0.0, 1.0
        while self.at(late) <= level:
            early, late = late, 2 * late
            if late > FOREVER:
                return inf
        while nextafter(early, inf) < late and late - early > MET * MET * late:
            middle = (early + late) / 2
            early, late = (middle, late) if self.at(middle) <= level else (early, middle)
        return early

    @property
    def kinks(self) -> tuple[float, ...]:
        """Unknown, so empty."""
        return ()

    def since(self, instant: float) -> Curve:
        """The same curve on a clock that shows 0 at this instant."""
        return replace(self, begins=self.begins + instant)


FOREVER = 1e18
"""Seconds; a curve that does not exceed a level by then is assumed never to."""
