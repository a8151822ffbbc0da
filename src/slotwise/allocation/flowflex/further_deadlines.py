"""Deadlines that the paper does not have: from FLEX, and from a linear program."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.lines import least_completions
from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.orders import by_contended_area
from slotwise.allocation.search.solution import in_order
from slotwise.allocation.search.solve import solve
from slotwise.objective.costs import Floats

MAX_FLOWS = 4000
"""Above this number of flows, the O(J^2) of `bounding_completions` takes too long."""


def flat_completions(flows: FlowProblem, budget: Budget) -> Floats:
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
        return in_order(problem, by_contended_area(problem)).completion
    return solve(problem, budget).completion


def bounding_completions(flows: FlowProblem) -> Floats:
    """The completions of least weighted sum under inequalities that hold for every schedule.

    For any set S of flows, sum V_j C_j is at least V(S)^2 / (2 P), and more since the last
    phases of a flow come last. No flow completes earlier than it would alone. For one kind of
    slot, list scheduling by these completions costs at most 3 times their weighted sum, so at
    most 3 times the optimum of weighted completion time. Proof: let S be the flows up to j.
    Flow j completes by V(S) / P + (critical path of j). The flows k in S have C_k <= C_j, so
    V(S) C_j >= V(S)^2 / (2 P), and the first term is at most 2 C_j. The second is at most C_j.
    (The factor is known for preemptive machines under precedence: Hall, Schulz, Shmoys and
    Wein, 1997.) O(J^2).
    """
    capacity = float(flows.capacity.sum())
    late = np.add.reduceat(flows.work * (flows.tail + flows.length / 2), flows.first[:-1])
    return least_completions(flows.volume, late, capacity, flows.alone, flows.costs.slope)
