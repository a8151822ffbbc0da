"""Preemption: pools that have been below their shares for too long take slots back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from slotwise.assignment.victims import Victim, Victims
from slotwise.assignment.wide import Waits, path_of, places, slots_stopping
from slotwise.model.decision import Preempt
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView, PoolView


def preempt(snapshot: Snapshot) -> Sequence[Preempt]:
    """The tasks to stop now for overdue pools; usually none.

    A pool is overdue if it has been below its min share, or below a part of its share, for
    longer than its timeout. It takes at most what it lacks. Tasks that were already asked to
    stop for it count. Slots that became free have gone to it before, so this is called when no
    more tasks can be launched. The newest tasks are stopped, from pools that hold more than
    their share, and no such pool drops below the whole slots of its share. If the taker lies in
    a pool that holds its max share, tasks come from within that pool. If that max share is for
    several kinds of slots, they may be of another kind there, together with as many tasks of
    the wanted kind from elsewhere. Tasks on unresponsive hosts are never stopped, since their
    slots cannot be used. Source: Hadoop Fair Scheduler (HADOOP-4665); the soft kill is from
    Hammr (5.2).

    Slots for a task that occupies several are taken on one host, together with those that are
    free there, and only for as many whole tasks as fit into what is missing. Slots for a gang
    are taken for all of its tasks together, if they fit into what is missing. None are taken
    for tasks that must leave room to such a phase, nor on hosts that it keeps. A stopped task
    frees all of its slots, which may be more than are missing. Gangs are stopped as a whole,
    after other tasks.

    Each call serves one pool; the next call sees its decisions. O(running tasks) if a pool
    takes something, otherwise O(overdue pools).
    """
    for slot_kind in snapshot.cluster.capacity:
        overdue = snapshot.overdue(slot_kind)
        if not overdue:
            continue
        for taker in sorted(overdue, key=_depth, reverse=True):
            missing = taker.missing(snapshot.now)
            if missing > 0:
                take = _take_in_turn if snapshot.has_wide else _take
                if taken := take(snapshot, slot_kind, taker, missing):
                    return taken
    return ()


def _take(
    snapshot: Snapshot,
    slot_kind: str,
    taker: PoolView,
    missing: int,
    spared: Collection[str] = (),
) -> Sequence[Preempt]:
    """Stop tasks with `missing` slots; with fewer if no pool can spare that many.

    spared  hosts on which none is stopped
    """
    above = list(path_of(taker))
    full = next((pool for pool in above if pool.is_full), None)
    victims = Victims(snapshot, {pool.key for pool in above}, spared)
    taken = victims.take(slot_kind, full, missing)
    missing -= _slots(taken)
    if full is not None and full.of_other_kinds and missing > 0:
        # Its max share is for several kinds: stopping tasks of other kinds makes room in it,
        # and slots of this kind come from elsewhere.
        room = [
            victim
            for other in full.of_other_kinds
            for victim in victims.take(other.slot_kind, other, missing)
        ]
        room = _first_with(room, missing)
        free = sum(snapshot.free(slot_kind).values())
        slots = victims.take(slot_kind, None, _slots(room) - free)
        taken += [*_first_with(room, free + _slots(slots)), *slots]
    return _stop(snapshot, taker, taken)


def _take_in_turn(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, missing: int
) -> Sequence[Preempt]:
    """Stop tasks for the next phase of a pool that can use their slots."""
    # Phases of overdue pools wait for no slots near their input, so only these waits matter.
    waits, coming = Waits(snapshot), taker.coming
    for phase in taker.walk():
        room = phase.max_share - phase.running
        if phase.is_pinned or room < phase.unit or waits.is_barred(phase):
            continue  # No slot is taken back for it, or it could not use one.
        if phase.is_gang and phase.running:
            continue  # It is broken, and its own tasks stop.
        count = min(phase.pending, room) if phase.unit == 1 else phase.unit
        if phase.unit == 1:
            kept = waits.kept_from(phase)
            taken = _take(snapshot, slot_kind, taker, min(count - coming, missing), kept)
        elif phase.is_gang:
            taken, claimed = _take_for_gang(snapshot, slot_kind, taker, phase, missing)
            missing -= claimed
        else:
            taken = _take_on_one_host(snapshot, slot_kind, taker, phase.width, missing)
        if taken:
            return taken
        coming = max(0, coming - count)  # It uses them before the next phase.
    return ()


def _take_for_gang(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, phase: PhaseView, missing: int
) -> tuple[Sequence[Preempt], int]:
    """Stop tasks so that all tasks of a gang have room, or none.

    If there is room when the tasks that were asked to stop have ended, none is stopped. The
    other number is then the slots that the gang will take of those which are missing.
    """
    above = list(path_of(taker))
    full = next((pool for pool in above if pool.room < phase.unit), None)
    free, stopping = snapshot.free(slot_kind), slots_stopping(snapshot, slot_kind)
    coming = {
        host.name: free.get(host.name, 0) + stopping[host.name]
        for host in snapshot.cluster.hosts
        if host.name not in snapshot.lost and host.slots.get(slot_kind, 0) >= phase.width
    }
    if places(phase, coming.values()) >= phase.pending:
        return (), max(0, phase.unit - sum(stopping.values()))
    if missing < phase.unit:
        return (), 0
    victims = Victims(snapshot, {pool.key for pool in above})
    return _stop(snapshot, taker, victims.for_gang(slot_kind, full, coming, phase)), 0


def _take_on_one_host(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, width: int, missing: int
) -> Sequence[Preempt]:
    """Stop tasks on the host where a task of this width needs the fewest slots from others."""
    above = list(path_of(taker))
    full = next((pool for pool in above if pool.room < width), None)
    victims = Victims(snapshot, {pool.key for pool in above})
    free, stopping = snapshot.free(slot_kind), slots_stopping(snapshot, slot_kind)
    lacks: dict[str, int] = {}
    for host in snapshot.cluster.hosts:
        if host.name not in snapshot.lost and host.slots.get(slot_kind, 0) >= width:
            coming = stopping[host.name]
            lacks[host.name] = width - free.get(host.name, 0) - coming
            if lacks[host.name] <= 0:  # A task of the pool will run there.
                missing -= max(0, width - coming)
    if missing < width:
        return ()
    found = victims.by_host(slot_kind, full, lacks)
    order = sorted(found, key=lambda host: (lacks[host], snapshot.cluster.position[host]))
    return _stop(snapshot, taker, found[order[0]]) if order else ()


def _stop(snapshot: Snapshot, taker: PoolView, victims: Sequence[Victim]) -> Sequence[Preempt]:
    preemption = snapshot.pools.preemption(taker.name)
    assert preemption is not None
    until = snapshot.now + preemption.grace if preemption.grace > 0 else None
    return [
        Preempt(a.phase, a.task, a.attempt, a.host, until, taker.name)
        for victim in victims
        for a in victim.launches
    ]


def _slots(victims: Iterable[Victim]) -> int:
    return sum(victim.slots for victim in victims)


def _first_with(victims: Sequence[Victim], slots: int) -> list[Victim]:
    """The first of these that have this number of slots together, or all."""
    found: list[Victim] = []
    for victim in victims:
        if slots <= 0:
            break
        found.append(victim)
        slots -= victim.slots
    return found


def _depth(pool: PoolView) -> int:
    return sum(1 for _ in path_of(pool))
