"""Allocations of what changed: cheap where many phases wait and few of them come or leave.

Allocators compute the slots of all claims. That costs O(n) with n phases, too much for each of
n arrivals. Two properties of allocators let most of these computations be left out:

in order   the allocator serves claims in an order, and where it places a claim depends on that
           claim alone. Then only the first claims count: those that can use all slots, and some
           more, of which one comes next whenever one of them ends. `first_in_order` names them
           when all claims are allocated slots. Until then, a change costs O(slots + n / 100)
by level   in a pool, claims get slots in proportion to their weights, up to what they can use.
           A job whose phases came or ended gets as many as another job of its pool for its
           weight; the others keep theirs. A change costs O(phases of the job). All of these
           changes together concern at most 1 % of the slots of the pool: a job of large weight
           among many small ones, or the first one of a FIFO pool, is not slight

In each pool, at most one change for a hundred phases is treated in this way before all claims
are allocated slots again. So shares by level are exact within about 1 %, and a change costs
O(100) of them on average. Where fewer than a hundred phases are ready, nothing is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import NamedTuple

from slotwise.core.changes import SLIGHT
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.allocator import Allocator, Claims, InOrder, is_by_level, is_in_order
from slotwise.policy.claims import check_shares, claims_of
from slotwise.policy.flex import of_whole_jobs
from slotwise.policy.waterline import water_line

TRIED = 20
"""How many phases of a pool are examined to find one that shows the level of the pool."""


class First(NamedTuple):
    """The claims that come first, besides those with slots; and the work of all others by kind
    of slot, in slot-seconds."""

    phases: tuple[PhaseId, ...]
    later_work: Mapping[str, float]


def first_in_order(
    allocator: Allocator, ids: Mapping[str, Sequence[PhaseId]], claims: Mapping[str, Claims]
) -> First | None:
    """The claims that come first if few change; None if the allocator serves them otherwise."""
    if not is_in_order(allocator) or all(len(names) < SLIGHT for names in ids.values()):
        return None
    phases: list[PhaseId] = []
    later_work: dict[str, float] = {}
    for kind, of_kind in claims.items():
        if any(group.slots_min > 0 or group.slots_max < inf for group in of_kind.groups):
            return None  # Which claims come first depends on others in their pools.
        order = allocator.order(of_kind)
        if order is None:
            return None
        count, room = 0, float(of_kind.capacity)
        while count < len(order) and room > 0:
            room -= of_kind.max_share[order[count]]
            count += 1
        count += len(order) // SLIGHT + 1
        phases += [ids[kind][number] for number in order[:count]]
        if of_kind.work:
            later_work[kind] = float(of_whole_jobs(of_kind)[order[count:]].sum())
    return First(tuple(phases), later_work)


def adjust(allocator: Allocator, snapshot: Snapshot) -> dict[PhaseId, float] | None:
    """The phases whose slots change, 0 for those that left; None if all must be considered."""
    changes = snapshot.changes
    if not changes.is_slight or snapshot.lost:
        return None
    found = None
    if is_in_order(allocator):
        found = _in_order(allocator, snapshot)
    elif is_by_level(allocator):
        found = _by_level(snapshot)
    return None if found is None else dict.fromkeys(changes.ended, 0.0) | found


def _in_order(allocator: InOrder, snapshot: Snapshot) -> dict[PhaseId, float] | None:
    changes = snapshot.changes
    if changes.front is None:
        return None
    found: dict[PhaseId, float] = {}
    for kind, front in changes.front.items():
        ready = snapshot.ready(kind)
        if not ready:
            continue
        phases = sorted(
            [*front.values(), *changes.others[kind].values()], key=lambda phase: phase.order
        )
        room = snapshot.capacity(kind)
        if len(phases) < len(ready) and sum(map(_usable, front.values())) < room:
            return None  # Others come next, perhaps before those that came late.
        _, claims = claims_of(snapshot, kind, allocator.reads_work, phases)
        if claims.request:
            return None  # Which claims come first depends on what others leave.
        claims = replace(claims, later_work=changes.later_work.get(kind, 0.0))
        shares = allocator.share(claims)
        check_shares(allocator, claims, shares)
        named = zip(phases, shares, strict=True)
        found |= {phase.id: share for phase, share in named if share != phase.allocated}
    return found


def _by_level(snapshot: Snapshot) -> dict[PhaseId, float] | None:
    ended, came = snapshot.changes.ended.values(), snapshot.changes.came.values()
    jobs = {(phase.job.id, phase.pool): phase for phase in (*ended, *came)}
    found: dict[PhaseId, float] = {}
    levels: dict[PoolState, float | None] = {}
    moved: defaultdict[PoolState, float] = defaultdict(float)
    for phase in ended:
        moved[phase.pool] += phase.allocated
    for (_, pool), phase in jobs.items():
        of_job = _ready_together(snapshot, phase)
        if not of_job:
            continue  # It has no ready phases any more.
        if pool not in levels:
            levels[pool] = _level(snapshot, phase, jobs)
        level = levels[pool]
        if level is None or any(one.phase.slots_min for one in of_job):
            return None
        slots, usable = level * phase.job.share_weight, [_usable(one) for one in of_job]
        count = len(of_job)
        shares = water_line(slots, [1.0] * count, [0.0] * count, usable)
        for one, share in zip(of_job, shares, strict=True):
            if share != one.allocated:
                found[one.id] = share
                moved[pool] += abs(share - one.allocated)
    for pool, slots in moved.items():
        if (pool.moved + slots) * SLIGHT > pool.allocated * (1 + SLOTS):
            return None
    return found


def _level(
    snapshot: Snapshot, like: PhaseState, changed: Container[tuple[str, PoolState]]
) -> float | None:
    """The slots for each unit of weight in the pool of a phase; None if it is unknown."""
    pool = snapshot.pools[like.job.pool]
    if pool.policy != "fair" or pool.job_weights == "size":
        return None
    for phase in islice(phases_below(like.pool), TRIED):
        if (phase.job.id, phase.pool) in changed:
            continue
        of_job = _ready_together(snapshot, phase)
        slots = sum([one.allocated for one in of_job])
        is_full = all(one.allocated >= _usable(one) for one in of_job)
        if slots and not is_full and not any(one.phase.slots_min for one in of_job):
            return slots / phase.job.share_weight
    return None


def _ready_together(snapshot: Snapshot, phase: PhaseState) -> Sequence[PhaseState]:
    """The ready phases of the job of a phase that count against the same share of its pool."""
    if len(phase.job.phases) == 1:
        return (phase,) if phase.is_ready else ()
    others = snapshot.phases_of(phase.job.id)
    return [other for other in others if other.is_ready and other.pool is phase.pool]


def _usable(phase: PhaseState) -> float:
    """The slots that a phase can use, where all hosts are responsive."""
    return min(phase.max_share, phase.pending * phase.width + phase.running)
