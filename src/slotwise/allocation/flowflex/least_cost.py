"""Stage 2 for sums: deadlines from a minimum cost flow (FlowFlex Figs 6 and 7)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from slotwise.allocation.flowflex.flows import Flows
from slotwise.model.errors import MissingExtraError
from slotwise.objective.cost import met_until
from slotwise.objective.costs import Floats

INTERVALS_MOST, INTERVALS_LEAST, ARCS = 256, 128, 50_000
"""Intervals of time: as many as keep the network at so many arcs, about, within these."""

VOLUME, COST = 2**30, 2**28
"""All work in units of the network, which are whole, and the dearest unit's cost."""


@dataclass(frozen=True, slots=True)
class LeastCost:
    """The cheapest way to do all work if flows need not do theirs one piece after another.

    alone  the least time that each flow needs, seconds
    ends   of the intervals of time, seconds
    part   J x K: of each flow's work, how much it counts as done in each interval
    bound  no schedule costs less in sum
    """

    alone: Floats
    ends: Floats
    part: Floats
    bound: float

    def deadlines(self, fraction: float) -> Floats:
        """By when so much of each flow is done, 0 < fraction < 1; by the end of an interval.

        But not before the flow could be complete alone. With schedules by these deadlines, at
        most 1 / (1 - fraction) times the least cost is met on slots that are 1 + 1 / fraction
        times as fast (Theorem 3: 1/2 gives 2 and 3), but for the width of the intervals.
        """
        done = self.part.cumsum(axis=1)
        reached = done >= fraction * done[:, -1:]
        deadlines: Floats = np.maximum(self.ends[reached.argmax(axis=1)], self.alone)
        return deadlines


def check_installed() -> None:
    """MissingExtraError where the network could not be solved."""
    if find_spec("ortools") is None:
        raise MissingExtraError("flowflex, for a sum (flowflex-fast does not),", "flow")


def least_cost(flows: Flows) -> LeastCost:
    """Solve the network of Fig. 6, with intervals of time in place of units of time.

    A unit of work that is counted in an interval costs what its flow would cost if it were
    complete when the interval begins, shared among the units of the flow; and no flow counts
    before it could be complete alone. Work may be done earlier than it counts. Since costs do
    not fall in time, this is a relaxation: its value is a bound. Intervals get longer by a
    constant factor, and costs jump where intervals meet as far as there is room for that: so a
    deadline is later by one interval's length, relatively that factor less 1, than in a network
    of infinitely many. O(J K) arcs for K intervals.
    """
    ends = _intervals(flows)
    begins = np.concatenate([[0.0], ends[:-1]])
    cost = _costs(flows, begins)
    base = cost[:, 0]
    volume = flows.volume
    flow, interval = np.nonzero(ends >= np.minimum(flows.alone, ends[-1])[:, None])
    unit = (cost - base[:, None])[flow, interval] / volume[flow]
    dearest = float(unit.max()) or 1.0
    # Work is rounded down, room up and costs down: the value can only get lower.
    grain = volume.sum() / VOLUME
    supply = np.floor(volume / grain).astype(np.int64)
    room = np.ceil(np.diff(ends, prepend=0.0) * flows.capacity.sum() / grain).astype(np.int64)
    price = np.floor(unit / dearest * COST).astype(np.int64)
    sent, total = _solve(supply, room, flow, interval, price)
    part = np.zeros((len(flows), len(ends)))
    part[flow, interval] = sent
    return LeastCost(
        flows.alone, ends, part, float(base.sum() + total * grain * dearest / COST)
    )


def _solve(
    supply: np.ndarray,
    room: np.ndarray,
    flow: np.ndarray,
    interval: np.ndarray,
    price: np.ndarray,
) -> tuple[np.ndarray, float]:
    """What each arc from a flow to an interval carries, and what all that costs."""
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


def _intervals(flows: Flows) -> Floats:
    """The ends of the intervals: up to when all work could be done, each longer than the last.

    Before the first flow can be complete nothing costs more or less, so that is one interval.
    """
    last = float(flows.volume.sum() / flows.capacity.sum()) * (1 + 1e-9)
    first = min(float(flows.alone.min()), last)
    kinks = np.array([met_until(kink) for cost in flows.costs for kink in cost.kinks])
    marks = np.unique(np.concatenate([flows.alone, kinks]))
    marks = marks[(marks > first) & (marks < last)]
    count = min(INTERVALS_MOST, max(INTERVALS_LEAST, ARCS // len(flows)))
    room = count // 2
    if len(marks) > room:
        marks = marks[np.linspace(0, len(marks) - 1, room).astype(int)]
    steps = np.geomspace(first, last, count - len(marks))
    return np.unique(np.concatenate([marks, steps]))


def _costs(flows: Flows, begins: Floats) -> Floats:
    """J x K: the least that each flow can cost if it completes after an interval has begun."""
    later = np.nextafter(begins, np.inf)
    cost = np.array([flows.costs.at(np.maximum(begin, flows.alone)) for begin in later])
    return cost.T
