"""Priority orders for objectives: standard rules of scheduling theory on the squashed area.

On the squashed area the whole cluster is one machine that does a job's work at the rate of all
slots. The rules are optimal there and good here (reference: Pinedo, Scheduling). Each function
returns an order of the jobs of a problem, the most urgent first; ties go by place. The generic
order of the paper is in `generic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from types import MappingProxyType

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.core.objective import MET, Hinge, Line, Steps, met_until
from slotwise.policy.due_dates import fits
from slotwise.policy.malleable import Malleable
from slotwise.policy.rap import ResourceProblem, envelope_gains, frederickson_johnson, solve

# The generic order of FLEX 3.2: by completion in the best moldable schedule.

AFFORDABLE = 10_000_000
"""Limit of the sums that the dynamic programme forms and choices that it keeps: 40 MB."""


def generic_order(problem: Malleable) -> list[int]:
    """A priority order for the packing scheme, for any costs, by sum or maximum.

    Every job gets a constant number of slots, such that the sum or maximum of the costs is
    minimal. The order is that of the completions, ties by place. O(max(J, J log(S/J))) for J
    jobs and S units for every maximum and for sums of convex costs (lines, hinges). Sums of
    other costs are solved by the dynamic programme if it is affordable. Otherwise their convex
    envelopes are solved as fast as convex costs, at about one step of one job above the
    optimum.
    """
    if not len(problem):
        return []
    moldable = Moldable.of(problem)
    units = moldable_units(moldable)
    ends = moldable.completion(np.arange(len(problem)), units)
    order: list[int] = np.argsort(ends, kind="stable").tolist()
    return order


def moldable_units(moldable: Moldable) -> Ints:
    """The units of each job in the best moldable schedule."""
    resources = moldable.resources
    if moldable.problem.aggregate == "max":
        return solve(resources, "max")
    if not moldable.of_any_shape:  # Convex, as its penalties show.
        return solve(resources, solver="frederickson-johnson")
    if _is_affordable(moldable):
        return solve(resources, solver="dynamic-programme")
    gains = envelope_gains(resources, moldable.of_any_shape)
    return resources.min_share + frederickson_johnson(gains)


def _is_affordable(moldable: Moldable) -> bool:
    """Whether the dynamic programme has few enough sums to form."""
    return moldable.tries * (moldable.resources.slack + 1) <= AFFORDABLE


Order = list[int]

MAX_STATES = 500
"""States kept by the Lawler-Moore programme, the cheapest ones, to bound its time."""


def by_area(problem: Malleable) -> Order:
    """Smith's rule on the area: work over the weight at stake, lowest first.

    Optimal for weighted response if every job can use all slots. With the weights of stretch it
    is shortest work first. O(J log J).
    """
    return _ascending(problem.work / problem.costs.stakes)


def by_contended_area(problem: Malleable) -> Order:
    """Smith's rule on the contended area, see `contended_area`. O(J log J)."""
    area = contended_area(problem.work, problem.max_share, problem.capacity)
    return _ascending(area / problem.costs.stakes)


def contended_area(
    work: Floats, max_share: Floats, capacity: float, later_work: float = 0.0
) -> Floats:
    """The work of each job, where work done on less contended slots counts for less.

    A job that begins now holds its max share for its height h. Slots are contended while other
    jobs wait for them, early ones most: the price at t is (1 - t/T)^2, where T is the time that
    all work takes on all slots. So long and narrow jobs count for less than their area and
    begin earlier. But a job also delays other jobs that would have ended meanwhile, in
    proportion to its part of the slots. So the price is averaged over h (1 - max_share /
    capacity) only: a job that can use all slots counts with its whole area, as in Smith's rule.
    On the jobs of FLEX 4.1 and on others this order is .5 to 2 % better than plain area
    (docs/algorithms/flex.md). `later_work` is the work of jobs after all of these. O(J).
    """
    span = (work.sum() + later_work) / capacity
    part = np.maximum(
        work / max_share * (1 - max_share / capacity) / span, np.finfo(float).tiny
    )
    mean_price = (1 - np.maximum(0.0, 1 - part) ** 3) / (3 * part)
    return work * np.where(part > FLAT, mean_price, 1.0)


FLAT = 1e-6
"""Part of the time that all work takes; the price is constant over shorter times."""


def by_height(problem: Malleable) -> Order:
    """Smith's rule on the height: the minimum time alone over the weight, lowest first."""
    return _ascending(problem.heights / problem.costs.stakes)


