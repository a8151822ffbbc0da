"""The most of a resource beside slots that the tasks of a pool hold together, during a run."""

from __future__ import annotations

from math import inf
from typing import Protocol

from slotwise.core.resources import Resources


class Taker(Protocol):
    """A phase as a limit sees it."""

    needs: Resources
    unit: int
    width: int


class ResourceLimit:
    """The most of one resource for a pool and all pools below it, on all kinds of slots.

    What tasks on unresponsive hosts hold counts, as for a max share.

    most      the amount that is never exceeded
    held      what running tasks hold
    lost      the part of it on unresponsive hosts
    stopping  the part of it, on the other hosts, of tasks that were asked to stop
    excess    what was held when hosts or pools last changed: up to this it may hold more
    """

    __slots__ = ("excess", "held", "lost", "most", "name", "pool", "stopping")

    def __init__(self, pool: str, name: str, most: int) -> None:
        self.pool, self.name, self.most = pool, name, most
        self.held = self.lost = self.stopping = self.excess = 0

    @property
    def room_later(self) -> int:
        """What is left of it when all tasks that were asked to stop have ended."""
        return self.most - self.held + self.stopping

    def taken_by(self, phase: Taker) -> int:
        """What the next task of a phase takes of it, or its gang."""
        return phase.needs.get(self.name, 0) * (phase.unit // phase.width)

    def slots_for(self, phase: Taker, taken: int = 0) -> float:
        """The further slots that a phase may hold when `taken` more of it is held."""
        amount = phase.needs.get(self.name, 0)
        if not amount:
            return inf
        return max(0, self.most - self.held - taken) // amount * phase.width
