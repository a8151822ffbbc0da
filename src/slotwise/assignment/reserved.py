"""Slots that were taken back for a pool: they are kept for it until it launches in them.

When a task has ended that was asked to stop for a pool, its slots are reserved for the pool, as
the `Preempt` says. They are free for its phases only, so that others which also lack slots do
not get them, and it takes back no more than it lacks. Its phases of narrow tasks are launched
in them at once; wide tasks and gangs wait until they have all of their slots
(`wide.WideTaskReservations`). What the pool does not need, or cannot use, is released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from slotwise.assignment.assigner import local, remote
from slotwise.assignment.wide import (
    WideTaskReservations,
    coming_to,
    path_of,
    places,
    reserved_for,
)
from slotwise.model.decision import Decision, Locality, Release
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView, PoolView


def serve_reserved(snapshot: Snapshot) -> Sequence[Decision]:
    """The next launch of a narrow task in reserved slots, or a release; empty without these.

    A pool whose min share is overdue comes before the others. What stays reserved will be used
    by a pool when slots or room come that tasks will free which were asked to stop, or by a
    phase that keeps the host. O(reserved slots + phases below their pools).
    """
    kinds = [kind for kind in snapshot.cluster.capacity if snapshot.reserved(kind)]
    if not kinds:
        return ()
    waits = WideTaskReservations(snapshot) if snapshot.has_wide else None
    for kind in kinds:
        for phase in _narrow(snapshot, kind):
            if hosts := _hosts_for(snapshot, kind, phase, waits):
                found = local(phase, hosts) or remote(phase, snapshot, hosts, Locality.ANY)
                if found is not None:
                    return (found,)
    return next(([one] for kind in kinds for one in _releases(snapshot, kind, waits)), ())


def _narrow(snapshot: Snapshot, slot_kind: str) -> Iterator[PhaseView]:
    """The phases of narrow tasks that may launch in reserved slots, in the order of service."""
    first = [p for p in snapshot.overdue(slot_kind) if p.missing_least(snapshot.now) > 0]
    takers = [pool for by_pool in snapshot.reserved(slot_kind).values() for pool in by_pool]
    for pool in dict.fromkeys((*first, *takers)):
        for phase in pool.walk():
            if phase.unit == 1 and phase.may_launch:
                yield phase


def _hosts_for(
    snapshot: Snapshot, slot_kind: str, phase: PhaseView, waits: WideTaskReservations | None
) -> Mapping[str, int]:
    """The hosts with slots reserved for a phase where its tasks may begin."""
    if waits is not None and waits.is_barred(phase):
        return {}
    avoided = phase.avoided(snapshot.lost)
    found: dict[str, int] = {}
    for host in snapshot.reserved(slot_kind):
        keeper = waits.keeper(phase, host) if waits else None
        if host not in avoided and (slots := reserved_for(snapshot, phase, host, keeper)):
            found[host] = slots
    return found


def _releases(
    snapshot: Snapshot, slot_kind: str, waits: WideTaskReservations | None
) -> Iterator[Release]:
    """What cannot be used where it is, then what is more than a pool lacks."""
    reserved = snapshot.reserved(slot_kind)
    for host, by_pool in reserved.items():
        for pool, slots in by_pool.items():
            if not any(_will_use(snapshot, phase, host, waits) for phase in pool.walk()):
                yield Release(*pool.key, slot_kind, host, slots)
    total: Counter[PoolView] = Counter()
    for by_pool in reserved.values():
        for pool, slots in by_pool.items():
            total.update(dict.fromkeys(path_of(pool), slots))
    for host, by_pool in reserved.items():
        for pool, slots in by_pool.items():
            if (more := total[pool] - max(0, pool.lacks)) > 0:
                yield Release(*pool.key, slot_kind, host, min(more, slots))


def _will_use(
    snapshot: Snapshot, phase: PhaseView, host: str, waits: WideTaskReservations | None
) -> bool:
    """Whether a phase will launch in slots of a host that are reserved for one of its pools.

    It could not now: it waits for tasks to end, for their room in its pools or their slots.
    """
    room = min(pool.room_later for pool in path_of(phase.pool))
    if phase.max_share - phase.running < phase.unit or room < phase.unit:
        return False
    if phase.unit == 1:
        is_anywhere = not phase.is_pinned and host not in phase.avoided(snapshot.lost)
        return is_anywhere and not phase.may_launch
    if phase.is_gang and phase.running:
        return False
    assert waits is not None, "it is known that there are such phases"
    if waits.keeps(phase, host):
        return True
    coming = coming_to(snapshot, phase)
    if coming[host] < phase.width:
        return False
    return not phase.is_gang or places(phase, coming.values()) >= phase.pending
