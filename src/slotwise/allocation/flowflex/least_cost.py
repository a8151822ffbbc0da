"""Stage 2 for sums: deadlines from a minimum cost flow (FlowFlex Figs 6 and 7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.objective.cost import met_until
from slotwise.objective.costs import Floats

MAX_INTERVALS, MIN_INTERVALS, ARCS = 256, 128, 50_000
"""The number of intervals of time lies within these limits, such that the network has about
ARCS arcs."""

VOLUME, COST = 2**30, 2**28
"""The network is integral: all work in its units, and the cost of the most expensive unit."""


@dataclass(frozen=True, slots=True)
class LeastCost:
    """The cheapest way to do all work if precedence within flows is ignored.

    alone  the minimum time of each flow, seconds
    ends   of the intervals of time, seconds
    part   J x K: the work of each flow that counts as done in each interval
    bound  lower bound on the sum of the costs of every schedule
    """

    alone: Floats
    ends: Floats
    part: Floats
    bound: float

    def deadlines(self, fraction: float) -> Floats:
        """The ends of the intervals in which this part of each flow is done, 0 < fraction < 1.

        No deadline is before the flow could complete alone. Up to the width of the intervals,
        schedules by these deadlines cost at most 1 / (1 - fraction) times the minimum on slots
        that are 1 + 1 / fraction times as fast (Theorem 3: 1/2 gives 2 and 3).
        """
        done = self.part.cumsum(axis=1)
        reached = done >= fraction * done[:, -1:]
        deadlines: Floats = np.maximum(self.ends[reached.argmax(axis=1)], self.alone)
        return deadlines


def least_cost(flows: FlowProblem) -> LeastCost:
    """Solve the network of Fig. 6, with intervals of time in place of units of time.

    A unit of work that counts in an interval costs its part of the flow's cost at completion
    when the interval begins. No work of a flow counts before the flow could complete alone.
    Work may be done earlier than it counts. Since costs do not decrease in time, this is a
    relaxation, and its value is a lower bound. The intervals grow by a constant factor, and
    jumps of costs are ends of intervals as far as their number allows. So a deadline is later
    than in a network of infinitely many intervals by at most the length of one interval,
    relatively that factor less 1. O(J K) arcs for K intervals.
    """
    ends = _intervals(flows)
    begins = np.concatenate([[0.0], ends[:-1]])
    cost = _costs(flows, begins)
    base = cost[:, 0]
    volume = flows.volume
    flow, interval = np.nonzero(ends >= np.minimum(flows.alone, ends[-1])[:, None])
    unit = (cost - base[:, None])[flow, interval] / volume[flow]
    highest = float(unit.max()) or 1.0
    # Work is rounded down, room up and costs down, so the value remains a lower bound.
    grain = volume.sum() / VOLUME
    supply = np.floor(volume / grain).astype(np.int64)
    room = np.ceil(np.diff(ends, prepend=0.0) * flows.capacity.sum() / grain).astype(np.int64)
    price = np.floor(unit / highest * COST).astype(np.int64)
    sent, total = _solve(supply, room, flow, interval, price)
    part = np.zeros((len(flows), len(ends)))
    part[flow, interval] = sent
    return LeastCost(
        flows.alone, ends, part, float(base.sum() + total * grain * highest / COST)
    )


def _solve(
    supply: np.ndarray,
    room: np.ndarray,
    flow: np.ndarray,
    interval: np.ndarray,
    price: np.ndarray,
) -> tuple[np.ndarray, float]:
    """The flow on each arc from a flow to an interval, and the total cost."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    flows, intervals = len(supply), len(room)
    network = SimpleMinCostFlow()
    node, sink = flows + np.arange(intervals), flows + intervals
    all_work = int(supply.sum())
    arcs = network.add_arcs_with_capacity_and_unit_cost(
        flow, node[interval], supply[flow], price
    )  # E2
    network.add_arcs_with_capacity_and_unit_cost(
        node, np.full(intervals, sink), room, np.zeros(intervals, np.int64)
    )  # E3
    network.add_arcs_with_capacity_and_unit_cost(
        node[1:], node[:-1], np.full(intervals - 1, all_work), np.zeros(intervals - 1, np.int64)
    )  # E4
    network.set_nodes_supplies(np.arange(flows), supply)  # E1
    network.set_node_supply(sink, -all_work)
    status = network.solve()
    assert status == network.OPTIMAL, f"the network has a cheapest flow, not {status}"
    return network.flows(arcs), float(network.optimal_cost())


def _intervals(flows: FlowProblem) -> Floats:
    """The ends of the intervals, of growing length, up to the instant when all work is done.

    Costs are constant before the first flow can complete, so that is one interval.
    """
    last = float(flows.volume.sum() / flows.capacity.sum()) * (1 + 1e-9)
    first = min(float(flows.alone.min()), last)
    kinks = np.array([met_until(kink) for cost in flows.costs for kink in cost.kinks])
    marks = np.unique(np.concatenate([flows.alone, kinks]))
    marks = marks[(marks > first) & (marks < last)]
    count = min(MAX_INTERVALS, max(MIN_INTERVALS, ARCS // len(flows)))
    room = count // 2
    if len(marks) > room:
        marks = marks[np.linspace(0, len(marks) - 1, room).astype(int)]
    steps = np.geomspace(first, last, count - len(marks))
    return np.unique(np.concatenate([marks, steps]))


def _costs(flows: FlowProblem, begins: Floats) -> Floats:
    """J x K: the minimum cost of each flow if it completes after the interval has begun."""
    later = np.nextafter(begins, np.inf)
    cost = np.array([flows.costs.at(np.maximum(begin, flows.alone)) for begin in later])
    return cost.T
