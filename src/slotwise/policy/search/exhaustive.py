"""The best of all priority orders by the packing scheme, for few jobs.

It is the optimum over orders. Schedules that no order produces may be better
(docs/algorithms/flex.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from slotwise.core.objective import Hinge, Line, Steps
from slotwise.core.tolerances import SAME
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.solve import MalleableSolution, in_order

MAX_JOBS = 12
"""Above this number of jobs too many orders may remain after pruning."""


def not_above_any_order(
    problem: Malleable, solution: MalleableSolution, budget: Budget
) -> MalleableSolution:
    """The solution of a sum for at most `MAX_JOBS` jobs, or that of an order of lower value.

    If the budget suffices, no order has a lower value. One node of the tree of prefixes per
    step. Nothing is searched if the solution is optimal, or the budget was short before.
    """
    value = solution.value
    is_optimal = solution.bound >= value or value <= problem.value(problem.heights)
    if is_optimal or len(problem) > MAX_JOBS or budget.was_short:
        return solution
    order = np.argsort(solution.completion, kind="stable").tolist()
    found = search(problem, order, value, budget)
    return solution if found == order else in_order(problem, found)


def search(
    problem: Malleable, order: Sequence[int], value: float, budget: Budget | None = None
) -> list[int]:
    """An order of lower value than this one if there is one, else this one. At worst J!.

    A budget ends the search earlier.
    """
    branches = _Branches(problem, order, value, budget or Budget())
    branches.visit(empty_prefix(problem), list(order), -inf if branches.is_max else 0.0, None)
    return branches.best


class _Branches:
    """The search: the best order so far, and the current prefix."""

    def __init__(
        self, problem: Malleable, order: Sequence[int], value: float, budget: Budget
    ) -> None:
        self.best, self._value, self._budget = list(order), value, budget
        self.is_max = problem.aggregate == "max"
        self._costs, self._jobs = tuple(problem.costs), jobs_of(problem)
        self._trial: list[int] = []
        self._rank = {j: rank for rank, j in enumerate(order)}
        self._twin = twins(problem, order)

    def visit(self, prefix: Prefix, rest: list[int], spent: float, last: int | None) -> None:
        """Try all orders of the rest after this prefix.

        spent   the cost of the placed jobs
        last    the job placed last if it had its max share immediately, otherwise None
        """
        if not rest:
            if spent < self._value:
                self.best, self._value = self._trial.copy(), spent
            return
        if not self._budget.may_go_on():
            return
        placements = {j: prefix.earliest(self._jobs[j]) for j in rest}
        costs = {j: self._costs[j].at(p.completion) for j, p in placements.items()}
        if self._total(spent, *costs.values()) >= self._value - SAME * abs(self._value):
            return
        for j in self._choices(prefix, rest, placements, last):
            self._trial.append(j)
            is_at_once = placements[j].full == prefix.times[0] < placements[j].completion
            self.visit(
                prefix.after(self._jobs[j], placements[j]),
                [k for k in rest if k != j],
                self._total(spent, costs[j]),
                j if is_at_once else None,
            )
            self._trial.pop()

    def _choices(
        self,
        prefix: Prefix,
        rest: list[int],
        placements: dict[int, Placed],
        last: int | None,
    ) -> list[int]:
        """The jobs to try next; of orders that lead to the same schedule, one is enough."""
        begin = prefix.times[0]
        for j in rest:
            if placements[j].completion <= begin:  # Its min share completes it.
                return [j]
        return [
            j
            for j in rest
            # Equal jobs stay in order. So do two jobs that both get their max share at once.
            if self._twin.get(j) not in rest
            and not (
                last is not None
                and self._rank[j] < self._rank[last]
                and placements[j].full == begin
            )
        ]

    def _total(self, *costs: float) -> float:
        return max(costs) if self.is_max else sum(costs)


# Prefixes of priority orders: the slots that the placed jobs leave for the next one.
#
# In the packing scheme the completion of a job depends only on the jobs before it and on the
# min shares of all. So it is fixed when the job is placed (docs/algorithms/packing.md).


class JobNumbers(NamedTuple):
    """The numbers of one job; `end` is its completion if it only had its min share."""

    work: float
    min_share: float
    max_share: float
    end: float


class Placed(NamedTuple):
    """When a job reaches its max share, and its completion; equal if it never reaches it."""

    full: float
    completion: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """`slack[i]` slots are free from `times[i]` until `times[i + 1]`, the last ones forever.

    Slack is what remains beyond the min shares of the jobs not placed yet. Before `times[0]`
    the placed jobs hold all of it. From then on each of these is at its max share or done, so
    slack only grows, finally to the capacity.
    """

    times: tuple[float, ...]
    slack: tuple[float, ...]

    def earliest(self, job: JobNumbers) -> Placed:
        """The placement of the job if it comes next. O(J)."""
        begin = self.times[0]
        if job.end <= begin:
            return Placed(begin, job.end)
        left = max(0.0, job.work - job.min_share * begin)
        start = begin
        for slack, stop in zip(self.slack, (*self.times[1:], inf), strict=True):
            share = job.min_share + slack
            if share >= job.max_share:
                return Placed(start, start + left / job.max_share)
            if share * (stop - start) >= left:
                end = start + left / share
                return Placed(end, end)
            left -= share * (stop - start)
            start = stop
        raise AssertionError("finally every slot is free")

    def after(self, job: JobNumbers, placement: Placed) -> Prefix:
        """The prefix with this job placed. O(J)."""
        full, completion = placement
        if completion <= self.times[0]:
            return self
        cuts = sorted({full, completion, *(at for at in self.times if at > full)})
        slack, place = [], 0
        for cut in cuts:
            while place + 1 < len(self.times) and self.times[place + 1] <= cut:
                place += 1
            if cut < completion:
                change = job.min_share - job.max_share
            else:  # Its min share is also free; after `job.end` slack already includes it.
                change = job.min_share if cut < job.end else 0.0
            slack.append(max(0.0, self.slack[place] + change))
        return Prefix(tuple(cuts), tuple(slack))


def jobs_of(problem: Malleable) -> list[JobNumbers]:
    """The jobs of a problem, as plain numbers."""
    columns = (problem.work, problem.min_share, problem.max_share, problem.ends)
    return [JobNumbers(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def empty_prefix(problem: Malleable) -> Prefix:
    """The prefix without jobs: all hold their min shares until these complete them."""
    jobs = jobs_of(problem)
    times = sorted({0.0, *(job.end for job in jobs if job.end < inf)})
    slack = [
        max(0.0, problem.capacity - sum(job.min_share for job in jobs if job.end > at))
        for at in times
    ]
    return Prefix(tuple(times), tuple(slack))


def twins(problem: Malleable, order: Sequence[int]) -> dict[int, int]:
    """For each job with an equal one before it in the order, the last such job."""
    seen: dict[object, int] = {}
    found = {}
    jobs, costs = jobs_of(problem), tuple(problem.costs)
    for j in order:
        if isinstance(costs[j], Line | Hinge | Steps):
            key = (jobs[j], costs[j])
            if key in seen:
                found[j] = seen[key]
            seen[key] = j
    return found
