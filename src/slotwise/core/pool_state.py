"""A pool's share of one kind of slot, or of several, during a run.

What it holds, what it is owed, and what it lacks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, takewhile
from math import inf
from operator import itemgetter
from typing import Any, Protocol

from slotwise.core.host_state import FreeSlots
from slotwise.core.job import PhaseId
from slotwise.core.pools import ShareKey, TimeOuts
from slotwise.core.resource_limits import ResourceLimit, Taker
from slotwise.core.resources import Resources
from slotwise.core.tolerances import SLOTS

# The order in which phases and pools that share slots are served.

STARVING = 3.0
"""Puts starving shares before all others: other ranks are at least -2."""

Rank = tuple[float, float, int, "ShareNode"]
"""How far a node is below the slots that it should hold: the smallest is served first."""


def whole(share: float) -> int:
    """The whole slots in a share."""
    return int(share + SLOTS)


class ShareNode:
    """A phase, a job or a pool that shares slots with its siblings in one pool, or job.

    allocated  slots that it should hold according to the last `Reallocate`
    owed       the guaranteed part of them
    running    slots that it holds
    slots_on_lost_hosts  slots that it holds on unresponsive hosts; they are not shared
    weight     of a pool among its siblings; 0 for others
    urgency    of a phase, where phases are served in turn: the smallest first
    unit       slots that it takes at once: those of a task or of a gang; 1 for a pool
    served     the service that it has received, relative to its allocation
    starving   shares of pools that are starving among itself and those below it; 0 for a phase
    order      breaks ties

    `units_allocated` and `units_owed` are the slots of whole units in `allocated` and `owed`;
    `count_units` computes them after each change of these.
    """

    __slots__ = (
        *("allocated", "slots_on_lost_hosts", "order", "owed", "rank", "running", "served"),
        *("starving", "unit", "units_allocated", "units_owed", "urgency", "weight"),
    )

    is_group = False
    """Whether it has children."""

    def __init__(self, order: int, unit: int = 1) -> None:
        self.order, self.unit = order, unit
        self.allocated = self.owed = self.served = 0.0
        self.running = self.slots_on_lost_hosts = self.starving = 0
        self.units_allocated = self.units_owed = 0
        self.weight = self.urgency = 0.0
        self.rank: Rank | None = None

    def ranked(self, in_turn: bool = False) -> Rank:
        """Its key in the order: the smallest is served first.

        Nodes that lack whole slots of their guarantee come first, by the part of it that they
        hold. Then come nodes that lack whole slots of their allocation: pools by held slots
        over weight, as in the Hadoop Fair Scheduler, jobs and phases by the part that they
        hold. Fractions of slots go by turns: next is the node with the least service relative
        to its allocation, so that half a slot is a slot half of the time. Nodes without an
        allocation come last, by arrival. For a phase of wide tasks, the slots of a task take
        the place of one slot; for a gang, those of all its tasks.

        Phases that are served `in_turn` come by urgency, then by arrival, in each of these
        three sets: those that lack whole slots of their guarantee, those that lack whole slots
        of their allocation, and the others.

        Shares that are starving, or contain such, come before all others: so the slots taken
        back for them do not go to shares that also lack some.
        """
        allocated, running = self.allocated, self.running - self.slots_on_lost_hosts
        is_lacking = running < self.units_allocated
        if in_turn:
            level = 0.0 if not is_lacking else -2.0 if running < self.units_owed else -1.0
            return (level, self.urgency, self.order, self)
        if allocated <= 0:
            return (inf, self.order, self.order, self)
        if not is_lacking:
            level = running / allocated
            if level < 1.0:
                level = 0.0
        elif running < self.units_owed:
            level = running / self.owed - 2.0
        elif weight := self.weight:
            level = -weight / (weight + running)  # From -1 to 0, as held over weight grows.
        else:
            level = running / allocated - 1.0
        if self.starving:
            level -= STARVING
        return (level, self.served, self.order, self)

    def count_units(self) -> None:
        """Find the slots of whole units in its allocation and in the guaranteed part."""
        unit, owed = self.unit, self.owed
        if unit == 1:
            self.units_allocated = int(self.allocated + SLOTS)
            self.units_owed = int(owed + SLOTS) if owed else 0
        else:
            self.units_allocated = int(self.allocated / unit + SLOTS) * unit
            self.units_owed = int(owed / unit + SLOTS) * unit

    def serve(self, service: float, slots: int) -> float:
        """Count the slots of a launch as service received. The service level of siblings.

        `service` is the level at which siblings last won a turn. A node that arrives late, or
        had no tasks for a while, starts at this level, without credit or debt from the past.
        """
        allocated, served = self.allocated, self.served
        if allocated <= 0:
            return service
        if served > service:
            if self.running - self.slots_on_lost_hosts > self.units_allocated:
                service = served  # It has just won the turn for a fraction of a slot or unit.
        else:
            served = service
        self.served = served + slots / allocated
        return service


# Nodes of the tree of shares that have children: pools, and jobs with several ready phases.

NEVER = 1 << 60
"""More slots than there are: what a job without ready phases takes at once."""


class Member(Protocol):
    """A phase as its job sees it."""

    id: PhaseId
    group: JobShare | None
    served: float
    rank: Rank | None
    order: int
    unit: int
    running: int
    slots_on_lost_hosts: int
    is_ready: bool

    @property
    def demand(self) -> int:
        """The most slots that it can use now, on responsive hosts."""
        ...


class GroupNode(ShareNode):
    """A pool or a job: it keeps its backlogged children in order.

    `running` and the other counters cover all phases below it; `demand` is the slots that these
    can use. `below` is the number of pool shares directly below it, and `has_groups` is set if
    there are or were pool shares or jobs. Its children are phases served in turn if
    `is_in_turn`, and it has given turns at the level `service` of theirs.
    """

    __slots__ = ("backlogged", "below", "demand", "has_groups", "is_in_turn", "service")

    is_group = True
    parent: GroupNode | None
    max_share: float = inf
    total: object = None
    preemption: object = None

    def __init__(self, order: int) -> None:
        super().__init__(order)
        self.backlogged: list[Rank] = []
        self.below = self.demand = 0
        self.has_groups = self.is_in_turn = False
        self.service = 0.0


class JobShare(GroupNode):
    """The phases of a job (`members`) that count against the same share of a pool.

    While several of them are `ready` they form one node, which gets slots like one phase, so
    that the turns of a job do not depend on their number. It takes at once the least that one
    of its ready phases does. With a single ready phase there is no such node: that changes at
    allocations (`form`, `dissolve`).
    """

    __slots__ = ("is_formed", "members", "parent", "ready")

    def __init__(self, pool: GroupNode, members: Sequence[Member]) -> None:
        super().__init__(members[0].order)
        self.parent: GroupNode = pool
        self.members = members
        self.ready = sum([member.is_ready for member in members])
        self.is_formed = False

    def form(self) -> None:
        """Let its phases get slots as one from now on; they have no place in an order."""
        self.is_formed = self.parent.has_groups = True
        self.service, self.served = 0.0, max(member.served for member in self.members)
        self.running = sum([member.running for member in self.members])
        self.slots_on_lost_hosts = sum([member.slots_on_lost_hosts for member in self.members])
        for member in self.members:
            member.group, member.served, member.rank = self, 0.0, None

    def dissolve(self) -> None:
        """The opposite of `form`."""
        self.is_formed = False
        for member in self.members:
            member.group, member.served, member.rank = None, self.served, None

    def clear(self) -> None:
        """Forget its allocation and the order of its phases."""
        self.allocated = self.owed = 0.0
        self.unit = NEVER
        self.backlogged = []
        self.rank = None

    @property
    def usable(self) -> int:
        """The slots of responsive hosts that its phases can use."""
        return sum(
            [
                one.demand if one.is_ready else one.running - one.slots_on_lost_hosts
                for one in self.members
            ]
        )

    def add(self, phase: ShareNode) -> None:
        """Count the allocation of one of its ready phases."""
        self.allocated += phase.allocated
        self.owed += phase.owed
        if phase.unit < self.unit:
            self.unit = phase.unit


def formed(job: JobShare, known: dict[JobShare, None], in_turn: bool) -> JobShare | None:
    """The node of a job, also in `known`, if it has several ready phases; otherwise None."""
    if in_turn or job.ready < 2:
        if job.is_formed:
            job.dissolve()
        return None
    if job not in known:
        known[job] = None
        job.clear()
        if not job.is_formed:
            job.form()
    return job


def walk_orders(group: GroupNode) -> Iterator[Sequence[Rank]]:
    """The orders of phases below a pool or a job, as they are served.

    Not recursive: the tree may be very deep.
    """
    levels = [iter(group.backlogged)]
    while levels:
        rank = next(levels[-1], None)
        if rank is None:
            levels.pop()
            continue
        inner: Any = rank[3]
        if not inner.is_group:
            yield (rank,)
        elif inner.has_groups:
            levels.append(iter(inner.backlogged))
        else:
            yield inner.backlogged


_CHILD = itemgetter(3)  # of a Rank


class PhaseBelow(Protocol):
    """A phase as the pools above it see it."""

    pool: PoolState
    is_pinned: bool
    pending: int
    width: int
    unit: int
    running: int
    max_share: int
    needs: Resources
    resource_limits: Sequence[ResourceLimit]


def path_to(pool: PoolState | None) -> Iterator[PoolState]:
    """A pool's share and those that contain it, up to all slots of its kind."""
    while pool is not None:
        yield pool
        pool = pool.parent


