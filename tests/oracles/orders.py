"""The optimum of small malleable problems, by one linear program for each order of completion.

Independent of slotwise: it shares the shapes of costs (`slotwise.core.objective`), not how
slotwise allocates. HiGHS, through scipy, solves the programs.

Once the order of completion is fixed, the completions cut time into as many columns as there
are jobs, and within a column every job may as well hold a constant share. A job that is not
complete holds at least its min share; one that is complete holds nothing; slots may idle. So
for the job in place p of the order and the columns k <= p, with the length l_k of a column and
the work y_pk that is done in it beyond the min share:

    0 <= y_pk <= (most_p - least_p) l_k
    sum_{p >= k} y_pk <= (capacity - sum_{p >= k} least_p) l_k
    sum_{k <= p} y_pk + least_p C_p = work_p, with C_p = l_0 + ... + l_p

The cost of C_p is linear, or linear with one variable more (hinges, the maximum), or needs a
variable for each step that is 0 or 1: branch and bound over all orders together sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count, pairwise, permutations
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from slotwise.core.objective import Cost, Hinge, Line, Steps

Floats = NDArray[np.float64]
Ranges = list[tuple[float, float]]

TELLS = 2e-7
"""Relative difference at which values count as different; the precision of HiGHS is 1e-7."""

INFEASIBLE = 2
"""What scipy calls a program without a solution."""


def optimum(
    capacity: float,
    work: Sequence[float] | Floats,
    min_share: Sequence[float] | Floats,
    max_share: Sequence[float] | Floats,
    costs: Sequence[Cost],
    aggregate: str,
) -> float:
    """The least sum or maximum of costs over all malleable schedules of jobs present at 0.

    Needs sum(least) <= capacity, least <= most, and costs that are lines, hinges and steps.
    J! linear programs of about J (J + 3) / 2 variables, and more where there are steps.
    """
    sizes = np.array([work, min_share, np.minimum(max_share, capacity)], dtype=float)
    assert sizes[1].sum() <= capacity * (1 + 1e-9)
    number = count()  # Ties in the heap never come to programs.
    nodes = []
    for order in map(list, permutations(range(len(costs)))):
        program = Program(capacity, sizes[:, order], [costs[j] for j in order], aggregate)
        found = program.run(program.ranges)
        if found is not None:
            nodes.append((found.value, next(number), program, program.ranges, found))
    best = min(found.reached for *_, found in nodes)
    heapify(nodes)
    while nodes:
        value, _, program, ranges, found = heappop(nodes)
        if value >= best - TELLS * max(1.0, abs(best)):
            break
        branches = program.branches(ranges, found)
        assert branches, f"{found.reached} is reached where {value} should be"
        for branch in branches:
            better = program.run(branch)
            if better is not None:
                best = min(best, better.reached)
                heappush(nodes, (better.value, next(number), program, branch, better))
    return best


class Found(NamedTuple):
    """What a program gives.

    value    its optimum, below that of the order where steps are taken in part
    reached  the cost of its schedule
    further  its variables other than lengths and work
    """

    value: float
    reached: float
    further: Floats


class Program:
    """The program of one order of completion.

    sizes   rows of work, min and max shares; `costs` in the same order
    ranges  of the variables other than lengths and work
    """

    def __init__(
        self, capacity: float, sizes: Floats, costs: Sequence[Cost], aggregate: str
    ) -> None:
        self.ranges: Ranges = []
        self._costs, self._aggregate = costs, aggregate
        self._body, self._low, self._high = _body(capacity, *sizes)
        self._known = self._body.shape[1]
        self._linear = np.zeros(self._known)
        self._constant = 0.0
        self._prices: list[float] = []  # Of the further variables.
        self._rows: list[tuple[int | None, float, dict[int, float], float]] = []
        self._passed: list[int] = []  # Those of them that are 0 or 1.
        self._largest = self._variable(1.0, -inf) if aggregate == "max" else None
        # Where slots idle while a job holds less than its max share, its last work may as well
        # be done there. So an optimum has every job use all it can or all slots be used until
        # it is complete, in some order of completion.
        work, min_share, max_share = sizes
        self._alone = work / max_share
        self._latest = self._alone + work.sum() / capacity
        np.divide(work, min_share, out=self._latest, where=min_share * self._latest > work)
        for place, cost in enumerate(costs):
            self._add(place, cost)
        self._close()

    def run(self, ranges: Ranges) -> Found | None:
        """The best with the further variables in these ranges; None if there is nothing."""
        low, high = np.array(ranges, dtype=float).reshape(-1, 2).T
        zeros, infinite = np.zeros(self._known), np.full(self._known, inf)
        found = milp(
            self._price,
            bounds=Bounds(np.concatenate((zeros, low)), np.concatenate((infinite, high))),
            constraints=self._constraints,
        )
        if found.x is None:
            assert found.status == INFEASIBLE, found.message
            return None
        completion = np.cumsum(found.x[: len(self._costs)])
        charged = [
            cost.at(at - TELLS * max(1.0, at) if isinstance(cost, Steps) else at)
            for cost, at in zip(self._costs, completion.tolist(), strict=True)
        ]
        reached = max(charged) if self._aggregate == "max" else sum(charged)
        return Found(found.fun + self._constant, reached, found.x[self._known :])

    def branches(self, ranges: Ranges, found: Found) -> list[Ranges]:
        """Two halves of what is left open; nothing if nothing is."""
        free = [z for z in self._passed if ranges[z] == (0.0, 1.0)]
        if not free:
            return []
        undecided = max(free, key=lambda z: min(found.further[z], 1 - found.further[z]))
        return [
            [(bit, bit) if z == undecided else r for z, r in enumerate(ranges)]
            for bit in (0.0, 1.0)
        ]

    def _add(self, place: int, cost: Cost) -> None:
        """Charge the cost of the completion in this place."""
        match cost:
            case Line(slope, origin):
                if self._largest is None:
                    self._linear[: place + 1] += slope
                    self._constant -= slope * origin
                else:
                    self._row(place, slope, {self._largest: -1.0}, slope * origin)
            case Hinge(slope, due):
                late = self._variable(1.0) if self._largest is None else self._largest
                self._row(place, slope, {late: -1.0}, slope * due)
                self._is_not_negative()
            case Steps(steps):
                self._add_steps(place, steps)
                self._is_not_negative()
            case _:
                raise TypeError(f"the oracle knows no {cost}")

    def _add_steps(self, place: int, steps: Sequence[tuple[float, float]]) -> None:
        """C <= the first instant + what passing each step allows beyond it; steps in order."""
        alone, latest = float(self._alone[place]), float(self._latest[place])
        steps = [(instant, charge) for instant, charge in steps if instant < latest]
        instants = [instant for instant, _ in steps] + [latest]
        charges = [0.0] + [charge for _, charge in steps]
        allowed: dict[int, float] = {}
        charged: dict[int, float] = {}
        for before, after in pairwise(range(len(instants))):
            surely = instants[before] * (1 + TELLS) < alone
            passed = self._variable(0.0, 1.0 if surely else 0.0, 1.0)
            if allowed:
                self._row(None, 0.0, {passed: 1.0, self._passed[-1]: -1.0}, 0.0)
            self._passed.append(passed)
            allowed[passed] = instants[before] - instants[after]
            charged[passed] = charges[after] - charges[before]
        self._row(place, 1.0, allowed, instants[0])
        if self._largest is None:
            for passed, charge in charged.items():
                self._prices[passed] = charge
        else:
            self._row(None, 0.0, {**charged, self._largest: -1.0}, 0.0)

    def _is_not_negative(self) -> None:
        """The maximum is at least 0."""
        if self._largest is not None:
            self.ranges[self._largest] = (0.0, inf)

    def _variable(self, price: float, low: float = 0.0, high: float = inf) -> int:
        """One variable more; its number among the further ones."""
        self._prices.append(price)
        self.ranges.append((low, high))
        return len(self._prices) - 1

    def _row(
        self, place: int | None, slope: float, others: dict[int, float], limit: float
    ) -> None:
        """slope * C_place + others <= limit."""
        self._rows.append((place, slope, others, limit))

    def _close(self) -> None:
        """Put all rows together."""
        rows = np.zeros((len(self._rows), self._known + len(self._prices)))
        limits = np.zeros(len(rows))
        for row, (place, slope, others, limit) in enumerate(self._rows):
            if place is not None:
                rows[row, : place + 1] = slope
            for number, coefficient in others.items():
                rows[row, self._known + number] = coefficient
            limits[row] = limit
        body = np.hstack((self._body, np.zeros((len(self._body), len(self._prices)))))
        self._price = np.concatenate((self._linear, self._prices))
        self._constraints = LinearConstraint(
            csc_array(np.vstack((body, rows))),
            np.concatenate((self._low, np.full(len(rows), -inf))),
            np.concatenate((self._high, limits)),
        )


def _body(
    capacity: float, work: Floats, min_share: Floats, max_share: Floats
) -> tuple[Floats, ...]:
    """The rows that every order has, with their lower and upper limits; l_k, then y_pk."""
    jobs = len(work)
    place, column, body = _frame(jobs)
    pairs = len(place)
    rows, low, high = body.copy(), np.full(len(body), -inf), np.zeros(len(body))
    rows[np.arange(pairs), column] = (min_share - max_share)[place]
    unfinished = np.cumsum(min_share[::-1])[
        ::-1
    ]  # The min shares of those not done in column k.
    rows[pairs + np.arange(jobs), np.arange(jobs)] = unfinished - capacity
    rows[pairs + jobs + place, column] = min_share[place]
    low[pairs + jobs :] = high[pairs + jobs :] = work
    return rows, low, high


@cache
def _frame(jobs: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """p and k of each y_pk, and the coefficients that no number of a job changes."""
    place, column = np.tril_indices(jobs)
    pairs = len(place)
    number = np.arange(pairs)
    body = np.zeros((pairs + 2 * jobs, jobs + pairs))
    body[number, jobs + number] = 1.0
    body[pairs + column, jobs + number] = 1.0
    body[pairs + jobs + place, jobs + number] = 1.0
    return place, column, body
