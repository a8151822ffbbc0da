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

from slotwise.allocation.flowflex.chains import Chains, chains_of
from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.allocation.flowflex.least_cost import least_cost
from slotwise.allocation.flowflex.list_schedule import Listed, PhaseLister
from slotwise.allocation.mcnaughton import wrap_around
from slotwise.allocation.packing import Packing
from slotwise.model.job import PhaseId
from slotwise.model.schedule import Piece
from slotwise.objective.cost import MET
from slotwise.objective.costs import Floats, Ints

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
    packing     given if this is no list schedule: pieces of each phase, slots as real numbers
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
    return by_flows(flows, np.lexsort((alone, deadline)))


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
