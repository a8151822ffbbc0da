"""Preemption: pools that have been below their shares for too long take slots back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from math import ceil, inf
from types import MappingProxyType

from slotwise.core.cluster import Host
from slotwise.core.decisions import Decision, Locality, Preempt, Release, WouldPreempt
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState, path_to
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.assignment.assigner import local, remote
from slotwise.policy.assignment.free_slots import (
    GangRoom,
    LimitRoom,
    places,
    reclaimed_for,
    reclaimed_parts,
    reserved_for,
    taken_for,
)
from slotwise.policy.assignment.victims import (
    PreemptionCandidate,
    PreemptionCandidates,
    Victims,
)
from slotwise.policy.assignment.wide import WideTaskReservations

NONE_BEGUN: Mapping[str, int] = MappingProxyType({})


def preempt(snapshot: Snapshot) -> Sequence[Preempt | WouldPreempt]:
    """The tasks to stop now for overdue pools; usually none.

    A pool is overdue if it has been below its min share, or below a part of its share, for
    longer than its timeout. It takes at most what it lacks. Tasks that were already asked to
    stop for it count. Slots that became free have gone to it before, so this is called when no
    more tasks can be launched. The pool that holds most slots above its share gives first, and
    in it the job most above its share, the newest task; none drops below the whole slots of its
    share (`Victims`). If the taker lies in a pool that holds its max share, tasks come from
    within that pool. If that max share is for several kinds of slots, they may be of another
    kind there, together with as many tasks of the wanted kind from elsewhere. Tasks on
    unresponsive hosts are never stopped, since their slots cannot be used. What is taken back
    is reserved for the pool (`serve_reserved`). Source: Hadoop Fair Scheduler
    (HADOOP-4665); the soft kill is from Hammr (5.2).

    Slots for a task that occupies several are taken on one host, together with those that are
    free there, and only for as many whole tasks as fit into what is missing. Slots for a gang
    are taken for all of its tasks together, if they fit into what is missing. None are taken
    for tasks that must leave room to such a phase, nor on hosts that it keeps. A stopped task
    frees all of its slots, which may be more than are missing. Gangs are stopped as a whole,
    after other tasks.

    A task that was stopped for a pool before is stopped for a share again only when it has run
    twice as long as before (`PhaseState.spared_until`); for a min share, at any time. So a task
    that takes D seconds loses less than 2 D to shares, even if these follow the tasks and go
    back and forth.

    Each call serves one pool; the next call sees its decisions. O(n log n) with n running
    tasks if a pool lacks slots that it may take, otherwise O(overdue pools).

    A job is not stopped more often within an hour than its pool permits (`stops_per_hour`).
    Those at their limits are left out, also for a min share, which may have to wait for them.
    """
    stoppable = PreemptionCandidates(snapshot)
    for slot_kind in snapshot.cluster.capacity:
        for pool in sorted(snapshot.overdue(slot_kind), key=_depth, reverse=True):
            if taken := _taken_for(snapshot, stoppable, slot_kind, pool):
                return taken
        for pool, missing in snapshot.overdue_jobs(slot_kind).items():
            taker = _Taker(snapshot, stoppable, slot_kind, pool, is_least=False, of_jobs=True)
            if taken := taker.take(missing):
                return taken
    return ()


def _taken_for(
    snapshot: Snapshot, stoppable: PreemptionCandidates, slot_kind: str, pool: PoolState
) -> Sequence[Preempt | WouldPreempt]:
    """The tasks to stop for an overdue pool."""
    least, missing = pool.missing_least(snapshot.now), pool.missing(snapshot.now)
    taken: Sequence[Preempt | WouldPreempt] = ()
    if least > 0:
        taken = _Taker(snapshot, stoppable, slot_kind, pool, is_least=True).take(least)
    if not taken and missing > least:
        taken = _Taker(snapshot, stoppable, slot_kind, pool, is_least=False).take(missing)
    return taken


def spared_jobs(snapshot: Snapshot, pool: PoolState) -> dict[str, float]:
    """The jobs that would be stopped for an overdue pool, were it not for `stops_per_hour`.

    With each the next instant from which it may be stopped more often. If nothing is left to
    decide, the pool waits for them. Empty if it can take slots now. O(n log n) with n running
    tasks.
    """
    kind = pool.slot_kind
    if _taken_for(snapshot, PreemptionCandidates(snapshot), kind, pool):
        return {}
    every = PreemptionCandidates(snapshot, has_limits=False)
    taken = _taken_for(snapshot, every, kind, pool)
    jobs = {stop.phase.job: snapshot.phase(stop.phase).job for stop in taken}
    limited = [name for name, job in jobs.items() if snapshot.stops_left(job) < inf]
    return {name: snapshot.more_stops_from(name) for name in limited}


def spared_pools(snapshot: Snapshot, pool: PoolState) -> list[str]:
    """The pools that would give slots to an overdue pool, were it not for `preemptible`.

    By name. Empty if it can take slots now. O(n log n) with n running tasks.
    """
    kind = pool.slot_kind
    if _taken_for(snapshot, PreemptionCandidates(snapshot), kind, pool):
        return []
    every = PreemptionCandidates(snapshot, has_limits=False, spares_pools=False)
    taken = _taken_for(snapshot, every, kind, pool)
    pools = {snapshot.phase(stop.phase).job.pool for stop in taken}
    return sorted(pools & snapshot.pools.unpreemptible)


@dataclass(frozen=True, slots=True)
class _Taker:
    """A pool that takes back slots of a kind: of its min share, or of its whole share.

    `of_jobs`: for jobs of the pool that are below their shares, from other jobs of it.
    """

    snapshot: Snapshot
    stoppable: PreemptionCandidates
    slot_kind: str
    pool: PoolState
    is_least: bool
    of_jobs: bool = False

    def take(self, missing: int) -> Sequence[Preempt | WouldPreempt]:
        """The tasks to stop for as many slots."""
        if self.snapshot.has_wide:
            return self._take_in_turn(missing)
        return self._take(missing, self._avoided())

    def _avoided(self) -> Collection[str]:
        """Hosts where its tasks would not begin, because they only fail there.

        A slot that is taken there would go to another pool, and be taken again.
        """
        avoided: list[set[str]] = []
        for phase in phases_below(self.pool):
            inside = takewhile(lambda pool: pool is not self.pool, path_to(phase.pool))
            if self._room(phase) >= phase.unit and not any(pool.is_full for pool in inside):
                avoided.append(set(phase.avoided(self.snapshot.lost)))
                if not avoided[-1]:
                    return ()
        return set.intersection(*avoided) if avoided else ()

    def _take(
        self, missing: int, spared: Collection[str] = ()
    ) -> Sequence[Preempt | WouldPreempt]:
        """Stop tasks with `missing` slots; with fewer if no pool can spare that many.

        spared  hosts on which none is stopped
        """
        slot_kind = self.slot_kind
        full = next((pool for pool in path_to(self.pool) if pool.is_full), None)
        victims = self._victims(spared)
        taken = victims.take(slot_kind, full, missing)
        missing -= _slots(taken)
        if full is not None and full.of_other_kinds and missing > 0 and not self.of_jobs:
            # Its max share is for several kinds: stopping tasks of other kinds makes room in
            # it, and slots of this kind come from elsewhere.
            room = [
                victim
                for other in full.of_other_kinds
                for victim in victims.take(other.slot_kind, other, missing)
            ]
            room = _first_with(room, missing)
            free = sum(self.snapshot.free(slot_kind).values())
            slots = victims.take(slot_kind, None, _slots(room) - free)
            taken += [*_first_with(room, free + _slots(slots)), *slots]
        return self._stop(taken)

    def _take_in_turn(self, missing: int) -> Sequence[Preempt | WouldPreempt]:
        """Stop tasks for the next phase of the pool that can use their slots."""
        # Phases of overdue pools wait for no slots near their input: only these waits matter.
        waits, reclaimed = WideTaskReservations(self.snapshot), self.pool.slots_being_reclaimed
        used: Counter[PoolState | ResourceLimit] = Counter()  # by phases before this one
        for phase in phases_below(self.pool):
            room = self._room(phase)
            if room < phase.unit or waits.is_barred(phase):
                continue  # No slot is taken back for it, or it could not use one.
            if phase.is_gang and phase.running:
                continue  # It is broken, and its own tasks stop.
            is_narrow = phase.unit == 1 and not phase.needs
            count = min(phase.pending, room) if is_narrow else phase.unit
            if phase.resource_limits:
                limits = LimitRoom(phase, self._limits_above(phase), used)
                wanted = self._wanted(phase, min(room, missing + reclaimed))
                used.update({one: one.taken_by(phase) * wanted for one in limits.left})
                if limits.tasks < max(1, wanted):
                    if wanted > 0 and (taken := self._take_within(phase, limits, wanted)):
                        return taken
                    continue
            if is_narrow:
                kept = {*waits.kept_from(phase), *phase.avoided(self.snapshot.lost)}
                taken = self._take(min(count - reclaimed, missing), kept)
            elif phase.is_gang:
                taken, claimed = self._take_for_gang(phase, missing)
                missing -= claimed
            else:
                taken = self._take_on_one_host(phase, missing)
            if taken:
                return taken
            reclaimed = max(0, reclaimed - count)  # It uses them before the next phase.
        return ()

    def _limits_above(self, phase: PhaseState) -> list[PoolState | ResourceLimit]:
        """The limits on a phase within which tasks can be stopped for this pool."""
        above = (*self._above.limits, *self._above.resource_limits)
        return [limit for limit in phase.limits if limit in above]

    @property
    def _above(self) -> PoolState:
        """The innermost pool within which tasks are stopped for this pool."""
        above = self.pool if self.of_jobs else self.pool.parent
        assert above is not None, "all slots of a kind take back none"
        return above

    def _wanted(self, phase: PhaseState, slots: int) -> int:
        """The tasks, or gangs, of a phase that should begin in this number of slots."""
        lacks = phase.allocated - (phase.running - phase.slots_on_lost_hosts)
        most = min(slots, phase.pending * phase.width)
        return min(most // phase.unit, ceil(lacks / phase.unit - SLOTS))

    def _take_within(
        self, phase: PhaseState, limits: LimitRoom, wanted: int
    ) -> Sequence[Preempt | WouldPreempt]:
        """Stop tasks so that limits of pools above have room for more tasks of a phase.

        For as many as are wanted and have hosts. If there is a host for none, for one: then, if
        possible, by tasks on a host that free both. The same for gangs.
        """
        kinds = sorted(self.snapshot.cluster.capacity, key=lambda one: one != self.slot_kind)
        begun = self._begun_later(phase)
        hosted = sum(begun.values())
        if limits.tasks < hosted:
            return self._stop(self._victims().for_limits(kinds, limits, min(wanted, hosted)))
        tasks, left = hosted + 1, dict(limits.left)

        def gains(one: PreemptionCandidate) -> bool:
            return limits.gains(one.phase, one.launches, tasks)

        for may_stop in (gains, None):
            victims, found = self._make_room(phase, begun, may_stop)
            for one in found:
                limits.stop(one.phase, one.launches)
            found += victims.for_limits(kinds, limits, tasks) if found else []
            if found and limits.tasks >= tasks:
                return self._stop(found)
            limits.left.update(left)
        return ()

    def _begun_later(self, phase: PhaseState) -> Mapping[str, int]:
        """The tasks of a phase for which each host has room when those that stop have ended.

        For a gang one in all if it has room.
        """
        hosts = [h.name for h in self.snapshot.cluster.hosts if self._may_use(h, phase)]
        if phase.is_gang:
            return {"": int(GangRoom(self.snapshot, phase, hosts).is_enough)}
        reclaimed = reclaimed_for(self.snapshot, phase)
        return {host: places(phase, (reclaimed[host],)) for host in hosts}

    def _make_room(
        self,
        phase: PhaseState,
        begun: Mapping[str, int],
        may_stop: Callable[[PreemptionCandidate], bool] | None,
    ) -> tuple[Victims, list[PreemptionCandidate]]:
        """Tasks to stop after which hosts have room for one more task, or gang, of a phase."""
        if phase.is_gang:
            hosts = [h.name for h in self.snapshot.cluster.hosts if self._may_use(h, phase)]
            victims, room = self._victims(), GangRoom(self.snapshot, phase, hosts)
            return victims, victims.for_gang(self.slot_kind, None, room, may_stop)
        reclaimed = reclaimed_for(self.snapshot, phase)
        lacks = {host: phase.width * (n + 1) - reclaimed[host] for host, n in begun.items()}
        return self._on_one_host(phase, None, lacks, begun, may_stop)

    def _take_for_gang(
        self, phase: PhaseState, missing: int
    ) -> tuple[Sequence[Preempt | WouldPreempt], int]:
        """Stop tasks so that all tasks of a gang have room, or none.

        If there is room when the tasks that were asked to stop have ended, none is stopped. The
        other number is then the slots that the gang will take of those which are missing.
        """
        snapshot = self.snapshot
        full = next((pool for pool in path_to(self.pool) if pool.room < phase.unit), None)
        hosts = [h.name for h in snapshot.cluster.hosts if self._may_use(h, phase)]
        room = GangRoom(snapshot, phase, hosts)
        if room.is_enough:
            return (), max(0, phase.unit - sum(taken_for(snapshot, phase).values()))
        if missing < phase.unit:
            return (), 0
        return self._stop(self._victims().for_gang(self.slot_kind, full, room)), 0

    def _take_on_one_host(
        self, phase: PhaseState, missing: int
    ) -> Sequence[Preempt | WouldPreempt]:
        """Stop tasks on the host where a task of a phase needs the fewest from others."""
        snapshot, width = self.snapshot, phase.width
        full = next((pool for pool in path_to(self.pool) if pool.room < width), None)
        reclaimed, taken = reclaimed_for(snapshot, phase), taken_for(snapshot, phase)
        lacks: dict[str, int] = {}
        for host in snapshot.cluster.hosts:
            if self._may_use(host, phase):
                lacks[host.name] = width - reclaimed[host.name]
                if lacks[host.name] <= 0:  # A task of the pool will run there.
                    missing -= max(0, width - taken[host.name])
        if missing < width:
            return ()
        return self._stop(self._on_one_host(phase, full, lacks)[1])

    def _on_one_host(
        self,
        phase: PhaseState,
        full: PoolState | None,
        lacks: Mapping[str, int],
        begun: Mapping[str, int] = NONE_BEGUN,
        may_stop: Callable[[PreemptionCandidate], bool] | None = None,
    ) -> tuple[Victims, list[PreemptionCandidate]]:
        """Tasks to stop on a host after which it has room for one more task of a phase.

        On the first one where that is possible, of those that lack the fewest slots (`lacks`).
        `begun` are the tasks of the phase for which each will have room without this.
        """
        snapshot, needs, position = self.snapshot, phase.needs, self.snapshot.cluster.position
        slots, ending = reclaimed_parts(snapshot, phase)
        for name in sorted(lacks, key=lambda name: (lacks[name], position[name])):
            if lacks[name] > 0:
                fits, count = None, begun.get(name, 0) + 1
                if needs:
                    stopping = ending.get(name, [])
                    fits = partial(_fits, snapshot, name, needs, count, stopping)
                victims, more = self._victims(), count * phase.width - slots[name]
                if found := victims.on_host(self.slot_kind, full, name, more, fits, may_stop):
                    return victims, found
        return self._victims(), []

    def _may_use(self, host: Host, phase: PhaseState) -> bool:
        """Whether a task of a phase could run on a host if nothing else did."""
        is_lost = host.name in self.snapshot.lost
        return not is_lost and phase.allows(host.name) and host.amounts.holds(phase.request)

    def _room(self, phase: PhaseState) -> int:
        """The slots taken back that a phase may still hold; none are for pinned ones.

        Within the limits of pools above the taker, tasks can be stopped to make room.
        """
        most = 0 if phase.is_pinned else phase.max_share - phase.running
        above = self._above.resource_limits
        own = [limit for limit in phase.resource_limits if limit not in above]
        return int(min([most, *[limit.slots_for(phase) for limit in own]]))

    def _victims(self, spared: Collection[str] = ()) -> Victims:
        return Victims(self.stoppable, self.pool, self.is_least, spared, self.of_jobs)

    def _stop(self, victims: Sequence[PreemptionCandidate]) -> Sequence[Preempt | WouldPreempt]:
        preemption = self.snapshot.pools.preemption(self.pool.name)
        assert preemption is not None
        until = self.snapshot.now + preemption.grace if preemption.grace > 0 else None
        attempts = [a for victim in victims for a in victim.launches]
        name = self.pool.name
        if preemption.dry_run:
            return [WouldPreempt(a.phase, a.task, a.attempt, a.host, name) for a in attempts]
        return [Preempt(a.phase, a.task, a.attempt, a.host, until, name) for a in attempts]


def _fits(
    snapshot: Snapshot,
    host: str,
    needs: Resources,
    count: int,
    stopping: Sequence[Resources],
    more: Sequence[Resources],
) -> bool:
    return snapshot.spare.times(host, needs, [*stopping, *more]) >= count


def _slots(victims: Iterable[PreemptionCandidate]) -> int:
    return sum(victim.slots for victim in victims)


def _first_with(
    victims: Sequence[PreemptionCandidate], slots: int
) -> list[PreemptionCandidate]:
    """The first of these that have this number of slots together, or all."""
    found: list[PreemptionCandidate] = []
    for victim in victims:
        if slots <= 0:
            break
        found.append(victim)
        slots -= victim.slots
    return found


def _depth(pool: PoolState) -> int:
    return sum(1 for _ in path_to(pool))


# Slots that were taken back for a pool: they are kept for it until it launches in them.
#
# When a task has ended that was asked to stop for a pool, its slots are reserved for the pool,
# as the `Preempt` says. They are free for its phases only, so that others which also lack slots
# do not get them, and it takes back no more than it lacks. Its phases of narrow tasks are
# launched in them at once; wide tasks and gangs wait until they have all of their slots
# (`wide.WideTaskReservations`). What the pool does not need, or cannot use, is released.


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


def _narrow(snapshot: Snapshot, slot_kind: str) -> Iterator[PhaseState]:
    """The phases of narrow tasks that may launch in reserved slots, in the order of service."""
    first = [
        pool
        for pool in snapshot.overdue(slot_kind)
        if pool.is_starving and pool.missing_least(snapshot.now) > 0
    ]
    takers = [pool for by_pool in snapshot.reserved(slot_kind).values() for pool in by_pool]
    for pool in dict.fromkeys((*first, *takers)):
        for phase in phases_below(pool):
            if not phase.is_wide and phase.may_launch:
                yield phase


def _hosts_for(
    snapshot: Snapshot, slot_kind: str, phase: PhaseState, waits: WideTaskReservations | None
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
            if not any(_will_use(snapshot, phase, host, waits) for phase in phases_below(pool)):
                yield Release(*pool.key, slot_kind, host, slots)
    total: Counter[PoolState] = Counter()
    for by_pool in reserved.values():
        for pool, slots in by_pool.items():
            total.update(dict.fromkeys(path_to(pool), slots))
    for host, by_pool in reserved.items():
        for pool, slots in by_pool.items():
            if (more := total[pool] - max(0, pool.lacks)) > 0:
                yield Release(*pool.key, slot_kind, host, min(more, slots))


def _will_use(
    snapshot: Snapshot, phase: PhaseState, host: str, waits: WideTaskReservations | None
) -> bool:
    """Whether a phase will launch in slots of a host that are reserved for one of its pools.

    It could not now: it waits for tasks to end, for their room in its pools or their slots.
    """
    room = min(pool.room_later for pool in path_to(phase.pool))
    if phase.max_share - phase.running < phase.unit or room < phase.unit:
        return False
    if any(limit.room_later < limit.taken_by(phase) for limit in phase.resource_limits):
        return False
    if not phase.is_wide:
        is_anywhere = not phase.is_pinned and host not in phase.avoided(snapshot.lost)
        return is_anywhere and not phase.may_launch
    if phase.is_gang and phase.running:
        return False
    assert waits is not None, "it is known that there are such phases"
    if waits.keeps(phase, host):
        return True
    reclaimed = reclaimed_for(snapshot, phase)
    if reclaimed[host] < phase.width or not phase.allows(host):
        return False
    return not phase.is_gang or places(phase, reclaimed.values()) >= phase.pending
