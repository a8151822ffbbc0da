"""The exact minimum of the largest cost, with min shares too: bisection on due dates."""

from __future__ import annotations

import numpy as np

from slotwise.allocation.due_dates.feasibility import fits
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.tolerances import KEPT, LEVEL
from slotwise.objective.costs import Floats

MAX_STEPS = 200
"""A bisection of floats ends within this number of steps."""


def minimax(problem: Malleable) -> Floats:
    """Due dates, seconds, that can be kept together and have the minimum largest cost.

    A level is feasible if and only if each job can complete by the latest instant at which it
    costs no more. The test is exact (`feasibility`, including min shares). So this is the
    optimum, up to rounding, for all non-decreasing costs. Due dates are inf for jobs that may
    complete at any time. O(J log J) for each of about 50 levels.
    """
    low = problem.value(problem.heights)  # Each job alone with its max share.
    if _can_keep(problem, _due(problem, low)):
        return _due(problem, low)
    # A schedule without idle slots completes each job by then.
    area = problem.work.sum() / problem.capacity
    high = problem.value(np.minimum(problem.heights + area, problem.ends))
    scale = max(abs(low), abs(high))
    for _ in range(MAX_STEPS):
        middle = (low + high) / 2
        if high - low <= LEVEL * scale or not low < middle < high:
            break
        if _can_keep(problem, _due(problem, middle)):
            high = middle
        else:
            low = middle
    return _due(problem, high)


def _due(problem: Malleable, level: float) -> Floats:
    """The due date of each job at a level of cost; rounding does not put it before the earliest
    completion of the job alone."""
    due: Floats = np.maximum(problem.costs.latest(level), problem.heights)
    return due


def _can_keep(problem: Malleable, due: Floats) -> bool:
    numbers = (problem.capacity, problem.work, problem.min_share, problem.max_share)
    return fits(*numbers, due, KEPT)
