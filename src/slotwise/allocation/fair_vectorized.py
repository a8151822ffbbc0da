"""FAIR for many claims: all pools of one depth are shared out at once, with numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.allocation.problem import Claims, Group
from slotwise.allocation.waterlines import in_orders, water_lines
from slotwise.objective.costs import Floats, Ints


def share_at_once(claims: Claims) -> list[float]:
    """The same shares as `share_by_pools` up to rounding. O(J log J), O(1) array steps.

    There are steps for each level of pools and two for the claims: one for claims in fair
    pools, one for claims in FIFO pools.
    """
    pools = claims.groups
    group = np.asarray(claims.group, dtype=np.intp)
    min_share, max_share = _floats(claims.min_share), _floats(claims.max_share)
    slots = _slots_of_pools(claims.capacity, pools, group, min_share, max_share)
    shares = np.zeros(len(claims))
    fifo = np.array([pool.policy == "fifo" for pool in pools])[group]
    if not fifo.all():
        fair = ~fifo if fifo.any() else np.s_[:]
        weight = _floats(claims.weight)[fair]
        shares[fair] = water_lines(slots, group[fair], weight, min_share[fair], max_share[fair])
    if fifo.any():
        turn = _in_turn(claims, group, np.flatnonzero(fifo))
        shares[turn] = in_orders(slots, group[turn], min_share[turn], max_share[turn])
    found: list[float] = shares.tolist()
    return found


def _slots_of_pools(
    capacity: float, pools: Sequence[Group], group: Ints, min_share: Floats, max_share: Floats
) -> Floats:
    """The slots of each pool: min and max shares bottom-up, then slots top-down."""
    count = len(pools)
    parent = np.array([pool.parent for pool in pools])
    weight, slots_min, slots_max = (
        np.array(values, dtype=float)
        for values in zip(*((p.weight, p.slots_min, p.slots_max) for p in pools), strict=True)
    )
    floors, tops = (np.bincount(group, v, count).astype(float) for v in (min_share, max_share))
    levels = _levels(pools)
    for level in reversed(levels):
        tops[level] = np.minimum(tops[level], slots_max[level])
        floors[level] = np.minimum(tops[level], np.maximum(slots_min[level], floors[level]))
        if level is not levels[0]:
            floors += np.bincount(parent[level], floors[level], count)
            tops += np.bincount(parent[level], tops[level], count)
    slots = np.append(np.zeros(count), capacity)  # The last is the root.
    for level in levels:
        parts = weight[level], floors[level], tops[level]
        slots[level] = water_lines(slots, parent[level] % (count + 1), *parts)
    return slots


def _levels(pools: Sequence[Group]) -> list[Ints]:
    """The pools at the top, those below them, and so on."""
    depth: list[int] = []
    for pool in pools:
        depth.append(0 if pool.parent < 0 else depth[pool.parent] + 1)
    return [np.flatnonzero(np.array(depth) == level) for level in range(max(depth) + 1)]


def _in_turn(claims: Claims, group: Ints, chosen: Ints) -> Ints:
    """These claims ordered by group, and within a group as by `in_turn`."""
    keys = [_floats(claims.arrival)[chosen], group[chosen]]
    if len(claims.priority):
        keys.insert(1, -_floats(claims.priority)[chosen])
    order: Ints = chosen[np.lexsort(keys)]
    return order


def _floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=float)
