"""Assignment: which task goes to which free slot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from slotwise.assignment.wide import WideTaskReservations
from slotwise.model.decision import Decision, Launch, Locality
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView


class Assigner(Protocol):
    """Decides which task to launch next; called again until it returns nothing."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions, each valid on its own; empty if there is nothing to launch."""
        ...


Offer = tuple[str, PhaseView, Mapping[str, int]]
"""The kind of slot of a phase, the phase, and hosts with free slots where it may launch."""


def waiting(snapshot: Snapshot, waits: WideTaskReservations | None = None) -> Iterator[Offer]:
    """The phases that may launch on free slots, in order, each with the hosts offered to it.

    First, kind by kind, the phases farthest below their allocation; last, the phases whose pool
    should rather get a slot of another kind. `waits`, if tasks of some phase occupy several
    slots, decides who goes before these and which hosts each phase is offered. A phase is not
    offered hosts where its tasks only fail.
    """
    last = []
    for slot_kind in snapshot.cluster.capacity:
        free = snapshot.free(slot_kind)
        if free or (waits and snapshot.reserved(slot_kind)):
            order = waits.in_order(slot_kind) if waits else snapshot.backlogged(slot_kind)
            for phase in order:
                if phase.may_launch:
                    offered = waits.offered(slot_kind, phase) if waits else free
                    if phase.failures is not None:
                        offered = _without(phase.avoided(snapshot.lost), offered)
                    if not offered:
                        continue
                    if phase.is_limited and phase.yields:
                        last.append((slot_kind, phase, offered))
                    else:
                        yield slot_kind, phase, offered
    yield from last


def _without(avoided: Collection[str], hosts: Mapping[str, int]) -> Mapping[str, int]:
    """The hosts that are not avoided, with their slots."""
    if not avoided:
        return hosts
    return {host: slots for host, slots in hosts.items() if host not in avoided}


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
        return Launch(phase.id, *phase.next_task_for(hosts), Locality.ANY)
    return None
