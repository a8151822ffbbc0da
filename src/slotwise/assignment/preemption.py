"""Preemption: pools that have been below their shares for too long take slots back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from slotwise.model.decision import Launch, Preempt
from slotwise.model.pool_tree import ShareKey
from slotwise.model.snapshot import PhaseView, PoolView, Snapshot


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

    Each call serves one pool; the next call sees its decisions. O(running tasks) if a pool
    takes something, otherwise O(overdue pools).
    """
    for slot_kind in snapshot.cluster.capacity:
        overdue = snapshot.overdue(slot_kind)
        if not overdue:
            continue
        for taker in sorted(overdue, key=_depth, reverse=True):
            missing = taker.missing(snapshot.now)
            if missing > 0 and (taken := _take(snapshot, slot_kind, taker, missing)):
                return taken
    return ()


def _take(
    snapshot: Snapshot, slot_kind: str, taker: PoolView, missing: int
) -> Sequence[Preempt]:
    """Stop up to `missing` tasks; fewer if no pool can spare that many."""
    preemption = snapshot.pools.preemption(taker.name)
    assert preemption is not None
    until = snapshot.now + preemption.grace if preemption.grace > 0 else None
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
    return [Preempt(a.phase, a.task, a.attempt, a.host, until, taker.name) for a in taken]


class _Victims:
    """Running tasks that can be stopped for a pool.

    above  the keys of this pool and of the pools that contain it: nothing is taken from these,
           on any kind of slot
    """

    def __init__(self, snapshot: Snapshot, above: Collection[ShareKey]) -> None:
        self._snapshot, self._above = snapshot, above
        self._taken_from: Counter[PoolView] = Counter()

    def take(self, slot_kind: str, within: PoolView | None, count_max: int) -> list[Launch]:
        """Up to `count_max` more of them on a kind of slot, within a pool if one is given."""
        return list(islice(self._find(slot_kind, within), max(0, count_max)))

    def _find(self, slot_kind: str, within: PoolView | None) -> Iterator[Launch]:
        for phase, launch in _newest_first(self._snapshot.ready(slot_kind)):
            if launch.host in self._snapshot.lost:
                continue
            # Moving slots within a pool that contains the taker does not change that pool.
            path = list(_path(phase.pool))
            giving = [pool for pool in path if pool.key not in self._above]
            if within is not None and within not in path:
                continue
            if not giving or any(pool.spare() <= self._taken_from[pool] for pool in giving):
                continue
            self._taken_from.update(giving)
            yield launch


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
        if left[phase.id] > phase.phase.slots_min:
            left[phase.id] -= 1
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
