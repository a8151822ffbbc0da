"""Claims of ready phases, for decisions and for plans, and the allocation of a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, compress
from math import floor, inf, log2

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import VirtualTime
from slotwise.core.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.core.objective import Size
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState
from slotwise.core.pools import Pool, ShareKey
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.allocator import (
    Allocator,
    Claims,
    Group,
    Waiting,
    is_joint,
    reads_service,
)
from slotwise.policy.resource_shares import occupied_by_slot, share_all

SURE = 0.5
"""The spread of an estimate up to which a phase is ranked by it. Phases of larger spreads are
measured first; a spread of 0.7 is a factor of 2 either way."""


def allocate(allocator: Allocator, snapshot: Snapshot) -> dict[PhaseId, float]:
    """How many slots each ready phase should hold now, on each kind of slot; without zeros."""
    return share_out(allocator, *all_claims(allocator, snapshot))


def all_claims(
    allocator: Allocator, snapshot: Snapshot, virtual: VirtualTime | None = None
) -> tuple[dict[str, list[PhaseId]], dict[str, Claims]]:
    """The ready phases and their claims, by kind of slot.

    `virtual` is for a `FinishReader`: the reference system now.
    """
    ids: dict[str, list[PhaseId]] = {}
    claims: dict[str, Claims] = {}
    for kind in snapshot.cluster.capacity:
        if not snapshot.capacity(kind):
            continue  # All hosts with slots of this kind are unresponsive.
        found = kept_claims(snapshot, kind, allocator.reads_work)
        of_kind, claimed = found or claims_of(snapshot, kind, allocator.reads_work)
        if of_kind:
            ids[kind] = of_kind
            if reads_service(allocator):
                claimed = _with_attained(snapshot, of_kind, claimed)
            claims[kind] = with_standing(claimed, {}, virtual.finish if virtual else {})
    if snapshot.awaiting_jobs and is_joint(allocator):
        waiting = {
            name: Waiting(snapshot.phases_of(name)[0].job, others)
            for name, others in snapshot.awaiting_jobs.items()
        }
        claims = {kind: replace(one, waiting=waiting) for kind, one in claims.items()}
    return ids, claims


def _with_attained(snapshot: Snapshot, ids: Sequence[PhaseId], claims: Claims) -> Claims:
    """The claims of these phases with the service that their jobs have attained."""
    now = snapshot.now
    if claims.job_weight:  # Each phase is a job, and most of those that wait have none.
        served = [
            phase.attained(now) if phase.launches or phase.done else 0.0
            for phase in map(snapshot.phase, ids)
        ]
        return replace(claims, attained=served)
    attained = {
        phases[0].id.job: sum([phase.attained(now) for phase in phases])
        for phases in snapshot.jobs_left()
    }
    return with_standing(claims, attained, {})


def share_out(
    allocator: Allocator, ids: Mapping[str, list[PhaseId]], claims: Mapping[str, Claims]
) -> dict[PhaseId, float]:
    """The slots of these phases by these claims; without zeros."""
    allocation: dict[PhaseId, float] = {}
    for kind, shares in share_all(allocator, claims).items():
        check_shares(allocator, claims[kind], shares)
        allocation.update(compress(zip(ids[kind], shares, strict=True), shares))
    return allocation


def claims_of(
    snapshot: Snapshot,
    slot_kind: str,
    with_work: bool = True,
    phases: Sequence[PhaseState] | None = None,
) -> tuple[list[PhaseId], Claims]:
    """The ready phases, or these of them, that claim one kind of slot, and their claims. O(J).

    Only responsive hosts count: tasks that run on other hosts claim no slots.
    """
    now = snapshot.now
    if phases is None:
        phases = snapshot.ready(slot_kind)
    if snapshot.lost:
        phases = [
            p
            for p in phases
            if p.slots_on_lost_hosts < min(p.max_share, p.pending * p.width + p.running)
        ]
    if snapshot.has_wide:
        phases = [p for p in phases if p.max_share]  # Its hosts may come later.
    left = [p.pending * p.width + p.running for p in phases]

    def tasks_left(job: str) -> int:
        return sum([p.tasks_left for p in snapshot.phases_of(job)])

    estimates = [p.estimate(now) for p in phases] if with_work else []
    claims = build_claims(
        snapshot.capacity(slot_kind),
        [(p.job, p.phase) for p in phases],
        tasks_left=tasks_left,
        max_share=[
            min(p.max_share, n) - p.slots_on_lost_hosts
            for p, n in zip(phases, left, strict=True)
        ],
        paths=[p.shares for p in phases],
        pools=snapshot.pools,
        cluster=snapshot.cluster,
        now=now,
        work=[work for work, _ in estimates],
        place=[p.order for p in phases],
        unmeasured=[spread > SURE for _, spread in estimates],
        left=_left(snapshot, phases) if with_work else {},
    )
    if snapshot.has_requests(slot_kind):
        request = [p.request for p in phases]
        claims = replace(claims, request=request, totals=snapshot.totals)
    if snapshot.lost:
        groups = _without_lost_slots(phases, claims.group, claims.groups)
        present = {kind: snapshot.capacity(kind) for kind in snapshot.cluster.capacity}
        claims = replace(claims, groups=groups, present=present)
    return [p.id for p in phases], claims


def kept_claims(
    snapshot: Snapshot, slot_kind: str, with_work: bool = True
) -> tuple[list[PhaseId], Claims] | None:
    """The same as `claims_of` for all ready phases, from columns that the snapshot keeps.

    About four times as fast where thousands of phases wait. None where more must be looked at:
    unresponsive hosts, pinned tasks, phases that fit on no host, and weights by size.
    """
    ready = snapshot.ready_phases(slot_kind)
    columns, now = ready.columns(), snapshot.now
    phases = columns.phase
    max_share = [phase.counted for phase in phases]
    if snapshot.lost or ready.pinned or 0 in max_share:
        return None
    paths = dict(zip(columns.pool, columns.path, strict=True))  # In order of appearance.
    if any(snapshot.pools[path[-1].pool].job_weights == "size" for path in paths.values()):
        return None
    members, groups = group_by_shares([*paths.values()], snapshot.pools)
    number = dict(zip(paths, members, strict=True))
    min_share: list[float] = [0.0] * len(phases)
    if any(columns.slots_min):
        floors = zip(columns.slots_min, max_share, strict=True)
        min_share = [min(least, top) if least else 0.0 for least, top in floors]
    estimates = ready.estimates(now) if with_work else []
    claims = Claims(
        snapshot.capacity(slot_kind),
        weight=columns.weight,
        arrival=columns.arrival,
        work=[work for work, _ in estimates],
        min_share=min_share,
        max_share=max_share,
        group=list(map(number.__getitem__, columns.pool)),
        groups=groups,
        owner=columns.owner,
        cluster=snapshot.cluster,
        now=now,
        priority=[] if columns.priority.count(1.0) == len(phases) else columns.priority,
        place=columns.place,
        unmeasured=[spread > SURE for _, spread in estimates],
        left=_left(snapshot, phases) if with_work and ready.several else {},
        job_weight=() if ready.several or ready.unlike else columns.job_weight,
        deadline=() if ready.several or ready.unlike else columns.deadline,
    )
    if snapshot.has_requests(slot_kind):
        claims = replace(claims, request=ready.requests(), totals=snapshot.totals)
    return columns.id, claims


def with_standing(
    claims: Claims, attained: Mapping[str, float], finish: Mapping[str, float]
) -> Claims:
    """The claims with the attained service and the virtual finish of their jobs, if given."""
    if not attained and not finish:
        return claims
    return replace(
        claims,
        attained=[attained[job.id] for job, _ in claims.owner] if attained else (),
        finish=[finish[job.id] for job, _ in claims.owner] if finish else (),
    )


def build_claims(
    capacity: int,
    owner: Sequence[tuple[Job, Phase]],
    *,
    tasks_left: Callable[[str], int],
    max_share: Sequence[float],
    paths: Sequence[Sequence[ShareKey]],
    pools: Mapping[str, Pool],
    cluster: Cluster,
    now: float,
    work: Sequence[float],
    place: Sequence[int],
    unmeasured: Sequence[bool] = (),
    left: Mapping[str, Sequence[float]] | None = None,
) -> Claims:
    """The claims of these jobs and phases, in order of arrival, on one kind of slot. O(J).

    tasks_left  the unfinished tasks of a job
    paths       the shares that each claim counts against: see `group_by_shares`
    work        as in `Claims`; empty for an allocator that does not read work
    """
    jobs = [job for job, _ in owner]
    group, groups = group_by_shares(paths, pools)
    return Claims(
        capacity,
        weight=weights_of(jobs, tasks_left, pools),
        arrival=[job.arrival for job in jobs],
        work=work,
        min_share=[
            min(phase.slots_min, top) if phase.slots_min else 0.0
            for (_, phase), top in zip(owner, max_share, strict=True)
        ],
        max_share=max_share,
        group=group,
        groups=groups,
        owner=owner,
        cluster=cluster,
        now=now,
        priority=urgencies(jobs),
        place=place,
        unmeasured=unmeasured,
        left=left or {},
    )


def _left(snapshot: Snapshot, phases: Sequence[PhaseState]) -> dict[str, Sequence[float]]:
    """The remaining work of all phases of the jobs of these phases that have several.

    As `Claims.left` has it: by what their tasks occupy.
    """
    now, phases_of, cluster = snapshot.now, snapshot.phases_of, snapshot.cluster
    jobs = dict.fromkeys([p.id.job for p in phases if len(p.job.phases) > 1])
    return {
        job: [p.estimate(now)[0] * occupied_by_slot(p.phase, cluster) for p in phases_of(job)]
        for job in jobs
    }


def group_by_shares(
    paths: Sequence[Sequence[ShareKey]], pools: Mapping[str, Pool]
) -> tuple[list[int], list[Group]]:
    """For claims that count against these shares: the group of each claim, and all groups.

    Each path leads from a top-level pool down to the pool of the claim's job. A pool with two
    shares under the same parent splits its weight between them. O(J + pools).
    """
    index: dict[ShareKey, int] = {}
    above: list[int] = []
    members = []
    for path in paths:
        if (member := index.get(path[-1])) is None:
            member = -1
            for key in path:
                parent, member = member, index.setdefault(key, len(index))
                if member == len(above):
                    above.append(parent)
        members.append(member)
    siblings = Counter((key.pool, parent) for key, parent in zip(index, above, strict=True))
    groups = []
    for key, parent in zip(index, above, strict=True):
        pool = pools[key.pool]
        groups.append(
            Group(
                # Without a weight its min and max share are the same, whatever the level.
                weight=(pool.weight or 1.0) / siblings[key.pool, parent],
                slots_min=pool.slots_min.get(key.kind, 0),
                slots_max=pool.max_share(key.kind),
                policy=pool.policy,
                parent=parent,
                key=key,
                limits=pool.resources_max,
            )
        )
    return members, groups


def weights_of(
    jobs: Sequence[Job], tasks_left: Callable[[str], int], pools: Mapping[str, Pool]
) -> list[float]:
    """The weights by which these jobs share within their pools.

    In a pool with `job_weights: size`, the weight is the job's share weight times
    log2(1 + unfinished tasks of all its phases), as with `sizebasedweight` of the Hadoop Fair
    Scheduler, which counts the tasks of one kind.
    """
    sized = {name for name in {job.pool for job in jobs} if pools[name].job_weights == "size"}
    if not sized:
        return [job.share_weight for job in jobs]
    factor = {
        name: log2(1 + tasks_left(name))
        for name in dict.fromkeys([job.id for job in jobs if job.pool in sized])
    }
    return [job.share_weight * factor.get(job.id, 1.0) for job in jobs]


def urgencies(jobs: Sequence[Job]) -> list[float]:
    """The priority of each job as a number; empty if all are normal."""
    if not {job.priority for job in jobs} - {"normal"}:
        return []
    return [PRIORITIES[job.priority] for job in jobs]


def _without_lost_slots(
    phases: Sequence[PhaseState], group: Sequence[int], groups: Sequence[Group]
) -> list[Group]:
    """The groups with max shares and limits reduced by what is held on unresponsive hosts.

    They are hard, and tasks there may still run when these hosts respond again.
    """
    found = list(groups)
    for phase, number in zip(phases, group, strict=True):
        pool: PoolState | None = phase.pool
        while pool is not None and number >= 0:
            # More may be held there than a max share that was lowered meanwhile.
            limits = {one.name: max(0, one.most - one.lost) for one in pool.own_limits}
            most = max(0, pool.max_on_responsive)
            found[number] = replace(groups[number], slots_max=most, limits=limits)
            pool, number = pool.parent, groups[number].parent
    return found


def check_shares(allocator: Allocator, claims: Claims, shares: Sequence[float]) -> None:
    """Assert the contract of allocators: one share per claim, in sum at most the capacity."""
    name = type(allocator).__name__
    room = claims.capacity * (1 + SLOTS)
    assert len(shares) == len(claims), f"{name} gives {len(shares)} shares"
    # A comparison with NaN is false, so these hold for numbers only.
    assert sum(shares) <= room, f"{name} gives {sum(shares)} of {claims.capacity} slots"
    assert min(shares) >= 0, f"{name} gives a share below 0"


# The minimum duration of a job by its stated work: its paths and area on a cluster.

LEAST = 1e-9
"""Seconds; a lower limit for sizes, which occur as divisors."""


JOBS_KEPT = 10_000
"""The number of multi-phase jobs whose paths are cached, since each decision needs them."""


def size_on(job: Job, cluster: Cluster) -> Size:
    """The job's work, and the minimum time that it takes alone. O(phases) at the first call."""
    if len(job.phases) > 1:
        return _kept(_On(job, cluster))[0]
    # `_size` gives the same in more than twice the time, and the cache is for longer jobs.
    phase = job.phases[0]
    return Size(max(phase.work_total() or 0.0, LEAST), max(LEAST, _length(phase, cluster)))


