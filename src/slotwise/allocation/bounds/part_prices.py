"""Prices of the work that must be done in windows of time, for jobs of several parts."""

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
"""Times that prices are looked for at most, one case after another: cases help steps most."""

REFINED_MOST = 200_000
"""Numbers to which more windows, which make them more, are added."""

TRIED_MOST = 600_000
"""Numbers in all these trials together, but for the first."""


def price_bound_of_parts(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """Of the sum of any costs; -inf for too many jobs.

    As for jobs of one part. But needs have a bend for each part, too many for each to be a
    choice: prices are found with some choices, and what they prove is found with all. Windows
    are added where the mixtures at the first prices exceed what can be done.
    """
    jobs = jobs.since(float(jobs.arrival.min()))  # Late clocks have few digits to spare.
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
    """How often windows are added: lines need many of them, steps rather many cases."""
    if choices.points is None:
        return 0
    return 2 if jobs.costs.are_lines else 1


def _trials(jobs: BoundJobs, choices: Choices) -> int:
    if choices.points is None:
        return TRIALS_OF_STEPS
    return TRIALS_OF_LINES if jobs.costs.are_lines else TRIALS_OF_OTHERS


def _choices(jobs: BoundJobs, capacity: float, windows: Windows) -> Choices:
    """Some completions, to find prices with, and all points at which a cheapest one can lie.

    A job that climbs stairs completes at the end of a step, where its needs are least.
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
    max_share = Room.of(jobs, capacity).after(windows.end - first)
    space = np.where(windows.start == first, max_share, capacity * windows.lengths)
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
