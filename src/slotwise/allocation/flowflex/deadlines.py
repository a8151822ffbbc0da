"""Stage 2 for strict deadlines: greedy, in order of deadlines (FlowFlex Fig. 5)."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.flowflex.flows import Flows, Ints
from slotwise.objective.costs import Floats


def by_deadline(flows: Flows, deadline: Floats) -> Ints:
    """The phases by the deadlines of their flows.

    Among equal deadlines, the flow with the shortest time alone comes first for a sum, and the
    one with the longest for a maximum, since it has the least slack.

    List scheduling in this order is the greedy scheme of Fig. 5. Theorem 2: if any schedule
    meets all deadlines, this one completes each flow by twice its deadline, because both the
    work of the flows up to it and its critical path fit before its deadline.
    """
    alone = -flows.alone if flows.aggregate == "max" else flows.alone
    return by_flows(flows, np.lexsort((alone, deadline)))


def by_flows(flows: Flows, order: Ints) -> Ints:
    """The phases ranked by an order of their flows; in a flow, longest remaining path first."""
    place = np.empty(len(flows), dtype=np.int64)
    place[order] = np.arange(len(flows))
    ranking: Ints = np.lexsort((-(flows.tail + flows.length), place[flows.flow]))
    return ranking


def by_last_end(flows: Flows, deadline: Floats) -> Ints:
    """The phases by the latest end at which their flow can still meet its deadline.

    This mixes phases of different flows, so there is no guarantee. It often meets more
    deadlines when they are tight.
    """
    ranking: Ints = np.lexsort((flows.alone[flows.flow], deadline[flows.flow] - flows.tail))
    return ranking
