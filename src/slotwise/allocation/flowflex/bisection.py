"""Stage 2 for maxima: deadlines from a bracket and bisection of the cost (FlowFlex Fig. 8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slotwise.allocation.flowflex.flows import Flows
from slotwise.objective.costs import Floats

PRECISION = 1e-6
"""Relative; levels of cost that are closer are alike."""

LEVELS_MOST = 40
"""A bisection of costs is fine enough by then."""


def least_level(
    flows: Flows, high: float, is_reached: Callable[[Floats], bool]
) -> tuple[float, Floats]:
    """A level of cost whose deadlines are reached, close above one whose deadlines are not.

    high        a level that is reached, so that only others below it are tried
    is_reached  whether a schedule is found that is good enough for these deadlines

    Level and deadlines; deadlines are inf where a flow may complete at any time.
    """
    low = flows.value(flows.alone)  # No flow completes sooner.
    if is_reached(due := deadlines_at(flows, low)):
        return low, due
    for _ in range(LEVELS_MOST):
        middle = low + (high - low) / 2
        if high - low <= PRECISION * max(abs(low), abs(high)) or not low < middle < high:
            break
        if is_reached(deadlines_at(flows, middle)):
            high = middle
        else:
            low = middle
    return high, deadlines_at(flows, high)


def deadlines_at(flows: Flows, level: float) -> Floats:
    """By when each flow must be complete to cost no more than a level (line 5)."""
    due: Floats = np.maximum(flows.costs.latest(level), flows.alone)
    return due
