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
        for claim, group in enumerate(claims.group):
            members[group].append(claim)
        pool_most = [
            min(group.slots_max, sum(claims.most[j] for j in inside))
            for group, inside in zip(claims.groups, members, strict=True)
        ]
        pool_least = [
            min(most, max(group.slots_min, sum(claims.least[j] for j in inside)))
            for group, inside, most in zip(claims.groups, members, pool_most, strict=True)
        ]
        weight = [group.weight for group in claims.groups]
        shares = [0.0] * len(claims)
        pool_shares = water_line(claims.capacity, weight, pool_least, pool_most)
        for group, inside, slots in zip(claims.groups, members, pool_shares, strict=True):
            for claim, share in zip(inside, _within(claims, group, inside, slots), strict=True):
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
