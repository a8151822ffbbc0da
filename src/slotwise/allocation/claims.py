"""Claims of ready phases, for decisions and for plans, and the allocation of a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, log2

from slotwise.allocation.kinds import share_all
from slotwise.allocation.problem import Allocator, Claims, Group, reads_service
from slotwise.allocation.tolerances import SLOTS
from slotwise.model.cluster import Cluster
from slotwise.model.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import ShareKey
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView, PoolView
from slotwise.model.virtual_time import VirtualTime

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
    attained: dict[str, float] = {}
    if reads_service(allocator):
        for phases in snapshot.jobs_left():
            service = sum([phase.attained(snapshot.now) for phase in phases])
            attained[phases[0].job.id] = service
    ids: dict[str, list[PhaseId]] = {}
    claims: dict[str, Claims] = {}
    for kind in snapshot.cluster.capacity:
        if not snapshot.capacity(kind):
            continue  # All hosts with slots of this kind are unresponsive.
        of_kind, claimed = claims_of(snapshot, kind, allocator.reads_work)
        if of_kind:
            ids[kind] = of_kind
            claims[kind] = with_standing(claimed, attained, virtual.finish if virtual else {})
    return ids, claims


def share_out(
    allocator: Allocator, ids: Mapping[str, list[PhaseId]], claims: Mapping[str, Claims]
) -> dict[PhaseId, float]:
    """The slots of these phases by these claims; without zeros."""
    allocation: dict[PhaseId, float] = {}
    for kind, shares in share_all(allocator, claims).items():
        check_shares(allocator, claims[kind], shares)
        named = zip(ids[kind], shares, strict=True)
        allocation.update((phase, share) for phase, share in named if share)
    return allocation


def claims_of(
    snapshot: Snapshot,
    slot_kind: str,
    with_work: bool = True,
    phases: Sequence[PhaseView] | None = None,
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
    if snapshot.lost:
        groups = _without_away(phases, claims.group, claims.groups)
        present = {kind: snapshot.capacity(kind) for kind in snapshot.cluster.capacity}
        claims = replace(claims, groups=groups, present=present)
    return [p.id for p in phases], claims


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


def _left(snapshot: Snapshot, phases: Sequence[PhaseView]) -> dict[str, Sequence[float]]:
    """The remaining work of all phases of the jobs of these phases that have several."""
    now, phases_of = snapshot.now, snapshot.phases_of
    jobs = dict.fromkeys([p.id.job for p in phases if len(p.job.phases) > 1])
    return {job: [p.estimate(now)[0] for p in phases_of(job)] for job in jobs}


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
                weight=pool.weight / siblings[key.pool, parent],
                slots_min=pool.slots_min.get(key.kind, 0),
                slots_max=pool.slots_max.get(key.kind, inf),
                policy=pool.policy,
                parent=parent,
                key=key,
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


def _without_away(
    phases: Sequence[PhaseView], group: Sequence[int], groups: Sequence[Group]
) -> list[Group]:
    """The groups with max shares reduced by the slots held on unresponsive hosts.

    Max shares are hard, and tasks there may still run when these hosts respond again.
    """
    found = list(groups)
    for phase, number in zip(phases, group, strict=True):
        pool: PoolView | None = phase.pool
        while pool is not None and number >= 0:
            # More may be held there than a max share that was lowered meanwhile.
            found[number] = replace(groups[number], slots_max=max(0, pool.most_there))
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
