"""The resource allocation problem: a number of units for J jobs, each with its own cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from slotwise.allocation.tolerances import SUM
from slotwise.model.errors import InputError
from slotwise.objective.costs import Floats, Ints
from slotwise.objective.objective import Aggregate

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


def _bends_up(before: Floats, here: Floats, after: Floats) -> bool:
    """Whether the middle of three costs is never above the line from the first to the last."""
    finite = np.isfinite(before)  # After an infinite cost any value is convex.
    before, here, after = before[finite], here[finite], after[finite]
    rounding = SUM * (np.abs(before) + 2 * np.abs(here) + np.abs(after))
    return bool(np.all(2 * here <= before + after + rounding))


def chained(choices: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Ints, Floats]:
    """The choices of several jobs, concatenated: the number of each job, units, costs."""
    counts = np.array([len(units) for units, _ in choices], dtype=np.int64)
    units = np.fromiter(chain.from_iterable(units for units, _ in choices), np.int64)
    costs = np.fromiter(chain.from_iterable(costs for _, costs in choices), np.float64)
    return counts, units, costs
