"""A bound by cases: a job is complete by an instant, or it is not."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

import numpy as np

from slotwise.allocation.bounds.choices import Choices
from slotwise.allocation.bounds.interior import Mixture

CLOSE = 1e-7
"""Relative; where a bound is so close to a known value, it is close enough."""

DUST = 1e-9
"""Relative to the largest cost; costs that differ by less are the same."""


def bound_by_cases(choices: Choices, trials: int, value: float) -> float:
    """Each schedule falls into one of some cases, so the least of their bounds holds.

    The case of the least bound is split in two as long as there are trials left, two for each.
    In each case prices are looked for anew.
    """
    number = count()  # No two cases are compared but by bound and age.
    mixture = choices.settled()
    cases = [(choices.bound(mixture.prices), next(number), choices, mixture)]
    for _ in range((trials - 1) // 2):
        bound, _, choices, mixture = cases[0]
        if bound >= value - CLOSE * abs(value):
            break
        split = _split(choices, mixture)
        if split is None:
            break
        heappop(cases)
        for half in (choices.until(*split), choices.after(*split)):
            mixture = half.settled()
            reached = max(bound, half.bound(mixture.prices))
            heappush(cases, (reached, next(number), half, mixture))
    return cases[0][0]


def _split(choices: Choices, mixture: Mixture) -> tuple[int, float] | None:
    """The job that mixes cheap and dear completions most, and the one in the middle of them.

    None if none does: then no case has a better bound than all together.
    """
    parts = mixture.parts / mixture.parts.sum(axis=1, keepdims=True)
    mean_cost = (parts * choices.cost).sum(axis=1, keepdims=True)
    spread = (parts * np.abs(choices.cost - mean_cost)).sum(axis=1)
    spread[choices.completion.max(axis=1) <= choices.completion.min(axis=1)] = 0.0
    job = int(np.argmax(spread))
    if not spread[job] > DUST * float(np.abs(choices.cost).max()):
        return None
    mean = float(parts[job] @ choices.completion[job])
    instants = np.unique(choices.completion[job])
    middle = int(np.abs(instants - mean).argmin())
    return job, float(instants[min(middle, len(instants) - 2)])
