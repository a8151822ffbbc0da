"""Assignment: which task goes to which free slot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from slotwise.model.decision import Decision, Launch, Locality
from slotwise.model.snapshot import PhaseView, Snapshot


class Assigner(Protocol):
    """Decides which task to launch next; called again until it returns nothing."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions, each valid on its own; empty if there is nothing to launch."""
        ...


def waiting(snapshot: Snapshot) -> Iterator[tuple[str, PhaseView]]:
    """The phases that may launch on free slots, with the kinds of these slots, in order.

    First, kind by kind, the phases farthest below their allocation; last, the phases whose pool
    should rather get a slot of another kind.
    """
    last = []
    for slot_kind in snapshot.cluster.capacity:
        if snapshot.free(slot_kind):
            for phase in snapshot.backlogged(slot_kind):
                if phase.may_launch:
                    if phase.is_limited and phase.yields:
                        last.append((slot_kind, phase))
                    else:
                        yield slot_kind, phase
    yield from last


def local(phase: PhaseView, hosts: Collection[str]) -> Launch | None:
    """Launch a task of this phase on one of these hosts that holds its input, or on any of them
    if the phase has no preference. Each host has a free slot. O(number of hosts) at worst."""
    found = phase.next_task_on(hosts)
    return Launch(phase.id, *found, Locality.NODE) if found else None


def remote(
    phase: PhaseView, snapshot: Snapshot, hosts: Iterable[str], farthest: Locality
) -> Launch | None:
    """Launch a task on one of these hosts away from its input, in its rack if possible, at most
    as far as `farthest`. None if that is not possible or its tasks are pinned to hosts.
    O(number of hosts) at worst."""
    if phase.is_pinned:
        return None
    if farthest >= Locality.RACK:
        rack_of = snapshot.cluster.rack_of
        for host in hosts:
            found = phase.next_task_in(rack_of[host])
            if found:
                return Launch(phase.id, *found, host, Locality.RACK)
    if farthest >= Locality.ANY:
        return Launch(phase.id, *phase.next_task(), next(iter(hosts)), Locality.ANY)
    return None
