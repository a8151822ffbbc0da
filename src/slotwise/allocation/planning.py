"""Planning with an allocator: the whole schedule, by the shortest way that gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slotwise.allocation.flex import Flex, shortest_first
from slotwise.allocation.fluid import flow_of, fluid_schedule, merged, static_claims
from slotwise.allocation.packing import pack
from slotwise.allocation.problem import Allocator, Claims
from slotwise.model.cluster import Cluster
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.model.schedule import Piece, Schedule


def plan_schedules(
    jobs: Sequence[Job], cluster: Cluster, pools: Mapping[str, Pool], allocator: Allocator
) -> list[Schedule]:
    """The schedules that an allocator offers; the caller takes the one of least value.

    FLEX feeds several orders to its packing scheme ("at most a modest number", FLEX 3): the
    objective's own and, here, Smith's on the height. Others offer one.
    """
    if not isinstance(allocator, Flex):
        return [fluid_schedule(jobs, cluster, pools, allocator)]
    tried = [allocator, Flex(allocator.objective, shortest_first)]
    return [_flex_schedule(jobs, cluster, pools, flex) for flex in tried]


def _flex_schedule(
    jobs: Sequence[Job], cluster: Cluster, pools: Mapping[str, Pool], flex: Flex
) -> Schedule:
    """O(J log J) where the packing scheme applies as it stands, else by the fluid way."""
    if all(len(job.phases) == 1 for job in jobs) and len(cluster.capacity) == 1:
        flows = [flow_of(job, phase) for job in jobs for phase in job.phases]
        claims = static_claims(flows, sum(cluster.capacity.values()), pools)
        if _has_plain_shares(claims):
            packing = pack(
                claims.capacity, claims.work, claims.least, claims.most, flex.priority(claims)
            )
            return Schedule(
                merged(
                    [
                        Piece(flow.id, start, end, round(slots))
                        for flow, pieces in zip(flows, packing, strict=True)
                        for start, end, slots in pieces
                    ]
                )
            )
    return fluid_schedule(jobs, cluster, pools, flex)


def _has_plain_shares(claims: Claims) -> bool:
    """Whether least shares fit and pools neither guarantee nor limit anything."""
    groups_are_plain = all(
        group.slots_min == 0 and group.slots_max == float("inf") for group in claims.groups
    )
    return groups_are_plain and sum(claims.least) <= claims.capacity
