"""Convex envelopes: costs of any shape replaced by the greatest convex ones below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slotwise.allocation.rap.problem import Ints, ResourceProblem, chained
from slotwise.objective.costs import Floats


def convex_envelope(problem: ResourceProblem, jobs: Sequence[int]) -> ResourceProblem:
    """The same problem with the costs of these jobs replaced by their convex envelopes.

    Its optimum is a bound from below. The units that a selection of gains gives are on corners
    of the envelopes, where these meet the costs, but for the one job at which the units run
    out (and jobs with equal gains): so they cost at most one step of one job more than the
    optimum. O(K) for K choices of all these jobs; then O(log K) for a cost.
    """
    if not len(jobs):
        return problem
    counts, over, heights = chained([_corners(*problem.choices(job)) for job in jobs])
    place = np.full(len(problem), -1)
    place[list(jobs)] = np.arange(len(jobs))
    last = np.cumsum(counts) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.diff(heights, append=0.0) / np.diff(over, append=0)
    slopes[last] = 0.0  # Behind its last corner a job gains nothing.
    beyond = int(problem.room.max(initial=0)) + 2
    keys = np.repeat(np.arange(len(jobs)), counts) * beyond + over

    def envelope(jobs: Ints, units: Ints) -> Floats:
        given, which = units - problem.least[jobs], place[jobs]
        corner = np.searchsorted(keys, which * beyond + given, side="right") - 1
        height = heights[corner] + slopes[corner] * (given - over[corner])
        before_first = corner < (last - counts + 1)[which]
        return np.where(before_first, np.inf, height)

    def cost(jobs: Ints, units: Ints) -> Floats:
        replaced = place[jobs] >= 0
        if replaced.all():
            return envelope(jobs, units)
        values = np.empty(len(jobs))
        values[replaced] = envelope(jobs[replaced], units[replaced])
        values[~replaced] = problem.cost(jobs[~replaced], units[~replaced])
        return values

    return replace(problem, cost=cost, drops=None)


def _corners(over: Ints, costs: Floats) -> tuple[Ints, Floats]:
    """The corners of the lower convex hull of points from left to right, if finite."""
    hull: list[int] = []
    for point in np.flatnonzero(np.isfinite(costs)).tolist():
        while len(hull) > 1 and _is_above(over, costs, hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    corners = hull or [0]
    return over[corners], costs[corners]


def _is_above(over: Ints, costs: Floats, before: int, here: int, after: int) -> bool:
    """Whether the middle one of three points is on or above the line through the others."""
    rise = (costs[here] - costs[before]) * (over[after] - over[before])
    line = (costs[after] - costs[before]) * (over[here] - over[before])
    return bool(rise >= line)
