"""Deadlines for sums of lines: completion times from a linear program that is a relaxation."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.lines import least_completions
from slotwise.allocation.flowflex.flows import Flows
from slotwise.objective.costs import Floats

FLOWS_MOST = 4000
"""Above this number of flows, O(J^2) takes too long."""


def bounding_completions(flows: Flows) -> Floats:
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
