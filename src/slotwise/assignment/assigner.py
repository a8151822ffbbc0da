"""Assignment: which task goes to which free slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slotwise.model.decision import Decision, Launch, Locality
from slotwise.model.snapshot import PhaseView, Snapshot


class Assigner(Protocol):
    """Says which task to launch next; asked again until it has nothing more to say."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions, each good on its own; empty when nothing is to be launched."""
        ...


def nearest(
    phase: PhaseView, snapshot: Snapshot, slot_kind: str, farthest: Locality
) -> Launch | None:
    """Launch a task of this phase on a free host: on a node that holds its input, else in the
    rack, else anywhere, but not farther than `farthest`. O(number of free hosts) at worst."""
    free = snapshot.free(slot_kind)
    if not phase.has_homes:
        task, attempt = phase.next_task()
        return Launch(phase.id, task, attempt, next(iter(free)), Locality.NODE)
    for host in free:
        found = phase.next_task_on(host)
        if found:
            return Launch(phase.id, *found, host, Locality.NODE)
    if farthest >= Locality.RACK:
        rack_of = snapshot.cluster.rack_of
        for host in free:
            found = phase.next_task_in(rack_of[host])
            if found:
                return Launch(phase.id, *found, host, Locality.RACK)
    if farthest >= Locality.ANY:
        return Launch(phase.id, *phase.next_task(), next(iter(free)), Locality.ANY)
    return None
