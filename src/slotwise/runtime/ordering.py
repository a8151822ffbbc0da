"""The order in which phases and pools that share slots are served."""

from __future__ import annotations

from math import inf

from slotwise.allocation.tolerances import SLOTS

STARVING = 3.0
"""Puts starving shares before all others: other ranks are at least -2."""

Rank = tuple[float, float, int, "ShareNode"]
"""How far a node is below the slots that it should hold: the smallest is served first."""


def whole(share: float) -> int:
    """The whole slots in a share."""
    return int(share + SLOTS)


class ShareNode:
    """A phase or a pool that shares slots with its siblings in one pool.

    allocated  slots that it should hold according to the last `Reallocate`
    owed       the guaranteed part of them
    running    slots that it holds
    away       slots that it holds on unresponsive hosts; they are not shared or counted
    unit       slots that it takes at once: those of a task or of a gang; 1 for a pool
    served     the service that it has received, relative to its allocation
    starving   shares of pools that are starving among itself and those below it; 0 for a phase
    order      breaks ties

    `units_allocated` and `units_owed` are the slots of whole units in `allocated` and `owed`;
    `count_units` computes them after each change of these.
    """

    __slots__ = (
        *("allocated", "away", "order", "owed", "rank", "running", "served"),
        *("starving", "unit", "units_allocated", "units_owed"),
    )

    def __init__(self, order: int, unit: int = 1) -> None:
        self.order, self.unit = order, unit
        self.allocated = self.owed = self.served = 0.0
        self.running = self.away = self.starving = 0
        self.units_allocated = self.units_owed = 0
        self.rank: Rank | None = None

    def ranked(self) -> Rank:
        """Its key in the order: the node that holds the smallest part of its allocation first.

        Nodes that lack whole slots of their guarantee come first, then nodes that lack whole
        slots of their allocation. Fractions of slots go by turns: next is the node with the
        least service relative to its allocation, so that half a slot is a slot half of the
        time. Nodes without an allocation come last, by arrival. For a phase of wide tasks, the
        slots of a task take the place of one slot; for a gang, those of all its tasks.

        Shares that are starving, or contain such, come before all others: so the slots taken
        back for them do not go to shares that also lack some.
        """
        allocated, running = self.allocated, self.running - self.away
        if allocated <= 0:
            return (inf, self.order, self.order, self)
        held = running / allocated
        if running < self.units_allocated:
            held -= 2.0 if running < self.units_owed else 1.0
        elif held < 1.0:
            held = 0.0
        if self.starving:
            held -= STARVING
        return (held, self.served, self.order, self)

    def count_units(self) -> None:
        """Find the slots of whole units in its allocation and in the guaranteed part."""
        unit, owed = self.unit, self.owed
        if unit == 1:
            self.units_allocated = int(self.allocated + SLOTS)
            self.units_owed = int(owed + SLOTS) if owed else 0
        else:
            self.units_allocated = int(self.allocated / unit + SLOTS) * unit
            self.units_owed = int(owed / unit + SLOTS) * unit

    def serve(self, service: float, slots: int) -> float:
        """Count the slots of a launch as service received. The service level of siblings.

        `service` is the level at which siblings last won a turn. A node that arrives late, or
        had no tasks for a while, starts at this level, without credit or debt from the past.
        """
        allocated, served = self.allocated, self.served
        if allocated <= 0:
            return service
        if served > service:
            if self.running - self.away > self.units_allocated:
                service = served  # It has just won the turn for a fraction of a slot or unit.
        else:
            served = service
        self.served = served + slots / allocated
        return service
