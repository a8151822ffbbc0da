"""The numeric problem that every allocator solves: claims on the slots of one kind.

An allocator is a function of this small value, not of the state of the cluster. So it can be
tested, timed and compared with exact methods in isolation. Both the scheduler and the planner
create it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import Protocol, runtime_checkable

from slotwise.allocation.kinds import share_in_kinds
from slotwise.allocation.tolerances import SLOTS
from slotwise.model.cluster import Cluster
from slotwise.model.job import PRIORITIES, Job, Phase, PhaseId, Tasks
from slotwise.model.pool import Pool, PoolPolicy
from slotwise.model.pool_tree import ShareKey
from slotwise.model.snapshot import PhaseView, PoolView, Snapshot


@dataclass(frozen=True, slots=True)
class Group:
    """A pool's share of one kind of slot: one guarantee and one limit for everything in it.

    A group contains claims or, for an inner pool, the groups of other pools. `parent` is the
    index of the group that contains it, -1 at the top. If claims on several kinds of slots have
    groups with the same `key`, the guarantee and the limit hold for the sum over these kinds.
    """

    weight: float
    slots_min: float
    slots_max: float
    policy: PoolPolicy = "fair"
    parent: int = -1
    key: ShareKey | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Claims:
    """J claims on `capacity` slots, as parallel lists in order of arrival.

    weight     for sharing, > 0: from the weight of the job, its priority and, in a pool with
               `job_weights: size`, its tasks; the job's cost is in `owner`
    arrival    of the job, seconds
    work       estimated remaining work of the phase, seconds, > 0
    min_share  slots that it must get: the stated min share, cut to what it can use
    max_share  slots that it can use: the stated max share, cut to its unfinished tasks
    group      index into `groups`, of a group that contains no groups
    groups     the pools' shares, each after the one that contains it
    owner      the job and the phase that make the claim
    cluster    on which the jobs run
    now        the current instant, seconds on the clock of arrivals and deadlines
    priority   as a number: where jobs are served in order, higher ones come first; empty if all
               are normal
    place      in order of arrival, among the claims on all kinds of slots
    unseen     whether nothing is known about its work; empty if no claim is unseen
    present    slots of each kind on the responsive hosts; empty if all hosts are responsive

    For an allocator that does not read work, `work`, `owner` and `unseen` are empty.
    """

    capacity: int
    weight: Sequence[float]
    arrival: Sequence[float]
    work: Sequence[float]
    min_share: Sequence[float]
    max_share: Sequence[float]
    group: Sequence[int]
    groups: Sequence[Group]
    owner: Sequence[tuple[Job, Phase]]
    cluster: Cluster
    now: float = 0.0
    priority: Sequence[float] = ()
    place: Sequence[int] = ()
    unseen: Sequence[bool] = ()
    present: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.weight)

    @classmethod
    def of(
        cls,
        capacity: int,
        work: Sequence[float],
        *,
        weight: Sequence[float] | None = None,
        min_share: Sequence[float] | None = None,
        max_share: Sequence[float] | None = None,
        arrival: Sequence[float] | None = None,
    ) -> Claims:
        """Claims of single-phase jobs in one pool without limits.

        The defaults are weight 1, min share 0, max share `capacity` and arrival 0.
        """
        count = len(work)
        weight, arrival = weight or [1.0] * count, arrival or [0.0] * count
        phases = [Phase("phase", Tasks(capacity, amount / capacity)) for amount in work]
        return cls(
            capacity,
            weight=weight,
            arrival=arrival,
            work=work,
            min_share=min_share or [0.0] * count,
            max_share=max_share or [float(capacity)] * count,
            group=[0] * count,
            groups=[Group(1.0, 0.0, float("inf"))],
            owner=[
                (Job(f"{number}", (phase,), at, weight=heavy), phase)
                for number, (phase, at, heavy) in enumerate(
                    zip(phases, arrival, weight, strict=True)
                )
            ],
            cluster=Cluster.of_slots(capacity),
        )


class Allocator(Protocol):
    """Decides how many slots each claim gets now."""

    @property
    def reads_work(self) -> bool:
        """Whether it reads the claims' work; if not, work need not be estimated."""
        ...

    @property
    def keeps_min_shares(self) -> bool:
        """Whether each claim always gets its min share, scaled down if these do not fit."""
        ...

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim: within min and max shares, together at most the capacity."""
        ...


@runtime_checkable
class JointAllocator(Allocator, Protocol):
    """An allocator that considers the claims on all kinds of slots at once."""

    def share_all(self, claims: Mapping[str, Claims]) -> Mapping[str, Sequence[float]]:
        """Slots for each claim, as from `share`, for every kind of slot that has claims."""
        ...


def share_all(
    allocator: Allocator, claims: Mapping[str, Claims], *, is_whole: bool = False
) -> Mapping[str, Sequence[float]]:
    """Slots for each claim on each kind of slot: all at once, or kind by kind.

    Min and max shares that pools state for several kinds together hold for the sum over these
    kinds. With `is_whole`, max shares also hold after shares are rounded up.
    """

    def give(claims: Mapping[str, Claims]) -> Mapping[str, Sequence[float]]:
        if isinstance(allocator, JointAllocator):
            return allocator.share_all(claims) if claims else {}
        return {kind: allocator.share(of_kind) for kind, of_kind in claims.items()}

    if len(claims) < 2:
        return give(claims)
    keeps_min = allocator.keeps_min_shares
    return share_in_kinds(claims, give, allocator.share, keeps_min=keeps_min, is_whole=is_whole)


def claims_of(
    snapshot: Snapshot, slot_kind: str, with_work: bool = True
) -> tuple[list[PhaseId], Claims]:
    """The ready phases that claim one kind of slot, and their claims. O(J).

    Only responsive hosts count: tasks that run on other hosts claim no slots.
    """
    now, pools = snapshot.now, snapshot.pools
    phases = snapshot.ready(slot_kind)
    if snapshot.lost:
        phases = [p for p in phases if p.away < min(p.max_share, p.pending + p.running)]
    jobs = [p.job for p in phases]
    left = [p.pending + p.running for p in phases]
    max_share = [
        min(p.max_share, count) - p.away for p, count in zip(phases, left, strict=True)
    ]
    group, groups = group_by_shares([p.shares for p in phases], pools)
    if snapshot.lost:
        groups = _without_away(phases, group, groups)
    claims = Claims(
        snapshot.capacity(slot_kind),
        weight=weights_of(jobs, left, pools),
        arrival=[job.arrival for job in jobs],
        work=[p.work_left(now) for p in phases] if with_work else [],
        min_share=[
            min(p.phase.slots_min, top) if p.phase.slots_min else 0.0
            for p, top in zip(phases, max_share, strict=True)
        ],
        max_share=max_share,
        group=group,
        groups=groups,
        owner=[(p.job, p.phase) for p in phases] if with_work else [],
        cluster=snapshot.cluster,
        now=now,
        priority=urgencies(jobs),
        place=[p.order for p in phases],
        unseen=[p.is_unseen(now) for p in phases] if with_work else [],
        present=_present(snapshot) if snapshot.lost else {},
    )
    return [p.id for p in phases], claims


def _present(snapshot: Snapshot) -> dict[str, int]:
    return {kind: snapshot.capacity(kind) for kind in snapshot.cluster.capacity}


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
            found[number] = replace(groups[number], slots_max=pool.most_there)
            pool, number = pool.parent, groups[number].parent
    return found


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
    beside = Counter((key.pool, parent) for key, parent in zip(index, above, strict=True))
    groups = [
        Group(
            weight=pools[pool].weight / beside[pool, parent],
            slots_min=pools[pool].slots_min.get(kind, 0),
            slots_max=pools[pool].slots_max.get(kind, float("inf")),
            policy=pools[pool].policy,
            parent=parent,
            key=ShareKey(pool, kind),
        )
        for (pool, kind), parent in zip(index, above, strict=True)
    ]
    return members, groups


def weights_of(
    jobs: Sequence[Job], tasks_left: Sequence[int], pools: Mapping[str, Pool]
) -> list[float]:
    """The weights by which claims of these jobs share within their pools.

    In a pool with `job_weights: size`, the weight is the job's share weight times
    log2(1 + unfinished tasks), as with `sizebasedweight` of the Hadoop Fair Scheduler.
    """
    sized = {name for name in {job.pool for job in jobs} if pools[name].job_weights == "size"}
    if not sized:
        return [job.share_weight for job in jobs]
    return [
        job.share_weight * (log2(1 + count) if job.pool in sized else 1.0)
        for job, count in zip(jobs, tasks_left, strict=True)
    ]


def urgencies(jobs: Sequence[Job]) -> list[float]:
    """The priority of each job as a number; empty if all are normal."""
    if all(job.priority == "normal" for job in jobs):
        return []
    return [PRIORITIES[job.priority] for job in jobs]


def allocate(allocator: Allocator, snapshot: Snapshot) -> dict[PhaseId, float]:
    """How many slots each ready phase should hold now, on each kind of slot."""
    ids: dict[str, list[PhaseId]] = {}
    claims: dict[str, Claims] = {}
    for kind in snapshot.cluster.capacity:
        if not snapshot.capacity(kind):
            continue  # All hosts with slots of this kind are unresponsive.
        of_kind, claimed = claims_of(snapshot, kind, allocator.reads_work)
        if of_kind:
            ids[kind], claims[kind] = of_kind, claimed
    allocation: dict[PhaseId, float] = {}
    for kind, shares in share_all(allocator, claims).items():
        _check(allocator, claims[kind], shares)
        allocation.update(zip(ids[kind], shares, strict=True))
    return allocation


def _check(allocator: Allocator, claims: Claims, shares: Sequence[float]) -> None:
    """Assert the contract of allocators: one share per claim, in sum at most the capacity."""
    name = type(allocator).__name__
    room = claims.capacity * (1 + SLOTS)
    assert len(shares) == len(claims), f"{name} gives {len(shares)} shares"
    # A comparison with NaN is false, so these hold for numbers only.
    assert sum(shares) <= room, f"{name} gives {sum(shares)} of {claims.capacity} slots"
    assert min(shares) >= 0, f"{name} gives a share below 0"
