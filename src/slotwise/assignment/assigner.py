"""Assignment: which task goes to which free slot."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from slotwise.model.decision import Decision, Launch, Locality
from slotwise.model.snapshot import PhaseView, Snapshot


class Assigner(Protocol):
    """Says which task to launch next; asked again until it has nothing more to say."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions, each good on its own; empty when nothing is to be launched."""
        ...


def waiting(snapshot: Snapshot) -> Iterator[tuple[str, PhaseView]]:
    """The phases that may launch on slots that are free, with their kinds, in order.

    First kind by kind those that lack most; behind them those whose pool should rather have a
    slot of another kind.
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
    """Launch a task of this phase on one of these hosts, each of which has a free slot, that
    holds its input; on any of them if the phase does not mind. O(number of hosts) at worst."""
    found = phase.next_task_on(hosts)
    return Launch(phase.id, *found, Locality.NODE) if found else None


def remote(
    phase: PhaseView, snapshot: Snapshot, hosts: Iterable[str], farthest: Locality
) -> Launch | None:
    """Launch a task on one of these hosts away from its input, in the rack if that can be, but
    not farther than `farthest`. None where it can run on hosts of its own only. O(number of
    hosts) at worst."""
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
