"""Priority orders for objectives: standard rules of scheduling theory on the squashed area.

On the squashed area the whole cluster is one machine that does a job's work at the rate of all
slots. The rules are optimal there and good here (reference: Pinedo, Scheduling). Each function
returns an order of the jobs of a problem, the most urgent first; ties go by place. The generic
order of the paper is in `generic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType

import numpy as np

from slotwise.allocation.due_dates.feasibility import fits
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.search.generic import generic_order
from slotwise.objective.costs import Floats

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
    work: Floats, max_share: Floats, capacity: float, behind: float = 0.0
) -> Floats:
    """The work of each job, where work done on less contended slots counts for less.

    A job that begins now holds its max share for its height h. Slots are contended while other
    jobs wait for them, early ones most: the price at t is (1 - t/T)^2, where T is the time that
    all work takes on all slots. So long and narrow jobs count for less than their area and
    begin earlier. But a job also delays other jobs that would have ended meanwhile, in
    proportion to its part of the slots. So the price is averaged over h (1 - max_share /
    capacity) only: a job that can use all slots counts with its whole area, as in Smith's rule.
    On the jobs of FLEX 4.1 and on others this order is .5 to 2 % better than plain area
    (docs/algorithms/flex.md). `behind` is the work of jobs that come after all of these. O(J).
    """
    span = (work.sum() + behind) / capacity
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
    return [int(j) for j in np.lexsort((problem.work / problem.costs.stakes, due))]


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
    return [int(j) for j in np.argsort(keys, kind="stable")]
