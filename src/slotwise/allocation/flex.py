"""FLEX: slots go where they lower the objective most, above everybody's least share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from slotwise.allocation.fair import Fair
from slotwise.allocation.grant import grant, pool_floors
from slotwise.allocation.malleable import Malleable
from slotwise.allocation.measuring import with_measuring
from slotwise.allocation.paths import size_on, tail_on
from slotwise.allocation.problem import Claims
from slotwise.allocation.search.budget import Budget
from slotwise.allocation.search.orders import Order, by_area, contended_area
from slotwise.allocation.search.solution import Solution
from slotwise.allocation.search.solve import solve
from slotwise.objective.cost import Cost
from slotwise.objective.objective import Objective

STEP_SECONDS = 3e-5
"""What a step of search takes for each job, about: so a budget in seconds becomes one in steps,
and the same run is decided in the same way on every machine."""


@dataclass(frozen=True, slots=True)
class Flex:
    """Plans all claims anew, and puts the first interval of the plan in force (FLEX 2.2, 3).

    Sums of linear penalties go the short way unless search is asked for: Smith's rule on the
    dear area (`dear_first`), to the packing scheme. It is optimal on one slot and close to
    optimal elsewhere. O(J log J). All other objectives are solved (`solve`): minimax exactly,
    other sums by orders, due dates and search.

    ordering        instead of all that: the packing scheme in this order
    budget_seconds  for the search; turned into steps by `STEP_SECONDS`
    """

    objective: Objective = field(default_factory=Objective)
    ordering: Callable[[Malleable], Order] | None = None
    budget_seconds: float | None = None

    reads_work: ClassVar[bool] = True
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        claims = with_measuring(claims)
        if self.ordering is not None:
            return grant(claims, self.ordering(self.problem(claims)))
        if not self.budget_seconds and self.objective.aggregate == "sum":
            slopes = self._slopes(claims)
            if slopes is not None:
                return grant(claims, dear_first(claims, slopes))
        return self._begin(claims)

    def problem(self, claims: Claims) -> Malleable:
        """The claims as a problem from now on: each phase costs what its job will cost.

        A job is done its remaining phases after this one at the earliest. What a pool is
        guaranteed goes to its jobs by area.
        """
        costs = [self._cost(claims, j) for j in range(len(claims))]
        min_share, max_share = claims.min_share, claims.max_share
        aggregate = self.objective.aggregate
        problem = Malleable.of(
            claims.capacity, claims.work, min_share, max_share, costs, aggregate
        )
        if any(group.slots_min or group.slots_max < claims.capacity for group in claims.groups):
            floors = pool_floors(claims, by_area(problem))
            return replace(problem, min_share=np.minimum(floors, problem.max_share))
        return problem

    def solve(self, claims: Claims, budget: Budget) -> tuple[Malleable, Solution]:
        """The whole schedule of these claims, if nothing else comes."""
        problem = self.problem(claims)
        return problem, solve(problem, budget)

    def _begin(self, claims: Claims) -> list[float]:
        """The first interval of the schedule; slots that are left go by completion time."""
        seconds = BUDGET_SECONDS if self.budget_seconds is None else self.budget_seconds
        steps = seconds / (STEP_SECONDS * max(1, len(claims)))
        problem, solution = self.solve(claims, Budget(steps))
        first = np.zeros(len(claims))
        for j, pieces in enumerate(solution.packing):
            if pieces and pieces[0][0] == 0:
                first[j] = pieces[0][2]
        order = np.argsort(solution.completion, kind="stable")
        return grant(claims, order.tolist(), _within_limits(claims, problem, first))

    def _cost(self, claims: Claims, number: int) -> Cost:
        job, phase = claims.owner[number]
        cost = self.objective.cost(job, size_on(job, claims.cluster))
        return cost.since(claims.now + tail_on(job, phase, claims.cluster))

    def _slopes(self, claims: Claims) -> Sequence[float] | None:
        """The slopes of the costs if all are lines: the weights that Smith's rule asks for."""
        if not any(job.penalty for job, _ in claims.owner):
            match self.objective.penalty:
                case "response" | "lateness":
                    return [job.weight for job, _ in claims.owner]
                case "stretch":
                    return [job.weight / (job.work or 1.0) for job, _ in claims.owner]
        problem = self.problem(claims)
        return problem.costs.slope.tolist() if problem.costs.are_lines else None


BUDGET_SECONDS = 0.005
"""For search at each decision: a hundredth of the usual epoch. What comes next changes more
than a longer search would (docs/algorithms/flex.md)."""


def dear_first(claims: Claims, weight: Sequence[float]) -> list[int]:
    """Smith's rule on the dear area: by what it costs others over the weight. Ties by place."""
    work, max_share = (
        np.asarray(values, dtype=float) for values in (claims.work, claims.max_share)
    )
    keys = (
        contended_area(work, np.minimum(max_share, claims.capacity), claims.capacity) / weight
    )
    order: list[int] = np.argsort(keys, kind="stable").tolist()
    return order


@dataclass(frozen=True, slots=True)
class AddOn:
    """FAIR with least shares that FLEX has revised: FLEX as an add-on to FAIR (FLEX 1.1).

    Handed the least shares, FLEX hands back revised ones that sum to the capacity, or to what
    all can use. So FAIR has no slack to share out, and gives exactly these.
    """

    flex: Flex = field(default_factory=Flex)

    reads_work: ClassVar[bool] = True
    keeps_min_shares: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim, by FAIR."""
        # The revised shares hold what the pools were guaranteed, so pools ask for no more.
        groups = [replace(group, slots_min=0.0) for group in claims.groups]
        return Fair().share(replace(claims, min_share=self.revised(claims), groups=groups))

    def revised(self, claims: Claims) -> list[float]:
        """The least shares to hand back to FAIR."""
        return self.flex.share(claims)


def _within_limits(claims: Claims, problem: Malleable, shares: np.ndarray) -> list[float]:
    """The same shares, but where a pool has more than its most share: in proportion less.

    What is above the least shares is cut, in inner pools first, so that the pools that they lie
    in cut what is left of it.
    """
    pools, group = claims.groups, np.asarray(claims.group)
    floors = np.bincount(group, problem.min_share, len(pools)).tolist()
    above = np.bincount(group, shares - problem.min_share, len(pools)).tolist()
    kept = [1.0] * len(pools)
    for number in reversed(range(len(pools))):
        pool = pools[number]
        room = max(0.0, pool.slots_max - floors[number])
        if above[number] > room:
            kept[number] = room / above[number]
            above[number] = room
        if pool.parent >= 0:
            floors[pool.parent] += floors[number]
            above[pool.parent] += above[number]
    for number, pool in enumerate(pools):
        if pool.parent >= 0:
            kept[number] *= kept[pool.parent]
    within: list[float] = (
        problem.min_share + (shares - problem.min_share) * np.array(kept)[group]
    ).tolist()
    return within
