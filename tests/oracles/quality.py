"""How near FLEX comes to the optimum: its solver compared with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oracles.checking import check_packing
from oracles.instances import Metric, instances
from oracles.orders import optimum
from slotwise.core.objective import Line
from slotwise.policy.bounds import BoundJobs, lower_bound
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.solve import MalleableSolution, solve
from slotwise.results import EXACT

SAME = 1e-6
"""Relative; values that differ by less are the same, as HiGHS is good for about 1e-7."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One problem: the optimum, the value of our schedule, and the bound that we have proven.

    Lateness may be 0 or less. For ratios and gaps it is counted from `base`, what straight
    lines cost at 0 with the other sign, so that they are those of response. Else it is 0.
    """

    best: float
    value: float
    bound: float
    base: float

    @property
    def is_optimal(self) -> bool:
        """Whether our schedule is as good as any."""
        return self.value <= self.best + SAME * max(1.0, self.best + self.base)

    @property
    def is_proven(self) -> bool:
        """Whether our own bound says so, as in a plan."""
        return self.value - self.bound <= EXACT * max(abs(self.value), abs(self.bound))

    @property
    def has_ratio(self) -> bool:
        """Whether there is anything to divide by."""
        return self.best + self.base > SAME

    @property
    def ratio(self) -> float:
        """Of the value to the optimum."""
        return (self.value + self.base) / (self.best + self.base)

    @property
    def bound_gap(self) -> float:
        """By how much of the optimum the bound is below it."""
        return (self.best - self.bound) / (self.best + self.base)


def compare(problem: Malleable) -> Compared:
    """Solve a problem both ways; assert that our schedule is one and that no claim is false."""
    best = optimum(
        problem.capacity,
        problem.work,
        problem.min_share,
        problem.max_share,
        tuple(problem.costs),
        problem.aggregate,
    )
    found = solve(problem)
    bound = proven(problem, found)
    check_packing(problem, found.packing, list(found.completion))
    ends = [cost.at(float(c)) for cost, c in zip(problem.costs, found.completion, strict=True)]
    total = max(ends) if problem.aggregate == "max" else sum(ends)
    base = _base(problem)
    slip = SAME * max(1.0, abs(best) + base)
    assert abs(total - found.value) <= slip, f"it costs {total}, said to cost {found.value}"
    assert found.value >= best - slip, f"{found.value} is below the optimum {best}: {problem}"
    assert bound <= best + slip, f"the bound {bound} is above the optimum {best}: {problem}"
    return Compared(best, found.value, bound, base)


def proven(problem: Malleable, found: MalleableSolution) -> float:
    """The best of what the solver itself and the bounds have proven."""
    start = [0.0] * len(problem)
    jobs = BoundJobs.of(
        tuple(problem.costs),
        start,
        problem.work,
        problem.max_share,
        problem.heights,
        problem.min_share,
    )
    bound = lower_bound(jobs, problem.capacity, problem.aggregate, found.value)
    return max(found.bound, bound)


def _base(problem: Malleable) -> float:
    origins = [c.slope * max(0.0, c.origin) for c in problem.costs if isinstance(c, Line)]
    return max(origins, default=0.0) if problem.aggregate == "max" else sum(origins)


@dataclass(frozen=True, slots=True)
class Row:
    """What many problems of one metric say together."""

    metric: Metric
    with_least: bool
    compared: Sequence[Compared]

    @property
    def mean_ratio(self) -> float:
        """Of the values to the optima, where these are above 0."""
        return fmean([c.ratio for c in self._divisible] or [1.0])

    @property
    def worst_ratio(self) -> float:
        """The largest of these ratios."""
        return max((c.ratio for c in self._divisible), default=1.0)

    @property
    def without_ratio(self) -> int:
        """Problems whose optimum is 0 and whose value is above it."""
        return sum(not c.has_ratio and not c.is_optimal for c in self.compared)

    @property
    def share_optimal(self) -> float:
        """How many schedules were as good as any."""
        return fmean(c.is_optimal for c in self.compared)

    @property
    def share_proven(self) -> float:
        """How many were known to be."""
        return fmean(c.is_proven for c in self.compared)

    @property
    def mean_bound_gap(self) -> float:
        """By how much of the optimum the bound is below it, where the optimum is above 0."""
        return fmean([c.bound_gap for c in self._divisible] or [0.0])

    @property
    def _divisible(self) -> list[Compared]:
        return [c for c in self.compared if c.has_ratio]


def measure(metric: Metric, with_least: bool, count: int, seed: int = 0) -> Row:
    """Solve random problems of a metric both ways."""
    problems = instances(metric, seed, count, with_least)
    return Row(metric, with_least, [compare(problem) for problem in problems])


HEADER = (
    f"{'metric':26} {'least':5} {'n':>4} {'mean':>9} {'worst':>9} {'0, not met':>10}"
    f" {'optimal':>8} {'proven':>8} {'bound':>8}"
)


def line(row: Row) -> str:
    """A row as text, as wide as the header."""
    gap = max(0.0, row.mean_bound_gap)  # Below it the bound is above what HiGHS rounds.
    return (
        f"{row.metric.aggregate + ' ' + row.metric.name:26}"
        f" {'yes' if row.with_least else 'no':5} {len(row.compared):4}"
        f" {row.mean_ratio:9.6f} {row.worst_ratio:9.6f} {row.without_ratio:10}"
        f" {row.share_optimal:8.1%} {row.share_proven:8.1%} {gap:8.2%}"
    )