def tail_on(job: Job, phase: Phase, cluster: Cluster) -> float:
    """The minimum time from the end of a phase to the completion of its job, seconds."""
    if len(job.phases) == 1:
        return 0.0
    return _kept(_On(job, cluster))[1][phase.name] - _length(phase, cluster)


class _On:
    """A job on a cluster as a cache key; compares by identity, which is fast."""

    __slots__ = ("cluster", "job")

    def __init__(self, job: Job, cluster: Cluster) -> None:
        self.job, self.cluster = job, cluster

    def __hash__(self) -> int:
        return id(self.job)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _On)
        return self.job is other.job and self.cluster is other.cluster


@lru_cache(JOBS_KEPT)
def _kept(on: _On) -> tuple[Size, dict[str, float]]:
    return _size(on.job, on.cluster), _to_the_end(on.job, on.cluster)


def _size(job: Job, cluster: Cluster) -> Size:
    path = max(_to_the_end(job, cluster).values())
    return Size(max(job.work or 0.0, LEAST), max(LEAST, path, _area(job, cluster)))


def _to_the_end(job: Job, cluster: Cluster) -> dict[str, float]:
    """The minimum time from the start of each phase to the completion of the job."""
    ends: dict[str, float] = {phase.name: 0.0 for phase in job.phases}  # From its end on.
    times: dict[str, float] = {}
    for phase in reversed(list(job.topological)):
        times[phase.name] = _length(phase, cluster) + ends[phase.name]
        for before in phase.waits_for:
            ends[before] = max(ends[before], times[phase.name])
    return times


