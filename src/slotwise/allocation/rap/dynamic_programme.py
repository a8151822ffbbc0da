"""The dynamic programme, for costs of any shape."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from slotwise.allocation.rap.problem import CELLS_AT_ONCE, Ints, ResourceProblem
from slotwise.objective.costs import Floats


def dynamic_programme(problem: ResourceProblem) -> Ints:
    """The units of each job that make the sum of any costs least, as few as that takes.

    T. Ibaraki, N. Katoh, Resource allocation problems (1988). The best of the first j jobs
    with t units is the best of j - 1 with t - s units and of job j with s: a convolution of
    minima instead of sums, O(J S^2) for J jobs and S units over the least ones. Only those s
    are tried with which job j costs less than with any fewer, so that staircases of K steps
    in all take O(K S) and no more: this is the multiple-choice knapsack. O(J S) memory.
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
    """The best with up to so many units when one job more takes part, and what it then has.

    In the window that ends at t, s places back from the end stands the best with t - s units.
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
