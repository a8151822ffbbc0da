"""Selection in a matrix with sorted columns (Frederickson and Johnson)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slotwise.allocation.rap.gains import Gains
from slotwise.objective.costs import Floats, Ints


def frederickson_johnson(gains: Gains) -> Ints:
    """The units of each job; ties go to the first job.

    G. N. Frederickson, D. B. Johnson, Generalized selection and ranking, STOC 1980; The
    complexity of selection and ranking in X + Y and matrices with sorted columns, JCSS 24
    (1982). O(max(J, J log(S / J))) gains are evaluated for J jobs and S units, in linear time.

    First, columns are cut. Of k units at most k / p go to jobs that get p or more, so in row p
    only the columns of the k / p largest gains continue (rows p = 1, 2, 4, ...; from k / J on,
    each halves the work). Then the columns are divided into cells, and each round halves the
    cells. Two selections, among the first and among the last gains of the cells, drop cells
    that cannot contain selected gains and accept cells that contain only such gains. At most
    2 J + 2 cells remain open, independent of S. Halving cells replaces the weighted medians of
    the 1982 paper; `numpy.partition` (introselect) selects in linear time.
    """
    low, high = np.zeros(len(gains), dtype=np.int64), np.minimum(gains.room, gains.units)
    if not len(gains) or gains.units == 0:
        return low
    left, finest = gains.units, _power_of_two(gains.units / len(gains))
    for size, jobs in reversed(_cut_columns(gains, high, finest)):
        column, first, last = _cells(gains, jobs, low[jobs], high[jobs], size)
        kept = _wanted(first, last, -(-left // size))
        ends = low[jobs] + size * np.bincount(column[kept], minlength=len(jobs))
        high[jobs] = np.minimum(high[jobs], ends)
        if 1 < size <= finest:  # All columns take part, and smaller cells follow.
            sure = _certain(first, last, left // size)
            low[jobs] += size * np.bincount(column[sure], minlength=len(jobs))
            left -= size * int(sure.sum())
    return high


def _power_of_two(number: float) -> int:
    """The smallest power of two that is not below a number, at least 1."""
    return 1 << max(0, int(np.ceil(np.log2(number))))


def _cut_columns(gains: Gains, high: Ints, finest: int) -> list[tuple[int, Ints]]:
    """Lower `high` row by row; the sizes of cells, ascending, each with its columns.

    Up to the size `finest` these are all columns, above it those that are long enough.
    """
    jobs = np.arange(len(gains))
    sizes = [1 << power for power in range(finest.bit_length())]
    rows = [(size, jobs) for size in sizes]
    row = finest
    while row <= gains.units:
        short = high[jobs] < row
        there = np.where(short, -np.inf, gains.at(jobs, np.full(len(jobs), row - 1)))
        go_on = (there > -np.inf) & _first(there, gains.units // row)
        high[jobs[~go_on]] = np.minimum(high[jobs[~go_on]], row - 1)
        jobs = jobs[go_on]
        if not len(jobs):
            break
        if row > finest:
            rows.append((row, jobs))
        row *= 2
    return rows


def _cells(
    gains: Gains, jobs: Ints, low: Ints, high: Ints, size: int
) -> tuple[Ints, Floats, Floats]:
    """Columns cut into cells: the column, the first and the last gain of each cell.

    Cells are in order of columns and rows. The last gain of an incomplete cell is -inf.
    """
    counts = -(-(high - low) // size)
    column = np.repeat(np.arange(len(jobs)), counts)
    number = np.arange(len(column)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = low[column] + size * number
    first = gains.at(jobs[column], begin)
    if size == 1:
        return column, first, first
    last = gains.at(jobs[column], begin + (size - 1))
    last[begin + size > high[column]] = -np.inf
    return column, np.maximum(first, last), last  # Only rounding makes the first one smaller.


def _wanted(first: Floats, last: Floats, cells: int) -> NDArray[np.bool_]:
    """The cells that may contain selected gains, when `cells` whole cells would suffice.

    If that many cells end at or before some gain, no cell that begins after it is needed.
    """
    kept = first > -np.inf
    if cells <= len(last):
        level, at = _ranked(last, cells)
        kept &= (first > level) | ((first == level) & (np.arange(len(first)) <= at))
    return kept


def _certain(first: Floats, last: Floats, cells: int) -> NDArray[np.bool_]:
    """The cells with only selected gains, when at least `cells` whole cells are selected.

    If fewer cells begin before some gain, all gains before it are selected.
    """
    sure = last > -np.inf
    if cells == 0:
        sure[:] = False
    elif cells <= len(first):
        level, at = _ranked(first, cells)
        sure &= (last > level) | ((last == level) & (np.arange(len(last)) < at))
    return sure


def _ranked(values: Floats, rank: int) -> tuple[float, int]:
    """The value of this rank, 1 being the largest, and its place; ties rank by place. O(n)."""
    level = np.partition(values, len(values) - rank)[len(values) - rank]
    above = np.count_nonzero(values > level)
    return float(level), int(np.flatnonzero(values == level)[rank - above - 1])


def _first(values: Floats, count: int) -> NDArray[np.bool_]:
    """A mask of the `count` largest values; ties rank by place. O(n)."""
    if count >= len(values):
        return np.ones(len(values), dtype=np.bool_)
    level, at = _ranked(values, count)
    ties = (values == level) & (np.arange(len(values)) <= at)
    largest: NDArray[np.bool_] = (values > level) | ties
    return largest
