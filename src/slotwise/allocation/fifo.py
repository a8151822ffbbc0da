"""FIFO: first come, first served."""

from __future__ import annotations

from typing import ClassVar

from slotwise.allocation.grant import grant
from slotwise.allocation.problem import Claims


class Fifo:
    """Jobs get their max shares in order; min shares are ignored (FLEX 4).

    This is the FIFO that the FLEX paper compares with: it keeps the max shares of jobs and
    pools but not their min shares. Jobs are ordered by priority, then by arrival, then by their
    order in the workload. O(J log J).
    """

    reads_work: ClassVar[bool] = False
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = False
    serves_in_turn: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return grant(claims, self.order(claims), min_share=[0.0] * len(claims))

    def order(self, claims: Claims) -> list[int]:
        """The claims in the order in which they are served."""
        return in_turn(claims)


def in_turn(claims: Claims) -> list[int]:
    """The claims by priority, the highest first, then by arrival, then by place. O(J log J)."""
    arrival, priority = claims.arrival, claims.priority
    if len(priority):
        return sorted(range(len(claims)), key=lambda j: (-priority[j], arrival[j]))
    return sorted(range(len(claims)), key=arrival.__getitem__)
