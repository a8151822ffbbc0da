"""The malleable packing scheme: the schedule that a priority order of jobs leads to (FLEX 3.1).

Three forms of the whole schedule agree: `pack_by_the_book`, Fig. 3 line by line, the oracle;
`EventPacker`, by events; and `CompiledPacker`, the same compiled, for large problems.
`packer_for` chooses, and `pack` and `completions` ask it. `grant` is the first interval alone,
which is all that a scheduler puts in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from slotwise.allocation.compiled import has_numba
from slotwise.allocation.packer import (
    CompiledPacker,
    EventPacker,
    Order,
    Packer,
    Values,
    as_floats,
    as_list,
)
from slotwise.allocation.pieces import Packing, Pieces
from slotwise.allocation.problem import Claims
from slotwise.allocation.waterline import scale_to
from slotwise.objective.costs import Floats

__all__ = [
    "CompiledPacker",
    "EventPacker",
    "Packer",
    "Packing",
    "Pieces",
    "completions",
    "grant",
    "pack",
    "pack_by_the_book",
    "packer_for",
    "pool_floors",
]

COMPILED_FROM = 5_000
"""Jobs from which one packing is worth machine code: below, Python takes some milliseconds."""

COMPILED_FROM_ALL = 1_000_000
"""Jobs times packings from which many of one problem are: Python takes a second for them."""


def packer_for(
    capacity: float, work: Values, least: Values, most: Values, packings: float = 1
) -> Packer:
    """The packer for a problem that is going to be packed in so many orders.

    Needs work > 0, 0 <= least <= most, 0 < most <= capacity and sum(least) <= capacity, as a
    `Malleable` has them. Large problems are compiled where numba (extra `fast`) is installed;
    the results are the same bits.
    """
    count = len(work)
    is_large = count >= COMPILED_FROM or count * packings >= COMPILED_FROM_ALL
    packer = CompiledPacker if is_large and has_numba() else EventPacker
    return packer(capacity, work, least, most)


def completions(
    capacity: float, work: Values, least: Values, most: Values, order: Order
) -> Floats:
    """When each job is done under this order. O(J log J) for J jobs."""
    return packer_for(capacity, work, least, most).completions(order)


def pack(capacity: float, work: Values, least: Values, most: Values, order: Order) -> Packing:
    """The schedule of this order as lists. O(J log J) for J jobs."""
    return packer_for(capacity, work, least, most).pieces(order).by_claim(len(work))


def pack_by_the_book(
    capacity: float,
    work: Sequence[float],
    least: Sequence[float],
    most: Sequence[float],
    order: Sequence[int],
) -> Packing:
    """Fig. 3 of the FLEX paper, line by line. O(J^2).

    Needs sum(least) <= capacity and 0 < most. Jobs that end together are taken one by one.
    """
    left = list(map(float, work))
    pieces: Packing = [[] for _ in work]
    start = 0.0  # line 1: T_0
    remaining = list(order)  # line 2
    while remaining:  # line 3
        slots = {j: float(least[j]) for j in remaining}  # line 4
        slack = capacity - sum(slots.values())  # lines 5 and 6
        for j in remaining:  # lines 7 to 11
            if slack <= 0:
                break
            more = min(slack, most[j] - least[j])
            slots[j] += more
            slack -= more
        # lines 12 and 13; ties go by priority.
        running = [j for j in remaining if slots[j] > 0]
        first = min(running, key=lambda j: left[j] / slots[j])
        length = left[first] / slots[first]
        for j in running:
            if length > 0:
                _extend(pieces[j], start, start + length, slots[j])
            left[j] = max(0.0, left[j] - slots[j] * length)  # line 15
        remaining.remove(first)  # line 14
        start += length
    return pieces


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


def _extend(
    pieces: list[tuple[float, float, float]], start: float, end: float, slots: float
) -> None:
    """Add a piece, as part of the last one where that goes on unchanged."""
    if end <= start or slots <= 0:
        return
    if pieces and pieces[-1][1] == start and pieces[-1][2] == slots:
        pieces[-1] = (pieces[-1][0], end, slots)
    else:
        pieces.append((start, end, slots))
