"""The best schedule of flows within a budget: the paper's method and our additions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np

from slotwise.core.costs import Costs, Floats, Ints
from slotwise.core.job import PhaseId
from slotwise.core.objective import MET, Line, Steps
from slotwise.core.schedule import Piece
from slotwise.core.tolerances import SAME
from slotwise.policy.flowflex.flows import FlowProblem
from slotwise.policy.flowflex.list_schedule import Listed, PhaseLister, share_by_level
from slotwise.policy.flowflex.paper import (
    MAX_FLOWS,
    FlowSchedule,
    GreedyScheme,
    bounding_completions,
    by_deadline,
    by_flows,
    flat_completions,
    least_level,
    minimax_deadlines,
    minisum_deadlines,
    shape_shift,
    three_stages,
)
from slotwise.policy.malleable import whole_slots
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.solve import improve

Method = Literal["best", "fast", "paper"]
"""Everything; without the minimum cost flow (5.2); only the three stages of the paper."""

BUDGET_STEPS = 2000
"""Search steps by default."""

MAX_SHARED = 500
"""Phases; above this number, sharing slots by level takes longer than it is worth."""

PROVEN = 1e-9
"""Relative; a value this close to a lower bound is optimal up to rounding."""

FLAT_STEPS = 1000
"""Steps of FLEX's search for flows as malleable jobs."""

SHARED_PHASES, SHARE_STEPS = 4800, 600
"""Slots are shared by level for SHARED_PHASES phases in all, or once for each SHARE_STEPS steps
if that is more. Sharing once takes as long as some hundred compiled list schedules."""

STARTS, PARTS = 2, 6
"""STARTS orders of flows are improved, each with at most 1 / PARTS of the steps."""

RESTARTS = 4
"""How often a search that has found nothing better starts again from a shaken schedule."""


def solve(
    flows: FlowProblem,
    budget: Budget | None = None,
    method: Method = "best",
    *,
    listed: bool = False,
    lowest: float = -inf,
) -> FlowSchedule:
    """The best schedule found within a budget of search steps, one list schedule per step.

    Deadlines come from the paper's second stage, from FLEX and from a linear program. For each
    of them, both the pseudo-jobs of the paper and the flows themselves are scheduled; the
    latter wait for less. The best schedule is then improved. So the result is never worse than
    the paper's three stages, and their guarantees hold (docs/algorithms/flowflex.md). If phases
    use k > 1 kinds of slots, there are no pseudo-jobs, and deadlines that can be met are met on
    slots that are 1 + k times as fast.

    The search ends as soon as the value is proven optimal.

    listed  only list schedules of the flows themselves, without pseudo-jobs and shared slots,
            from fewer starts: for a scheduler, whose budget is small
    lowest  a known lower bound on the value
    """
    if not len(flows):
        return FlowSchedule(np.zeros(0, np.int64), np.zeros(0), 0.0)
    if method == "paper":
        return three_stages(flows, listed=listed)
    search = _FlowSearch(
        flows, budget or Budget(BUDGET_STEPS), listed, method == "best", lowest
    )
    bound = search.try_maxima() if flows.aggregate == "max" else search.try_sums()
    if not search.is_proven:
        search.improve()
    return replace(search.best, bound=bound)


def pieces_of(
    flows: FlowProblem, schedule: FlowSchedule, ids: Sequence[PhaseId]
) -> list[Piece]:
    """The schedule in whole slots, by the names of its phases."""
    if schedule.packing is not None:
        pieces: list[Piece] = []
        for kind in range(len(flows.capacity)):  # Each kind has its own slots.
            mine = np.flatnonzero(flows.kind == kind).tolist()
            packing = [schedule.packing[phase] for phase in mine]
            pieces += whole_slots([ids[phase] for phase in mine], packing)
        return pieces
    if schedule.chains is not None:
        listed = PhaseLister(schedule.chains.problem).schedule(schedule.ranking)
        return shape_shift(flows, schedule.chains, listed, ids)
    return pieces_of_list(PhaseLister(flows).schedule(schedule.ranking), ids)


def pieces_of_list(listed: Listed, ids: Sequence[PhaseId]) -> list[Piece]:
    """A list schedule by the names of its phases."""
    return [
        Piece(name, start, end, slots)
        for name, own in zip(ids, listed.pieces(), strict=True)
        for start, end, slots in own
    ]


