"""A bound by cases: a job is complete by an instant, or it is not."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

import numpy as np

from slotwise.allocation.bounds.choices import Choices
from slotwise.allocation.bounds.interior import Mixture

SPLIT_FROM = 1e-7
"""Relative; cases are split while the bound is below the known value by more than this."""

SHORT = 1e-3
"""Of the bound, or of what a job can cost; to prove less by so much is good enough."""

DUST = 1e-9
"""Relative to what a job can cost more than its least; a smaller difference is none."""


def bound_by_cases(choices: Choices, trials: int, value: float) -> float:
    """Each schedule falls into one of some cases, so the least of their bounds holds.

    The case of the least bound is split in two as long as there are trials left, two for each.
    In each case prices are looked for anew.
    """
    number = count()  # No two cases are compared but by bound and age.
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
    """A bound, and the choices and their mixture at nearly the best prices.

    Where not all points are among the choices, and the prices have proven much less than was
    hoped, the cheapest points become choices and prices are looked for once more.
    """
    mixture = choices.settled()
    bound = choices.bound(mixture.prices)
    if choices.short(mixture.prices) > SHORT * max(abs(bound), choices.scale):
        choices = choices.widened(mixture.prices)
        mixture = choices.settled()
        bound = max(bound, choices.bound(mixture.prices))
    return bound, choices, mixture


def _split(choices: Choices, mixture: Mixture) -> tuple[int, float] | None:
    """The job that mixes cheap and dear completions most, and one in the middle of them.

    It is the latest one of its cost. None if no job mixes any: then no case has a better bound
    than all together.
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
