"""Deadlines from FLEX: each flow as one malleable job, for any objective."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.flowflex.flows import Flows
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.orders import by_dear_area
from slotwise.allocation.search.solution import in_order
from slotwise.allocation.search.solve import solve
from slotwise.objective.costs import Floats


def flat_completions(flows: Flows, budget: Budget) -> Floats:
    """The completions under FLEX if each flow were one phase of the same work and height.

    This replaces the minimum cost flow in the faster variant (FlowFlex 5.2). The area is the
    same, a flow can use its work over its time alone in slots, and FLEX supports all metrics.
    For sums of lines the first order is used: here it is as good as the best.
    """
    capacity = float(flows.capacity.sum())
    max_share = np.minimum(flows.volume / flows.alone, capacity)
    nothing = np.zeros(len(flows))
    problem = Malleable.of(
        capacity, flows.volume, nothing, max_share, list(flows.costs), flows.aggregate
    )
    if flows.aggregate == "sum" and flows.costs.are_lines:
        return in_order(problem, by_dear_area(problem)).completion
    return solve(problem, budget).completion
