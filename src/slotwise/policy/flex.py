"""FLEX: slots beyond the min shares go where they lower the objective most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from slotwise.core.costs import Costs, Floats
from slotwise.core.job import Job, Phase
from slotwise.core.objective import Cost, Objective
from slotwise.policy.allocator import Claims
from slotwise.policy.claims import size_on, tail_on, with_measuring
from slotwise.policy.fair import Fair
from slotwise.policy.grant import grant, pool_floors
from slotwise.policy.malleable import Malleable
from slotwise.policy.search.budget import Budget
from slotwise.policy.search.orders import Order, ascending, by_area, contended_area
from slotwise.policy.search.solve import (
    MAX_PROMISES,
    MalleableSolution,
    at_start,
    best_order,
    solve,
)

STEP_SECONDS = 3e-5
"""The approximate time of one search step per job. It converts a budget in seconds into one in
steps, so that the same run is decided in the same way on every machine."""


LINES = frozenset({"response", "lateness", "stretch", "slowdown"})
"""The penalties that are lines, whose sums take a short cut."""


@dataclass(frozen=True, slots=True)
class Flex:
    """Plans all claims again at each call and applies the plan's first interval (FLEX 2.2, 3).

    Sums of linear penalties take a short cut unless `budget_seconds` requests a search: the
    packing scheme in the order of Smith's rule on the contended area (`contended_first`). It is
    optimal on one slot and close to optimal elsewhere. O(J log J). All other objectives are
    solved (`solve`): minimax exactly, other sums by orders, due dates and search.

    ordering        if given, the packing scheme in this order replaces all of the above
    budget_seconds  for the search; converted into steps by `STEP_SECONDS`
    """

    objective: Objective = field(default_factory=Objective)
    ordering: Callable[[Malleable], Order] | None = None
    budget_seconds: float | None = None

    reads_work: ClassVar[bool] = True
    keeps_min_shares: ClassVar[bool] = True

    @property
    def phase_seconds(self) -> float:
        """About how long a decision takes for each phase."""
        is_short = self.objective.aggregate == "sum" and self.objective.penalty in LINES
        return 1e-5 if is_short and not self.budget_seconds else 3e-4

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        claims = with_measuring(claims)
        if self.ordering is not None:
            return grant(claims, self.ordering(self.problem(claims)))
        if (order := self.order(claims)) is not None:
            return grant(claims, order)
        problem = self.problem(claims)
        if self._is_short and problem.costs.are_lines:
            return grant(claims, contended_first(claims, problem.costs.slope.tolist()))
        return self._begin(claims, problem)

    def order(self, claims: Claims) -> list[int] | None:
        """The claims in the order of the short cut; None without it."""
        if self.ordering is None and self._is_short:
            slopes = self._slopes(claims)
            return None if slopes is None else contended_first(claims, slopes)
        return None

    @property
    def _is_short(self) -> bool:
        """Whether sums of lines take the short cut."""
        return not self.budget_seconds and self.objective.aggregate == "sum"

    def problem(self, claims: Claims) -> Malleable:
        """The claims as a problem that starts now, where each phase has the cost of its job.

        The job completes at the earliest when its remaining phases have followed this one. The
        guarantee of a pool goes to its jobs in order of area.
        """
        costs = self._hinges(claims) or [self._cost(claims, j) for j in range(len(claims))]
        min_share, max_share = claims.min_share, claims.max_share
        aggregate = self.objective.aggregate
        problem = Malleable.of(
            claims.capacity, claims.work, min_share, max_share, costs, aggregate
        )
        if any(group.slots_min or group.slots_max < claims.capacity for group in claims.groups):
            floors = pool_floors(claims, by_area(problem))
            return replace(problem, min_share=np.minimum(floors, problem.max_share))
        return problem

    def solve(self, claims: Claims, budget: Budget) -> tuple[Malleable, MalleableSolution]:
        """The whole schedule of these claims, assuming that no other job arrives."""
        problem = self.problem(claims)
        return problem, solve(problem, budget)

    def _begin(self, claims: Claims, problem: Malleable) -> list[float]:
        """The first interval of the schedule; left-over slots go by completion time."""
        seconds = BUDGET_SECONDS if self.budget_seconds is None else self.budget_seconds
        steps = seconds / (STEP_SECONDS * max(1, len(claims)))
        if len(claims) > MAX_PROMISES and problem.aggregate == "sum":
            best, completion = best_order(problem, Budget(steps))
            first = at_start(problem, best)
        else:
            solution = solve(problem, Budget(steps))
            completion, first = solution.completion, np.zeros(len(claims))
            for j, pieces in enumerate(solution.packing):
                if pieces and pieces[0][0] == 0:
                    first[j] = pieces[0][2]
        order = ascending(completion)
        return grant(claims, order.tolist(), _within_limits(claims, problem, first))

    def _cost(self, claims: Claims, number: int) -> Cost:
        job, phase = claims.owner[number]
        cost = self.objective.cost(job, size_on(job, claims.cluster))
        return cost.since(claims.now + tail_on(job, phase, claims.cluster))

    def _hinges(self, claims: Claims) -> Costs | None:
        """The costs of `_cost` if each claim is a whole job that must not be tardy, or None."""
        if not claims.deadline or self.objective.penalty != "tardiness":
            return None
        due = np.array(claims.deadline, dtype=float)
        if np.isnan(due).any():
            return None  # A job lacks one, which is an error.
        return Costs.of_hinges(np.array(claims.job_weight, dtype=float), due - claims.now)

    def _slopes(self, claims: Claims) -> Sequence[float] | None:
        """The slopes of the costs if one penalty makes all of them lines, otherwise None."""
        if claims.job_weight or not any(job.penalty for job, _ in claims.owner):
            match self.objective.penalty:
                case "response" | "lateness":
                    return claims.job_weight or [job.weight for job, _ in claims.owner]
                case "stretch":
                    return [job.weight / (job.work or 1.0) for job, _ in claims.owner]
                case "slowdown":
                    cluster = claims.cluster
                    return [job.weight / size_on(job, cluster).alone for job, _ in claims.owner]
        return None


BUDGET_SECONDS = 0.005
"""For search at each decision: a hundredth of the usual epoch. Later events change more than a
longer search would gain (docs/algorithms/flex.md)."""


def contended_first(claims: Claims, weight: Sequence[float]) -> list[int]:
    """The claims by contended area over weight: Smith's rule. Ties by place. O(J log J).

    A claim counts with the remaining work of its whole job, since only the last phase completes
    it.
    """
    work, max_share = of_whole_jobs(claims), np.asarray(claims.max_share, dtype=float)
    keys = (
        contended_area(
            work, np.minimum(max_share, claims.capacity), claims.capacity, claims.later_work
        )
        / weight
    )
    order: list[int] = np.argsort(keys, kind="stable").tolist()
    return order


def of_whole_jobs(claims: Claims) -> Floats:
    """The remaining work of the job of each claim, in slot-seconds of the claimed slots.

    Work on another kind of slot counts by the part of these slots that it takes. O(phases).
    """
    work = np.array(claims.work, dtype=float)
    if not claims.left:
        return work
    for number, (job, phase) in enumerate(claims.owner):
        if len(job.phases) > 1:
            work[number] = _whole(job, phase, claims)
    return work


def _whole(job: Job, phase: Phase, claims: Claims) -> float:
    left, slots = claims.left[job.id], claims.cluster.capacity
    if len(slots) == 1:
        return sum(left)
    kinds = [claims.cluster.slot_kind(one.kind) for one in job.phases]
    load = sum([work / max(1, slots[kind]) for work, kind in zip(left, kinds, strict=True)])
    return load * max(1, slots[claims.cluster.slot_kind(phase.kind)])


@dataclass(frozen=True, slots=True)
class AddOn:
    """FAIR with min shares that FLEX has revised: FLEX as an add-on to FAIR (FLEX 1.1).

    The revised min shares sum to the capacity, or to what all claims can use if that is less.
    So FAIR has no slack to share out and returns exactly these shares.
    """

    flex: Flex = field(default_factory=Flex)

    reads_work: ClassVar[bool] = True
    keeps_min_shares: ClassVar[bool] = True

    @property
    def phase_seconds(self) -> float:
        """About how long a decision takes for each phase."""
        return self.flex.phase_seconds

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim, by FAIR."""
        # The revised shares include the guarantees of the pools.
        groups = [replace(group, slots_min=0.0) for group in claims.groups]
        return Fair().share(replace(claims, min_share=self.revised(claims), groups=groups))

    def revised(self, claims: Claims) -> list[float]:
        """The revised min shares that FAIR receives."""
        return self.flex.share(claims)


def _within_limits(claims: Claims, problem: Malleable, shares: np.ndarray) -> list[float]:
    """The same shares, reduced in proportion where a pool has more than its max share.

    Only the part above the min shares is cut. Inner pools are cut first, then the pools that
    contain them.
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
