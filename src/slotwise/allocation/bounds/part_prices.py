"""The price bound for jobs of several parts."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.branch_and_bound import bound_by_cases, settled
from slotwise.allocation.bounds.cheapest import Points
from slotwise.allocation.bounds.choices import Choices, with_ends
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.profiles import Room
from slotwise.allocation.bounds.refine import refined
from slotwise.allocation.bounds.shapes import Shapes
from slotwise.allocation.bounds.window_demand import Falls
from slotwise.allocation.bounds.windows import Windows, first_windows

TRIALS_OF_STEPS, TRIALS_OF_LINES, TRIALS_OF_OTHERS = 65, 9, 33
"""The maximum number of price searches, one per case: cases help steps most."""

REFINED_MOST = 200_000
"""Windows are added only while the needs have at most this many numbers."""

TRIED_MOST = 600_000
"""The limit of numbers in all trials together, except for the first."""


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
    choices = _choices(jobs, capacity, windows)
    for _ in range(_rounds(jobs, choices)):
        if choices.needs.size > REFINED_MOST:
            break
        reached, choices, mixture = settled(choices)
        bound = max(bound, reached)
        if bound >= value:
            return bound
        windows = refined(jobs, capacity, windows, choices, mixture)
        choices = _choices(jobs, capacity, windows)
    trials = min(_trials(jobs, choices), TRIED_MOST // choices.needs.size)
    return max(bound, bound_by_cases(choices, trials, value))


def _rounds(jobs: BoundJobs, choices: Choices) -> int:
    """How often windows are added: lines need many windows, steps rather need many cases."""
    if choices.points is None:
        return 0
    return 2 if jobs.costs.are_lines else 1


def _trials(jobs: BoundJobs, choices: Choices) -> int:
    if choices.points is None:
        return TRIALS_OF_STEPS
    return TRIALS_OF_LINES if jobs.costs.are_lines else TRIALS_OF_OTHERS


def _choices(jobs: BoundJobs, capacity: float, windows: Windows) -> Choices:
    """Some completions, to compute prices, and all points that can be cheapest.

    A job with a staircase cost completes at the end of a step, where its needs are least.
    """
    count = len(windows)
    falls = Falls.of(jobs, windows, capacity).per(capacity)
    turns = np.repeat(jobs.soonest[:, None], count, axis=1)
    np.maximum.at(turns, (falls.job, falls.window), falls.until)
    shapes = Shapes(jobs.costs, jobs.soonest, turns.max(axis=1))
    inner = [shapes.kinks] if shapes.are_stairs else [shapes.kinks, turns]
    completion = with_ends(jobs, turns, np.concatenate(inner, axis=1))
    cost = shapes.at(completion)
    first = jobs.arrival.min()
    available = Room.of(jobs, capacity).after(windows.end - first)
    space = np.where(windows.start == first, available, capacity * windows.lengths)
    points = None if shapes.are_stairs else Points.of(falls, shapes, completion, count)
    return Choices(
        completion,
        cost,
        shapes.at(np.nextafter(completion, np.inf)),
        falls.at(completion, count),
        space / capacity,
        float(np.ptp(cost, axis=1).max()) or 1.0,
        points,
    )