def _area(job: Job, cluster: Cluster) -> float:
    """The time of its work on all slots of a kind, or with all of a resource: the maximum."""
    work: dict[str, float] = {}
    for phase in job.phases:
        kind = cluster.slot_kind(phase.kind)
        work[kind] = work.get(kind, 0.0) + (phase.work_total() or 0.0)
        for name, needed in phase.needs.pairs:
            held = (phase.work_total() or 0.0) / phase.slots * needed
            work[name] = work.get(name, 0.0) + held
    # A kind without slots counts as one slot: its phases wait for a host.
    return max(amount / max(cluster.totals.get(name, 0), 1) for name, amount in work.items())


def _length(phase: Phase, cluster: Cluster) -> float:
    kind = cluster.slot_kind(phase.kind)
    slots = min(phase.slots_most, cluster.capacity[kind])
    if phase.needs:  # It holds no more slots at once than those of the tasks that fit.
        fit = cluster.fit(Resources({kind: phase.slots, **phase.needs}))
        slots = min(slots, fit * phase.slots)
    return (phase.work_total() or 0.0) / max(slots, 1)


# The slots of one task for each phase of unknown work, so that it gets measured (FLEX 4.2).

SLOT = 1.0
"""The least number of slots that measuring may take where there is room."""

PART = 0.5
"""The part of the slots without a guarantee that measuring may take from seen phases, and the
part of a pool's guarantee beyond the min shares in it. Whole slots, at least one."""


