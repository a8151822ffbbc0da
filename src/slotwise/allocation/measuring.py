"""The slots of one task for each phase of unknown work, so that it gets measured (FLEX 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, compress
from math import floor, inf

from slotwise.allocation.problem import Claims, Group

SLOT = 1.0
"""The least number of slots that measuring may take where there is room."""

PART = 0.5
"""The part of the slots without a guarantee that measuring may take from seen phases, and the
part of a pool's guarantee beyond the min shares in it. Whole slots, at least one."""


def with_measuring(claims: Claims) -> Claims:
    """The claims with min shares raised to the slots of one task for those that are unseen.

    FLEX extrapolates from finished tasks, so "we ensure that its number of minimum slots is at
    least 1" (FLEX 4.2). Unseen claims are raised while there is room, in turn the one of least
    estimated work and the one that arrived first: small jobs are measured soon, and all of them
    at last. Room
    is what is not guaranteed to others, within the max shares of the pools, and only `PART` of
    that if seen claims can use the rest. So with two or more slots, measuring alone never makes
    seen claims wait, however many unseen phases arrive. No guarantee of a claim or a pool
    becomes smaller. O(J log J), and O(J) for each level of pools.
    """
    if not any(claims.unmeasured):
        return claims
    min_share = [float(low) for low in claims.min_share]
    pools = [*claims.groups, Group(1.0, claims.capacity, inf)]  # All slots are number -1.
    held, room = _rooms(claims, pools)
    left = sum(room)
    for claim in _in_turn(claims):
        path = [claims.group[claim]]
        while path[-1] >= 0:
            path.append(pools[path[-1]].parent)
        task = float(claims.owner[claim][1].slots)
        more, inside = min(task, claims.max_share[claim]) - min_share[claim], 0.0
        for pool in path:
            more = min(more, inside + pools[pool].slots_max - held[pool])
            inside += room[pool]
        more = max(0.0, min(more, inside))
        min_share[claim] += more
        for pool in path:
            held[pool] += more
            inside = min(more, room[pool])
            room[pool] -= inside
            left -= inside
            more -= inside
        if left < SLOT and not any(room):
            break  # Nothing is left for the others, which may be thousands.
    return replace(claims, min_share=min_share)


def _in_turn(claims: Claims) -> Iterable[int]:
    """The unseen claims: the one of least work, the one that arrived first, and so on."""
    by_arrival = list(compress(range(len(claims)), claims.unmeasured))
    by_work = sorted(by_arrival, key=lambda claim: claims.work[claim] / claims.weight[claim])
    return dict.fromkeys(chain.from_iterable(zip(by_work, by_arrival, strict=True)))


def _rooms(claims: Claims, pools: Sequence[Group]) -> tuple[list[float], list[float]]:
    """Guaranteed slots in each pool, and the part of its guarantee that measuring may use."""
    held, top, seen, room = ([0.0] * len(pools) for _ in range(4))
    rows = zip(claims.group, claims.min_share, claims.max_share, claims.unmeasured, strict=True)
    for number, min_share, max_share, unmeasured in rows:
        held[number] += min_share
        top[number] += max_share
        seen[number] += 0.0 if unmeasured else max_share - min_share
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
