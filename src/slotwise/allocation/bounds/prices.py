"""The price bound: prices of the work that must be done in windows, for any sum of costs.

With few jobs, cases improve it: a job is complete by an instant, or it is not. Proofs:
docs/algorithms/bounds.md, sections 4, 5 and 7.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

import numpy as np

from slotwise.allocation.bounds.choices import Choices, choices_of, choices_of_parts
from slotwise.allocation.bounds.interior import Mixture
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.windows import first_windows, refined
from slotwise.allocation.tolerances import CLOSE

MAX_TRIALS = 17
"""The maximum number of price searches, one per case."""

TRIALS_OF_STEPS, TRIALS_OF_LINES, TRIALS_OF_OTHERS = 65, 9, 33
"""The same for jobs of several parts: cases help steps most."""

MAX_TRIED, TRIED_MOST_OF_PARTS = 300_000, 600_000
"""The limit of numbers in all trials together, except for the first."""

MAX_REFINED = 200_000
"""Windows are added only while the needs have at most this many numbers."""

SPLIT_FROM = 1e-7
"""Relative; cases are split while the bound is below the known value by more than this."""

SHORT = 1e-3
"""Part of the bound, or of the range of a job's cost; a smaller loss is accepted."""


def price_bound(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """A lower bound on the sum of any costs, with arrivals; -inf for too many jobs.

    It includes min shares.

    In each window of time the work that must be done there cannot exceed the capacity. With a
    price on that work, each job has a cheapest completion, independent of the others. At any
    prices >= 0, the sum over the jobs less the price of the capacity is a lower bound
    (Lagrangian relaxation). An interior point method finds nearly optimal prices. With few
    jobs, cases are distinguished: a job is complete by an instant or it is not. Stops close to
    `value`.
    """
    if not jobs.parts.are_whole:
        return price_bound_of_parts(jobs, capacity, value)
    choices = choices_of(jobs, capacity)
    if choices is None:
        return -np.inf
    trials = min(MAX_TRIALS, MAX_TRIED // choices.needs.size)
    return bound_by_cases(choices, trials, value)


def price_bound_of_parts(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """A lower bound on the sum of any costs; -inf for too many jobs.

    The method is that of `price_bound`. But needs have a bend for each part, too many for each
    to be a choice: prices are computed with some choices, and their bound with all points.
    Windows are added where the mixtures at the first prices exceed what can be done. Stops when
    the bound reaches `value`.
    """
    jobs = jobs.since(float(jobs.arrival.min()))  # Late instants have fewer digits.
    windows = first_windows(jobs, capacity)
    if windows is None:
        return -np.inf
    bound = -np.inf
    choices = choices_of_parts(jobs, capacity, windows)
    for _ in range(_rounds(jobs, choices)):
        if choices.needs.size > MAX_REFINED:
            break
        reached, choices, mixture = _settled(choices)
        bound = max(bound, reached)
        if bound >= value:
            return bound
        windows = refined(jobs, capacity, windows, choices.completion, mixture.parts)
        choices = choices_of_parts(jobs, capacity, windows)
    trials = min(_trials(jobs, choices), TRIED_MOST_OF_PARTS // choices.needs.size)
    return max(bound, bound_by_cases(choices, trials, value))


def bound_by_cases(choices: Choices, trials: int, value: float) -> float:
    """The minimum of the lower bounds of cases that cover all schedules.

    The case with the lowest bound is split in two while trials are left; each split takes two.
    Prices are computed again for each case. Stops at a bound close to `value`.
    """
    number = count()  # Cases are compared by bound and age only.
    bound, choices, mixture = _settled(choices)
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
            reached, half, mixture = _settled(half)
            heappush(cases, (max(bound, reached), next(number), half, mixture))
    return cases[0][0]


def _settled(choices: Choices) -> tuple[float, Choices, Mixture]:
    """A lower bound, and the choices and their mixture at nearly the best prices.

    If not all points are among the choices, and the bound is much lower than with the choices
    alone, the cheapest points become choices and prices are computed once more.
    """
    mixture = choices.mixture()
    bound = choices.bound(mixture.prices)
    if choices.short(mixture.prices) > SHORT * max(abs(bound), choices.scale):
        choices = choices.widened(mixture.prices)
        mixture = choices.mixture()
        bound = max(bound, choices.bound(mixture.prices))
    return bound, choices, mixture


def _split(choices: Choices, mixture: Mixture) -> tuple[int, float] | None:
    """The job that mixes cheap and expensive completions most, and a completion between these.

    Both cases have fewer completions, or a higher cost, of this job. None if no job mixes
    completions that can be divided so: then splitting does not improve the bound.
    """
    parts = mixture.parts / mixture.parts.sum(axis=1, keepdims=True)
    mean_cost = (parts * choices.cost).sum(axis=1, keepdims=True)
    spread = (parts * np.abs(choices.cost - mean_cost)).sum(axis=1)
    for job in np.argsort(-spread, kind="stable"):
        if not spread[job] > CLOSE * choices.scale:
            break
        instant = _middle(choices, int(job), float(parts[job] @ choices.completion[job]))
        if instant is not None:
            return int(job), instant
    return None


def _middle(choices: Choices, job: int, mean: float) -> float | None:
    """The completion near the mean that divides those of a job; None if none does.

    It is the latest completion of its cost. The first completion divides the others only if the
    cost jumps there, since it belongs to both cases.
    """
    completion, cost = choices.completion[job], choices.cost[job]
    middle = np.abs(completion - mean).argmin()
    early = cost <= cost[middle] if cost[middle] < cost.max() else cost < cost.max()
    if not early.any():
        return None
    chosen = completion == completion[early].max()
    first, last = completion.min(), completion.max()
    if first < completion[chosen][0] or (choices.above[job] > cost)[chosen].any():
        return float(completion[chosen][0])
    inner = completion[(first < completion) & (completion < last)]
    return float(inner.min()) if inner.size else None


def _rounds(jobs: BoundJobs, choices: Choices) -> int:
    """How often windows are added: lines need many windows, steps rather need many cases."""
    if choices.points is None:
        return 0
    return 2 if jobs.costs.are_lines else 1


def _trials(jobs: BoundJobs, choices: Choices) -> int:
    if choices.points is None:
        return TRIALS_OF_STEPS
    return TRIALS_OF_LINES if jobs.costs.are_lines else TRIALS_OF_OTHERS
