"""Better rankings of phases: repair of missed deadlines, and shifts of single phases."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np

from slotwise.allocation.flowflex.deadlines import by_last_end
from slotwise.allocation.flowflex.flows import Flows, Ints
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.improve import BETTER
from slotwise.objective.cost import MET
from slotwise.objective.costs import Floats

ROUNDS = 30
"""Of repair; most deadlines that can be met at all are met by then."""

REACH = 0.15
"""So far, as a part of all phases, one is shifted at most."""

PATIENCE = 15
"""Steps for each phase; after so many that have not helped, more would hardly."""

STRIDES = (0.7548776662466927, 0.5698402909980532)
"""Steps of two sequences that visit the unit square evenly: powers of the plastic number."""


def repair(
    flows: Flows, due: Floats, completions: Callable[[Ints], Floats], budget: Budget
) -> bool:
    """Whether all due dates are met by a ranking by the last ends of phases, found in rounds.

    A flow that was late is taken for due that much earlier in the next round. What is due at
    any time (inf) comes last. One of `completions` a step.
    """
    last = float(np.max(due, where=np.isfinite(due), initial=0.0))
    urgent = np.where(np.isfinite(due), due, 2 * last + 1)
    for _ in range(ROUNDS):
        if not budget.may_go_on():
            return False
        completion = completions(by_last_end(flows, urgent))
        is_late = completion > due * (1 + MET)
        if not is_late.any():
            return True
        urgent = urgent - np.where(is_late, completion - np.minimum(due, completion), 0.0)
    return False


def latest_alike(flows: Flows, completion: Floats) -> Floats:
    """The latest completion of each flow that costs no more than this one."""
    costs = flows.costs.at(completion)
    pairs = zip(flows.costs, costs.tolist(), strict=True)
    latest = np.array([cost.latest(level) for cost, level in pairs])
    kept: Floats = np.maximum(latest, completion)
    return kept


def shift_phases(ranking: Ints, evaluate: Callable[[Ints], float], budget: Budget) -> Ints:
    """A ranking that is at least as good, by moving one phase at a time.

    Which phase, and how far, follows two sequences that spread evenly, so the same budget
    gives the same ranking. What is as good is taken, too: it leads on over plateaus. One
    evaluation a step, until the budget is spent or nothing has helped for long.
    """
    best, value = np.asarray(ranking), evaluate(np.asarray(ranking))
    count = len(best)
    reach = max(1, floor(REACH * count))
    step, helped = 0, 0
    while step - helped < PATIENCE * count and budget.may_go_on():
        step += 1
        place, by = (step * stride % 1.0 for stride in STRIDES)
        source = int(place * count)
        target = min(count - 1, max(0, source + round((2 * by - 1) * reach)))
        candidate = np.insert(np.delete(best, source), target, best[source])
        found = evaluate(candidate)
        if found < value - BETTER * abs(value):
            helped = step
        if found <= value:
            best, value = candidate, found
    return best