def _maxima(flows: FlowProblem) -> list[FlowProblem]:
    """Maxima whose plans are good starts for a sum: the highest cost, the highest lateness.

    A sum of late flows is often low where the maximum is. If all due dates can be met, the plan
    of the least lateness meets them.
    """
    due = finite(latest_alike(flows, flows.alone))
    lateness = Costs([Line(1.0, at) for at in due.tolist()])
    return [replace(flows, costs=costs, aggregate="max") for costs in (flows.costs, lateness)]


class _FlowSearch:
    """Tries schedules and keeps the best.

    has_all  whether the minimum cost flow and pseudo-jobs are used, too
    """

    def __init__(
        self, flows: FlowProblem, budget: Budget, listed: bool, has_all: bool, lowest: float
    ) -> None:
        self._flows, self._budget, self._has_all = flows, budget, has_all
        self._lister = PhaseLister(flows, budget.steps)
        self._greedy = GreedyScheme(flows, listed or not has_all)
        self._listed = listed
        shares = not listed and len(flows.work) <= MAX_SHARED
        most = max(SHARED_PHASES / len(flows.work), budget.steps / SHARE_STEPS)
        self._shares_left = most if shares else 0
        self._lowest = max(lowest, flows.value(flows.alone))  # None completes before `alone`.
        self._dates: list[Floats] = []
        self._best: FlowSchedule | None = None
        self._best_listed: FlowSchedule | None = None

    @property
    def best(self) -> FlowSchedule:
        """The best schedule so far, the first one among equals."""
        assert self._best is not None, "something was tried"
        return self._best

    @property
    def _best_ranking(self) -> Ints:
        """That of the best list schedule of the flows themselves."""
        assert self._best_listed is not None, "something was tried"
        return self._best_listed.ranking

    @property
    def is_proven(self) -> bool:
        """Whether no schedule can be better than the best so far."""
        return self.best.value - self._lowest <= PROVEN * abs(self._lowest)

    def try_sums(self) -> float:
        """Try deadlines for a sum; returns the proven lower bound."""
        flows, bound = self._flows, -inf
        if self._has_all:
            deadlines, bound = minisum_deadlines(flows)
            self._lowest = max(self._lowest, bound)
            for dates in deadlines:
                self._try(dates)
        flat = flat_completions(flows, self._part(FLAT_STEPS))
        self._try(flat)
        if not flows.costs.are_lines:
            # Try to reach the cost of flows alone, then that of FLEX.
            for aim in (flows.alone, flat):
                self._are_met(latest_alike(flows, aim))
        elif len(flows) <= MAX_FLOWS:
            self._try(bounding_completions(flows))
        return bound

    def try_maxima(self) -> float:
        """Try deadlines for a maximum; returns the proven lower bound."""
        for dates in minimax_deadlines(self._flows, self._greedy):
            self._try(dates)
        self._try(flat_completions(self._flows, self._part(FLAT_STEPS)))
        least_level(self._flows, self.best.value, self._are_met, self._lowest)
        return -inf

    def improve(self) -> None:
        """Improve orders of flows, try the costs reached as deadlines, then shift phases."""
        flows = self._flows
        orders = [np.lexsort((flows.alone, dates)).tolist() for dates in self._dates]
        for order in sorted(orders, key=self._value_of_order)[:STARTS]:
            part = self._part(len(flows) ** 2)
            found, _ = improve(order, self._value_of_order, part)
            self._list(by_flows(flows, np.array(found)))
        maxima: list[FlowProblem] = []
        if flows.aggregate == "sum" and not flows.costs.are_lines:
            self._are_met(latest_alike(flows, self.best.completion))
            maxima = [] if self._listed else _maxima(flows)
        # It is unknown which start is best, so all have equal parts of the steps.
        self._shift(self._best_ranking, self._budget.equal_part(1 + len(maxima)))
        for searches, maximum in zip((2, 1), maxima, strict=False):
            part = self._budget.equal_part(searches)
            start = solve(maximum, part.equal_part(2), "fast", listed=True).ranking
            self._list(start)
            self._shift(start, part)
        for number in range(0 if self._listed else RESTARTS):
            self._shift(shaken(self._best_ranking, number), self._budget)

    def _shift(self, start: Ints, budget: Budget) -> None:
        self._list(shift(self._flows, start, self._lister.instants, budget))

    def _part(self, steps: float) -> Budget:
        """A budget of at most `steps`; limited, to leave steps for other searches."""
        return self._budget.part(steps, PARTS)

    def _try(self, dates: Floats) -> None:
        """Try schedules by these deadlines: the paper's, and those of the flows themselves."""
        self._dates.append(dates)
        if self._greedy.chains is not None:
            self._keep(self._greedy.schedule(dates))
        self._list(by_deadline(self._flows, dates))
        self._list(by_last_end(self._flows, dates))

    def _list(self, ranking: Ints) -> Floats:
        """The completions of the flows in the list schedule of a ranking."""
        completion = self._lister.completions(ranking)
        found = FlowSchedule(ranking, completion, self._flows.value(completion))
        if self._best_listed is None or found.value < self._best_listed.value:
            self._best_listed = found
        self._keep(found)
        return completion

    def _share(self, due: Floats) -> Floats:
        """The completions of the flows if slots are shared by level for these due dates."""
        shared = share_by_level(self._flows, finite(due))
        value = self._flows.value(shared.completion)
        ranking = by_last_end(self._flows, shared.completion)
        self._keep(FlowSchedule(ranking, shared.completion, value, packing=shared.packing))
        return shared.completion

    def _keep(self, found: FlowSchedule) -> None:
        if self._best is None or found.value < self._best.value:
            self._best = found
            if self.is_proven:
                self._budget.end()

    def _value_of_order(self, order: Sequence[int]) -> float:
        ranking = by_flows(self._flows, np.array(order))
        return self._flows.value(self._lister.completions(ranking))

    def _are_met(self, due: Floats) -> bool:
        """Whether one of our heuristics finds a schedule that meets these deadlines."""
        if not self._budget.may_go_on():
            return False
        late = due * (1 + MET)
        return (
            bool(np.all(self._list(by_deadline(self._flows, due)) <= late))
            or (self._may_share() and bool(np.all(self._share(due) <= late)))
            or repair(self._flows, due, self._list, self._budget)
        )

    def _may_share(self) -> bool:
        """Whether slots may be shared by level once more; if so, counts it."""
        self._shares_left -= 1
        return self._shares_left >= 0


