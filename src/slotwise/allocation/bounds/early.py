"""Costs of a moment earlier: below the true ones by more than any rounding.

Clocks round: an instant that is the sum of many others is only known to so many digits, and a
deadline that is missed by rounding counts as met. Bounds that are proven for real numbers are
therefore taken for costs that stand at each instant a little lower, so that they hold for the
values that programs print.
"""

from __future__ import annotations

from slotwise.objective.cost import Cost, Curve, Hinge, Line, Steps, met_until
from slotwise.objective.costs import Costs

SAFETY = 1e-11
"""A cost is taken at an instant earlier by this part of the instant."""


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
            # A step is passed only behind what rounding is granted it.
            return Steps(tuple((met_until(at) / part, cost) for at, cost in steps))
        case _:
            return Curve(lambda instant: cost.at(part * instant))
