"""FlowFlex, all stages, and our additions: the best schedule of flows within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from slotwise.allocation.flowflex.as_malleable import flat_completions
from slotwise.allocation.flowflex.bisection import LEVELS_MOST, least_level
from slotwise.allocation.flowflex.chains import Chains, chains_of
from slotwise.allocation.flowflex.completions import FLOWS_MOST, bounding_completions
from slotwise.allocation.flowflex.deadlines import by_deadline, by_flows, by_last_end
from slotwise.allocation.flowflex.flows import Flows, Ints
from slotwise.allocation.flowflex.least_cost import least_cost
from slotwise.allocation.flowflex.list_schedule import Lister
from slotwise.allocation.flowflex.muntz_coffman import share_by_level
from slotwise.allocation.flowflex.refine import finite, latest_alike, repair, shift
from slotwise.allocation.packing import Packing
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.improve import improve
from slotwise.objective.cost import MET
from slotwise.objective.costs import Floats

Method = Literal["best", "fast", "paper"]
"""Everything; without the minimum cost flow (5.2); only the three stages of the paper."""

FRACTIONS = (0.5, 0.25, 0.75, 0.9, 0.95)
"""Deadlines are the instants at which these parts of a flow's work are done in the minimum cost
flow."""

BUDGET_STEPS = 2000
"""Search steps by default."""

SHARED_MOST = 500
"""Phases; above this number, sharing slots by level takes longer than it is worth."""

FLAT_STEPS = 1000
"""Steps of FLEX's search for flows as malleable jobs."""

STARTS, PARTS = 2, 6
"""STARTS orders of flows are improved, each with at most 1 / PARTS of the steps."""


@dataclass(frozen=True, slots=True)
class Solution:
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


def solve(
    flows: Flows,
    budget: Budget | None = None,
    method: Method = "best",
    *,
    listed: bool = False,
) -> Solution:
    """The best schedule found within a budget of search steps, one list schedule per step.

    Deadlines come from the paper's second stage, from FLEX and from a linear program. For each
    of them, both the pseudo-jobs of the paper and the flows themselves are scheduled; the
    latter wait for less. The best schedule is then improved. So the result is never worse than
    the paper's three stages, and their guarantees hold (docs/algorithms/flowflex.md). If phases
    use k > 1 kinds of slots, there are no pseudo-jobs, and deadlines that can be met are met on
    slots that are 1 + k times as fast.

    listed  only list schedules of the flows themselves, without pseudo-jobs and shared slots
    """
    if not len(flows):
        return Solution(np.zeros(0, np.int64), np.zeros(0), 0.0)
    search = _Search(flows, budget or Budget(BUDGET_STEPS), method, listed)
    bound = search.try_maxima() if flows.aggregate == "max" else search.try_sums()
    lowest = max(bound, flows.value(flows.alone))  # No flow completes before `alone`.
    if method != "paper" and search.best.value > lowest:
        search.improve()
    return replace(search.best, bound=bound)