# Better rankings of phases: repair of missed deadlines, and shifts of phases and flows.

ROUNDS = 30
"""Rounds of repair; most deadlines that can be met at all are met by then."""

REACH = 0.3
"""The maximum shift of a phase, as a part of all phases."""

SHAKE = 0.1
"""The maximum move of a phase when a ranking is shaken, as a part of all phases."""

PATIENCE = 15
"""Steps per phase without improvement after which the search ends."""

STRIDES = (0.7548776662466927, 0.5698402909980532)
"""Steps of two sequences that visit the unit square evenly: powers of the plastic number."""


def repair(
    flows: FlowProblem, due: Floats, completions: Callable[[Ints], Floats], budget: Budget
) -> bool:
    """Whether repeated rankings by the latest ends of phases meet all due dates.

    In each round, the due date of a late flow is moved forward by its delay. Flows without a
    due date (inf) come last. One call of `completions` per step, at most `ROUNDS` steps.
    """
    urgent = finite(due)
    for _ in range(ROUNDS):
        if not budget.may_go_on():
            return False
        completion = completions(by_last_end(flows, urgent))
        is_late = completion > due * (1 + MET)
        if not is_late.any():
            return True
        urgent = urgent - np.where(is_late, completion - np.minimum(due, completion), 0.0)
    return False


def by_last_end(flows: FlowProblem, deadline: Floats) -> Ints:
    """The phases by the latest end at which their flow can still meet its deadline.

    This mixes phases of different flows, so there is no guarantee. It often meets more
    deadlines when they are tight.
    """
    due = flows.inherited(deadline)
    ranking: Ints = np.lexsort((flows.alone[flows.flow], due[flows.flow] - flows.tail))
    return ranking


def finite(due: Floats) -> Floats:
    """The due dates, with inf replaced by an instant after all others."""
    last = float(np.max(due, where=np.isfinite(due), initial=0.0))
    return np.where(np.isfinite(due), due, 2 * last + 1)


def latest_alike(flows: FlowProblem, completion: Floats) -> Floats:
    """For each flow, the latest completion with the same cost as this one."""
    costs = flows.costs.at(completion)
    pairs = zip(flows.costs, costs.tolist(), strict=True)
    latest = np.array([cost.latest(level) for cost, level in pairs])
    kept: Floats = np.maximum(latest, completion)
    return kept


