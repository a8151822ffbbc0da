"""Convex envelopes: costs of any shape replaced by the greatest convex ones below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.allocation.rap.gains import Gains, minisum_gains
from slotwise.allocation.rap.problem import ResourceProblem, chained
from slotwise.objective.costs import Floats, Ints


def envelope_gains(problem: ResourceProblem, jobs: Sequence[int]) -> Gains:
    """The gains for the sum when the costs of these jobs are replaced by their envelopes.

    The optimum of the envelopes is a lower bound. The selected units are at corners of the
    envelopes, where envelope and cost are equal, except for the one job at which the units run
    out. So the cost exceeds the optimum by at most the saving of one job between two adjacent
    corners. O(K) for K choices of all these jobs, then O(log K) per gain.
    """
    exact = minisum_gains(problem)
    if not len(jobs):
        return exact
    counts, over, heights = chained([_corners(*problem.choices(job)) for job in jobs])
    place = np.full(len(problem), -1)
    place[list(jobs)] = np.arange(len(jobs))
    last = np.cumsum(counts) - 1
    # Equal gains must be equal to the last bit, so that units go to one job after the other.
    gain_from = np.zeros(len(over))
    inner = np.delete(np.arange(len(over)), last)
    gain_from[inner] = (heights[inner] - heights[inner + 1]) / (over[inner + 1] - over[inner])
    beyond = int(problem.room.max(initial=0)) + 2
    keys = np.repeat(np.arange(len(jobs)), counts) * beyond + over

    def enveloped(jobs: Ints, given: Ints) -> Floats:
        which = place[jobs]
        corner = np.searchsorted(keys, which * beyond + given, side="right") - 1
        is_before_first = corner < (last - counts + 1)[which]
        return np.where(is_before_first, np.inf, gain_from[corner])

    def gain(jobs: Ints, given: Ints) -> Floats:
        replaced = place[jobs] >= 0
        if replaced.all():
            return enveloped(jobs, given)
        gains = np.empty(len(jobs))
        gains[replaced] = enveloped(jobs[replaced], given[replaced])
        gains[~replaced] = exact.gain(jobs[~replaced], given[~replaced])
        return gains

    return Gains(exact.units, exact.room, gain)


def _corners(over: Ints, costs: Floats) -> tuple[Ints, Floats]:
    """The corners of the lower convex hull of the finite points, from left to right."""
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
