"""A lower bound by cases: a job is complete by an instant, or it is not."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

import numpy as np

from slotwise.allocation.bounds.choices import Choices
from slotwise.allocation.bounds.interior import Mixture

SPLIT_FROM = 1e-7
"""Relative; cases are split while the bound is below the known value by more than this."""

SHORT = 1e-3
"""Part of the bound, or of the range of a job's cost; a smaller loss is accepted."""

DUST = 1e-9
"""Relative to the range of a job's cost; smaller differences count as 0."""


def bound_by_cases(choices: Choices, trials: int, value: float) -> float:
    """The minimum of the lower bounds of cases that cover all schedules.

    The case with the lowest bound is split in two while trials are left; each split takes two.
    Prices are computed again for each case. Stops at a bound close to `value`.
    """
    number = count()  # Cases are compared by bound and age only.
    bound, choices, mixture = settled(choices)
    cases = [(bound, next(number), choices, mixture)]
    for _ in range((trials - 1) // 2):
        bound, _, choices, mixture = cases[0]
        if bound >= value - SPLIT_FROM * abs(value):
            break
        split = _split(choices, mixture)
        if split is None:
            break
        heappop(cases)
        for half in (choices.until(*split), choices.after(*split)):
            reached, half, mixture = settled(half)
            heappush(cases, (max(bound, reached), next(number), half, mixture))
    return cases[0][0]


def settled(choices: Choices) -> tuple[float, Choices, Mixture]:
    """A lower bound, and the choices and their mixture at nearly the best prices.

    If not all points are among the choices, and the bound is much lower than with the choices
    alone, the cheapest points become choices and prices are computed once more.
    """
    mixture = choices.settled()
    bound = choices.bound(mixture.prices)
    if choices.short(mixture.prices) > SHORT * max(abs(bound), choices.scale):
        choices = choices.widened(mixture.prices)
        mixture = choices.settled()
        bound = max(bound, choices.bound(mixture.prices))
    return bound, choices, mixture


def _split(choices: Choices, mixture: Mixture) -> tuple[int, float] | None:
    """The job that mixes cheap and expensive completions most, and a completion between these.

    It is the latest completion of its cost. None if no job mixes completions: then splitting
    does not improve the bound.
    """
    parts = mixture.parts / mixture.parts.sum(axis=1, keepdims=True)
    mean_cost = (parts * choices.cost).sum(axis=1, keepdims=True)
    spread = (parts * np.abs(choices.cost - mean_cost)).sum(axis=1)
    job = int(np.argmax(spread))
    if not spread[job] > DUST * choices.scale:
        return None
    completion, cost = choices.completion[job], choices.cost[job]
    middle = np.abs(completion - parts[job] @ completion).argmin()
    early = cost <= cost[middle] if cost[middle] < cost.max() else cost < cost.max()
    return (job, float(completion[early].max())) if early.any() else None
