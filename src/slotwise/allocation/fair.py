"""FAIR: the allocation layer of the Hadoop Fair Scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from slotwise.allocation.by_jobs import share_by_jobs
from slotwise.allocation.fair_vectorized import share_at_once
from slotwise.allocation.fifo import in_turn
from slotwise.allocation.problem import Claims
from slotwise.allocation.waterline import scale_to, water_line


class Fair:
    """Weighted water-line over the pools, then within each pool (HFS design document, 4.6).

    Every pool with demand gets at least its min share; a pool without demand reserves nothing.
    Pools within a pool divide its slots by the same rule. In a pool that contains jobs, the
    policy "fair" shares by the weights of the jobs, and what a job gets is divided equally
    among its ready phases; "fifo" serves jobs by priority, highest first, then by arrival.
    Under both, the min shares of the phases come first and count into the guarantees of their
    jobs. Shares are real numbers: half a slot is one slot for half of the time. O(J log J).
    """

    reads_work: ClassVar[bool] = False
    phase_seconds: ClassVar[float] = 1e-5
    keeps_min_shares: ClassVar[bool] = True
    is_by_level: ClassVar[bool] = True

    def share(self, claims: Claims) -> list[float]:
        """Slots for each claim."""
        return share_by_jobs(claims, _share, served_in_turn(claims))


MANY, POOL_COSTS = 300, 4
"""Above MANY claims arrays are faster; a pool counts as POOL_COSTS claims."""


def served_in_turn(claims: Claims) -> set[int]:
    """The groups of policy "fifo": the phases of a job get slots in their order there."""
    return {number for number, pool in enumerate(claims.groups) if pool.policy == "fifo"}


def _share(claims: Claims) -> list[float]:
    """The shares of claims of different jobs, in the way that is fastest for their number."""
    pools = claims.groups
    if len(claims) + POOL_COSTS * len(pools) > MANY:
        return share_at_once(claims)
    if len(pools) == 1 and pools[0].policy == "fair":
        slots = min(claims.capacity, pools[0].slots_max)
        return water_line(slots, claims.weight, claims.min_share, claims.max_share)
    return share_by_pools(claims)


def share_by_pools(claims: Claims) -> list[float]:
    """The shares of jobs in a tree of pools, pool by pool: the plain form of the rule."""
    pools, last = claims.groups, len(claims.groups)
    # The last item of these lists is the root, which contains the pools at the top.
    inside: list[list[int]] = [[] for _ in range(last + 1)]
    for number, pool in enumerate(pools):
        inside[pool.parent].append(number)
    members: list[list[int]] = [[] for _ in range(last)]
    for claim in in_turn(claims):
        members[claims.group[claim]].append(claim)
    floors, tops = [0.0] * last, [0.0] * last
    for number in reversed(range(last)):
        pool, below, held = pools[number], inside[number], members[number]
        low = sum([floors[p] for p in below]) + sum([claims.min_share[j] for j in held])
        high = sum([tops[p] for p in below]) + sum([claims.max_share[j] for j in held])
        tops[number] = min(pool.slots_max, high)
        floors[number] = min(tops[number], max(pool.slots_min, low))
    slots, shares = [0.0] * last + [float(claims.capacity)], [0.0] * len(claims)
    for number in range(-1, last):
        if below := inside[number]:
            weight = [pools[p].weight for p in below]
            parts = [floors[p] for p in below], [tops[p] for p in below]
            for p, share in zip(below, water_line(slots[number], weight, *parts), strict=True):
                slots[p] = share
        elif held := members[number]:
            min_share, max_share = (
                [claims.min_share[j] for j in held],
                [claims.max_share[j] for j in held],
            )
            if pools[number].policy == "fifo":
                found = in_order(slots[number], min_share, max_share)
            else:
                weight = [claims.weight[j] for j in held]
                found = water_line(slots[number], weight, min_share, max_share)
            for j, share in zip(held, found, strict=True):
                shares[j] = share
    return shares


def in_order(
    slots: float, min_share: Sequence[float], max_share: Sequence[float]
) -> list[float]:
    """Min shares for all, scaled down if necessary; the rest of the slots go in order."""
    shares = scale_to(slots, min_share)
    left = max(0.0, slots - sum(shares))
    for number, top in enumerate(max_share):
        more = min(left, top - shares[number])
        shares[number] += more
        left -= more
    return shares
