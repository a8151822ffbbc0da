"""Selection by weighted medians of medians (Galil and Megiddo)."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.rap.gains import Gains
from slotwise.objective.costs import Floats, Ints


def galil_megiddo(gains: Gains) -> Ints:
    """The units of each job; ties go to the first job.

    Z. Galil, N. Megiddo, A fast selection algorithm and the problem of optimum distribution of
    effort, JACM 26 (1979). Each round takes the medians of the remaining lists and their
    median, weighted by the lengths of the lists. It separates at least a quarter of all
    remaining gains. Binary search in each list ranks it. So there are O(log S) rounds of
    O(J log S): O(J (log S)^2) for J jobs and S units, as long as J <= S, since here the medians
    are sorted, not only selected from.
    """
    jobs = np.arange(len(gains))
    low, high = np.zeros(len(gains), dtype=np.int64), np.minimum(gains.room, gains.units)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        medians = np.where(open_, gains.at(jobs, middle), -np.inf)
        level = _weighted_median(medians, high - low)
        above = _count(gains, level, low, high, or_equal=False)
        if above.sum() > gains.units:
            # The minimum with `middle` guards against rounding: every round makes progress.
            high = np.where(open_ & (medians <= level), np.minimum(above, middle), above)
            continue
        if level == -np.inf:
            return above
        reached = _count(gains, level, low, high, or_equal=True)
        if reached.sum() >= gains.units:
            return above + _in_turn(reached - above, gains.units - int(above.sum()))
        low = np.where(open_ & (medians >= level), np.maximum(reached, middle + 1), reached)
    return low


def _weighted_median(values: Floats, weight: Ints) -> float:
    """A weighted median: half of the weight is at or above it, half at or below it."""
    order = np.argsort(-values, kind="stable")
    weights = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(2 * weights, weights[-1])]])


def _count(gains: Gains, level: float, low: Ints, high: Ints, or_equal: bool) -> Ints:
    """The number of gains above a level in each list, between low and high; by bisection."""
    jobs = np.arange(len(gains))
    while (open_ := low < high).any():
        middle = (low + high) // 2
        there = gains.at(jobs, middle)
        above = open_ & ((there >= level) if or_equal else (there > level))
        low, high = np.where(above, middle + 1, low), np.where(open_ & ~above, middle, high)
    return low


def _in_turn(room: Ints, units: int) -> Ints:
    """Give each job in turn as many units as it has room for, until all are given."""
    before = np.cumsum(room) - room
    given: Ints = np.clip(units - before, 0, room)
    return given
