"""What a priority order gives now: the first interval of the packing scheme (FLEX 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from slotwise.allocation.packing.packer import Order, Values, as_floats, as_list
from slotwise.allocation.problem import Claims
from slotwise.allocation.waterline import scale_to


def grant(claims: Claims, order: Order, least: Values | None = None) -> list[float]:
    """The first interval: least shares to all, then the slack in priority order.

    Pools count as one job more each: their least shares are kept by granting up to them first,
    in priority order, and their most shares by stopping there. O(J), and where no pool is
    limited the loop in Python ends with the slack.
    """
    slots = pool_floors(claims, order) if least is None else as_floats(least)
    slack = claims.capacity - sum(slots)
    if any(group.slots_max < inf for group in claims.groups):
        _fill_within_limits(slots, claims, order, slack)
    else:
        _fill(slots, as_list(claims.most), as_list(order), slack)
    return slots


def _fill(
    slots: list[float], most: Sequence[float], order: Sequence[int], slack: float
) -> None:
    for j in order:
        more = most[j] - slots[j]
        if more >= slack:
            slots[j] += max(0.0, slack)
            return
        if more > 0:
            slots[j] += more
            slack -= more


def _fill_within_limits(slots: list[float], claims: Claims, order: Order, slack: float) -> None:
    group_of = as_list(claims.group)
    room = [group.slots_max for group in claims.groups]
    for floor, group in zip(slots, group_of, strict=True):
        room[group] -= floor
    for j in order:
        if slack <= 0:
            return
        group = group_of[j]
        more = min(slack, float(claims.most[j]) - slots[j], room[group])
        if more > 0:
            slots[j] += more
            slack -= more
            room[group] -= more


def pool_floors(claims: Claims, order: Order) -> list[float]:
    """The least shares of the claims, raised so that each pool's least share is kept too.

    What a pool is guaranteed beyond its jobs' own least shares goes to its jobs in priority
    order. The sum is scaled down to the capacity where it exceeds it ("the minima are simply
    normalised if necessary", FLEX 1). O(J).
    """
    floors = as_floats(claims.least)
    if any(group.slots_min > 0 for group in claims.groups):
        _raise_to_guarantees(floors, claims, as_list(order))
    if any(group.slots_max < inf for group in claims.groups):
        floors = _cut_to_limits(floors, claims)
    return scale_to(claims.capacity, floors)


def _raise_to_guarantees(floors: list[float], claims: Claims, order: Sequence[int]) -> None:
    group_of = as_list(claims.group)
    owed = [group.slots_min for group in claims.groups]
    for floor, group in zip(floors, group_of, strict=True):
        owed[group] -= floor
    for j in order:
        more = min(owed[group_of[j]], float(claims.most[j]) - floors[j])
        if more > 0:
            floors[j] += more
            owed[group_of[j]] -= more


def _cut_to_limits(floors: list[float], claims: Claims) -> list[float]:
    """A pool's most share is hard: its jobs' least shares give way, in proportion."""
    group_of = as_list(claims.group)
    held = [0.0] * len(claims.groups)
    for floor, group in zip(floors, group_of, strict=True):
        held[group] += floor
    kept = [
        group.slots_max / total if total > group.slots_max else 1.0
        for total, group in zip(held, claims.groups, strict=True)
    ]
    return [floor * kept[group] for floor, group in zip(floors, group_of, strict=True)]
