"""Promises of dates: which are accepted, when their slots are guaranteed, and when they break.

A job that asks for a promise gets a reservation of slots that its tasks fit in at the
confidence, beside all earlier reservations and what runs, within the share of its pool. Else it
is refused, with the earliest date that could be promised. docs/algorithms/promises.md has the
rules and their reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, inf, log
from typing import NamedTuple, get_args

import numpy as np

from slotwise.core.costs import Floats
from slotwise.core.decisions import (
    AcceptPromise,
    BreakPromise,
    Decision,
    GuaranteePromise,
    PromiseCause,
    RefusePromise,
)
from slotwise.core.estimation import MIN_WORK
from slotwise.core.job import Job, Phase
from slotwise.core.objective import met_until
from slotwise.core.phase_state import PhaseState
from slotwise.core.phase_work import bound_of
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.pools import PROMISES_MAX, Pool, PoolTree
from slotwise.core.promises import (
    Held,
    Lasting,
    OpenPromise,
    TasksLeft,
    add_running,
    factor_of,
    seconds_needed,
    slowest,
)
from slotwise.core.snapshot import Snapshot
from slotwise.policy.allocator import Allocator
from slotwise.policy.fair import Fair
from slotwise.policy.flex import AddOn, Flex
from slotwise.policy.waterline import water_line

INSTANTS = 128
"""About the most instants at which running tasks may end that an answer looks at."""

EXCEEDED_ONCE = 50
"""Of so many phases one may exceed the bound on its error by more than is assumed."""

CANDIDATES = 24
"""The most numbers of slots that are tried for a reservation."""


def keep_promises(snapshot: Snapshot, allocator: Allocator) -> Sequence[Decision]:
    """The next decisions on promises; empty if there is nothing to decide on them."""
    promises, now = snapshot.refresh_promises(), snapshot.now
    for job, one in promises.open.items():
        if now >= one.late_from:
            return [BreakPromise(job, one.decision.at, _cause(one))]
        if _exceeds_its_pool(snapshot, one):
            return [BreakPromise(job, one.decision.at, "pools")]
    for job in promises.asked:
        return [answer(snapshot, snapshot.phases_of(job)[0].job, allocator)]
    found = list[Decision]()
    for job, one in promises.open.items():
        may_differ = snapshot.is_stale or len(snapshot.phases_of(job)) > 1
        if may_differ if one.is_due else now >= one.begins:
            slots = _guaranteed(snapshot, one)
            if not one.is_due or slots != one.guaranteed:
                found.append(GuaranteePromise(job, slots))
    return found


def _cause(one: OpenPromise) -> PromiseCause:
    causes: tuple[PromiseCause, ...] = get_args(PromiseCause)
    return next((cause for cause in causes if cause in one.disturbed), "estimates")


def move_refused(snapshot: Snapshot, job: Job) -> str:
    """Why a job with a promise may not move to the pool that it now has; empty if it may.

    The quota of its user counts there, too, unless it loses its promise by that.
    """
    one = snapshot.promises.open.get(job.id)
    if one is None:
        return ""
    pools, kind = snapshot.pools.with_pools([job.pool]), one.decision.kind
    most = min(pool.max_share(_key(pools, pool, kind)) for pool in pools.path(job.pool))
    return quota_reached(snapshot, job) if most >= one.decision.slots else ""


def _exceeds_its_pool(snapshot: Snapshot, one: OpenPromise) -> bool:
    """Whether a job was moved, or put on hold, where it may not have what it has reserved.

    Else its slots would stay idle. A pool that shrinks with its hosts keeps its promises, as
    these may come back.
    """
    phases = snapshot.phases_of(one.decision.job)
    if not phases or not snapshot.capacity(one.decision.kind):
        return False
    most = min(share.max_share for share in path_to(phases[0].pool))
    return most < (one.decision.slots if "pools" in one.disturbed else 1)


def _guaranteed(snapshot: Snapshot, one: OpenPromise) -> dict[str, int]:
    """The min shares of the ready phases of a promised job, by name: together its slots.

    Fewer if the min shares of others leave no more: these come first.
    """
    kind = one.decision.kind
    phases = [p for p in snapshot.phases_of(one.decision.job) if p.is_ready]
    left = one.decision.slots
    if phases:
        left = min(
            left, snapshot.capacity(kind) - _least_of_others(snapshot, kind, phases[0].pool)
        )
    found: dict[str, int] = {}
    for phase in phases:
        slots = min(left, phase.demand if len(phases) > 1 else phase.max_share)
        slots -= slots % phase.unit
        if slots > 0:
            found[phase.id.phase] = slots
            left -= slots
    return found


def _least_of_others(snapshot: Snapshot, kind: str, own: PoolState) -> int:
    """The min shares of all ready phases without a promise, and of their pools. O(phases)."""
    least = Counter[PoolState]()
    for phase in snapshot.ready(kind):
        if phase.id.job not in snapshot.promises.open:
            least[phase.pool] += phase.phase.slots_min
    return sum(
        max(slots, int(pool.min_share) if pool is not own else 0)
        for pool, slots in least.items()
    )


# The answer to a job that asks for a promise.


class PromisedJob(NamedTuple):
    """A job that was promised a date in the same submission, and has not arrived."""

    job: Job
    promise: AcceptPromise


def answer(
    snapshot: Snapshot,
    job: Job,
    allocator: Allocator | None,
    earlier: Sequence[PromisedJob] = (),
    now: float | None = None,
) -> AcceptPromise | RefusePromise:
    """Whether a job gets its promise. One that was promised before it arrived always does.

    Of the numbers of slots that the share of its pool allows, the one with which it may begin
    latest. `earlier`: further promises that hold. `now`: the present instant, if the job has
    not arrived. O(running tasks + promises^2), by `INSTANTS`.
    """
    assert job.promise is not None, "only such jobs ask"
    at = job.promise
    snapshot.refresh_promises()
    reason = _obstacle(snapshot, job, allocator, earlier)
    if reason and not job.promised:
        return RefusePromise(job.id, at, reason)
    kind = snapshot.cluster.slot_kind(job.phases[0].kind)
    room = _Timeline(snapshot, job, kind, earlier, snapshot.now if now is None else now)
    options = list(_options(snapshot, job, max(1, room.slots_max)))
    found = [
        (begins, -one.slots, one)
        for one in options
        if (begins := room.latest(one.slots, one.seconds, at)) is not None
    ]
    if found:
        begins, _, one = max(found)
    elif job.promised and options:
        one = options[0]
        begins = at - one.seconds
    else:
        ends = [room.earliest(one.slots, one.seconds) for one in options]
        earliest = min(ends, default=inf)
        if not room.slots_max or earliest == inf:
            share = f"the share of pool {job.pool!r} has no room for it"
            return RefusePromise(job.id, at, share)
        return RefusePromise(job.id, at, _no_room(room, options, at), earliest)
    until = min(at, begins + one.seconds)
    return AcceptPromise(job.id, at, kind, one.slots, begins, until, one.factors)


def _no_room(room: _Timeline, options: Sequence[_Option], at: float) -> str:
    """Why no reservation of a job ends by its date."""
    fastest = min(options, key=lambda one: one.seconds)
    if room.now + fastest.seconds <= met_until(at):
        return "earlier promises and what runs leave no room"
    may = "takes" if all(factor == 1 for factor in fastest.factors.values()) else "may take"
    why = "" if may == "takes" else ", as estimates have been wrong so far"
    on = f"{fastest.slots} slot{'s' * (fastest.slots > 1)}"
    return f"it {may} {fastest.seconds:.3g} s on the {on} that it may reserve{why}"


class _Option(NamedTuple):
    """A number of slots, and the seconds that the job needs on them at the confidence."""

    slots: int
    seconds: float
    factors: Mapping[str, float]


def _options(snapshot: Snapshot, job: Job, slots_max: int) -> Iterator[_Option]:
    """The numbers of slots that may be reserved, the largest first."""
    speed, works = slowest(snapshot.cluster), snapshot.works(job)
    margin = _margin(snapshot, job, snapshot.cluster.slot_kind(job.phases[0].kind))
    for slots in _numbers(job, slots_max):
        left: dict[str, TasksLeft] = {}
        factors: dict[str, float] = {}
        by_name = dict(zip([phase.name for phase in job.phases], works, strict=True))
        for phase in job.topological:
            work, count = by_name[phase.name], phase.tasks.count
            at_once = 1 if phase.is_gang else min(count, max(1, slots // phase.slots))
            factor = factor_of(work, 0, ceil(count / at_once), at_once, margin)
            if work.longest > 0:
                is_unknown = work.origin(0) == "assumed"
                most = _most_seconds(job, is_unknown) * speed / work.longest
                factor = most if is_unknown and most < inf else min(factor, most)
            factors[phase.name] = factor
            area, longest = work.expected_left(0) * factor, work.longest * factor
            left[phase.name] = TasksLeft(count, area, longest, phase.slots, phase.waits_for)
        yield _Option(slots, seconds_needed(left, slots) / speed, factors)


def _margin(snapshot: Snapshot, job: Job, kind: str) -> float:
    """By how much the bounds on errors are too low of late, as a logarithm.

    Of 50 phases one may exceed its bound by more: of those that ended last, and of those that
    run and exceed it already. So a change of what users state counts at once (conformal
    prediction). 0 as long as stated work is exact.
    """
    learned = snapshot.works(job)[0].learned.peek()
    if learned.is_exact:
        return 0.0
    found, now = list(learned.exceeded), snapshot.now
    for phase in snapshot.holding(kind):
        if phase.launches and not phase.done and phase.work.origin(0) == "corrected":
            parts = (
                (now - started) * speed / max(MIN_WORK, phase.work.expected(task))
                for task, (_, started, speed) in phase.launches.items()
            )
            if (part := max(parts)) > 0:
                found.append(log(part) - bound_of(phase.work.error(0)[0]))
    found.sort()
    if len(found) < EXCEEDED_ONCE:
        return max([0.0, *found[-1:]])
    return found[-(len(found) // EXCEEDED_ONCE)]


def _most_seconds(job: Job, is_unknown: bool) -> float:
    """The seconds after which an attempt is stopped; or as stated, if no more is known."""
    requested = job.time_requested if is_unknown else None
    stated = [one for one in (requested, job.time_limit) if one is not None]
    return min(stated, default=inf)


def _numbers(job: Job, slots_max: int) -> Iterator[int]:
    """Numbers of slots without waste: each is the least one for its number of rounds."""
    phase = job.phases[0]
    if any(one.is_gang for one in job.phases):
        yield max(one.unit for one in job.phases)
        return
    tasks, width = sum(one.tasks.count for one in job.phases), phase.slots
    most = min(slots_max, sum(one.slots_most for one in job.phases))
    found, rounds = dict[int, None](), 1
    while len(found) < CANDIDATES and rounds <= tasks:
        slots = ceil(tasks / rounds) * width
        found[min(slots, most - most % width)] = None
        rounds += max(1, rounds // 4)
    yield from [slots for slots in found if slots >= width] or [width]


def _obstacle(
    snapshot: Snapshot, job: Job, allocator: Allocator | None, earlier: Sequence[PromisedJob]
) -> str:
    """Why no date can be promised to a job at all; empty if one can."""
    cluster = snapshot.cluster
    if not isinstance(allocator, Fair | Flex | AddOn):
        return "this scheduler keeps no promises; take flex or fair"
    if job.predecessors:
        return "it waits for other jobs; submit it with its promise when they are done"
    if len({cluster.slot_kind(phase.kind) for phase in job.phases}) > 1:
        return "its phases use several kinds of slots; promises are for jobs of one kind"
    for phase, work in zip(job.phases, snapshot.works(job), strict=True):
        if what := _not_reserved(phase, len(cluster.hosts)):
            return f"phase {phase.name!r} {what}"
        work.error(0)  # Adds what was measured since the last estimate.
        is_unknown = work.origin(0) == "assumed"
        if is_unknown and _most_seconds(job, True) == inf:
            return f"the work of phase {phase.name!r} is not known; state it, or a time limit"
    if snapshot.waits_for_admission(job):
        return "its pool runs as many jobs as it may (jobs_max)"
    return quota_reached(snapshot, job, earlier)


def _not_reserved(phase: Phase, hosts: int) -> str:
    """What of a phase a reservation of slots does not cover."""
    if phase.grows or phase.gated:
        return "may get tasks later; submit a job whose tasks are known"
    if phase.continues is not None or phase.hosts:
        return "runs only on some hosts; promises are for tasks that run on any"
    if phase.needs:
        return "requests more than slots; promises are for slots only, so leave out resources"
    if phase.slots > 1 and hosts > 1:
        return "has tasks of several slots, which may not be free on one host; use one slot"
    return ""


def quota_reached(snapshot: Snapshot, job: Job, earlier: Sequence[PromisedJob] = ()) -> str:
    """Which quota of promises of the user of a job its other jobs use up, if they do."""
    user = job.user or snapshot.user
    if user is None:
        return ""
    names = dict.fromkeys([job.pool, *(placed.job.pool for placed in earlier)])
    pools = snapshot.pools.with_pools(names)
    jobs = [
        snapshot.phases_of(name)[0].job for name in snapshot.promises.open if name != job.id
    ]
    jobs += [placed.job for placed in earlier]
    own = [one for one in jobs if (one.user or snapshot.user) == user]
    limits = [(pool.name, pool.promises_max_of(user)) for pool in pools.path(job.pool)]
    stated = [(name, most) for name, most in limits if most is not None]
    for name, most in stated:
        inside = [one for one in own if name in {p.name for p in pools.path(one.pool)}]
        if len(inside) >= most:
            return (
                f"user {user!r} has {len(inside)} open promises in pool {name!r}, as many as it"
                " allows (promises_max_per_user); wait until one is over"
            )
    if not stated and len(own) >= PROMISES_MAX:
        return (
            f"user {user!r} has {len(own)} open promises, the most where no pool states"
            " promises_max_per_user; wait until one is over"
        )
    return ""


# The slots that are left over time for one more reservation.


class _Timeline:
    """The slots that a job may still reserve, as steps over time, from now on.

    slots_max  the most at any time: the share of its pool

    What runs holds its slots until its latest end, and promised jobs what they have reserved if
    that is more. Reservations stay within the share of each pool that contains the job, and
    leave what other pools are guaranteed.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        job: Job,
        kind: str,
        earlier: Sequence[PromisedJob],
        now: float,
    ) -> None:
        self.now = now
        names = dict.fromkeys([job.pool, *(one.job.pool for one in earlier)])
        pools = snapshot.pools.with_pools(names)
        capacity = snapshot.capacity(kind)
        shares = pool_shares(pools, job.pool, kind, capacity)
        self.slots_max = min([capacity, *shares.values()])
        running = [phase for phase in snapshot.holding(kind) if phase.launches]
        reserved = [
            (snapshot.phases_of(one.decision.job)[0].job.pool, one.decision, one.begins)
            for one in snapshot.promises.open.values()
            if one.decision.kind == kind and one.begins < one.decision.until
        ]
        reserved += [(one.job.pool, one.promise, one.promise.begins) for one in earlier]
        edges = [at for _, one, begins in reserved for at in (begins, one.until)]
        self._times = times = _instants(running, edges, now)

        def held(phases: Iterable[PhaseState]) -> Floats:
            found = Held(len(times))
            for phase in phases:
                add_running(found, phase, now, times.tolist(), snapshot.lost, are_alike=True)
            return np.array([max(0.0, found.most(number)) for number in range(len(times))])

        claimed = [
            (pool, one.slots * ((times >= begins) & (times < one.until)))
            for pool, one, begins in reserved
        ]
        more = [
            np.maximum(0, slots - held(p for p in running if p.id.job == one.job))
            for (_, one, _), (_, slots) in zip(reserved, claimed, strict=True)
        ]
        left = capacity - _unmet(snapshot, kind) - held(running) - sum(more)
        for share in snapshot.shares(kind):
            if share.key not in pools.shares(job.pool, job.phases[0].kind):
                continue
            if share.max_share < inf and share.total is None:
                inside = [one for one in running if share in path_to(one.pool)]
                beside = [
                    slots
                    for slots, (pool, _) in zip(more, claimed, strict=True)
                    if share.name in {one.name for one in pools.path(pool)}
                ]
                most = share.max_on_responsive - held(inside) - sum(beside)
                left = np.minimum(left, most)
        for name, slots in shares.items():
            in_pool = [c for pool, c in claimed if name in {p.name for p in pools.path(pool)}]
            left = np.minimum(left, slots - sum(in_pool))
        top = pools.path(job.pool)[0].name
        guaranteed = capacity + np.zeros(len(times))
        for name, floor in least_shares(pools, kind, capacity).items():
            in_pool = [c for pool, c in claimed if pools.path(pool)[0].name == name]
            guaranteed -= np.maximum(0 if name == top else floor, sum(in_pool))
        self._left = np.minimum(left, guaranteed).tolist()

    def latest(self, slots: int, seconds: float, until: float) -> float | None:
        """The latest start of a reservation that ends by an instant; None if it has no room."""
        starts = [
            max(begin, min(end, until) - seconds)
            for begin, end in self._free(slots)
            if begin + seconds <= met_until(min(end, until))
        ]
        return max(starts, default=None)

    def earliest(self, slots: int, seconds: float) -> float:
        """The earliest end of a reservation; infinity if it never has room."""
        ends = (b + seconds for b, end in self._free(slots) if b + seconds <= met_until(end))
        return min(ends, default=inf)

    def _free(self, slots: int) -> Iterator[tuple[float, float]]:
        """The intervals in which as many slots are left."""
        begin = None
        for at, left in zip(self._times.tolist(), self._left, strict=True):
            if left < slots and begin is not None:
                yield begin, at
                begin = None
            elif left >= slots and begin is None:
                begin = at
        if begin is not None:
            yield begin, inf


