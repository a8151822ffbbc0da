"""The search for the best order in machine code. Importing this module needs numba.

It does the same as `search` and `Prefix` of `slotwise.policy.search.exhaustive`, which give the
reasons, with arrays for the prefixes: one row for each number of placed jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from slotwise.core.costs import Ints
from slotwise.core.tolerances import SAME
from slotwise.policy.compiled import INTS, compiled, part
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.exhaustive import empty_prefix, twins

TABLE = "float64[:, ::1]"


def search_compiled(problem: Malleable, order: Sequence[int], value: float) -> list[int]:
    """An order of lower value than this one if there is one, else this one.

    Costs must be lines, hinges or steps. J! in the worst case.
    """
    count, places, shapes = len(problem), np.asarray(order), problem.costs.shapes
    rank = {j: place for place, j in enumerate(order)}
    twin = np.full(count, -1)
    for j, other in twins(problem, order).items():
        twin[rank[j]] = rank[other]
    empty = empty_prefix(problem)
    times, slack = np.zeros((2, count + 1, 2 * count + 2))
    size = len(empty.times)
    times[0, :size], slack[0, :size] = empty.times, empty.slack
    best = np.arange(count)
    compiled(search_ranked, SEARCH)(
        np.column_stack((problem.work, problem.min_share, problem.max_share, problem.ends))[
            places
        ],
        np.column_stack((shapes.slope, shapes.origin, shapes.floor))[places],
        problem.costs.until[places],
        shapes.levels[places],
        problem.aggregate == "max",
        twin,
        times,
        slack,
        size,
        value,
        best,
    )
    return [order[place] for place in best.tolist()]


@part
def cost_at(lines: Any, until: Any, levels: Any, j: int, completion: float) -> float:
    """The cost of job j at this completion."""
    cost, passed = max(lines[j, 2], lines[j, 0] * (completion - lines[j, 1])), 0
    while passed < until.shape[1] and completion > until[j, passed]:
        passed += 1
    return float(cost + levels[j, passed])


@part
def earliest(
    jobs: Any, j: int, times: Any, slack: Any, row: int, size: int
) -> tuple[float, float]:
    """`Prefix.earliest` of job j after the prefix in this row."""
    work, min_share, max_share, end = jobs[j, 0], jobs[j, 1], jobs[j, 2], jobs[j, 3]
    start = times[row, 0]
    if end <= start:
        return start, end
    left = max(0.0, work - min_share * start)
    for i in range(size):
        share = min_share + slack[row, i]
        if share >= max_share:
            return start, start + left / max_share
        stop = times[row, i + 1] if i + 1 < size else inf
        if share * (stop - start) >= left:
            return start + left / share, start + left / share
        left -= share * (stop - start)
        start = stop
    return inf, inf


@part
def place(
    jobs: Any,
    j: int,
    full: float,
    completion: float,
    times: Any,
    slack: Any,
    row: int,
    size: int,
) -> int:
    """`Prefix.after`: fills in the next row and returns its used length."""
    min_share, max_share, end = jobs[j, 1], jobs[j, 2], jobs[j, 3]
    i, used = 0, 0
    at = full if completion > times[row, 0] else times[row, 0]
    while at < inf:
        while i + 1 < size and times[row, i + 1] <= at:
            i += 1
        if at < completion:
            change = min_share - max_share
        else:
            change = min_share if at < end else 0.0
        times[row + 1, used] = at
        slack[row + 1, used] = max(0.0, slack[row, i] + change)
        used += 1
        following = times[row, i + 1] if i + 1 < size else inf
        at = completion if at < completion < following else following
    return used


@part
def look_ahead(
    jobs: Any, lines: Any, until: Any, levels: Any, is_max: bool, placed: Any, times: Any,
    slack: Any, row: int, size: int, spent: float, full: Any, completion: Any, cost: Any,
) -> tuple[float, int]:  # fmt: skip
    """Place each remaining job next; the lower bound, and the job that must come next.

    The latter is -1 if there is a choice.
    """
    bound, only = spent, -1
    for j in range(len(jobs)):
        if placed[j]:
            continue
        full[row, j], completion[row, j] = earliest(jobs, j, times, slack, row, size)
        cost[row, j] = cost_at(lines, until, levels, j, completion[row, j])
        bound = max(bound, cost[row, j]) if is_max else bound + cost[row, j]
        if only < 0 and completion[row, j] <= times[row, 0]:
            only = j
    return bound, only


def search_ranked(
    jobs: Any,
    lines: Any,
    until: Any,
    levels: Any,
    is_max: bool,
    twin: Any,
    times: Any,
    slack: Any,
    size: int,
    value: float,
    best: Ints,
) -> float:
    """`exhaustive.search` over jobs in the known order; fills in the best, returns its value.

    jobs         one row per job: work, min share, max share, end
    lines        one row per job: slope, origin, floor (`CostShapes`)
    until        one row per job: when each step is passed (`Costs.until`)
    levels       one row per job: the cost before the first step, after it, and so on
    twin         the last equal job before each, or -1
    times, slack the empty prefix in row 0, and room for the others
    size         the used length of row 0
    value        of the known order
    """
    count = len(jobs)
    sizes, spent = np.full(count + 1, size), np.full(count + 1, -inf if is_max else 0.0)
    full, completion, cost = np.zeros((3, count, count))
    trial, tried, only = np.full(count, -1), np.full(count, 0), np.full(count, -1)
    placed, at_once = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    row, is_new = 0, True
    while True:
        if is_new and row < count:
            bound, only[row] = look_ahead(
                jobs, lines, until, levels, is_max, placed, times, slack, row,
                sizes[row], spent[row], full, completion, cost,
            )  # fmt: skip
            tried[row] = count if bound >= value - SAME * abs(value) else 0
        elif is_new and spent[row] < value:
            value, best[:] = spent[row], trial
        if row == count or tried[row] == count:  # Backtrack to the place before.
            if row == 0:
                return value
            row, is_new = row - 1, False
            placed[trial[row]] = False
            continue
        j, is_new = tried[row], False
        tried[row] += 1
        if placed[j] or only[row] not in (-1, j):
            continue
        if only[row] < 0:  # Of orders that lead to the same schedule one is enough.
            if twin[j] >= 0 and not placed[twin[j]]:
                continue
            is_next_to = row > 0 and at_once[row - 1] and full[row, j] == times[row, 0]
            if is_next_to and j < trial[row - 1]:
                continue
        trial[row], placed[j] = j, True
        at_once[row] = full[row, j] == times[row, 0] < completion[row, j]
        sizes[row + 1] = place(
            jobs, j, full[row, j], completion[row, j], times, slack, row, sizes[row]
        )
        spent[row + 1] = max(spent[row], cost[row, j]) if is_max else spent[row] + cost[row, j]
        row, is_new = row + 1, True


SEARCH = (
    f"float64({TABLE}, {TABLE}, {TABLE}, {TABLE}, boolean, {INTS}, {TABLE}, {TABLE}, int64,"
    f" float64, {INTS})"
)
"""The types of the arguments of `search_ranked`, in order."""
