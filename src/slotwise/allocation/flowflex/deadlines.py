"""Stage 2 for strict deadlines: chains in order of these, greedily (FlowFlex Fig. 5)."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.flowflex.flows import Flows, Ints
from slotwise.objective.costs import Floats


def by_deadline(flows: Flows, deadline: Floats) -> Ints:
    """The phases by the deadlines of their flows.

    Where deadlines are equal, the flow that needs the least time alone is first for a sum, and
    the one that needs the most for a maximum, since it has the least time to spare.

    List scheduling in this order is the greedy scheme of Fig. 5. Theorem 2: if any schedule
    meets all deadlines, this one completes each flow by twice its own, because the work of the
    flows up to it fits before its deadline, and so does its critical path.
    """
    alone = -flows.alone if flows.aggregate == "max" else flows.alone
    return by_flows(flows, np.lexsort((alone, deadline)))


def by_flows(flows: Flows, order: Ints) -> Ints:
    """The phases ranked by an order of their flows; within a flow, longest path left first."""
    place = np.empty(len(flows), dtype=np.int64)
    place[order] = np.arange(len(flows))
    ranking: Ints = np.lexsort((-(flows.tail + flows.length), place[flows.flow]))
    return ranking


def by_last_end(flows: Flows, deadline: Floats) -> Ints:
    """The phases by when each must end at the latest for its flow to meet its deadline.

    It mixes phases of different flows, so nothing is proven of it; where deadlines are tight
    it often meets more of them.
    """
    ranking: Ints = np.lexsort((flows.alone[flows.flow], deadline[flows.flow] - flows.tail))
    return ranking
