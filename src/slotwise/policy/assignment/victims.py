"""Running tasks that preemption may stop for a pool: who gives, and in which order.

The pool that holds most slots above its share gives first, in it the job that holds most above
its share, in that the newest task. After each task this is found again, so that all who hold
more than their shares give evenly. Gangs are stopped as a whole, after other tasks.
docs/algorithms/preemption.md has the rules and their reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from heapq import heapify, heappop, heapreplace
from itertools import product
from math import inf
from operator import itemgetter
from typing import NamedTuple

from slotwise.core.decisions import Launch
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState, path_to
from slotwise.core.pools import ShareKey
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.assignment.free_slots import GangRoom, LimitRoom, freed_of

TURNS = ((0, True), (1, True), (2, True))
"""Which tasks are stopped one after the other (`PreemptionCandidate.turn`), and whether jobs at
their share give none."""

MIN_TURNS = ((0, True), (1, True), (0, False), (1, False), (2, False))
"""For a min share, kept even if the job above its share is a gang too large to stop."""

JobKey = tuple[PoolState, str]
"""A job in a pool: the share that its phases count against, and its id."""


class PreemptionCandidate(NamedTuple):
    """A running task, or all of a gang.

    started  when it started, in seconds; for a gang, when the first of its tasks did
    turn     which are stopped first: 0 tasks, 1 gangs, 2 those of the min share of a phase
    """

    phase: PhaseState
    launches: Sequence[Launch]
    started: float
    turn: int

    @property
    def slots(self) -> int:
        """The slots that it frees."""
        return self.phase.width * len(self.launches)


class PreemptionCandidates:
    """The running tasks that may be stopped, the newest first: found once for all pools.

    Otherwise each overdue pool would look at all of them in each turn while they are spared.
    """

    def __init__(
        self, snapshot: Snapshot, has_limits: bool = True, spares_pools: bool = True
    ) -> None:
        """Whether `stops_per_hour` and `preemptible: false` of pools apply."""
        self.snapshot, self._has_limits = snapshot, has_limits
        self._kept = snapshot.pools.unpreemptible if spares_pools else frozenset[str]()
        self._found: dict[tuple[str, bool], Sequence[PreemptionCandidate]] = {}
        self._on_host: dict[tuple[str, bool], dict[str, list[PreemptionCandidate]]] = {}
        self._jobs: dict[str, dict[JobKey, tuple[int, float]]] = {}

    def of(self, slot_kind: str, is_least: bool) -> Sequence[PreemptionCandidate]:
        """Those on slots of a kind; for a min share, those that were stopped before, too."""
        key = slot_kind, is_least
        if key not in self._found:
            now = inf if is_least else self.snapshot.now
            phases = [
                phase
                for phase in self.snapshot.holding(slot_kind)
                if phase.job.pool not in self._kept and self.stops_left(phase) >= 1
            ]
            reserved = self.snapshot.promises.reserved
            self._found[key] = list(_newest_first(phases, now, reserved))
        return self._found[key]

    def on(self, slot_kind: str, is_least: bool, host: str) -> Sequence[PreemptionCandidate]:
        """Those of them with slots of a host."""
        key = slot_kind, is_least
        if key not in self._on_host:
            found = self._on_host[key] = defaultdict(list)
            for victim in self.of(slot_kind, is_least):
                for name in {launch.host for launch in victim.launches}:
                    found[name].append(victim)
        return self._on_host[key].get(host, ())

    def stops_left(self, phase: PhaseState) -> float:
        """How many tasks or gangs of the job of a phase may be stopped now."""
        return self.snapshot.stops_left(phase.job) if self._has_limits else inf

    def job(self, slot_kind: str, key: JobKey) -> tuple[int, float]:
        """What a job holds without stopping tasks, and its share: that of all of its phases.

        What is promised to a job is its share, too.
        """
        if slot_kind not in self._jobs:
            promises = self.snapshot.promises
            jobs: defaultdict[JobKey, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
            for phase in self.snapshot.holding(slot_kind):
                lost = self.snapshot.lost
                stopping = sum(host not in lost for host, _ in phase.stops())
                held = phase.running - phase.slots_on_lost_hosts
                usable = held + (0 if phase.is_pinned else phase.pending * phase.width)
                before, share = jobs[phase.pool, phase.id.job]
                jobs[phase.pool, phase.id.job] = (
                    before + held - stopping * phase.width,
                    share + min(max(phase.allocated, promises.reserved(phase)), usable),
                )
            self._jobs[slot_kind] = jobs
        return self._jobs[slot_kind][key]


class Victims:
    """Running tasks that can be stopped for a pool.

    taker     the pool. Nothing is taken from the pools that contain it: what is taken from
              others within them does not change what these hold
    is_least  whether its min share is missing: then tasks may be stopped again at any time
    spared    hosts on which no task is stopped, beside the unresponsive ones
    of_jobs   whether other jobs of the pool give, instead of other pools
    """

    def __init__(
        self,
        stoppable: PreemptionCandidates,
        taker: PoolState,
        is_least: bool,
        spared: Collection[str] = (),
        of_jobs: bool = False,
    ) -> None:
        self._stoppable, self._taker, self._is_least = stoppable, taker, is_least
        self._above = {pool.key for pool in path_to(taker)}
        self._of_jobs = of_jobs
        self._spared = {*stoppable.snapshot.lost, *spared}
        self._given: Counter[PoolState | JobKey] = Counter()
        self._stops_left: dict[str, float] = {}
        self._stopped: set[Launch] = set()

    def take(
        self, slot_kind: str, within: PoolState | None, slots_max: int
    ) -> list[PreemptionCandidate]:
        """More of them, with `slots_max` slots of a kind, within a pool if one is given."""
        taken: list[PreemptionCandidate] = []
        if slots_max > 0:
            for victim in self._in_order(self._all(slot_kind), slot_kind, within):
                taken.append(victim)
                slots_max -= victim.slots
                if slots_max <= 0:
                    break
        return taken

    def on_host(
        self,
        slot_kind: str,
        within: PoolState | None,
        host: str,
        lacks: int,
        fits: Callable[[Sequence[Resources]], bool] | None = None,
        may_stop: Callable[[PreemptionCandidate], bool] | None = None,
    ) -> list[PreemptionCandidate]:
        """Those with this number of slots of a host; none if all together have fewer.

        fits  whether the other resources of tasks on the host are enough, if any are lacking;
              then those that free none that is needed are spared
        """
        taken: list[PreemptionCandidate] = []
        on_host: Iterable[PreemptionCandidate]
        on_host = filter(may_stop, self._stoppable.on(slot_kind, self._is_least, host))
        for victim in self._in_order(on_host, slot_kind, within):
            taken.append(victim)
            lacks -= _freed(victim, (host,))[host]
            if lacks <= 0 and (fits is None or fits(_needs_on(host, taken))):
                break
        else:
            return []
        for victim in taken[::-1] if fits is not None else ():
            without, slots = (
                [o for o in taken if o is not victim],
                _freed(victim, (host,))[host],
            )
            assert fits is not None
            if lacks + slots <= 0 and fits(_needs_on(host, without)):
                lacks, taken = lacks + slots, without
        return taken

    def for_gang(
        self,
        slot_kind: str,
        within: PoolState | None,
        room: GangRoom,
        may_stop: Callable[[PreemptionCandidate], bool] | None = None,
    ) -> list[PreemptionCandidate]:
        """Those after which a gang has room; none if it has not."""
        taken: list[PreemptionCandidate] = []
        victims = filter(may_stop, self._all(slot_kind))
        for victim in self._in_order(victims, slot_kind, within):
            taken.append(victim)
            room.stop(victim.phase, victim.launches)
            if room.is_enough:
                break
        else:
            return []
        for victim in taken[::-1]:  # Spare those that free nothing which is needed after all.
            room.spare(victim.phase, victim.launches)
            if room.is_enough:
                taken.remove(victim)
            else:
                room.stop(victim.phase, victim.launches)
        return taken

    def for_limits(
        self, slot_kinds: Sequence[str], room: LimitRoom, tasks: int
    ) -> list[PreemptionCandidate]:
        """Those after which limits of pools have room for these tasks, or for fewer of them.

        All of them hold what is limited, so they run in the pool of the limit. `room` counts
        them; those that free nothing which is needed are spared.
        """
        taken: list[PreemptionCandidate] = []
        for limit, kind in product(room.left, slot_kinds):
            holders = (v for v in self._all(kind) if freed_of(limit, v.phase, v.launches))
            victims = self._in_order(holders, kind, None)
            while room.tasks_in(limit) < tasks and (victim := next(victims, None)):
                room.stop(victim.phase, victim.launches)
                taken.append(victim)
        tasks = min(tasks, room.tasks)
        for victim in taken[::-1]:
            room.stop(victim.phase, victim.launches, -1)
            if room.tasks >= tasks:
                taken.remove(victim)
            else:
                room.stop(victim.phase, victim.launches)
        return taken

    def _all(self, slot_kind: str) -> Sequence[PreemptionCandidate]:
        return self._stoppable.of(slot_kind, self._is_least)

    def _in_order(
        self, victims: Iterable[PreemptionCandidate], slot_kind: str, within: PoolState | None
    ) -> Iterator[PreemptionCandidate]:
        """Those of these tasks that may be stopped, in order. Each one counts as stopped.

        A job gives only what it holds above its share. For a min share, others give if nobody
        else can: a gang may be too large to be stopped.
        """
        free = [one for one in victims if all(a.host not in self._spared for a in one.launches)]
        enclosing = _Enclosing(self._taker, within, self._of_jobs)
        for turn, spares_jobs in MIN_TURNS if self._is_least else TURNS:
            left = [
                one
                for one in free
                if one.turn == turn and self._stopped.isdisjoint(one.launches)
            ]
            tops = self._givers(left, slot_kind)
            while victim := self._next(tops, enclosing, spares_jobs):
                self._stopped.update(victim.launches)
                yield victim

    def _next(
        self, tops: Mapping[ShareKey, _Giver], enclosing: _Enclosing, spares_jobs: bool
    ) -> PreemptionCandidate | None:
        """The task to stop next, counted as stopped; None if none may be."""
        for key in enclosing.in_order() if tops else ():
            if key in tops and (
                victim := tops[key].give(spares_jobs, self._given, self._stops_left)
            ):
                enclosing.count(key, victim.slots)
                return victim
        return None

    def _givers(
        self, victims: Iterable[PreemptionCandidate], slot_kind: str
    ) -> Mapping[ShareKey, _Giver]:
        """The pools and jobs of these tasks, below each of those that contain the taker."""
        tops: dict[ShareKey, _Giver] = {}
        found: dict[PoolState | JobKey, _Giver] = {}
        for victim in victims:  # The newest first.
            job = victim.phase.pool, victim.phase.id.job
            if job not in found:
                self._stops_left.setdefault(job[1], self._stoppable.stops_left(victim.phase))
                path = list(path_to(victim.phase.pool))
                inside = next(n for n, pool in enumerate(path) if pool.key in self._above)
                if self._of_jobs == bool(inside):
                    continue  # Jobs of a pool take from each other only, pools from others.
                top = path[inside].key
                giver = tops.setdefault(top, _Giver(None, 0.0, inf))
                for pool in path[:inside][::-1]:
                    if pool not in found:
                        found[pool] = _Giver(pool, pool.surplus, pool.spare())
                        giver.below.append(found[pool])
                    giver = found[pool]
                held, share = self._stoppable.job(slot_kind, job)
                found[job] = _Giver(job, held - share, held - int(share + SLOTS))
                giver.below.append(found[job])
            found[job].tasks.append(victim)
        for giver in [*tops.values(), *found.values()][::-1]:  # Inner ones first.
            giver.rebuild_order(self._given)
        return tops


class _Giver:
    """A pool or a job that may give slots; without a name, all that a containing pool holds.

    surplus  the slots that it holds above its share; spare: whole ones that it may give
    below    the pools or jobs in it, and the order in which they give
    tasks    of a job that may be stopped, the newest last
    """

    __slots__ = ("below", "name", "order", "spare", "surplus", "tasks")

    def __init__(self, name: PoolState | JobKey | None, surplus: float, spare: float) -> None:
        self.name, self.surplus, self.spare = name, surplus, spare
        self.below: list[_Giver] = []
        self.tasks: list[PreemptionCandidate] = []
        self.order: list[tuple[float, float, int, _Giver]] = []

    def rebuild_order(self, given: Mapping[PoolState | JobKey, int]) -> None:
        """Find the order of those below it, which know theirs, and count what it has given."""
        if self.name is not None:
            self.count(given.get(self.name, 0))
        self.tasks.reverse()
        self.order = [(*one.rank(), n, one) for n, one in enumerate(self.below)]
        heapify(self.order)

    def rank(self) -> tuple[float, float]:
        """The largest surplus gives first; of equal ones, that with the newest task to stop."""
        giver = self
        while giver.order:
            giver = giver.order[0][-1]
        return -round(self.surplus, 6), -giver.tasks[-1].started

    def count(self, slots: int) -> None:
        """It gives these slots."""
        self.surplus -= slots
        self.spare -= slots

    def give(
        self,
        spares_jobs: bool,
        given: Counter[PoolState | JobKey],
        stops_left: dict[str, float],
    ) -> PreemptionCandidate | None:
        """Stop a task below it; None if none may be. `spares_jobs`: no job at its share gives.

        A pool keeps the whole slots of its share; a job gives while it holds more than that,
        and while it may be stopped more often (`stops_left`, which is counted down).
        """
        while self.order:
            path = [self]
            while path[-1].order and path[-1].spare >= 1:
                path.append(path[-1].order[0][-1])
            last, victim = path[-1], None
            if last.order or (spares_jobs and last.spare < 1):
                last.order, last.tasks = [], []  # It gives no more.
            else:
                victim = last.tasks.pop()
                if stops_left[victim.phase.id.job] < 1 or any(
                    pool.spare < victim.slots for pool in path[:-1]
                ):
                    victim = None
                else:
                    stops_left[victim.phase.id.job] -= 1
            for giver in path[1:] if victim is not None else ():
                assert victim is not None
                assert giver.name is not None
                giver.count(victim.slots)
                given[giver.name] += victim.slots
            for outer, giver in zip(path[-2::-1], path[:0:-1], strict=True):
                if giver.order or giver.tasks:
                    heapreplace(outer.order, (*giver.rank(), outer.order[0][2], giver))
                else:
                    heappop(outer.order)
            if victim is not None:
                return victim
        return None


class _Enclosing:
    """The pools that contain the taker, and in which order slots are taken within them.

    First within the innermost one that holds its share, then within those inside it, which
    lack slots, too, and last from outside. So pools that hold their shares take nothing from
    others for a pool in them, as long as they have what it lacks.
    """

    def __init__(self, taker: PoolState, within: PoolState | None, of_jobs: bool) -> None:
        """Only within a pool, if one is given; it may be a share of another kind of slot.

        `of_jobs`: only within the taker, from its own jobs.
        """
        is_other = within is not None and within.slot_kind != taker.slot_kind
        self._pools = [taker] if of_jobs else list(path_to(taker if is_other else taker.parent))
        if within is not None and not of_jobs:
            keys = [pool.key for pool in self._pools]
            del self._pools[keys.index(within.key) + 1 if within.key in keys else 0 :]
        self._taken = [0] * len(self._pools)  # from outside of each

    def in_order(self) -> Iterator[ShareKey]:
        """The keys of the pools."""
        last = len(self._pools) - 1
        holds = (
            n
            for n, pool in enumerate(self._pools)
            if n == last or pool.expected + self._taken[n] >= pool.held + pool.lacks
        )
        first = next(holds, last)
        for pool in (*self._pools[first::-1], *self._pools[first + 1 :]):
            yield pool.key

    def count(self, key: ShareKey, slots: int) -> None:
        """Slots were taken from directly below this pool."""
        for number, pool in enumerate(self._pools):
            if pool.key == key:
                return
            self._taken[number] += slots


def _needs_on(host: str, victims: Iterable[PreemptionCandidate]) -> list[Resources]:
    """What the tasks of these on a host hold beside slots."""
    return [
        held
        for victim in victims
        for launch in victim.launches
        if launch.host == host and (held := victim.phase.held(launch))
    ]


def _freed(victim: PreemptionCandidate, hosts: Container[str]) -> Counter[str]:
    """The slots that a victim frees on each of these hosts."""
    freed: Counter[str] = Counter()
    for launch in victim.launches:
        if launch.host in hosts:
            freed[launch.host] += victim.phase.width
    return freed


def _newest_first(
    phases: Sequence[PhaseState], now: float, reserved: Callable[[PhaseState], int]
) -> Iterator[PreemptionCandidate]:
    """The tasks not spared at `now`, the newest first, then gangs; guaranteed ones last.

    A phase's own min share, and what is `reserved` for its job, are spared as long as other
    tasks can be stopped.
    """
    running: list[tuple[int, float, int, int, PhaseState, Sequence[Launch]]] = []
    for phase in phases:
        attempts = list(phase.attempts())
        # A task that was stopped before would never end if that went on.
        free = [(since, a) for since, a in attempts if phase.spared_until(a.task) <= now]
        if not phase.is_gang:
            for started, launch in free:
                running.append((0, -started, -phase.order, -launch.task, phase, (launch,)))
        elif attempts and len(free) == len(attempts):
            gang = [launch for _, launch in attempts]
            running.append((1, -attempts[0][0], -phase.order, 0, phase, gang))
    running.sort(key=itemgetter(0, 1, 2, 3))
    left = {phase.id: phase.running - phase.slots_on_lost_hosts for phase in phases}
    guaranteed = []
    for turn, started, _, _, phase, launches in running:
        slots = phase.width * len(launches)
        if left[phase.id] - slots >= max(phase.phase.slots_min, reserved(phase)):
            left[phase.id] -= slots
            yield PreemptionCandidate(phase, launches, -started, turn)
        else:
            guaranteed.append(PreemptionCandidate(phase, launches, -started, 2))
    yield from guaranteed
