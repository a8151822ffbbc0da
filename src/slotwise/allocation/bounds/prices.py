"""The price bound: prices of the work that must be done in windows, for any sum of costs."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.branch_and_bound import bound_by_cases
from slotwise.allocation.bounds.choices import Choices, with_ends
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.part_prices import price_bound_of_parts
from slotwise.allocation.bounds.shapes import Shapes
from slotwise.allocation.bounds.windows import first_windows
from slotwise.objective.costs import Floats

TRIALS_MOST = 17
"""The maximum number of price searches, one per case."""

TRIED_MOST = 300_000
"""The limit of numbers in all trials together, except for the first."""


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
    trials = min(TRIALS_MOST, TRIED_MOST // choices.needs.size)
    return bound_by_cases(choices, trials, value)


def choices_of(jobs: BoundJobs, capacity: float) -> Choices | None:
    """The completions that can be cheapest, and their needs; None if there are too many."""
    windows = first_windows(jobs, capacity)
    if windows is None:
        return None
    turns = windows.turns(jobs)
    shapes = Shapes(jobs.costs, jobs.soonest, turns.max(axis=1))
    completion = _completions(jobs, turns, shapes.kinks)
    cost = shapes.at(completion)
    return Choices(
        completion,
        cost,
        shapes.at(np.nextafter(completion, np.inf)),
        windows.needed(jobs, completion) / capacity,
        windows.lengths,
        float(np.ptp(cost, axis=1).max()) or 1.0,
    )


def _completions(jobs: BoundJobs, turns: Floats, kinks: Floats) -> Floats:
    """Both ends, the turns of the windows' needs, and the kinks of the costs.

    Between two of these, cost and needs are concave in the completion time.
    """
    return with_ends(jobs, turns, np.concatenate([turns, kinks], axis=1))
