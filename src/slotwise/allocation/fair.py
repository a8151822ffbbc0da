"""FAIR: the allocation layer of the Hadoop Fair Scheduler."""

from __future__ import annotations

from collections.abc import Sequence
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
    keeps_least: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        pools = claims.groups
        if len(pools) == 1:
            slots = min(claims.capacity, pools[0].slots_max)
            return _within(pools[0], slots, claims.weight, claims.least, claims.most)
        members: list[list[int]] = [[] for _ in pools]
        for claim, number in enumerate(claims.group):
            members[number].append(claim)
        weight, least, most = (
            [[values[j] for j in inside] for inside in members]
            for values in (claims.weight, claims.least, claims.most)
        )
        tops = [min(p.slots_max, sum(top)) for p, top in zip(pools, most, strict=True)]
        floors = [
            min(top, max(pool.slots_min, sum(low)))
            for pool, low, top in zip(pools, least, tops, strict=True)
        ]
        slots_of = water_line(claims.capacity, [pool.weight for pool in pools], floors, tops)
        shares = [0.0] * len(claims)
        for pool, inside, *parts in zip(
            pools, members, slots_of, weight, least, most, strict=True
        ):
            for claim, share in zip(inside, _within(pool, *parts), strict=True):
                shares[claim] = share
        return shares


def _within(
    pool: Group,
    slots: float,
    weight: Sequence[float],
    least: Sequence[float],
    most: Sequence[float],
) -> list[float]:
    """Share a pool's slots among its claims, which stand in order of arrival."""
    if pool.policy == "fair":
        return water_line(slots, weight, least, most)
    shares = scale_to(slots, least)
    left = max(0.0, slots - sum(shares))
    for number, top in enumerate(most):
        more = min(left, top - shares[number])
        shares[number] += more
        left -= more
    return shares
