"""Planning: an allocator's whole malleable schedule of a static problem, from one instant on.

Between two completions of phases the shares stay as they are; at each completion they are
decided anew. For jobs of one phase under FLEX this is exactly the malleable packing scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from slotwise.allocation.problem import (
    Allocator,
    Claims,
    group_by_shares,
    urgencies,
    weights_of,
)
from slotwise.allocation.whole import ROUNDING, merged, wrap_around
from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool_tree import PoolTree, ShareKey
from slotwise.model.schedule import Piece, Schedule


@dataclass(slots=True)
class Flow:
    """A phase on its way: its work, what is left of it, and what it waits for."""

    id: PhaseId
    job: Job
    phase: Phase
    work: float
    left: float
    waits_for: set[str]


def fluid_schedule(
    jobs: Sequence[Job], cluster: Cluster, pools: PoolTree, allocator: Allocator
) -> Schedule:
    """The schedule to which the allocator leads when all jobs are there at time 0.

    Refuses jobs that arrive later and phases of unknown work. Shares that are no whole numbers
    become whole slots by wrap-around, without loss. O(P) steps for P phases, each as costly as
    one allocation.
    """
    flows = [flow_of(job, phase) for job in jobs for phase in job.topological()]
    pieces: list[Piece] = []
    now = 0.0
    while flows:
        ready = [flow for flow in flows if not flow.waits_for]
        shares = _share(ready, cluster, pools, allocator, now)
        rates = [(flow, share) for flow, share in zip(ready, shares, strict=True) if share > 0]
        assert rates, "some ready phase gets a slot"
        # Phases of one pool, or of one that it lies in, lie side by side, so that wrap-around
        # keeps the shares of all pools, too.
        rates.sort(key=lambda rate: _shares(rate[0], pools))
        length = min(flow.left / share for flow, share in rates)
        for kind in cluster.capacity:
            of_kind = [(f.id, s) for f, s in rates if cluster.slot_kind(f.phase.kind) == kind]
            pieces += wrap_around(of_kind, now, now + length)
        for flow, share in rates:
            flow.left -= share * length
        now += length
        for flow in [f for f, _ in rates if f.left <= ROUNDING * f.work]:
            flows.remove(flow)
            for other in flows:
                if other.job is flow.job:
                    other.waits_for.discard(flow.phase.name)
    return Schedule(merged(pieces))


def flow_of(job: Job, phase: Phase) -> Flow:
    """A phase about to begin. InputError if its work is not known, or it comes later."""
    work = phase.tasks.work_total()
    if work is None:
        raise InputError(
            f"job {job.id!r}, phase {phase.name!r}: a plan needs its work; state it"
        )
    if job.arrival > 0:
        raise InputError(
            f"job {job.id!r}: arrival is {job.arrival}, but a plan takes every job as present"
            " at time 0; set it to 0, or simulate"
        )
    if work == 0:
        raise InputError(
            f"job {job.id!r}, phase {phase.name!r}: a plan needs work > 0, not 0;"
            " leave out what has nothing to do, or simulate"
        )
    return Flow(PhaseId(job.id, phase.name), job, phase, work, work, set(phase.waits_for))


def _shares(flow: Flow, pools: PoolTree) -> tuple[ShareKey, ...]:
    return pools.shares(flow.job.pool, flow.phase.kind)


def _share(
    flows: Sequence[Flow],
    cluster: Cluster,
    pools: PoolTree,
    allocator: Allocator,
    now: float,
) -> list[float]:
    shares = [0.0] * len(flows)
    for kind, capacity in cluster.capacity.items():
        of_kind = [n for n, f in enumerate(flows) if cluster.slot_kind(f.phase.kind) == kind]
        if of_kind:
            claims = claims_of_flows([flows[n] for n in of_kind], capacity, cluster, pools, now)
            for n, share in zip(of_kind, allocator.share(claims), strict=True):
                shares[n] = share
    return shares


def claims_of_flows(
    flows: Sequence[Flow],
    capacity: int,
    cluster: Cluster,
    pools: PoolTree,
    now: float = 0.0,
) -> Claims:
    """The claims of ready phases on one kind of slot."""
    jobs = [flow.job for flow in flows]
    most = [min(flow.phase.slots_most, capacity) for flow in flows]
    group, groups = group_by_shares([_shares(flow, pools) for flow in flows], pools)
    return Claims(
        capacity,
        weight=weights_of(jobs, [_tasks_left(flow) for flow in flows], pools),
        arrival=[job.arrival for job in jobs],
        work=[flow.left for flow in flows],
        least=[min(flow.phase.slots_min, top) for flow, top in zip(flows, most, strict=True)],
        most=most,
        group=group,
        groups=groups,
        owner=[(flow.job, flow.phase) for flow in flows],
        cluster=cluster,
        now=now,
        urgency=urgencies(jobs),
    )


def _tasks_left(flow: Flow) -> int:
    """Its tasks that are not done, as if they were done one after the other."""
    return ceil(flow.phase.tasks.count * flow.left / flow.work)