class _Search:
    """Tries schedules and keeps the best."""

    def __init__(self, flows: Flows, budget: Budget, method: Method, listed: bool) -> None:
        self._flows, self._budget, self._method = flows, budget, method
        self._lister = Lister(flows, budget.steps)
        has_chains = not listed and len(flows.capacity) == 1 and method != "fast"
        self._chains = chains_of(flows) if has_chains else None
        self._shares = not listed and len(flows.work) <= SHARED_MOST
        if self._chains is not None:
            self._chain_lister = Lister(self._chains.problem, LEVELS_MOST)
        self._dates: list[Floats] = []
        self._best: Solution | None = None
        self._best_listed: Solution | None = None

    @property
    def best(self) -> Solution:
        """The best schedule so far, the first one among equals."""
        assert self._best is not None, "something was tried"
        return self._best

    def try_sums(self) -> float:
        """Try deadlines for a sum (Fig. 6); returns the proven lower bound."""
        bound = -inf
        if self._method != "fast":
            network = least_cost(self._flows)
            bound = network.bound
            for fraction in FRACTIONS:
                self._try(network.deadlines(fraction))
        if self._method != "paper":
            flat = flat_completions(self._flows, self._part(FLAT_STEPS))
            self._try(flat)
            if not self._flows.costs.are_lines:
                # Try to reach the cost of flows alone, then that of FLEX.
                for aim in (self._flows.alone, flat):
                    self._are_met(latest_alike(self._flows, aim))
            elif len(self._flows) <= FLOWS_MOST:
                self._try(bounding_completions(self._flows))
        return bound

    def try_maxima(self) -> float:
        """Try deadlines for a maximum (Fig. 8); returns the proven lower bound."""
        high = self._try(self._flows.alone)
        _, due = least_level(self._flows, high, self._are_met_by_faster_slots)
        self._try(due)
        if self._method != "paper":
            self._try(flat_completions(self._flows, self._part(FLAT_STEPS)))
            least_level(self._flows, self.best.value, self._are_met)
        return -inf

    def improve(self) -> None:
        """Improve orders of flows, try the costs reached as deadlines, then shift phases."""
        flows = self._flows
        orders = [np.lexsort((flows.alone, dates)).tolist() for dates in self._dates]
        for order in sorted(orders, key=self._value_of_order)[:STARTS]:
            part = self._part(len(flows) ** 2)
            found, _ = improve(order, self._value_of_order, part)
            self._list(by_flows(flows, np.array(found)))
        if flows.aggregate == "sum" and not flows.costs.are_lines:
            self._are_met(latest_alike(flows, self.best.completion))
        assert self._best_listed is not None
        start, completions = self._best_listed.ranking, self._lister.completions
        self._list(shift(flows, start, completions, self._budget))

    def _part(self, steps: float) -> Budget:
        """A budget of at most `steps`; limited, to leave steps for other searches."""
        return self._budget.part(min(steps, self._budget.steps / PARTS))

    def _try(self, dates: Floats) -> float:
        """Try schedules by these deadlines; the value of the first, which is the paper's."""
        flows = self._flows
        self._dates.append(dates)
        if self._chains is not None:
            ranking = by_deadline(self._chains.problem, dates)
            completion = self._chain_lister.completions(ranking)
            value = flows.value(completion)
            self._keep(Solution(ranking, completion, value, self._chains))
            if self._method != "paper":
                self._list(by_deadline(flows, dates))
        else:
            value = flows.value(self._list(by_deadline(flows, dates)))
        if self._method != "paper":
            self._list(by_last_end(flows, dates))
        return value

    def _list(self, ranking: Ints) -> Floats:
        """The completions of the flows in the list schedule of a ranking."""
        completion = self._lister.completions(ranking)
        found = Solution(ranking, completion, self._flows.value(completion))
        if self._best_listed is None or found.value < self._best_listed.value:
            self._best_listed = found
        self._keep(found)
        return completion

    def _share(self, due: Floats) -> Floats:
        """The completions of the flows if slots are shared by level for these due dates."""
        shared = share_by_level(self._flows, finite(due))
        value = self._flows.value(shared.completion)
        ranking = by_last_end(self._flows, shared.completion)
        self._keep(Solution(ranking, shared.completion, value, packing=shared.packing))
        return shared.completion

    def _keep(self, found: Solution) -> None:
        if self._best is None or found.value < self._best.value:
            self._best = found

    def _value_of(self, ranking: Ints) -> float:
        return self._flows.value(self._lister.completions(ranking))

    def _value_of_order(self, order: Sequence[int]) -> float:
        return self._value_of(by_flows(self._flows, np.array(order)))

    def _are_met_by_faster_slots(self, due: Floats) -> bool:
        """Whether the greedy scheme meets the deadlines on faster slots (line 7)."""
        if self._chains is None:
            completion = self._lister.completions(by_deadline(self._flows, due))
        else:
            ranking = by_deadline(self._chains.problem, due)
            completion = self._chain_lister.completions(ranking)
        speed = 1 + len(self._flows.capacity)
        return bool(np.all(completion <= speed * due * (1 + MET)))

    def _are_met(self, due: Floats) -> bool:
        """Whether one of our heuristics finds a schedule that meets these deadlines."""
        if not self._budget.may_go_on():
            return False
        late = due * (1 + MET)
        return (
            bool(np.all(self._list(by_deadline(self._flows, due)) <= late))
            or (self._shares and bool(np.all(self._share(due) <= late)))
            or repair(self._flows, due, self._list, self._budget)
        )
