"""FAIR: the allocation layer of the Hadoop Fair Scheduler."""

from __future__ import annotations

from typing import ClassVar

from slotwise.allocation.problem import Claims, Group
from slotwise.allocation.waterline import scale_to, water_line


class Fair:
    """Weighted water-line over the pools, then within each pool (HFS design document, 4.6).

    Every pool with demand gets at least its least share; a pool without demand reserves
    nothing. Inside a pool, "fair" shares by the weights of the jobs and "fifo" serves jobs in
    order of arrival; either way the least shares of the phases come first. Shares are real
    numbers: half a slot is a slot half of the time. O(J log J).
    """

    reads_work: ClassVar[bool] = False

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        members: list[list[int]] = [[] for _ in claims.groups]
        for claim, number in enumerate(claims.group):
            members[number].append(claim)
        pools = list(zip(claims.groups, members, strict=True))
        most = [
            min(pool.slots_max, sum(claims.most[j] for j in inside)) for pool, inside in pools
        ]
        least = [
            min(top, max(pool.slots_min, sum(claims.least[j] for j in inside)))
            for (pool, inside), top in zip(pools, most, strict=True)
        ]
        weight = [pool.weight for pool in claims.groups]
        shares = [0.0] * len(claims)
        pool_slots = water_line(claims.capacity, weight, least, most)
        for (pool, inside), slots in zip(pools, pool_slots, strict=True):
            for claim, share in zip(inside, _within(claims, pool, inside, slots), strict=True):
                shares[claim] = share
        return shares


def _within(claims: Claims, group: Group, inside: list[int], slots: float) -> list[float]:
    least = [claims.least[j] for j in inside]
    most = [claims.most[j] for j in inside]
    if group.policy == "fair":
        return water_line(slots, [claims.weight[j] for j in inside], least, most)
    shares = scale_to(slots, least)
    left = max(0.0, slots - sum(shares))
    for number in sorted(range(len(inside)), key=lambda k: claims.arrival[inside[k]]):
        more = min(left, most[number] - shares[number])
        shares[number] += more
        left -= more
    return shares
