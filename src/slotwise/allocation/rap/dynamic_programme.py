"""The dynamic programme, for costs of any shape."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from slotwise.allocation.rap.problem import CELLS_AT_ONCE, ResourceProblem
from slotwise.objective.costs import Floats, Ints


def dynamic_programme(problem: ResourceProblem) -> Ints:
    """The units of each job that minimise the sum of any costs, with as few units as possible.

    T. Ibaraki, N. Katoh, Resource allocation problems (1988). The optimum of the first j jobs
    with t units is the optimum of j - 1 jobs with t - s units plus job j with s units: a
    (min, +) convolution, O(J S^2) for J jobs and S units above the min shares. Only those s are
    tried for which job j costs less than with any fewer units. So staircases with K steps in
    all take O(K S), as in the multiple-choice knapsack. O(J S) memory.
    """
    best = np.zeros(problem.slack + 1)
    picks = []
    for job in range(len(problem)):
        best, pick = _with_one_more(best, *problem.choices(job))
        picks.append(pick)
    units, left = problem.min_share.copy(), problem.slack
    for job in reversed(range(len(problem))):
        given = int(picks[job][left])
        units[job] += given
        left -= given
    return units


def _with_one_more(best: Floats, over: Ints, costs: Floats) -> tuple[Floats, Ints]:
    """The optimum for each number of units with one more job, and the units of that job.

    In the window that ends at t, the entry s places before the end is the optimum of the other
    jobs with t - s units.
    """
    widest = int(over[-1])
    windows = sliding_window_view(np.concatenate((np.full(widest, np.inf), best)), widest + 1)
    all_of_them = len(over) == widest + 1
    places = slice(None, None, -1) if all_of_them else widest - over
    chosen = np.empty(len(best), dtype=np.int32)
    values = np.empty(len(best))
    rows = max(1, CELLS_AT_ONCE // len(over))
    for begin in range(0, len(best), rows):
        totals = windows[begin : begin + rows, places] + costs
        chosen[begin : begin + rows] = totals.argmin(axis=1)
        values[begin : begin + rows] = totals.min(axis=1)
    return values, over[chosen].astype(np.int32)
