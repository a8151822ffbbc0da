"""Deadlines for sums of lines: completions that no schedule can beat, from a linear program."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.contrapolymatroid import least_completions
from slotwise.allocation.flowflex.flows import Flows
from slotwise.objective.costs import Floats

FLOWS_MOST = 4000
"""Above so many flows, O(J^2) takes too long."""


def bounding_completions(flows: Flows) -> Floats:
    """The completions of least weighted sum that keep inequalities every schedule keeps.

    Of any set S of flows, sum V_j C_j is at least V(S)^2 / (2 P), and more, since the last
    phases of a flow come last; and no flow is complete sooner than alone. List scheduling by
    these completions costs at most 3 times their weighted sum, so at most 3 times the optimum
    of weighted completion time: flow j is complete by V(S) / P + (critical path of j), S being
    the flows up to j. Those have C_k <= C_j, so that V(S) C_j >= V(S)^2 / (2 P), which makes
    the first part at most 2 C_j; and the second is at most C_j. For one kind of slot. (The
    factor is known for preemptive machines under precedence: Hall, Schulz, Shmoys and Wein,
    1997.) O(J^2).
    """
    capacity = float(flows.capacity.sum())
    late = np.add.reduceat(flows.work * (flows.tail + flows.length / 2), flows.first[:-1])
    return least_completions(flows.volume, late, capacity, flows.alone, flows.costs.slope)
