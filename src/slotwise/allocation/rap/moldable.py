"""The moldable version of a malleable problem, as a resource allocation problem (FLEX 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.allocation.rap.problem import ResourceProblem
from slotwise.objective.cost import MET, Hinge, Line, Steps, met_until
from slotwise.objective.costs import Floats, Ints

PARTS = 10
"""Where units are finer than slots, the minimum number of units per slot and per job."""

MAX_UNITS = 1 << 31
"""The maximum number of units: products of two such numbers fit into 64 bits."""

GLANCES = 64
"""The number of unit counts, in geometric progression, at which a curve is evaluated."""


@dataclass(frozen=True)
class Moldable:
    """Each job holds a constant whole number of units of `slots` slots until it is done.

    It has at least one unit, so that it ends. A unit is one slot if capacity and shares are
    whole and there are no more jobs than slots, otherwise a part of one. Min shares are rounded
    down to whole units, and scaled down if they leave less than one unit for each job. Max
    shares are rounded up, but a job never runs faster than its max share.

    total  the number of units
    """

    problem: Malleable
    total: int
    slots: float

    @classmethod
    def of(cls, problem: Malleable) -> Moldable:
        """The moldable version of a problem. O(J)."""
        shares = np.concatenate(([problem.capacity], problem.min_share, problem.max_share))
        whole = min(ceil(problem.capacity), MAX_UNITS)
        if np.array_equal(shares, np.floor(shares)) and len(problem) <= whole:
            return cls(problem, whole, problem.capacity / whole)
        parts = ceil(PARTS * max(len(problem) / whole, 1))
        total = min(parts * whole, MAX_UNITS)
        return cls(problem, total, problem.capacity / total)

    @cached_property
    def resources(self) -> ResourceProblem:
        """The resource allocation problem; each cost takes O(1), or O(K) with K steps."""
        count, problem = len(self.problem), self.problem
        fewest = np.maximum(1, np.floor(problem.min_share / self.slots + MET)).astype(np.int64)
        excess = int(fewest.sum()) - count
        if excess > self.total - count:
            fewest = 1 + (fewest - 1) * (self.total - count) // excess
        most = np.ceil(problem.max_share / self.slots - MET).astype(np.int64)
        most = np.minimum(np.maximum(fewest, most), self.total)
        return ResourceProblem.of(self.total, fewest, most, self.cost, self.drops)

    @cached_property
    def of_any_shape(self) -> list[int]:
        """The jobs whose cost may not be convex in units: neither line nor hinge.

        Work over units is convex and decreasing; a convex non-decreasing function of it is
        convex in units. The cut at the max share affects only the last unit and raises the
        cost there, so convexity remains.
        """
        return [j for j, c in enumerate(self.problem.costs) if not isinstance(c, Line | Hinge)]

    @property
    def tries(self) -> int:
        """The number of unit counts that the dynamic programme tries, over all jobs."""
        few = np.full(len(self.problem), MAX_UNITS)
        for j in self.of_any_shape:
            cost = self.problem.costs[j]
            few[j] = 2 * len(cost.steps) if isinstance(cost, Steps) else GLANCES
        return int(np.minimum(self.resources.room, few).sum()) + len(few)

    def completion(self, jobs: Ints, units: Ints) -> Floats:
        """The completion of these jobs when they hold `units` units, seconds."""
        rate = np.minimum(units * self.slots, self.problem.max_share[jobs])
        ends: Floats = self.problem.work[jobs] / rate
        return ends

    def cost(self, jobs: Ints, units: Ints) -> Floats:
        """The cost of these jobs when they hold `units` units."""
        return self.problem.costs.at(self.completion(jobs, units), jobs)

    def drops(self, job: int) -> Ints:
        """The unit counts at which the cost of a job can fall; for curves, some of them."""
        cost = self.problem.costs[job]
        low, high = int(self.resources.min_share[job]), int(self.resources.max_share[job])
        if isinstance(cost, Line | Hinge):
            return np.arange(low, high + 1)
        if not isinstance(cost, Steps):
            return np.unique(np.geomspace(low, high, GLANCES).round().astype(np.int64))
        limits = np.array([met_until(at) for at, _ in cost.steps if at > 0])
        with np.errstate(over="ignore", divide="ignore"):  # No number of units meets these.
            needed = np.minimum(self.problem.work[job] / (limits * self.slots), high)
        below = np.floor(needed).astype(np.int64)  # Because of rounding it may suffice.
        return np.unique(np.concatenate((below, below + 1)))
