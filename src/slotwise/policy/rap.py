"""The separable resource allocation problem (FLEX 3.2): assigns units to jobs with costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import chain
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from slotwise.core.costs import Floats, Ints
from slotwise.core.errors import InputError
from slotwise.core.objective import Aggregate
from slotwise.core.tolerances import SUM

__all__ = ["ResourceProblem", "Solver", "is_convex", "solve"]


# The resource allocation problem: a number of units for J jobs, each with its own cost.

UnitCost = Callable[[Ints, Ints], Floats]
"""cost(jobs, units): the cost of each of these jobs with its units; arrays of equal length."""

Drops = Callable[[int], Ints]
"""The unit counts at which the cost of a job falls, in ascending order."""


CELLS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class ResourceProblem:
    """Minimise the sum or the maximum of cost(j, s_j) with sum(s) <= total; see `of`.

    total      units, whole
    min_share  minimum units of each job, shape (J,); together at most `total`
    max_share  maximum units of each job, not below `min_share`
    cost       non-increasing in the units; inf is allowed, -inf and NaN are not
    drops      for costs that fall at few known unit counts; None means all are searched
    """

    total: int
    min_share: Ints
    max_share: Ints
    cost: UnitCost
    drops: Drops | None = None

    def __len__(self) -> int:
        return len(self.min_share)

    @classmethod
    def of(
        cls,
        total: int,
        min_share: Sequence[int] | Ints,
        max_share: Sequence[int] | Ints,
        cost: UnitCost,
        drops: Drops | None = None,
    ) -> ResourceProblem:
        """The problem, or InputError with place, value and remedy. O(J)."""
        lows, tops = np.array(min_share, dtype=np.int64), np.array(max_share, dtype=np.int64)
        if len(lows) != len(tops):
            raise InputError(
                f"{len(lows)} min_share and {len(tops)} max_share;"
                " give one of each for each job"
            )
        for name, values, bad, remedy in (
            ("min_share", lows, lows < 0, "units >= 0"),
            ("max_share", tops, tops < lows, "at least min_share"),
        ):
            if bad.any():
                at = int(np.argmax(bad))
                raise InputError(f"{name}[{at}] is {values[at]} units; give {remedy}")
        if (needed := int(lows.sum())) > total:
            raise InputError(
                f"min_share: the jobs need {needed} units and there are {total};"
                " lower min shares or give more units"
            )
        return cls(int(total), lows, tops, cost, drops)

    @classmethod
    def of_table(
        cls,
        total: int,
        table: Sequence[Sequence[float]],
        min_share: Sequence[int] | None = None,
        max_share: Sequence[int] | None = None,
    ) -> ResourceProblem:
        """The problem in which job j costs table[j][s] with s units, s from 0 on.

        The maximum units of a job are also limited by the length of its row. InputError for a
        row that is empty, rises, or contains NaN or -inf.
        """
        longest = max(map(len, table), default=0)
        cells = np.full((len(table), longest), np.inf)
        for j, row in enumerate(table):
            cells[j, : len(row)] = row
            falls = [a >= b for a, b in zip([np.inf, *row], row, strict=False)]
            if not row or not all(falls) or row[-1] == -np.inf:
                raise InputError(
                    f"table[{j}] is {list(row)}; give costs > -inf that do not rise with units"
                )
        widths = np.array([len(row) - 1 for row in table], dtype=np.int64)
        tops = (
            widths
            if max_share is None
            else np.minimum(np.array(max_share, dtype=np.int64), widths)
        )
        lows = [0] * len(table) if min_share is None else min_share
        return cls.of(total, lows, tops, lambda jobs, units: cells[jobs, units])

    @cached_property
    def slack(self) -> int:
        """The units that remain when every job has its minimum."""
        return self.total - int(self.min_share.sum())

    @cached_property
    def room(self) -> Ints:
        """The number of units above its minimum that each job can get."""
        room: Ints = np.minimum(self.max_share - self.min_share, self.slack)
        return room

    def row(self, job: int) -> Floats:
        """The cost of a job with its minimum units, one more, and so on up to its room."""
        units = np.arange(self.min_share[job], self.min_share[job] + self.room[job] + 1)
        return self.cost(np.full(len(units), job), units)

    def choices(self, job: int) -> tuple[Ints, Floats]:
        """The numbers of units above its minimum that are worth giving a job, and the costs.

        The first number is 0. Others are included only if they cost less than all smaller ones.
        """
        if self.drops is None:
            over = np.arange(self.room[job] + 1)
            costs = self.row(job)
        else:
            drops = self.drops(job) - self.min_share[job]
            over = np.concatenate(([0], drops[(drops > 0) & (drops <= self.room[job])]))
            costs = self.cost(np.full(len(over), job), self.min_share[job] + over)
        before = np.minimum.accumulate(costs)[:-1]
        worth = np.concatenate(([True], costs[1:] < before))
        return over[worth], costs[worth]

    def value(self, units: Ints, aggregate: Aggregate = "sum") -> float:
        """The sum or the maximum of the costs with these units; 0 without jobs."""
        if not len(self):
            return 0.0
        costs = self.cost(np.arange(len(self)), units)
        return float(costs.max() if aggregate == "max" else costs.sum())


def is_convex(problem: ResourceProblem) -> bool:
    """Whether no unit gains more than the one before it, for any job, up to rounding.

    Evaluates every cost, in batches of jobs: O(J S) for J jobs and S units of slack.
    """
    room = problem.room + 1
    batches = np.cumsum(room) // CELLS_AT_ONCE
    for jobs in np.split(np.arange(len(room)), np.flatnonzero(np.diff(batches)) + 1):
        ends = np.cumsum(room[jobs])
        owner = np.repeat(jobs, room[jobs])
        over = np.arange(len(owner)) - np.repeat(ends - room[jobs], room[jobs])
        costs = problem.cost(owner, problem.min_share[owner] + over)
        same = owner[:-2] == owner[2:]
        if not _bends_up(costs[:-2][same], costs[1:-1][same], costs[2:][same]):
            return False
    return True


def _bends_up(before: Floats, middle: Floats, after: Floats) -> bool:
    """Whether the middle of three costs is never above the line from the first to the last."""
    finite = np.isfinite(before)  # After an infinite cost any value is convex.
    before, middle, after = before[finite], middle[finite], after[finite]
    rounding = SUM * (np.abs(before) + 2 * np.abs(middle) + np.abs(after))
    return bool(np.all(2 * middle <= before + after + rounding))


def chained(choices: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Ints, Floats]:
    """The choices of several jobs, concatenated: the number of each job, units, costs."""
    counts = np.array([len(units) for units, _ in choices], dtype=np.int64)
    units = np.fromiter(chain.from_iterable(units for units, _ in choices), np.int64)
    costs = np.fromiter(chain.from_iterable(costs for _, costs in choices), np.float64)
    return counts, units, costs


# Gains: the value of each further unit, by job. The fast solvers select among them.


@dataclass(frozen=True, slots=True)
class Gains:
    """J non-increasing lists of gains, of which the `units` largest > 0 are selected.

    units  the number of units to give
    room   the length of the list of each job
    gain   gain(jobs, given): the gain of one more unit for jobs that were given `given` units
    """

    units: int
    room: Ints
    gain: Callable[[Ints, Ints], Floats]

    def __len__(self) -> int:
        return len(self.room)

    def at(self, jobs: Ints, given: Ints) -> Floats:
        """The gain of one more unit; -inf if there is no room or nothing to gain."""
        room = self.room[jobs]
        gains = self.gain(jobs, np.minimum(given, np.maximum(room - 1, 0)))
        return np.where((given < room) & (gains > 0), gains, -np.inf)


def minisum_gains(problem: ResourceProblem) -> Gains:
    """The amounts by which a unit lowers the cost of its job; inf where the cost was inf.

    For convex costs these gains do not increase, and the largest ones minimise the sum.
    """

    def gain(jobs: Ints, given: Ints) -> Floats:
        units = problem.min_share[jobs] + given
        one_more = np.minimum(units + 1, problem.max_share[jobs])
        before, after = problem.cost(jobs, units), problem.cost(jobs, one_more)
        endless = before == np.inf
        gains: Floats = np.where(endless, np.inf, np.where(endless, 0.0, before) - after)
        return gains

    return Gains(problem.slack, problem.room, gain)


def minimax_gains(problem: ResourceProblem) -> Gains:
    """The minimax transformation: the gain of a unit is the job's cost without it (FLEX 3.2).

    These gains never increase, for any costs, and selecting the largest ones minimises the
    maximum cost. They are relative to the lowest possible maximum, where every job has as many
    units as it can get: a job below that level needs no more units.
    """
    jobs = np.arange(len(problem))
    floor = float(problem.cost(jobs, problem.min_share + problem.room).max(initial=-np.inf))

    def gain(jobs: Ints, given: Ints) -> Floats:
        if floor == np.inf:
            return np.zeros(len(jobs))
        return problem.cost(jobs, problem.min_share[jobs] + given) - floor

    return Gains(problem.slack, problem.room, gain)


# Convex envelopes: costs of any shape replaced by the greatest convex ones below them.


def envelope_gains(problem: ResourceProblem, jobs: Sequence[int]) -> Gains:
    """The gains for the sum when the costs of these jobs are replaced by their envelopes.

    The optimum of the envelopes is a lower bound. The selected units are at corners of the
    envelopes, where envelope and cost are equal, except for the one job at which the units run
    out. So the cost exceeds the optimum by at most the saving of one job between two adjacent
    corners. O(K) for K choices of all these jobs, then O(log K) per gain.
    """
    exact = minisum_gains(problem)
    if not len(jobs):
        return exact
    counts, over, heights = chained([_corners(*problem.choices(job)) for job in jobs])
    place = np.full(len(problem), -1)
    place[list(jobs)] = np.arange(len(jobs))
    last = np.cumsum(counts) - 1
    # Equal gains must be equal to the last bit, so that units go to one job after the other.
    gain_from = np.zeros(len(over))
    inner = np.delete(np.arange(len(over)), last)
    gain_from[inner] = (heights[inner] - heights[inner + 1]) / (over[inner + 1] - over[inner])
    beyond = int(problem.room.max(initial=0)) + 2
    keys = np.repeat(np.arange(len(jobs)), counts) * beyond + over

    def enveloped(jobs: Ints, given: Ints) -> Floats:
        which = place[jobs]
        corner = np.searchsorted(keys, which * beyond + given, side="right") - 1
        is_before_first = corner < (last - counts + 1)[which]
        return np.where(is_before_first, np.inf, gain_from[corner])

    def gain(jobs: Ints, given: Ints) -> Floats:
        replaced = place[jobs] >= 0
        if replaced.all():
            return enveloped(jobs, given)
        gains = np.empty(len(jobs))
        gains[replaced] = enveloped(jobs[replaced], given[replaced])
        gains[~replaced] = exact.gain(jobs[~replaced], given[~replaced])
        return gains

    return Gains(exact.units, exact.room, gain)


def _corners(over: Ints, costs: Floats) -> tuple[Ints, Floats]:
    """The corners of the lower convex hull of the finite points, from left to right."""
    hull: list[int] = []
    for point in np.flatnonzero(np.isfinite(costs)).tolist():
        while len(hull) > 1 and _is_above(over, costs, hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    corners = hull or [0]
    return over[corners], costs[corners]


def _is_above(over: Ints, costs: Floats, before: int, middle: int, after: int) -> bool:
    """Whether the middle one of three points is on or above the line through the others."""
    rise = (costs[middle] - costs[before]) * (over[after] - over[before])
    line = (costs[after] - costs[before]) * (over[middle] - over[before])
    return bool(rise >= line)


# The dynamic programme, for costs of any shape.


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


# Marginal analysis (Fox): each unit goes to the job with the largest gain.


def fox(gains: Gains) -> Ints:
    """The units of each job, given one by one; ties go to the first job.

    B. Fox, Discrete optimization via marginal analysis, Management Science 13 (1966).
    O(J + S log J) for J jobs and S units, in a heap of the next gain of each job.
    """
    given = np.zeros(len(gains), dtype=np.int64)
    ahead = [_gains_of(gains, job) for job in range(len(gains))]
    heap = [(-next(ahead[job]), job) for job in range(len(gains))]
    heapify(heap)
    for _ in range(gains.units if heap else 0):
        worth, job = heap[0]
        if worth == np.inf:  # No job gains anything.
            break
        given[job] += 1
        heapreplace(heap, (-next(ahead[job]), job))
    return given


def _gains_of(gains: Gains, job: int) -> Iterator[float]:
    """The gains of one job in order, then -inf, computed in blocks of doubling size."""
    start, room = 0, int(gains.room[job])
    while start < room:
        given = np.arange(start, min(room, 2 * start + 1))
        yield from gains.at(np.full(len(given), job), given).tolist()
        start += len(given)
    yield -np.inf


# Selection in a matrix with sorted columns (Frederickson and Johnson).


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
        gain = np.where(short, -np.inf, gains.at(jobs, np.full(len(jobs), row - 1)))
        go_on = (gain > -np.inf) & _first(gain, gains.units // row)
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


# Selection by weighted medians of medians (Galil and Megiddo).


def galil_megiddo(gains: Gains) -> Ints:
    """The units of each job; ties go to the first job.

    Z. Galil, N. Megiddo, A fast selection algorithm and the problem of optimum distribution of
    effort, JACM 26 (1979). Each round takes the medians of the remaining lists and their
    median, weighted by the lengths of the lists. It separates at least a quarter of all
    remaining gains. Binary search in each list ranks it. So there are O(log S) rounds of
    O(J log S): O(J (log S)^2) for J jobs and S units, as long as J <= S, since here the medians
    are sorted, not only selected from.
    """
    jobs = np.arange(len(gains))
    low, high = np.zeros(len(gains), dtype=np.int64), np.minimum(gains.room, gains.units)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        medians = np.where(open_, gains.at(jobs, middle), -np.inf)
        level = _weighted_median(medians, high - low)
        above = _count(gains, level, low, high, or_equal=False)
        if above.sum() > gains.units:
            # The minimum with `middle` guards against rounding: every round makes progress.
            high = np.where(open_ & (medians <= level), np.minimum(above, middle), above)
            continue
        if level == -np.inf:
            return above
        reached = _count(gains, level, low, high, or_equal=True)
        if reached.sum() >= gains.units:
            return above + _in_turn(reached - above, gains.units - int(above.sum()))
        low = np.where(open_ & (medians >= level), np.maximum(reached, middle + 1), reached)
    return low


def _weighted_median(values: Floats, weight: Ints) -> float:
    """A weighted median: half of the weight is at or above it, half at or below it."""
    order = np.argsort(-values, kind="stable")
    weights = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(2 * weights, weights[-1])]])


def _count(gains: Gains, level: float, low: Ints, high: Ints, or_equal: bool) -> Ints:
    """The number of gains above a level in each list, between low and high; by bisection."""
    jobs = np.arange(len(gains))
    while (open_ := low < high).any():
        middle = (low + high) // 2
        gain = gains.at(jobs, middle)
        above = open_ & ((gain >= level) if or_equal else (gain > level))
        low, high = np.where(above, middle + 1, low), np.where(open_ & ~above, middle, high)
    return low


def _in_turn(room: Ints, units: int) -> Ints:
    """Give each job in turn as many units as it has room for, until all are given."""
    before = np.cumsum(room) - room
    given: Ints = np.clip(units - before, 0, room)
    return given


# Solves the resource allocation problem by any of the solvers that FLEX names (FLEX 3.2).

Solver = Literal["fox", "galil-megiddo", "frederickson-johnson", "dynamic-programme"]

SELECTIONS = {
    "fox": fox,
    "galil-megiddo": galil_megiddo,
    "frederickson-johnson": frederickson_johnson,
}


def solve(
    problem: ResourceProblem, aggregate: Aggregate = "sum", solver: Solver | None = None
) -> Ints:
    """The units of each job that minimise the sum or the maximum of the costs.

    solver  for J jobs and S units: "fox", O(J + S log J); "galil-megiddo", O(J (log S)^2); and
            "frederickson-johnson", O(max(J, J log(S/J))), for a maximum of any costs or a sum
            of convex ones; "dynamic-programme", for a sum of any costs, O(J S^2), or O(K S) for
            staircases with K steps in all. By default the third where it applies, otherwise the
            last; for a sum, that takes a convexity test of O(J S)

    Units that do not help are not given.
    """
    if solver is None:
        is_selection = aggregate == "max" or is_convex(problem)
        solver = "frederickson-johnson" if is_selection else "dynamic-programme"
    if solver == "dynamic-programme":
        assert aggregate == "sum", "the dynamic programme minimises a sum"
        return dynamic_programme(problem)
    gains = minimax_gains(problem) if aggregate == "max" else minisum_gains(problem)
    return problem.min_share + SELECTIONS[solver](gains)
