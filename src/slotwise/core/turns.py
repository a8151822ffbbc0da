"""The order in which phases would get free slots, found in advance without any change.

Each turn goes to the phase that is served next after the turns before it. The nodes of the
tree of pools are copied when a turn comes to them, so k turns cost O(k log k) for each level
of pools, whatever the number of phases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import NamedTuple

from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import GroupNode, PoolState, Rank, ShareNode, whole


class LaunchOrder(NamedTuple):
    """The phases that get the next free slots, one task each, in this order.

    `is_cut` if further turns are not known before these launches are applied.
    """

    phases: Sequence[PhaseState]
    is_cut: bool


class _Ahead(ShareNode):
    """A phase, a job or a pool as it will be after some turns."""

    __slots__ = ("is_starving", "node")

    def __init__(self, node: ShareNode) -> None:
        super().__init__(node.order, node.unit)
        self.allocated, self.owed, self.served = node.allocated, node.owed, node.served
        self.units_allocated, self.units_owed = node.units_allocated, node.units_owed
        self.running, self.slots_on_lost_hosts = node.running, node.slots_on_lost_hosts
        self.weight, self.urgency = node.weight, node.urgency
        self.node, self.is_starving = node, False


class _PhaseAhead(_Ahead):
    """A phase with the number of tasks that it still launches."""

    __slots__ = ("left", "phase")

    def __init__(self, phase: PhaseState, most: int) -> None:
        assert isinstance(phase, ShareNode)
        super().__init__(phase)
        self.phase = phase
        room = (phase.max_share - phase.running) // phase.unit
        self.left = min(most, phase.pending, room)


class _GroupAhead(_Ahead):
    """A pool or a job with its children: a heap of those that had turns, and the others."""

    __slots__ = ("group", "had_turns", "next", "rest", "service")

    def __init__(self, group: GroupNode) -> None:
        super().__init__(group)
        self.group, self.service = group, group.service
        self.starving = group.starving
        self.is_starving = isinstance(group, PoolState) and group.is_starving
        self.had_turns: list[Rank] = []
        self.rest = iter(group.backlogged)
        self.next = next(self.rest, None)

    @property
    def has_one_child(self) -> bool:
        """Whether all further turns in it are those of one child, or it has none left."""
        return self.next is None and len(self.had_turns) <= 1

    @property
    def has_its_share(self) -> bool:
        """Whether it holds what it is owed, so that it is not starving any more."""
        pool = self.group
        assert isinstance(pool, PoolState), "only pools are starving"
        return self.running - self.slots_on_lost_hosts >= whole(min(pool.owed, pool.usable))

    def first(self, ahead: Callable[[ShareNode], _Ahead]) -> _Ahead | None:
        """The child that is served next; None if there is none left."""
        new, had = self.next, self.had_turns
        if new is not None and (not had or new[:3] < had[0][:3]):
            heappush(had, (*new[:3], ahead(new[3])))
            self.next = next(self.rest, None)
        if not had:
            return None
        child = had[0][3]
        assert isinstance(child, _Ahead)
        return child

    def drop_first(self) -> None:
        """Remove the child that is served next: nothing below it can launch."""
        heappop(self.had_turns)

    def count(self, child: _Ahead, slots: int) -> None:
        """Its first child got slots; find its place in the order."""
        group = self.group
        if group.below != 1 or group.is_in_turn:  # Otherwise the child has no siblings.
            self.service = child.serve(self.service, slots)
            heapreplace(self.had_turns, child.ranked(group.is_in_turn))


def turns_of(top: PoolState, slots: int, most: Callable[[PhaseState], int]) -> LaunchOrder:
    """The turns for free slots below `top`; `most` limits the tasks that a phase launches.

    `most` is asked when the first turn of a phase comes. Turns end before a phase of a pool
    whose numbers cover several kinds of slots, because its place then depends on other kinds.
    """
    found: list[PhaseState] = []
    taken: dict[PoolState, int] = {}

    def ahead(node: ShareNode) -> _Ahead:
        if isinstance(node, GroupNode):
            return _GroupAhead(node)
        return _PhaseAhead(node, most(node))  # type: ignore[arg-type]

    path = [_GroupAhead(top)]
    alone = 0  # The groups at the beginning of the path that have one child each.
    while slots > 0 and path:
        if path[-1].group.total is not None:
            return LaunchOrder(found, is_cut=True)
        child = path[-1].first(ahead)
        if child is None:
            path.pop()
            alone = min(alone, len(path))
            if path:
                path[-1].drop_first()
        elif isinstance(child, _GroupAhead):
            path.append(child)
        else:
            assert isinstance(child, _PhaseAhead)
            unit, limits = child.unit, child.phase.pool.limits
            if top.is_in_turn and any(limit.total is not None for limit in limits):
                return LaunchOrder(found, is_cut=True)
            can = min(slots // unit, child.left)
            if limits:
                room = min(limit.room - taken.get(limit, 0) for limit in limits)
                can = min(can, int(max(room, 0) // unit))
            if can == 0:
                path[-1].drop_first()
                continue
            while alone < len(path) and path[alone].has_one_child:
                alone += 1
            # A phase that is alone at all levels gets all that is left.
            is_alone = alone == len(path)
            count = can if is_alone else 1
            for limit in limits:
                taken[limit] = taken.get(limit, 0) + count * unit
            found += [child.phase] * count
            slots -= count * unit
            child.left -= count
            _serve(path, alone, child, count * unit)
            del path[alone + 1 :]
    return LaunchOrder(found, is_cut=False)


def _serve(path: list[_GroupAhead], alone: int, child: _Ahead, slots: int) -> None:
    """Count the slots of a launch where that changes an order: below the first siblings."""
    child.running += slots
    for depth in range(len(path) - 1, alone - 1, -1):
        pool = path[depth]
        pool.running += slots
        if pool.is_starving and pool.has_its_share:
            pool.is_starving = False
            for above in path[: depth + 1]:
                above.starving -= 1
        pool.count(child, slots)
        child = pool


# Which waits for locality count: those of phases that were offered slots (Hadoop's rule).


def first_wait(
    waits: list[tuple[float, PhaseId]], phases: Mapping[PhaseId, PhaseState], now: float
) -> float:
    """When the first of these waits ends, a heap; infinity without one. Drops those before."""
    while waits:
        until, phase_id = waits[0]
        phase = phases.get(phase_id)
        if phase is not None and phase.deferred_until == until and until > now:
            return until
        heappop(waits)  # The wait is over, or a launch ended it.
    return inf


class LocalityWaitTimer:
    """The phases of one kind of slot whose waits count now.

    A turn of the loop offers slots if some are free when decisions are made. It offers them to
    each phase that may launch and comes, in the order of phases, before one that launches; and,
    if slots stay free, to all phases that may launch at its end. A wait counts from a turn that
    offers its phase slots until the next turn that offers slots, but none to its phase; from
    then on it stands still until its phase is offered slots again. Turns without free slots
    change nothing. Waits of phases that take several slots at once always count.

    A launch costs O(phases before it in the order), the end of a turn with free slots
    O(phases that wait): assigners have considered all of these then.
    """

    __slots__ = ("_counting", "_has_paused", "_skipped")

    def __init__(self) -> None:
        self._counting: dict[PhaseState, None] = {}
        self._skipped: dict[PhaseState, None] = {}  # those that were offered slots in this turn
        self._has_paused = False  # Whether a wait may stand still.

    def defer(self, phase: PhaseState) -> None:
        """A phase has begun its wait, or continues it."""
        if not phase.is_wide:
            self._counting[phase] = self._skipped[phase] = None

    def skip(
        self, order: Iterable[PhaseState], taker: PhaseState, now: float, ends_wait: bool
    ) -> None:
        """The phases before `taker` in the order skip a slot, which it takes.

        A launch that does not end the wait of `taker` leaves it among those that skip.
        """
        counting, skipped = self._counting, self._skipped
        if not counting and not self._has_paused:
            return  # As where tasks wait for resources only.
        for phase in order:
            if phase is taker and ends_wait:
                break
            if phase in counting:
                if not phase.is_limited or phase.may_launch:
                    skipped[phase] = None
            elif phase.waited and phase.may_launch:
                phase.resume(now)
                counting[phase] = skipped[phase] = None
            if phase is taker:
                return
        counting.pop(taker, None)
        skipped.pop(taker, None)

    def take_last(self, now: float) -> None:
        """No slot is free any more: the other waits stand still."""
        counting, skipped = self._counting, self._skipped
        if len(counting) > len(skipped):
            for phase in counting.keys() - skipped.keys():  # Their order does not matter.
                self._pause(phase, now)

    def end_turn(self, now: float, has_free: bool) -> None:
        """A turn at `now` is over. Slots that are free are offered to all that may launch."""
        self._skipped.clear()
        if has_free:
            for phase in [p for p in self._counting if p.is_limited and not p.may_launch]:
                self._pause(phase, now)

    def leave(self, phase: PhaseState, now: float) -> None:
        """A phase is not ready any more."""
        if phase in self._counting:
            self._pause(phase, now)
            self._skipped.pop(phase, None)

    def _pause(self, phase: PhaseState, now: float) -> None:
        """A wait stands still from now on."""
        phase.pause(now)
        del self._counting[phase]
        self._has_paused = True

    def check(self) -> None:
        """Assert that waits which count do not stand still. For tests."""
        assert self._skipped.keys() <= self._counting.keys()
        assert not any(phase.waited for phase in self._counting)