def by_due_date(problem: Malleable) -> Order:
    """Earliest due date first: by the latest completion of minimum cost.

    A line has no such instant; its origin is used. Ties by area. O(J log J).
    """
    due = problem.costs.due
    order = _strictly(due)
    if order is None:
        order = np.lexsort((problem.work / problem.costs.stakes, due))
    found: Order = order.tolist()
    return found


def by_last_start(problem: Malleable) -> Order:
    """Minimum slack first: by the latest start at which a job alone meets its due date."""
    due = problem.costs.due
    return _ascending(due - problem.heights)


def moore_hodgson(problem: Malleable) -> Order:
    """Moore and Hodgson's rule for the number of tardy jobs, with an exact feasibility test.

    Jobs are added by due date. When they no longer fit, the job with the most work per weight
    is given up. The kept jobs come first, by due date, then the others by area. Optimal on one
    machine without weights. O(J^2 log J).
    """
    due, stakes = problem.costs.due, problem.costs.stakes
    kept: list[int] = []
    for j in by_due_date(problem):
        if due[j] == inf:
            continue
        kept.append(j)
        while kept and not _fit(problem, kept, due):
            kept.remove(max(kept, key=lambda k: (problem.work[k] / stakes[k], k)))
    return [*kept, *(j for j in by_area(problem) if j not in set(kept))]


def lawler_moore(problem: Malleable) -> Order:
    """Lawler and Moore's programme for the weighted number of tardy jobs, on the area.

    By due date, each job is kept or given up. States with both more work and more cost than
    another are dropped. The order is as in `moore_hodgson`. Optimal on one machine as long as
    there are at most `MAX_STATES` states. O(J * states).
    """
    due, stakes = problem.costs.due.tolist(), problem.costs.stakes.tolist()
    works, heights, capacity = problem.work.tolist(), problem.heights.tolist(), problem.capacity
    states: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ())]  # cost, work, kept
    for j in by_due_date(problem):
        if due[j] == inf:
            continue
        stake, more, room = stakes[j], works[j], capacity * due[j]
        given_up = [(cost + stake, work, kept) for cost, work, kept in states]
        taken = [
            (cost, work + more, (*kept, j))
            for cost, work, kept in states
            if heights[j] <= due[j] and work + more <= room
        ]
        states = _undominated(given_up + taken)[:MAX_STATES]
    kept = states[0][2]
    return [*kept, *(j for j in by_area(problem) if j not in set(kept))]


ORDERS: Mapping[str, tuple[Callable[[Malleable], Order], float]] = MappingProxyType(
    {
        "contended area": (by_contended_area, inf),
        "area": (by_area, inf),
        "height": (by_height, inf),
        "due date": (by_due_date, inf),
        "last start": (by_last_start, inf),
        "generic": (generic_order, 500),
        "moore-hodgson": (moore_hodgson, 500),
        "lawler-moore": (lawler_moore, 60),
    }
)
"""The orders by name, each with the maximum number of jobs for which it is fast enough. All of
them apply to any problem; the best schedule counts."""


def _fit(problem: Malleable, kept: list[int], due: Floats) -> bool:
    promised = np.full(len(problem), inf)
    promised[kept] = due[kept]
    return fits(problem.capacity, problem.work, problem.min_share, problem.max_share, promised)


def _undominated(
    states: list[tuple[float, float, tuple[int, ...]]],
) -> list[tuple[float, float, tuple[int, ...]]]:
    """The states by cost, each with less work than all cheaper ones."""
    left: list[tuple[float, float, tuple[int, ...]]] = []
    for state in sorted(states, key=lambda state: state[:2]):
        if not left or state[1] < left[-1][1]:
            left.append(state)
    return left


def _ascending(keys: Floats) -> Order:
    order: Order = ascending(keys).tolist()
    return order


def ascending(keys: Floats) -> Ints:
    """The places of keys in ascending order, equal ones by place. O(J log J).

    Where all keys differ, and numpy uses vectors, in an eighth of the time of a stable sort.
    """
    order = _strictly(keys)
    return np.argsort(keys, kind="stable") if order is None else order


def _strictly(keys: Floats) -> Ints | None:
    """The only ascending order of keys; None if some are equal."""
    order: Ints = np.argsort(keys)
    found = keys[order]
    return order if bool((found[1:] > found[:-1]).all()) else None


# The moldable version of a malleable problem, as a resource allocation problem (FLEX 3.2).

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
