"""A slot for each phase of which nothing is known yet, so that it is measured (FLEX 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from math import floor, inf

from slotwise.allocation.problem import Claims, Group

SLOT = 1.0
"""What an unseen phase is given: its first task tells how long the others will take."""

PART = 0.5
"""Of the slots that nobody is guaranteed, what measuring may take from phases that were seen;
and of what a pool is guaranteed beyond the min shares in it. Whole slots, but one at least."""


def with_measuring(claims: Claims) -> Claims:
    """The claims with min shares raised to one slot for those that are unseen.

    FLEX extrapolates from finished tasks, so "we ensure that its number of minimum slots is at
    least 1" (FLEX 4.2). Unseen claims are raised in order of arrival, while there is room: in
    what others are not guaranteed, below the max shares of the pools, and in only `PART` of
    that where seen claims can use the rest. So on two slots and more these never wait for
    measuring alone, however many unseen phases arrive. No guarantee of a claim or a pool gets
    smaller. O(J) for each level of pools.
    """
    if not any(claims.unseen):
        return claims
    min_share = [float(low) for low in claims.min_share]
    pools = [*claims.groups, Group(1.0, claims.capacity, inf)]  # All slots are number -1.
    held, room = _rooms(claims, pools)
    for claim in compress(range(len(claims)), claims.unseen):
        path = [claims.group[claim]]
        while path[-1] >= 0:
            path.append(pools[path[-1]].parent)
        more, inside = min(SLOT, claims.max_share[claim]) - min_share[claim], 0.0
        for pool in path:
            more = min(more, inside + pools[pool].slots_max - held[pool])
            inside += room[pool]
        more = max(0.0, min(more, inside))
        min_share[claim] += more
        for pool in path:
            held[pool] += more
            inside = min(more, room[pool])
            room[pool] -= inside
            more -= inside
    return replace(claims, min_share=min_share)


def _rooms(claims: Claims, pools: Sequence[Group]) -> tuple[list[float], list[float]]:
    """What is guaranteed in each pool, and what measuring may use of its own guarantee."""
    held, top, seen, room = ([0.0] * len(pools) for _ in range(4))
    rows = zip(claims.group, claims.min_share, claims.max_share, claims.unseen, strict=True)
    for number, min_share, max_share, unseen in rows:
        held[number] += min_share
        top[number] += max_share
        seen[number] += 0.0 if unseen else max_share - min_share
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