def with_measuring(claims: Claims) -> Claims:
    """The claims with min shares raised to the slots of one task for those that are unseen.

    FLEX extrapolates from finished tasks, so "we ensure that its number of minimum slots is at
    least 1" (FLEX 4.2). Unseen claims are raised while there is room, in turn the one of least
    estimated work and the one that arrived first: small jobs are measured soon, and all of them
    finally. Room is what is not guaranteed to others, within the max shares of the pools, and
    only `PART` of that if seen claims can use the rest. So with two or more slots, measuring
    alone never makes seen claims wait, however many unseen phases arrive. No guarantee of a
    claim or a pool becomes smaller. O(J log J), and O(J) for each level of pools.
    """
    if not any(claims.unmeasured):
        return claims
    min_share = [float(low) for low in claims.min_share]
    pools = [*claims.groups, Group(1.0, claims.capacity, inf)]  # All slots are number -1.
    held, room = _rooms(claims, pools)
    left = sum(room)
    for claim in _in_turn(claims):
        path = [claims.group[claim]]
        while path[-1] >= 0:
            path.append(pools[path[-1]].parent)
        task = float(claims.owner[claim][1].slots)
        more, inside = min(task, claims.max_share[claim]) - min_share[claim], 0.0
        for pool in path:
            more = min(more, inside + pools[pool].slots_max - held[pool])
            inside += room[pool]
        more = max(0.0, min(more, inside))
        min_share[claim] += more
        for pool in path:
            held[pool] += more
            inside = min(more, room[pool])
            room[pool] -= inside
            left -= inside
            more -= inside
        if left < SLOT and not any(room):
            break  # Nothing is left for the others, which may be thousands.
    return replace(claims, min_share=min_share)


