"""Preemption: pools that have been below their shares for too long take slots back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from slotwise.assignment.wide import slots_stopping
from slotwise.model.decision import Launch, Preempt
from slotwise.model.pool_tree import ShareKey
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
    free there, and only for as many whole tasks as fit into what is missing. A stopped task
    frees all of its slots, which may be more than are missing.

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
    snapshot: Snapshot, slot_kind: str, taker: PoolView, missing: int
) -> Sequence[Preempt]:
    """Stop tasks with `missing` slots; with fewer if no pool can spare that many."""
    above = list(_path(taker))
    full = next((pool for pool in above if pool.is_full), None)
    victims = _Victims(snapshot, {pool.key for pool in above})
    taken = victims.take(slot_kind, full, missing)
    if full is not None and full.of_other_kinds and len(taken) < missing:
        # Its max share is for several kinds: stopping tasks of other kinds makes room in it,
        # and slots of this kind come from elsewhere.
        room = [
            launch
            for other in full.of_other_kinds
            for launch in victims.take(other.slot_kind, other, missing - len(taken))
        ][: missing - len(taken)]
        free = sum(snapshot.free(slot_kind).values())
        slots = victims.take(slot_kind, None, len(room) - free)
        taken += [*room[: free + len(slots)], *slots]
    return _stop(snapshot, taker, taken)


def _take_in_turn(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, missing: int
) -> Sequence[Preempt]:
    """Stop tasks for the next phase of a pool that can use their slots."""
    narrow = 0
    for phase in taker.walk():
        if phase.is_pinned:
            continue  # No slot is taken back for it.
        if phase.width == 1:
            narrow += phase.pending
        elif taken := _take_on_one_host(snapshot, slot_kind, taker, phase.width, missing):
            return taken
        if narrow:
            break
    return _take(snapshot, slot_kind, taker, min(narrow, missing))


def _take_on_one_host(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, width: int, missing: int
) -> Sequence[Preempt]:
    """Stop tasks on the host where a task of this width needs the fewest slots from others."""
    above = list(_path(taker))
    full = next((pool for pool in above if pool.room < width), None)
    victims = _Victims(snapshot, {pool.key for pool in above})
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


def _stop(snapshot: Snapshot, taker: PoolView, launches: Sequence[Launch]) -> Sequence[Preempt]:
    preemption = snapshot.pools.preemption(taker.name)
    assert preemption is not None
    until = snapshot.now + preemption.grace if preemption.grace > 0 else None
    return [Preempt(a.phase, a.task, a.attempt, a.host, until, taker.name) for a in launches]


class _Victims:
    """Running tasks that can be stopped for a pool.

    above  the keys of this pool and of the pools that contain it: nothing is taken from these,
           on any kind of slot
    """

    def __init__(self, snapshot: Snapshot, above: Collection[ShareKey]) -> None:
        self._snapshot, self._above = snapshot, above
        self._taken_from: Counter[PoolView] = Counter()

    def take(self, slot_kind: str, within: PoolView | None, slots_max: int) -> list[Launch]:
        """More of them, with `slots_max` slots of a kind, within a pool if one is given."""
        taken: list[Launch] = []
        for phase, launch, giving in self._find(slot_kind, within) if slots_max > 0 else ():
            if self._can_give(giving, phase.width, self._taken_from):
                self._taken_from.update(dict.fromkeys(giving, phase.width))
                taken.append(launch)
                slots_max -= phase.width
                if slots_max <= 0:
                    break
        return taken

    def by_host(
        self, slot_kind: str, within: PoolView | None, lacks: Mapping[str, int]
    ) -> dict[str, list[Launch]]:
        """For each host that lacks slots, those with enough slots there; without others."""
        left = {host: slots for host, slots in lacks.items() if slots > 0}
        taken: dict[str, list[Launch]] = {host: [] for host in left}
        taken_from: dict[str, Counter[PoolView]] = {host: Counter() for host in left}
        for phase, launch, giving in self._find(slot_kind, within):
            host = launch.host
            if left.get(host, 0) > 0 and self._can_give(giving, phase.width, taken_from[host]):
                taken_from[host].update(dict.fromkeys(giving, phase.width))
                taken[host].append(launch)
                left[host] -= phase.width
        return {host: launches for host, launches in taken.items() if left[host] <= 0}

    def _find(
        self, slot_kind: str, within: PoolView | None
    ) -> Iterator[tuple[PhaseView, Launch, Sequence[PoolView]]]:
        """The tasks on responsive hosts, each with the pools whose slots it gives."""
        for phase, launch in _newest_first(self._snapshot.ready(slot_kind)):
            if launch.host in self._snapshot.lost:
                continue
            # Moving slots within a pool that contains the taker does not change that pool.
            path = list(_path(phase.pool))
            giving = [pool for pool in path if pool.key not in self._above]
            if giving and (within is None or within in path):
                yield phase, launch, giving

    def _can_give(
        self, giving: Sequence[PoolView], slots: int, taken_from: Mapping[PoolView, int]
    ) -> bool:
        """Whether none of these pools drops below its share without these slots."""
        return all(pool.spare() >= taken_from[pool] + slots for pool in giving)


def _newest_first(phases: Sequence[PhaseView]) -> Iterator[tuple[PhaseView, Launch]]:
    """All running attempts, the newest first; those on guaranteed slots last.

    A job's own min share is spared as long as other tasks can be stopped.
    """
    running = [
        (phase, started, launch) for phase in phases for started, launch in phase.attempts()
    ]
    running.sort(key=lambda item: (-item[1], -item[0].order, -item[2].task))
    left = {phase.id: phase.running - phase.away for phase in phases}
    spared = []
    for phase, _, launch in running:
        if left[phase.id] - phase.width >= phase.phase.slots_min:
            left[phase.id] -= phase.width
            yield phase, launch
        else:
            spared.append((phase, launch))
    yield from spared


def _path(pool: PoolView | None) -> Iterator[PoolView]:
    while pool is not None:
        yield pool
        pool = pool.parent


def _depth(pool: PoolView) -> int:
    return sum(1 for _ in _path(pool))
