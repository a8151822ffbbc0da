"""FlowFlex from top to bottom: the three stages of the paper (FlowFlex 4).

The paper's "flow" is a job here, and its "job" is a phase. The fast parts are `chains_of`
(stage 1), `PhaseLister` (Fig. 5) and `least_cost` (Figs 6 and 7). Proofs of the guarantees:
docs/algorithms/flowflex.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from slotwise.core.costs import Floats, Ints
from slotwise.core.job import PhaseId
from slotwise.core.objective import MET, met_until
from slotwise.core.schedule import Piece
from slotwise.policy.bounds.lines import least_completions
from slotwise.policy.flowflex.flows import Chains, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import Listed, PhaseLister
from slotwise.policy.malleable import Malleable, wrap_around
from slotwise.policy.packing import Packing
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.orders import by_contended_area
from slotwise.policy.search.solve import in_order, solve

FRACTIONS = (0.5, 0.25, 0.75, 0.9, 0.95)
"""Deadlines are the instants at which these parts of a flow's work are done in the minimum cost
flow. The theorems are for 1/2; the paper suggests several values."""

PRECISION = 1e-6
"""Relative; levels of cost that are closer count as equal."""

MAX_LEVELS = 40
"""The number of halvings after which a bisection of costs is fine enough."""


@dataclass(frozen=True, slots=True)
class FlowSchedule:
    """A schedule of flows, represented by the ranking of its list schedule.

    ranking     all phases, the most urgent first; if `chains` is given, all pseudo-jobs
    completion  of each flow, seconds
    value       of the objective
    chains      scheduled in place of the flows; `shape_shift` converts the schedule back
    packing     pieces of each phase, slots as real numbers; None for a list schedule
    bound       lower bound that the method has proven; -inf if none
    """

    ranking: Ints
    completion: Floats
    value: float
    chains: Chains | None = None
    packing: Packing | None = None
    bound: float = -inf


def three_stages(flows: FlowProblem, *, listed: bool = False) -> FlowSchedule:
    """Fig. 3: the best schedule that the paper's method finds.

    Line 9, stage 3, is `shape_shift`. It keeps all completions, so it is only called for the
    schedule whose pieces are needed.

    listed  list schedules of the flows themselves, without pseudo-jobs
    """
    greedy = GreedyScheme(flows, listed)  # Lines 1 and 2.
    if flows.aggregate == "sum":  # Line 4.
        deadlines, bound = minisum_deadlines(flows)  # Line 5.
    else:
        deadlines, bound = minimax_deadlines(flows, greedy), -inf  # Line 7.
    best = min(map(greedy.schedule, deadlines), key=lambda found: found.value)
    return replace(best, bound=bound)


class GreedyScheme:
    """Stage 1, and the algorithm of Fig. 5 for strict deadlines.

    Stage 1 converts each flow into a chain of pseudo-jobs, with the same work and critical path
    (4.1, Fig. 4). If phases use several kinds of slots, or the flows are to be `listed`, the
    flows themselves are scheduled.
    """

    def __init__(self, flows: FlowProblem, listed: bool = False) -> None:
        self._flows = flows
        has_chains = len(flows.capacity) == 1 and not listed
        self.chains = chains_of(flows) if has_chains else None
        self._scheduled = flows if self.chains is None else self.chains.problem
        self._lister = PhaseLister(self._scheduled, MAX_LEVELS)

    def schedule(self, deadline: Floats) -> FlowSchedule:
        """Fig. 5, lines 1 to 9: each flow in order of deadlines gets all slots it can use.

        Theorem 2: if any schedule meets all deadlines, this one completes each flow by twice
        its deadline, because both the work of the flows up to it and its critical path fit
        before its deadline. With k kinds of slots, by 1 + k times its deadline. `PhaseLister`
        goes from instant to instant for all flows, not from flow to flow, with the same result.
        """
        ranking = by_deadline(self._scheduled, deadline)
        completion = self._lister.completions(ranking)
        return FlowSchedule(ranking, completion, self._flows.value(completion), self.chains)

    def is_feasible(self, deadline: Floats) -> bool:
        """Fig. 5, lines 10 and 11: whether each flow ends by 1 + k times its deadline."""
        speed = 1 + len(self._flows.capacity)
        return bool(np.all(self.schedule(deadline).completion <= speed * deadline * (1 + MET)))


def by_deadline(flows: FlowProblem, deadline: Floats) -> Ints:
    """The phases or pseudo-jobs by the deadlines of their flows (Fig. 5, line 2).

    Among equal deadlines, the flow with the shortest time alone comes first for a sum, and the
    one with the longest for a maximum, since it has the least slack.
    """
    alone = -flows.alone if flows.aggregate == "max" else flows.alone
    return by_flows(flows, np.lexsort((alone, flows.inherited(deadline))))


def by_flows(flows: FlowProblem, order: Ints) -> Ints:
    """The phases ranked by an order of their flows; in a flow, longest remaining path first.

    For a chain that is its order (Fig. 5, line 3).
    """
    place = np.empty(len(flows), dtype=np.int64)
    place[order] = np.arange(len(flows))
    ranking: Ints = np.lexsort((-(flows.tail + flows.length), place[flows.flow]))
    return ranking


def minisum_deadlines(flows: FlowProblem) -> tuple[Sequence[Floats], float]:
    """Fig. 6: deadlines for a sum from a minimum cost flow, and a lower bound on the sum.

    Theorem 3: scheduled by the deadlines of 1/2, flows cost at most twice the minimum on slots
    that are 3 times as fast.
    """
    network = least_cost(flows)  # Lines 1 to 4.
    return [network.deadlines(fraction) for fraction in FRACTIONS], network.bound  # Line 5.


def minimax_deadlines(flows: FlowProblem, greedy: GreedyScheme) -> Sequence[Floats]:
    """Fig. 8: deadlines for a maximum from a bisection of its cost.

    The first ones, the least completions of all flows, give the upper end of the bracket.
    Theorem 4: scheduled by the last ones, flows cost no more than the minimum on slots that are
    twice as fast.
    """
    high = greedy.schedule(flows.alone).value  # Line 1.
    _, due = least_level(flows, high, greedy.is_feasible)
    return [flows.alone, due]


def least_level(
    flows: FlowProblem,
    high: float,
    is_reached: Callable[[Floats], bool],
    low: float = -inf,
) -> tuple[float, Floats]:
    """A level of cost whose deadlines are met, slightly above one whose deadlines are not.

    high        a level whose deadlines are met; only lower ones are tried
    is_reached  whether a schedule is found that is good enough for these deadlines
    low         a known lower bound

    Returns the level and the deadlines, inf for flows that may complete at any time. At most
    `MAX_LEVELS` + 1 calls of `is_reached`.
    """
    low = max(low, flows.value(flows.alone))  # Line 1; no flow completes earlier.
    if is_reached(due := deadlines_at(flows, low)):
        return low, due
    for _ in range(MAX_LEVELS):  # Line 2.
        middle = low + (high - low) / 2  # Line 3.
        if high - low <= PRECISION * max(abs(low), abs(high)) or not low < middle < high:
            break
        if is_reached(deadlines_at(flows, middle)):  # Lines 4 to 7.
            high = middle  # Line 8.
        else:
            low = middle  # Line 10.
    return high, deadlines_at(flows, high)  # Line 11.


def deadlines_at(flows: FlowProblem, level: float) -> Floats:
    """Fig. 8, line 5: the deadline of each flow for its cost to be at most `level`, seconds."""
    due: Floats = np.maximum(flows.costs.latest(level), flows.alone)
    return due


def shape_shift(
    flows: FlowProblem, chains: Chains, listed: Listed, ids: Sequence[PhaseId]
) -> list[Piece]:
    """Stage 3 (4.3, Fig. 9): the pieces of phases in place of those of pseudo-jobs.

    While a pseudo-job holds s of the r slots that it can use, each of its phases gets s / r of
    its max share. McNaughton's rule converts that to whole slots, at most its max share. So at
    the end of the piece, each phase has done the work of s / r of that time in the
    pseudo-schedule. Precedence holds because it holds between pseudo-jobs. Linear in the size
    of the result.
    """
    pieces: list[Piece] = []
    max_share, height = flows.max_share.tolist(), chains.problem.max_share.tolist()
    for job, own in enumerate(listed.pieces()):
        members = chains.members[job]
        for start, end, slots in own:
            shares = [(ids[phase], max_share[phase] * slots / height[job]) for phase in members]
            pieces += wrap_around(shares, start, end)
    return pieces


# Stage 2 for sums: deadlines from a minimum cost flow (FlowFlex Figs 6 and 7).

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


# Deadlines that the paper does not have: from FLEX, and from a linear program.

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
