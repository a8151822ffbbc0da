"""FLEX: slots go where they lower the objective most, above everybody's least share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

from slotwise.allocation.packing import grant
from slotwise.allocation.problem import Claims
from slotwise.objective.objective import Objective

Ordering = Callable[[Claims], list[int]]
"""A priority order of the claims, the most urgent first. Ties go by arrival."""


@dataclass(frozen=True, slots=True)
class Flex:
    """The malleable packing scheme in the order that suits the objective (FLEX 3).

    Weighted response: Smith's order, by work over weight, shortest first. It is optimal on one
    slot and close to optimal here; exact optima and the other metrics' schemes are not claimed.
    Only the first interval of the packing is put in force; the next epoch decides anew, with
    better estimates (2.2). O(J log J).
    """

    objective: Objective = field(default_factory=Objective)
    ordering: Ordering | None = None

    reads_work: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return grant(claims, self.priority(claims))

    def priority(self, claims: Claims) -> list[int]:
        """The order in which claims get the slack: `ordering`, or the objective's own."""
        ordering = self.ordering or ORDERINGS[self.objective.penalty, self.objective.aggregate]
        return ordering(claims)


def smith(claims: Claims) -> list[int]:
    """By work over weight: Smith's rule on the squashed area."""
    return _ascending(
        [w / weight for w, weight in zip(claims.work, claims.weight, strict=True)]
    )


def smith_for_stretch(claims: Claims) -> list[int]:
    """Smith's rule with the weight divided by the size of the job."""
    return _ascending(
        [
            work * size / weight
            for work, size, weight in zip(claims.work, claims.size, claims.weight, strict=True)
        ]
    )


def longest_first(claims: Claims) -> list[int]:
    """By the least time that is left alone, longest first: they bound the makespan."""
    return _ascending(
        [-w / max(most, 1e-9) for w, most in zip(claims.work, claims.most, strict=True)]
    )


def shortest_first(claims: Claims) -> list[int]:
    """Smith's rule on the height: by the least time that is left alone over the weight."""
    return _ascending(
        [
            work / (max(most, 1e-9) * weight)
            for work, most, weight in zip(claims.work, claims.most, claims.weight, strict=True)
        ]
    )


def due_for_response(claims: Claims) -> list[int]:
    """Earliest due date, where the due dates give each job the same weighted response."""
    return _due(claims, claims.weight)


def due_for_stretch(claims: Claims) -> list[int]:
    """Earliest due date, where the due dates give each job the same weighted stretch."""
    return _due(
        claims, [weight / size for weight, size in zip(claims.weight, claims.size, strict=True)]
    )


ORDERINGS: Mapping[tuple[str, str], Ordering] = MappingProxyType(
    {
        ("response", "sum"): smith,
        ("response", "max"): due_for_response,
        ("stretch", "sum"): smith_for_stretch,
        ("stretch", "max"): due_for_stretch,
        ("makespan", "max"): longest_first,
    }
)
"""The ordering of each (penalty, aggregate)."""


def _due(claims: Claims, weight: Sequence[float]) -> list[int]:
    # No schedule can beat this common cost: all work on all slots, or one job alone.
    first = min(claims.arrival, default=0.0)
    area = sum(claims.work) / max(claims.capacity, 1)
    level = max(
        max(
            w * work / max(most, 1e-9)
            for w, work, most in zip(weight, claims.work, claims.most, strict=True)
        ),
        area * min(weight),
    )
    return _ascending(
        [at - first + level / w for at, w in zip(claims.arrival, weight, strict=True)]
    )


def _ascending(key: list[float]) -> list[int]:
    return sorted(range(len(key)), key=key.__getitem__)
