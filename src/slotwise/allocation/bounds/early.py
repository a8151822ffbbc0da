"""Costs of a moment earlier: below the true costs by more than any rounding error.

Instants are rounded: the sum of many others has a limited number of digits, and a deadline
missed by a rounding error counts as met. Bounds are proven for real numbers. So they use costs
that are slightly lower at each instant, and hold for the values that programs print.
"""

from __future__ import annotations

from slotwise.objective.cost import Cost, Curve, Hinge, Line, Steps, met_until
from slotwise.objective.costs import Costs

SAFETY = 1e-11
"""Costs are evaluated earlier by this part of the instant."""


def earlier(costs: Costs) -> Costs:
    """For each cost one that is at most cost((1 - SAFETY) C) at each C >= 0. O(J)."""
    return Costs([_earlier(cost) for cost in costs])


def _earlier(cost: Cost) -> Cost:
    part = 1 - SAFETY
    match cost:
        case Line(slope, origin):
            return Line(slope * part, max(origin, origin / part))
        case Hinge(slope, due):
            return Hinge(slope * part, max(due, due / part))
        case Steps(steps):
            # A step is passed only after the tolerance for rounding (`met_until`).
            return Steps(tuple((met_until(at) / part, cost) for at, cost in steps))
        case _:
            return Curve(lambda instant: cost.at(part * instant))
