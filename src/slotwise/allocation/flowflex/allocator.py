"""FlowFlex as an allocator: plans all flows again, applies the first allocation (5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from slotwise.allocation.flowflex.jobs import FlowsLeft, flows_left
from slotwise.allocation.flowflex.solve import Method, solve
from slotwise.allocation.grant import grant
from slotwise.allocation.measuring import with_measuring
from slotwise.allocation.problem import Claims
from slotwise.allocation.search.budget import Budget
from slotwise.model.errors import check_installed
from slotwise.objective.costs import Ints
from slotwise.objective.objective import Objective

STEP_SECONDS = 3e-6
"""The approximate time of a list schedule per phase. It converts a budget in seconds into one
in steps, so that the same run is decided in the same way on every machine."""

BUDGET_SECONDS = 0.005
"""For search at each decision: a hundredth of the usual epoch."""


@dataclass(frozen=True, slots=True)
class FlowFlex:
    """Plans whole jobs, including phases that are not ready yet, and grants slots by the plan.

    The plan is the best list schedule of the flows. Ready phases get slots in its order, within
    the min and max shares of phases and pools. MissingExtraError at construction if the
    minimum cost flow is needed and OR-Tools (extra `flow`) is missing.

    method          "fast": without the minimum cost flow; "paper": without our search
    budget_seconds  for the search; converted into steps by `STEP_SECONDS`
    """

    objective: Objective = field(default_factory=Objective)
    method: Method = "best"
    budget_seconds: float | None = None

    reads_work: ClassVar[bool] = True
    phase_seconds: ClassVar[float] = 3e-4
    keeps_min_shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.method != "fast" and self.objective.aggregate == "sum":
            check_installed("ortools", "flowflex for a sum (unlike flowflex-fast)", "flow")

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim if no phase is ready on other kinds of slots."""
        (_, phase), *_ = claims.owner
        kind = claims.cluster.slot_kind(phase.kind)
        return self.share_all({kind: claims})[kind]

    def share_all(self, claims: Mapping[str, Claims]) -> dict[str, list[float]]:
        """Slots for each claim on each kind of slot."""
        claims = {kind: with_measuring(of_kind) for kind, of_kind in claims.items()}
        if not any(_compete(of_kind) for of_kind in claims.values()):
            # The result does not depend on the plan.
            return {
                kind: grant(of_kind, range(len(of_kind))) for kind, of_kind in claims.items()
            }
        left = flows_left(claims, self.objective)
        seconds = BUDGET_SECONDS if self.budget_seconds is None else self.budget_seconds
        budget = Budget(seconds / (STEP_SECONDS * len(left.flows.work)))
        solution = solve(left.flows, budget, self.method, listed=True)
        order = _order(left, solution.ranking, claims)
        return {kind: grant(of_kind, order[kind]) for kind, of_kind in claims.items()}


def _compete(claims: Claims) -> bool:
    """Whether the slots of a claim can depend on the order in which slots are granted."""
    is_limited = any(group.slots_max < inf for group in claims.groups)
    return len(claims) > 1 and (is_limited or sum(claims.max_share) > claims.capacity)


def _order(
    left: FlowsLeft, ranking: Ints, claims: Mapping[str, Claims]
) -> dict[str, list[int]]:
    """The claims on each kind of slot in order of the ranking."""
    order: dict[str, list[int]] = {kind: [] for kind in claims}
    for phase in ranking.tolist():
        for place in left.places[phase]:
            order[place.kind].append(place.number)
    return order
