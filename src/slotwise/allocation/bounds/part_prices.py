"""Prices of the work that must be done in windows of time, for jobs of several parts."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.cases import bound_by_cases
from slotwise.allocation.bounds.cheapest import Points
from slotwise.allocation.bounds.choices import Choices, with_ends
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.needs import Falls
from slotwise.allocation.bounds.profiles import room
from slotwise.allocation.bounds.refine import ADDED_MOST, refined
from slotwise.allocation.bounds.shapes import Shapes, kinks_most
from slotwise.allocation.bounds.windows import Windows, first_windows, windows_most
from slotwise.objective.costs import Floats

TRIALS_MOST = 65
"""Times that prices are looked for at most, one case after another."""

TRIED_MOST = 600_000
"""Numbers in all these trials together, but for the first."""


def price_bound_of_parts(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """Of the sum of any costs; -inf for too many jobs.

    As for jobs of one part. But needs have a bend for each part, too many for each to be a
    choice: prices are found with some choices, and what they prove is found with all. Windows
    are added where the mixtures at the first prices exceed what can be done.
    """
    windows = first_windows(jobs, capacity)
    if windows is None:
        return -np.inf
    bound, besides = -np.inf, np.zeros((len(jobs), 0))
    choices = _choices(jobs, capacity, windows, besides)
    for _ in range(_rounds(jobs, choices)):
        count = len(windows) + ADDED_MOST
        if windows_most(len(jobs), kinks_most(jobs.costs), count) < count:
            break
        mixture = choices.settled()
        bound = max(bound, choices.bound(mixture.prices))
        if bound >= value:
            return bound
        windows = refined(jobs, capacity, windows, choices, mixture)
        if choices.points is not None:
            best = choices.points.best(mixture.prices)
            besides = np.concatenate([besides, best], axis=1)
        choices = _choices(jobs, capacity, windows, besides)
    trials = min(TRIALS_MOST, TRIED_MOST // choices.needs.size)
    return max(bound, bound_by_cases(choices, trials, value))


def _rounds(jobs: BoundJobs, choices: Choices) -> int:
    """How often windows are added: lines need many of them, steps rather many cases."""
    if choices.points is None:
        return 0
    return 2 if jobs.costs.are_lines else 1


def _choices(jobs: BoundJobs, capacity: float, windows: Windows, besides: Floats) -> Choices:
    """Some completions, to find prices with, and all points at which a cheapest one can lie.

    A job that climbs stairs completes at the end of a step, where its needs are least.
    """
    count = len(windows)
    falls = Falls.of(jobs, windows, capacity)
    turns = np.repeat(jobs.soonest[:, None], count, axis=1)
    np.maximum.at(turns, (falls.job, falls.window), falls.until)
    shapes = Shapes(jobs.costs, jobs.soonest, turns.max(axis=1))
    inner = [shapes.kinks] if shapes.are_stairs else [shapes.kinks, turns, besides]
    completion = with_ends(jobs, turns, np.concatenate(inner, axis=1))
    cost = shapes.at(completion)
    is_first = windows.start == jobs.arrival.min()
    space = np.where(is_first, room(jobs, capacity, windows.end), capacity * windows.lengths)
    points = None if shapes.are_stairs else Points.of(falls, shapes, completion, count)
    return Choices(
        completion,
        cost,
        shapes.at(np.nextafter(completion, np.inf)),
        falls.at(completion, count) / capacity,
        space / capacity,
        float(np.ptp(cost, axis=1).max()) or 1.0,
        points and points.per(capacity),
    )