def shift(
    flows: FlowProblem, ranking: Ints, listed: Callable[[Ints], Listed], budget: Budget
) -> Ints:
    """A ranking that is at least as good, found by moving one phase or one flow at a time.

    All phases of a flow move by the same number of places. Two low-discrepancy sequences choose
    the moves and their lengths, so the same budget gives the same ranking. Most moves are
    short. To cross plateaus, the search also accepts equal values, unless they are further from
    a cheaper step (`short_of_cheaper`). One move per step, until the budget is spent or
    `PATIENCE` steps per phase have not helped. `listed` is not called for moves that change no
    slots (`_changes_nothing`); the result is the same.
    """
    best, kept = ranking, _Reached(flows, listed(ranking))
    count = len(best)
    step, helped = 0, 0
    while step - helped < PATIENCE * count and budget.may_go_on():
        step += 1
        place, by = (step * stride % 1.0 for stride in STRIDES)
        far = (2 * by - 1) * abs(2 * by - 1)
        if step % 2:
            source = int(place * count)
            target = min(count - 1, max(0, source + round(far * REACH * count)))
            candidate = _with_phase_moved(best, source, target)
            if _changes_nothing(flows, kept.listed, best, source, target):
                best = candidate
                continue
        else:
            is_mine = flows.flow[best] == int(place * len(flows))
            keys = np.arange(count) + np.where(is_mine, far * count + 0.5, 0.0)
            candidate = best[np.argsort(keys, kind="stable")]
        found = _Reached(flows, listed(candidate))
        if found.value < kept.value - SAME * abs(kept.value):
            helped = step
        if found.is_no_worse(kept):
            best, kept = candidate, found
    return best


class _Reached:
    """A list schedule with its value."""

    def __init__(self, flows: FlowProblem, listed: Listed) -> None:
        self._flows, self.listed = flows, listed
        self._completion = flows.completion(listed.end)
        self.value = flows.value(self._completion)

    def is_no_worse(self, other: _Reached) -> bool:
        """Whether it costs less than another, or the same and is as near to a cheaper step."""
        return self.value < other.value or (
            self.value == other.value and self._short <= other._short
        )

    @cached_property
    def _short(self) -> float:
        return short_of_cheaper(self._flows, self._completion)


def _changes_nothing(
    flows: FlowProblem, listed: Listed, ranking: Ints, source: int, target: int
) -> bool:
    """Whether a phase that moves from one place to another certainly changes no slots.

    listed  the schedule of the ranking

    Of two phases only the order matters, and only while both are ready, not done, and use the
    same kind of slot. Until the first of them starts, there are no slots for the second one
    either. So nothing changes if, for each phase that is passed, the first one's start or the
    second one's readiness comes after the end of one of them. O(places).
    """
    moved = ranking[source]
    passed = ranking[source + 1 : target + 1] if source < target else ranking[target:source]
    earlier, later = (moved, passed) if source < target else (passed, moved)
    begin = np.maximum(listed.start[earlier], listed.ready[later])
    matters = begin < np.minimum(listed.end[earlier], listed.end[later])
    return not (matters & (flows.kind[passed] == flows.kind[moved])).any()


def shaken(ranking: Ints, number: int) -> Ints:
    """A ranking near this one: each phase moves by at most `SHAKE` of all places.

    Every number gives another ranking, the same one each time.
    """
    count = len(ranking)
    place, other = STRIDES
    by = (np.arange(1, count + 1) * place + (number + 1) * other) % 1.0
    found: Ints = ranking[np.argsort(np.arange(count) + SHAKE * count * by, kind="stable")]
    return found


def _with_phase_moved(ranking: Ints, source: int, target: int) -> Ints:
    moved = ranking.copy()
    if source < target:
        moved[source:target] = ranking[source + 1 : target + 1]
    else:
        moved[target + 1 : source + 1] = ranking[target:source]
    moved[target] = ranking[source]
    return moved


def short_of_cheaper(flows: FlowProblem, completion: Floats) -> float:
    """The seconds by which a flow must be earlier to reach a cheaper step; 0 without steps.

    In a sum, the minimum over the flows. In a maximum, all of the most expensive flows must
    cost less, so it is the maximum over these.
    """
    costs = flows.costs.at(completion)
    is_max = flows.aggregate == "max"
    threshold = costs.max() if is_max else np.nextafter(0.0, 1.0)
    seconds = [
        float(completion[j]) - cost.latest(float(costs[j]) * (1 - SAME))
        for j, cost in enumerate(flows.costs)
        if isinstance(cost, Steps) and costs[j] >= threshold
    ]
    return (max(seconds) if is_max else min(seconds)) if seconds else 0.0
