"""The generic order of FLEX 3.2: by completion in the best moldable schedule."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.malleable import Malleable
from slotwise.allocation.rap import solve
from slotwise.allocation.rap.envelope import envelope_gains
from slotwise.allocation.rap.frederickson_johnson import frederickson_johnson
from slotwise.allocation.rap.moldable import Moldable
from slotwise.objective.costs import Ints

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
