"""Better rankings of phases: repair of missed deadlines, and shifts of phases and flows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from slotwise.allocation.flowflex.flows import FlowProblem
from slotwise.allocation.flowflex.list_schedule import Listed
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.tolerances import SAME
from slotwise.objective.cost import MET, Steps
from slotwise.objective.costs import Floats, Ints

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
    ranking: Ints = np.lexsort((flows.alone[flows.flow], deadline[flows.flow] - flows.tail))
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
    ahead, behind = (moved, passed) if source < target else (passed, moved)
    begin = np.maximum(listed.start[ahead], listed.ready[behind])
    matters = begin < np.minimum(listed.end[ahead], listed.end[behind])
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
