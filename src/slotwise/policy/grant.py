"""The slots that a priority order gives now: the packing scheme's first interval (FLEX 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from slotwise.policy.allocator import Claims, Group
from slotwise.policy.packing import Order, Values, as_floats, as_list
from slotwise.policy.waterline import scale_to


def grant(claims: Claims, order: Order, min_share: Values | None = None) -> list[float]:
    """Slots of each claim in the first interval: min shares, then the slack in priority order.

    Pools are kept to their min shares by granting up to these first, in priority order, and to
    their max shares by stopping there. O(J) for each level of pools. If no pool has a max
    share, the Python loop stops when the slack is used up.
    """
    slots = pool_floors(claims, order) if min_share is None else as_floats(min_share)
    slack = claims.capacity - sum(slots)
    if any(group.slots_max < inf for group in claims.groups):
        _fill_within_limits(slots, claims, order, slack)
    else:
        _fill(slots, as_list(claims.max_share), as_list(order), slack)
    return slots


def _fill(
    slots: list[float], max_share: Sequence[float], order: Sequence[int], slack: float
) -> None:
    for j in order:
        more = max_share[j] - slots[j]
        if more >= slack:
            slots[j] += max(0.0, slack)
            return
        if more > 0:
            slots[j] += more
            slack -= more


def _fill_within_limits(slots: list[float], claims: Claims, order: Order, slack: float) -> None:
    group_of, max_share = as_list(claims.group), as_list(claims.max_share)
    paths = _paths(claims.groups, [group.slots_max < inf for group in claims.groups])
    room = [group.slots_max for group in claims.groups]
    for floor, group in zip(slots, group_of, strict=True):
        for pool in paths[group]:
            room[pool] -= floor
    for j in as_list(order):
        if slack <= 0:
            return
        path = paths[group_of[j]]
        more = min(slack, float(max_share[j]) - slots[j], *[room[pool] for pool in path])
        if more > 0:
            slots[j] += more
            slack -= more
            for pool in path:
                room[pool] -= more


def pool_floors(claims: Claims, order: Order) -> list[float]:
    """The min shares of the claims, raised so that each pool's min share is kept too.

    The part of a pool's guarantee beyond the min shares in it goes to its jobs in priority
    order. If the min shares in a pool exceed its max share, they are scaled down to it, since
    max shares are hard. If all together exceed the capacity, they are scaled down to that ("the
    minima are simply normalised if necessary", FLEX 1). O(J) for each level of pools.
    """
    floors = as_floats(claims.min_share)
    is_bound = [group.slots_min > 0 or group.slots_max < inf for group in claims.groups]
    if any(is_bound):
        _bind(floors, claims, as_list(order), is_bound)
    return scale_to(claims.capacity, floors)


def _bind(
    floors: list[float], claims: Claims, order: Sequence[int], is_bound: Sequence[bool]
) -> None:
    """Fit the claims' guarantees to the min and max share of each pool, inner ones first."""
    groups, group_of = claims.groups, as_list(claims.group)
    paths = _paths(groups, is_bound)
    inside: list[list[int]] = [[] for _ in groups]
    for j in order:
        for pool in paths[group_of[j]]:
            inside[pool].append(j)
    room = [group.slots_max for group in groups]
    for number in reversed(range(len(groups))):
        group, owed = groups[number], sum([floors[j] for j in inside[number]])
        if owed > group.slots_max:
            for j in inside[number]:
                floors[j] *= group.slots_max / owed
        room[number] = max(0.0, group.slots_max - owed)
        more = group.slots_min - owed
        for j in inside[number]:
            if more <= 0:
                break
            path = [pool for pool in paths[group_of[j]] if pool >= number]
            given = min(
                more, float(claims.max_share[j]) - floors[j], *[room[pool] for pool in path]
            )
            if given > 0:
                floors[j] += given
                more -= given
                for pool in path:
                    room[pool] -= given


def _paths(groups: Sequence[Group], counts: Sequence[bool]) -> list[list[int]]:
    """For each group, those of itself and its ancestors that count."""
    paths: list[list[int]] = []
    for number, group in enumerate(groups):
        above = paths[group.parent] if group.parent >= 0 else []
        paths.append([*above, number] if counts[number] else above)
    return paths