class PoolState(GroupNode):
    """A share of a pool, or, without a parent, all slots of one kind.

    Its children are shares of pools, or jobs of several phases and phases of other jobs.
    `stopping` counts the slots of its attempts that were asked to stop, `slots_being_reclaimed`
    those of attempts asked to stop on its behalf, and the free slots that are reserved for it.
    Neither counts attempts on unresponsive hosts, which free no slot. `min_share` and
    `max_share` apply to this kind of slot, or, with a `total`, to all of its parts together.
    Its `own_limits` are those of other resources, which all shares of its pool have in common;
    `resource_limits` has those of the shares above it, too. `holds_limits` is set if there are
    totals below it, or own limits of it or below it. `is_overdue` means that it may take
    slots back, `is_starving` that it may do so for its min share; `starving` counts such shares
    among itself and those below it. Of itself and the shares that contain it (`above`),
    `limits` have a max share, `excusers` take slots back, and `is_guaranteed` if one has a min
    share. It exceeds `max_share` only up to `excess`, the slots that it held when hosts or
    pools last changed. `members` is the number of ready phases directly below it at the last
    `Reallocate`, `changes` how many phases came or left since (`changes.py`), and `moved` the
    slots that each `Adjust` since then added to or took from phases. `has_noted`: a dry run has
    logged what it would stop for the shortage.
    """

    __slots__ = (
        *("above", "changes", "depth", "excess", "excusers", "fair_due", "holds_limits"),
        *("has_noted", "is_guaranteed", "is_overdue", "is_starving", "key", "limits"),
        *("max_share", "members", "min_share", "min_share_due", "moved", "own_limits"),
        *("parent", "preemption", "resource_limits", "slot_kind", "slots_being_reclaimed"),
        *("stopping", "total"),
    )

    depth: int
    parent: PoolState | None
    preemption: TimeOuts | None
    resource_limits: tuple[ResourceLimit, ...]
    total: CrossKindLimit | None

    def __init__(
        self,
        key: ShareKey,
        slot_kind: str,
        order: int,
        parent: PoolState | None,
        min_share: float,
        max_share: float,
        preemption: TimeOuts | None,
        total: CrossKindLimit | None = None,
        own_limits: tuple[ResourceLimit, ...] = (),
    ) -> None:
        super().__init__(order)
        self.parent = parent
        self.total = None
        self.holds_limits = False
        self.depth = 0 if parent is None else parent.depth + 1
        if parent is not None:
            parent.below += 1
            parent.has_groups = True
        self.key, self.slot_kind = key, slot_kind
        self.min_share, self.max_share, self.preemption = min_share, max_share, preemption
        above = () if parent is None else (parent, *parent.above)
        self.above: tuple[PoolState, ...] = above
        self.limits = tuple(share for share in (self, *above) if share.max_share < inf)
        takers = [share.preemption for share in (self, *above)]
        self.excusers = tuple(
            share
            for share, taker in zip((self, *above), takers, strict=True)
            if taker is not None and not taker.dry_run
        )
        self.is_guaranteed = any(share.min_share > 0 for share in (self, *above))
        self.stopping = self.slots_being_reclaimed = 0
        self.excess = self.members = self.changes = 0
        self.moved = 0.0
        self.min_share_due = self.fair_due = inf
        self.is_overdue = self.is_starving = self.has_noted = False
        self.own_limits = own_limits
        self.resource_limits = own_limits + (parent.resource_limits if parent else ())
        if own_limits:
            for share in path_to(self):
                share.holds_limits = True
        if total is not None:
            self.join(total)

    def join(self, total: CrossKindLimit) -> None:
        """Become one part of a common share of several kinds of slots."""
        self.total = total
        total.parts[self.slot_kind] = self
        for above in path_to(self.parent):
            above.holds_limits = True

    @property
    def name(self) -> str:
        """The name of the pool."""
        return self.key.pool

    @property
    def is_full(self) -> bool:
        """Whether it holds its max share."""
        return self.room <= 0

    @property
    def room(self) -> float:
        """The number of further slots that it may hold."""
        return self.max_share - self.running if self.total is None else self.total.room(self)

    def taken_by(self, phase: Taker) -> int:
        """The slots that the next task of a phase takes, or its gang."""
        return phase.unit

    def slots_for(self, phase: Taker, taken: int = 0) -> float:
        """The further slots that a phase may hold when `taken` more are held."""
        return self.room - taken

    @property
    def max_on_responsive(self) -> float:
        """Its max share minus the slots that it holds on unresponsive hosts."""
        return self.max_share - (
            self.slots_on_lost_hosts if self.total is None else self.total.slots_on_lost_hosts
        )

    @property
    def room_later(self) -> float:
        """`room` when all tasks below it that were asked to stop have ended."""
        parts = [self] if self.total is None else self.total.parts.values()
        return self.max_share - sum([part.running - part.stopping for part in parts])

    @property
    def of_other_kinds(self) -> Sequence[PoolState]:
        """The shares of other kinds with which it has a common min and max share."""
        if self.total is None:
            return ()
        return [part for part in self.total.parts.values() if part is not self]

    @property
    def is_backlogged(self) -> bool:
        """Whether phases below it have pending tasks."""
        if self.above[-1].is_in_turn:
            return self.usable > self.held
        return bool(self.backlogged)

    @property
    def usable(self) -> int:
        """The slots that it can use: its demand, limited by its max share."""
        room = self.max_share - self.slots_on_lost_hosts
        return self.demand if self.demand <= room else int(room)

    @property
    def held(self) -> int:
        """The slots that it holds on responsive hosts."""
        return self.running - self.slots_on_lost_hosts

    @property
    def share(self) -> float:
        """The slots that it should hold now: its allocation, limited by what it can use."""
        return min(self.allocated, self.usable)

    @property
    def lacks(self) -> int:
        """The whole slots of its share that it does not hold; below 0 if it holds more."""
        return whole(self.share) - self.held

    @property
    def expected(self) -> int:
        """The slots that it will hold when all attempts that were asked to stop have ended."""
        return self.held - self.stopping + self.slots_being_reclaimed

    def walk(self) -> Iterator[PhaseBelow]:
        """The phases below it with pending tasks, in the order in which they are served."""
        if self.above and self.above[-1].is_in_turn:
            return (phase for phase in self.above[-1].walk() if self in path_to(phase.pool))
        group: GroupNode = self
        while group.below and not group.is_in_turn and len(group.backlogged) == 1:
            group = _CHILD(group.backlogged[0])
        if group.is_in_turn or not group.has_groups:
            return map(_CHILD, group.backlogged)
        return map(_CHILD, chain.from_iterable(walk_orders(group)))

    def missing_least(self, now: float) -> int:
        """Slots of its min share that it may take back now; see `missing`."""
        if self.min_share_due > now:
            return 0
        missing = whole(min(self.owed, self.usable)) - self.expected
        if self.total is not None:
            missing = min(missing, self.total.missing())
        return self._usable_of(missing)

    def missing(self, now: float) -> int:
        """Slots that it may take back now, without those already being taken back for it."""
        least = self.missing_least(now)
        if self.fair_due > now:
            return least
        return max(least, self._usable_of(whole(self.share) - self.expected))

    def spare(self) -> int:
        """The whole slots that can be taken from it before it is below its share.

        Slots being taken back for it do not count, since it does not hold them yet.
        """
        return self.held - self.stopping - whole(max(self.share, min(self.owed, self.usable)))

    @property
    def surplus(self) -> float:
        """Like `spare`, but not rounded: below 0 if it holds less than its share."""
        return self.held - self.stopping - max(self.share, min(self.owed, self.usable))

    def watch(self, now: float) -> list[float]:
        """Update its shortages: start the clock of new ones, and reset that of ended ones.

        Returns the instants at which the new ones will be overdue. A fraction of a slot is
        not a shortage.
        """
        preemption = self.preemption
        assert preemption is not None, "only pools that take back are watched"
        begun = []
        held, share, owed = self.held, self.share, whole(min(self.owed, self.usable))
        has_share = held >= preemption.fraction * share or held >= whole(share)
        self.has_noted = self.has_noted and (held < owed or not has_share)
        if self.has_noted:
            self.min_share_due = self.fair_due = inf
            return []
        due = self.min_share_due if self.min_share_due < inf else now + preemption.least_after
        if self.total is not None:
            due = self.total.watch(now, preemption.least_after)
        if held >= owed:
            due = inf
        if due != self.min_share_due:
            self.min_share_due = due
            begun.append(due)
        if has_share:
            self.fair_due = inf
        elif self.fair_due == inf:
            self.fair_due = now + preemption.fair_after
            begun.append(self.fair_due)
        return begun

    def _usable_of(self, missing: int) -> int:
        """Those of its missing slots that tasks below it may hold."""
        if missing > 0 and self.holds_limits:
            missing = min(missing, self._launchable() - self.slots_being_reclaimed)
        return max(0, missing)

    def _launchable(self) -> int:
        """Further slots that tasks below it may hold, given the limits of the pools there.

        Within the limits of pools above it others may make room.
        """
        taken: Counter[PoolState | ResourceLimit] = Counter()
        above = self.parent.resource_limits if self.parent else ()
        for phase in self.walk():
            if phase.is_pinned:
                continue  # No slot is taken back for it.
            path = takewhile(lambda pool: pool is not self, path_to(phase.pool))
            inside = [pool for pool in path if pool.max_share < inf]
            own = [limit for limit in phase.resource_limits if limit not in above]
            limits: list[PoolState | ResourceLimit] = [*inside, *own]
            more = min(phase.pending * phase.width, phase.max_share - phase.running)
            more = int(min([more, *[one.slots_for(phase, taken[one]) for one in limits]]))
            more -= more % phase.unit
            for limit in limits if more > 0 else ():
                taken[limit] += limit.taken_by(phase) * (more // phase.unit)
            taken[self] += max(0, more)
        return taken[self]


class CrossKindLimit:
    """A pool's common share of all kinds of slots, with one part for each kind.

    Each allocation divides the guarantee among the parts. A shortage counts slots of all kinds,
    so its clock continues when the missing slots move to another part.

    parts          by kind of slot
    min_share_due  when it will have lacked slots of its min share for too long
    """

    __slots__ = (
        *("_free", "_served", "_service", "max_share", "min_share", "min_share_due", "parts"),
    )

    def __init__(
        self, min_share: float, max_share: float, free: Mapping[str, FreeSlots]
    ) -> None:
        self.min_share, self.max_share, self._free = min_share, max_share, free
        self.parts: dict[str, PoolState] = {}
        self.min_share_due = inf
        self._served: defaultdict[str, float] = defaultdict(float)
        self._service = 0.0

    @property
    def running(self) -> int:
        """The slots of all kinds that it holds."""
        return sum([part.running for part in self.parts.values()])

    @property
    def slots_on_lost_hosts(self) -> int:
        """The slots that it holds on unresponsive hosts."""
        return sum([part.slots_on_lost_hosts for part in self.parts.values()])

    def room(self, part: PoolState) -> float:
        """The number of further slots of this kind that it may hold.

        It excludes slots of other kinds that are being taken back for it.
        """
        kept = sum(
            [other.slots_being_reclaimed for other in self.parts.values() if other is not part]
        )
        return self.max_share - self.running - kept

    def lacks(self) -> int:
        """The usable slots of its min share that it lacks; below 0 if it holds more."""
        return self._owed() - sum([part.held for part in self.parts.values()])

    def missing(self) -> int:
        """Like `lacks`, without the slots that are already being taken back for it."""
        return self._owed() - sum([part.expected for part in self.parts.values()])

    def watch(self, now: float, patience: float) -> float:
        """Update the instant at which its shortage will be overdue; inf without a shortage."""
        if self.lacks() <= 0:
            self.min_share_due = inf
        elif self.min_share_due == inf:
            self.min_share_due = now + patience
        return self.min_share_due

    def divide(self) -> None:
        """Guarantee each part up to its allocation until the min share is reached.

        Guarantees below the parts are counted already. Whole slots come first.
        """
        parts = self.parts.values()
        for part in parts:
            part.owed = min(part.owed, part.allocated)
        more = self.min_share - sum([part.owed for part in parts])
        for is_whole in (True, False):
            for part in parts:
                top = whole(part.allocated) if is_whole else part.allocated
                given = max(0.0, min(more, top - part.owed))
                part.owed += given
                more -= given

    def serve(self, part: PoolState, slots: int) -> None:
        """Count launched slots as service of a part, in proportion to its allocation."""
        if part.allocated > 0:
            self._service = max(self._service, self._served[part.slot_kind])
            self._served[part.slot_kind] = self._service + slots / part.allocated

    def is_turn_of_others(self, part: PoolState, unit: int) -> bool:
        """Whether `unit` slots of a kind would take room in the max share from other kinds.

        These are kinds with free slots and a backlog for which the pool holds a smaller part of
        its share, or has had less service.
        """
        mine, wanted = self._turn(part), 0
        for other in self.parts.values():
            if (
                other.is_backlogged
                and self._free[other.slot_kind].by_host
                and self._turn(other) < mine
            ):
                wanted += max(1, whole(other.share) - other.held)
        return wanted > 0 and wanted > self.max_share - self.running - unit

    def _owed(self) -> int:
        owed = sum([min(part.owed, part.usable) for part in self.parts.values()])
        return whole(min(owed, self.max_share - self.slots_on_lost_hosts))

    def _turn(self, part: PoolState) -> tuple[float, float, str]:
        held, level = part.held, inf
        if part.allocated > 0:
            level = held / part.allocated
            if held < part.units_allocated:
                level -= 2.0 if held < part.units_owed else 1.0
            elif level < 1.0:
                level = 0.0
        return level, self._served[part.slot_kind], part.slot_kind
