"""FIFO: first come, first served."""

from __future__ import annotations

from typing import ClassVar

from slotwise.allocation.grant import grant
from slotwise.allocation.problem import Claims


class Fifo:
    """Jobs get their most share in order of arrival; least shares are ignored (FLEX 4).

    This is the FIFO that the FLEX paper compares with: it takes most shares into account but
    no least shares. Among jobs of one instant the order of the workload counts. O(J log J).
    """

    reads_work: ClassVar[bool] = False
    keeps_least: ClassVar[bool] = False

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        order = sorted(range(len(claims)), key=lambda j: claims.arrival[j])
        return grant(claims, order, least=[0.0] * len(claims))
