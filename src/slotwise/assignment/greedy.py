"""Greedy assignment: the phase farthest below its allocation takes the best free slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slotwise.assignment.assigner import local, remote, waiting
from slotwise.assignment.together import Together, near_first
from slotwise.assignment.wide import WideTaskReservations
from slotwise.model.decision import Decision, Locality
from slotwise.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Greedy:
    """The phase farthest below its allocation launches on a node with its input, otherwise in
    its rack, otherwise anywhere. Wide tasks and gangs may wait for slots
    (`WideTaskReservations`). `together` places the tasks of a gang."""

    together: Together = field(default=near_first, repr=False)

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next launch, if a slot is free and a phase may use it."""
        waits = WideTaskReservations(snapshot) if snapshot.has_wide else None
        for _, phase, free in waiting(snapshot, waits):
            if phase.is_gang:
                if gang := self.together(snapshot, phase, free, Locality.ANY):
                    return gang
                continue
            launch = local(phase, free) or remote(phase, snapshot, free, Locality.ANY)
            if launch is not None:  # None if its tasks must run on other hosts.
                return (launch,)
        return waits.defer() if waits else ()