def _in_turn(claims: Claims) -> Iterable[int]:
    """The unseen claims: the one of least work, the one that arrived first, and so on."""
    by_arrival = list(compress(range(len(claims)), claims.unmeasured))
    by_work = sorted(by_arrival, key=lambda claim: claims.work[claim] / claims.weight[claim])
    return dict.fromkeys(chain.from_iterable(zip(by_work, by_arrival, strict=True)))


def _rooms(claims: Claims, pools: Sequence[Group]) -> tuple[list[float], list[float]]:
    """Guaranteed slots in each pool, and the part of its guarantee that measuring may use."""
    held, top, seen, room = ([0.0] * len(pools) for _ in range(4))
    rows = zip(claims.group, claims.min_share, claims.max_share, claims.unmeasured, strict=True)
    for number, min_share, max_share, unmeasured in rows:
        held[number] += min_share
        top[number] += max_share
        seen[number] += 0.0 if unmeasured else max_share - min_share
    for number in reversed(range(-1, len(pools) - 1)):
        pool = pools[number]
        top[number] = min(top[number], pool.slots_max)
        spare = max(0.0, min(pool.slots_min, top[number]) - held[number])
        part = min(spare, max(SLOT, floor(PART * spare)))
        room[number] = max(part, spare - seen[number])
        if number >= 0:
            held[pool.parent] += held[number] + spare
            top[pool.parent] += top[number]
            seen[pool.parent] += seen[number]
    return held, room
