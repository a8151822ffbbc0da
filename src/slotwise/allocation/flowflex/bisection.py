"""Stage 2 for maxima: deadlines from a bracket and bisection of the cost (FlowFlex Fig. 8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slotwise.allocation.flowflex.flows import Flows
from slotwise.objective.costs import Floats

PRECISION = 1e-6
"""Relative; levels of cost that are closer count as equal."""

LEVELS_MOST = 40
"""The number of halvings after which a bisection of costs is fine enough."""


def least_level(
    flows: Flows, high: float, is_reached: Callable[[Floats], bool]
) -> tuple[float, Floats]:
    """A level of cost whose deadlines are met, slightly above one whose deadlines are not.

    high        a level whose deadlines are met; only lower ones are tried
    is_reached  whether a schedule is found that is good enough for these deadlines

    Returns the level and the deadlines, inf for flows that may complete at any time. At most
    `LEVELS_MOST` + 1 calls of `is_reached`.
    """
    low = flows.value(flows.alone)  # No flow completes earlier.
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
    """The deadline of each flow, seconds, for its cost to be at most `level` (line 5)."""
    due: Floats = np.maximum(flows.costs.latest(level), flows.alone)
    return due
