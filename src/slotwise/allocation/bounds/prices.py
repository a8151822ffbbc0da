"""Prices of the work that must be done in windows of time: a bound for every sum of costs."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.bounds.cases import bound_by_cases
from slotwise.allocation.bounds.cheapest import Points
from slotwise.allocation.bounds.choices import Choices
from slotwise.allocation.bounds.jobs import BoundJobs
from slotwise.allocation.bounds.needs import Falls
from slotwise.allocation.bounds.profiles import room
from slotwise.allocation.bounds.shapes import Shapes, kinks_most
from slotwise.allocation.bounds.windows import WINDOWS_MOST, Windows, windows_of
from slotwise.objective.costs import Floats

NUMBERS_MOST = 500_000
"""Jobs times completions times windows: more are thinned out to so many."""

WINDOWS_LEAST = 4
"""With room for fewer windows it is not worth while."""

TRIALS_MOST = 17
"""Times that prices are looked for at most, one case after another."""

TRIED_MOST = 300_000
"""Numbers in all these trials together, but for the first."""


def price_bound(jobs: BoundJobs, capacity: float, value: float = np.inf) -> float:
    """Of the sum of any costs, with least shares and arrivals; -inf for too many jobs.

    In each of some windows of time the work that must be done there cannot be more than the
    capacity. With a price on that, each job has a cheapest completion, whatever the others
    do. At any prices >= 0 the sum over the jobs less the price of the capacity is a bound;
    an interior point method finds nearly the best ones. With few jobs, cases are told apart:
    a job is complete by an instant or it is not. Up to a known value, which is enough.
    """
    choices = choices_of(jobs, capacity)
    if choices is None:
        return -np.inf
    trials = min(TRIALS_MOST, TRIED_MOST // choices.needs.size)
    return bound_by_cases(choices, trials, value)


def choices_of(jobs: BoundJobs, capacity: float) -> Choices | None:
    """The completions at which a cheapest one can lie, and what they need; None if too many."""
    most = _windows_most(len(jobs), kinks_most(jobs.costs))
    if most < WINDOWS_LEAST or not jobs.work.sum() > 0:
        return None
    kinks = np.array([kink for cost in jobs.costs for kink in cost.kinks])
    windows = windows_of(jobs, capacity, kinks, most)
    if not jobs.parts.are_whole:
        return _choices_of_parts(jobs, capacity, windows)
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


def _choices_of_parts(jobs: BoundJobs, capacity: float, windows: Windows) -> Choices:
    """Some completions, to find prices with, and all points at which a cheapest one can lie."""
    count = len(windows)
    falls = Falls.of(jobs, windows, capacity)
    turns = np.repeat(jobs.soonest[:, None], count, axis=1)
    np.maximum.at(turns, (falls.job, falls.window), falls.until)
    shapes = Shapes(jobs.costs, jobs.soonest, turns.max(axis=1))
    inner = np.concatenate([turns, shapes.kinks], axis=1)
    completion = _clipped(jobs, turns, inner)
    points = Points.of(falls, shapes, completion, count)
    cost = shapes.at(completion)
    is_first = windows.start == jobs.arrival.min()
    space = np.where(is_first, room(jobs, capacity, windows.end), capacity * windows.lengths)
    return Choices(
        completion,
        cost,
        shapes.at(np.nextafter(completion, np.inf)),
        falls.at(completion, count) / capacity,
        space / capacity,
        float(np.ptp(cost, axis=1).max()) or 1.0,
        points.per(capacity),
    )


def _completions(jobs: BoundJobs, turns: Floats, kinks: Floats) -> Floats:
    """Both ends, where a window begins to need no less, and where a cost is not straight.

    Between two of these, cost and needs are concave in the completion time.
    """
    return _clipped(jobs, turns, np.concatenate([turns, kinks], axis=1))


def _clipped(jobs: BoundJobs, turns: Floats, inner: Floats) -> Floats:
    """Both ends, and these instants where they lie between them."""
    soonest, latest = jobs.soonest[:, None], jobs.latest[:, None]
    latest = np.minimum(latest, np.maximum(turns.max(axis=1, keepdims=True), soonest))
    return np.concatenate([soonest, np.clip(inner, soonest, latest), latest], axis=1)


def _windows_most(jobs: int, kinks: int) -> int:
    """K such that J (K + 3 + kinks) K numbers are not too many."""
    other = (3 + kinks) / 2
    return int(min(WINDOWS_MOST, np.sqrt(NUMBERS_MOST / jobs + other**2) - other))
