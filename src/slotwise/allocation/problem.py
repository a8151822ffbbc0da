"""The numeric problem that every allocator solves: claims on the slots of one kind.

An allocator is a function of this small value, not of the state of the cluster, so that it can
be tested, timed and checked against exact methods alone. Scheduler and planner both make it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase, PhaseId, Tasks
from slotwise.model.pool import Pool, PoolPolicy
from slotwise.model.snapshot import Snapshot

ROUNDING = 1e-9
"""By so much, relatively, shares may add up to more than there is."""


@dataclass(frozen=True, slots=True)
class Group:
    """Claims that share one guarantee and one limit: a pool's, for one kind of slot."""

    weight: float
    slots_min: float
    slots_max: float
    policy: PoolPolicy = "fair"


@dataclass(frozen=True, slots=True)
class Claims:
    """J claims on `capacity` slots, as parallel lists in order of arrival.

    weight   of the job, > 0
    arrival  of the job, seconds
    work     estimated work left of the phase, seconds, > 0
    least    slots that it must get: its least share, cut to what it can use
    most     slots that it can use: its most share, cut to its unfinished tasks
    group    index into `groups`
    owner    the job and the phase whose claim it is
    cluster  that the jobs run on
    now      the instant, seconds on the clock of arrivals and deadlines

    For an allocator that does not read work, `work` and `owner` are empty.
    """

    capacity: int
    weight: Sequence[float]
    arrival: Sequence[float]
    work: Sequence[float]
    least: Sequence[float]
    most: Sequence[float]
    group: Sequence[int]
    groups: Sequence[Group]
    owner: Sequence[tuple[Job, Phase]]
    cluster: Cluster
    now: float = 0.0

    def __len__(self) -> int:
        return len(self.weight)

    @classmethod
    def of(
        cls,
        capacity: int,
        work: Sequence[float],
        *,
        weight: Sequence[float] | None = None,
        least: Sequence[float] | None = None,
        most: Sequence[float] | None = None,
        arrival: Sequence[float] | None = None,
    ) -> Claims:
        """Claims of one pool without limits; what is left out is 1, 0, capacity and 0.

        Each is that of a job of one phase.
        """
        count = len(work)
        weight, arrival = weight or [1.0] * count, arrival or [0.0] * count
        phases = [Phase("phase", Tasks(capacity, amount / capacity)) for amount in work]
        return cls(
            capacity,
            weight=weight,
            arrival=arrival,
            work=work,
            least=least or [0.0] * count,
            most=most or [float(capacity)] * count,
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
    """Says how many slots each claim gets now."""

    @property
    def reads_work(self) -> bool:
        """Whether it looks at work; if not, that need not be estimated for it."""
        ...

    @property
    def keeps_least(self) -> bool:
        """Whether each claim always gets its least share, or its part where they do not fit."""
        ...

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim: within least and most shares, in sum at most the capacity."""
        ...


def claims_of(
    snapshot: Snapshot, slot_kind: str, with_work: bool = True
) -> tuple[list[PhaseId], Claims]:
    """The claims of the ready phases on one kind of slot, and whose they are. O(J)."""
    now = snapshot.now
    phases = snapshot.ready(slot_kind)
    most = [min(p.most, p.pending + p.running) for p in phases]
    work = [p.work_left(now) for p in phases] if with_work else []
    group, groups = group_by_share([p.share_key for p in phases], snapshot.pools)
    claims = Claims(
        snapshot.cluster.capacity[slot_kind],
        weight=[p.job.weight for p in phases],
        arrival=[p.job.arrival for p in phases],
        work=work,
        least=[
            min(p.phase.slots_min, top) if p.phase.slots_min else 0.0
            for p, top in zip(phases, most, strict=True)
        ],
        most=most,
        group=group,
        groups=groups,
        owner=[(p.job, p.phase) for p in phases] if with_work else [],
        cluster=snapshot.cluster,
        now=now,
    )
    return [p.id for p in phases], claims


def group_by_share(
    shares: Sequence[tuple[str, str]], pools: Mapping[str, Pool]
) -> tuple[list[int], list[Group]]:
    """Group claims by the pool and the share of it that they count against.

    A pool with two such groups splits its weight between them.
    """
    index: dict[tuple[str, str], int] = {}
    members = [index.setdefault(share, len(index)) for share in shares]
    names = [pool for pool, _ in index]
    groups = [
        Group(
            weight=pools[pool].weight / names.count(pool),
            slots_min=pools[pool].slots_min.get(share, 0),
            slots_max=pools[pool].slots_max.get(share, float("inf")),
            policy=pools[pool].policy,
        )
        for pool, share in index
    ]
    return members, groups


def allocate(allocator: Allocator, snapshot: Snapshot) -> dict[PhaseId, float]:
    """How many slots each ready phase should hold now, kind of slot by kind of slot."""
    allocation: dict[PhaseId, float] = {}
    for slot_kind in snapshot.cluster.capacity:
        ids, claims = claims_of(snapshot, slot_kind, allocator.reads_work)
        if ids:
            shares = allocator.share(claims)
            _check(allocator, claims, shares)
            allocation.update(zip(ids, shares, strict=True))
    return allocation


def _check(allocator: Allocator, claims: Claims, shares: Sequence[float]) -> None:
    """Assert what every allocator promises: a share for each claim, no more than there is."""
    name = type(allocator).__name__
    room = claims.capacity * (1 + ROUNDING)
    assert len(shares) == len(claims), f"{name} gives {len(shares)} shares"
    # A comparison with NaN is false, so these hold for numbers only.
    assert sum(shares) <= room, f"{name} gives {sum(shares)} of {claims.capacity} slots"
    assert min(shares) >= 0, f"{name} gives a share below 0"
