"""Whose turn it is: the order in which those who share slots are served."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotwise.runtime.pool_state import PoolState

Rank = tuple[float, float, int, "ShareNode"]
"""How far somebody is below what he should hold: the least one is served first."""

ROUNDING = 1e-9
"""A sum of shares that lacks no more than this of a whole number is that number."""


def whole(share: float) -> int:
    """The whole slots in a share."""
    return int(share + ROUNDING)


class ShareNode:
    """A phase or a pool that shares slots with its siblings below one parent.

    allocated  slots that it should hold by the last `Reallocate`
    owed       the part of them that it is guaranteed
    running    slots that it holds
    away       those of them on unresponsive hosts: these are neither shared out nor counted
    served     how much service it has had for the size of its allocation
    order      its place among equals
    """

    __slots__ = ("allocated", "away", "order", "owed", "parent", "rank", "running", "served")

    def __init__(self, order: int, parent: PoolState | None) -> None:
        self.order, self.parent = order, parent
        self.allocated = self.owed = self.served = 0.0
        self.running = self.away = 0
        self.rank: Rank | None = None

    def ranked(self) -> Rank:
        """Its place in the order: served first is who holds the least part of what it should.

        Who lacks whole slots of what it is guaranteed comes first, then who lacks whole slots
        of its allocation. Parts of slots go by turns: who has had the least service for the
        size of its allocation is next, so that half a slot is a slot half of the time. Who has
        no allocation comes last, by arrival.
        """
        allocated, running = self.allocated, self.running - self.away
        if allocated <= 0:
            return (inf, self.order, self.order, self)
        held = running / allocated
        if running < int(allocated + ROUNDING):
            held -= 2.0 if running < int(self.owed + ROUNDING) else 1.0
        elif held < 1.0:
            held = 0.0
        return (held, self.served, self.order, self)

    def serve(self, service: float) -> float:
        """Count a launch as service received; the service that others have had by now.

        `service` is what those that won their turns had had. Who comes late, or has had no
        tasks for a while, begins there: it neither pays for the past nor makes up for it.
        """
        if self.allocated <= 0:
            return service
        if self.running - self.away > int(
            self.allocated + ROUNDING
        ):  # It has just won a part of a slot.
            service = max(service, self.served)
        self.served = max(self.served, service) + 1.0 / self.allocated
        return service