def _instants(running: Sequence[PhaseState], edges: Sequence[float], now: float) -> Floats:
    """The instants at which the room is found; between two of them it only grows.

    Those where tasks may end, of which only some are taken if there are many, and all edges.
    """
    ends = set[float]()
    for phase in running:
        lasting = Lasting.of(phase)
        for task, (_, started, speed) in phase.launches.items():
            ends.update(lasting.ends(phase.work.expected(task) / speed, started, now))
    later = sorted(at for at in ends if at > now)
    later = [*later[:: 1 + len(later) // INSTANTS], *later[-1:]]
    return np.array(sorted({now, *later, *(at for at in edges if at > now)}))


def _unmet(snapshot: Snapshot, kind: str) -> int:
    """The slots of min shares that jobs without a promise, or their pools, lack now."""
    unmet = Counter[PoolState]()
    for phase in snapshot.ready(kind):
        if phase.id.job not in snapshot.promises.open and phase.id.job not in (
            snapshot.promises.asked
        ):
            lacks = min(phase.phase.slots_min, phase.demand) - phase.running
            unmet[phase.pool] += max(0, lacks)
    return sum(
        max(lacks, int(min(pool.min_share, pool.usable)) - pool.held)
        for pool, lacks in unmet.items()
    )


def pool_shares(pools: PoolTree, pool: str, kind: str, capacity: int) -> dict[str, int]:
    """The whole slots of a kind that a pool, and those that contain it, get by weight.

    If all pools had enough to do: min shares are kept, max shares are not exceeded. One at
    least, since a part of a slot is a slot for a part of the time. O(pools).
    """
    slots, parent, found = float(capacity), None, dict[str, int]()
    least = _floors(pools, kind, capacity)
    for one in pools.path(pool):
        level = [other for other in pools.values() if other.parent == parent]
        tops = [min(other.max_share(_key(pools, other, kind)), capacity) for other in level]
        parts = water_line(
            slots, [p.weight or 1.0 for p in level], [least[p.name] for p in level], tops
        )
        slots, parent = parts[level.index(one)], one.name
        found[one.name] = max(whole(slots), 1 if slots > 0 else 0)
    return found


def least_shares(pools: PoolTree, kind: str, capacity: int) -> dict[str, int]:
    """The slots of a kind that the pools at the top are guaranteed, with all below them."""
    least = _floors(pools, kind, capacity)
    return {name: int(least[name]) for name, pool in pools.items() if pool.parent is None}


def _floors(pools: PoolTree, kind: str, capacity: int) -> dict[str, float]:
    """The min share of each pool, or the sum of those below it if that is more."""
    floors: dict[str, float] = defaultdict(float)
    for name in sorted(pools, key=lambda one: -len(pools.path(one))):  # Inner ones first.
        pool, key = pools[name], _key(pools, pools[name], kind)
        own = max(float(pool.slots_min.get(key, 0)), floors[name])
        floors[name] = min(own, pool.max_share(key), capacity)
        if pool.parent is not None:
            floors[pool.parent] += floors[name]
    return floors


def _key(pools: PoolTree, pool: Pool, kind: str) -> str:
    return pools.shares(pool.name, kind)[-1].kind
