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
    """A phase, a job or a pool that shares slots with its siblings in one pool, or job.

    allocated  slots that it should hold according to the last `Reallocate`
    owed       the guaranteed part of them
    running    slots that it holds
    away       slots that it holds on unresponsive hosts; they are not shared or counted
    weight     of a pool among its siblings; 0 for others
    urgency    of a phase, where phases are served in turn: the smallest first
    unit       slots that it takes at once: those of a task or of a gang; 1 for a pool
    served     the service that it has received, relative to its allocation
    starving   shares of pools that are starving among itself and those below it; 0 for a phase
    order      breaks ties

    `units_allocated` and `units_owed` are the slots of whole units in `allocated` and `owed`;
    `count_units` computes them after each change of these.
    """

    __slots__ = (
        *("allocated", "slots_on_lost_hosts", "order", "owed", "rank", "running", "served"),
        *("starving", "unit", "units_allocated", "units_owed", "urgency", "weight"),
    )

    is_group = False
    """Whether it has children."""

    def __init__(self, order: int, unit: int = 1) -> None:
        self.order, self.unit = order, unit
        self.allocated = self.owed = self.served = 0.0
        self.running = self.slots_on_lost_hosts = self.starving = 0
        self.units_allocated = self.units_owed = 0
        self.weight = self.urgency = 0.0
        self.rank: Rank | None = None

    def ranked(self, in_turn: bool = False) -> Rank:
        """Its key in the order: the smallest is served first.

        Nodes that lack whole slots of their guarantee come first, by the part of it that they
        hold. Then come nodes that lack whole slots of their allocation: pools by held slots
        over weight, as in the Hadoop Fair Scheduler, jobs and phases by the part that they
        hold. Fractions of slots go by turns: next is the node with the least service relative
        to its allocation, so that half a slot is a slot half of the time. Nodes without an
        allocation come last, by arrival. For a phase of wide tasks, the slots of a task take
        the place of one slot; for a gang, those of all its tasks.

        Phases that are served `in_turn` come by urgency, then by arrival, in each of these
        three sets: those that lack whole slots of their guarantee, those that lack whole slots
        of their allocation, and the others.

        Shares that are starving, or contain such, come before all others: so the slots taken
        back for them do not go to shares that also lack some.
        """
        allocated, running = self.allocated, self.running - self.slots_on_lost_hosts
        is_lacking = running < self.units_allocated
        if in_turn:
            level = 0.0 if not is_lacking else -2.0 if running < self.units_owed else -1.0
            return (level, self.urgency, self.order, self)
        if allocated <= 0:
            return (inf, self.order, self.order, self)
        if not is_lacking:
            level = running / allocated
            if level < 1.0:
                level = 0.0
        elif running < self.units_owed:
            level = running / self.owed - 2.0
        elif weight := self.weight:
            level = -weight / (weight + running)  # From -1 to 0, as held over weight grows.
        else:
            level = running / allocated - 1.0
        if self.starving:
            level -= STARVING
        return (level, self.served, self.order, self)

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
            if self.running - self.slots_on_lost_hosts > self.units_allocated:
                service = served  # It has just won the turn for a fraction of a slot or unit.
        else:
            served = service
        self.served = served + slots / allocated
        return service
