"""The exact minimum of the largest cost, with min shares too: bisection on due dates."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.due_dates.feasibility import fits
from slotwise.allocation.malleable import Malleable
from slotwise.objective.costs import Floats

PRECISION = 1e-13
"""Relative; the level is found up to here, where due dates are."""

ROUNDING = 1e-13
"""Relative; by so much the work of all jobs together may exceed the room."""

STEPS_MOST = 200
"""A bisection of floats is at its end by then."""


def minimax(problem: Malleable) -> Floats:
    """Due dates that can be kept together and whose largest cost is the least there is.

    A level is reachable if and only if all jobs can be done by the latest completion that costs
    no more, and whether they can is decided exactly (`feasibility`, with min shares too). So
    this is the optimum, up to rounding, for every non-decreasing cost. Due dates are inf where
    a job may be done at any time. O(J log J) for each of about 50 levels.
    """
    low = problem.value(problem.heights)  # Each job alone on all that it can use.
    if _can_keep(problem, _due(problem, low)):
        return _due(problem, low)
    # A schedule that leaves no slot idle is done with each job by then.
    area = problem.work.sum() / problem.capacity
    high = problem.value(np.minimum(problem.heights + area, problem.ends))
    scale = max(abs(low), abs(high))
    for _ in range(STEPS_MOST):
        middle = (low + high) / 2
        if high - low <= PRECISION * scale or not low < middle < high:
            break
        if _can_keep(problem, _due(problem, middle)):
            high = middle
        else:
            low = middle
    return _due(problem, high)


def _due(problem: Malleable, level: float) -> Floats:
    """By when each job is to be done; no level tried is so low that rounding alone makes it
    earlier than the job could be done alone."""
    due: Floats = np.maximum(problem.costs.latest(level), problem.heights)
    return due


def _can_keep(problem: Malleable, due: Floats) -> bool:
    numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
    return fits(*numbers, due, ROUNDING)
