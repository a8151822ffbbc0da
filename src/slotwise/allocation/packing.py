"""The malleable packing scheme: the schedule that a priority order of jobs leads to (FLEX 3.1).

Three of its forms stand here: `grant`, its first interval, which is all that a scheduler puts
in force; `pack`, the whole schedule; and `pack_by_the_book`, Fig. 3 line by line, which is the
oracle of the other two.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from slotwise.allocation.problem import Claims
from slotwise.allocation.waterline import scale_to

Packing = list[list[tuple[float, float, float]]]
"""For each claim its pieces (start, end, slots), in order of time and not overlapping."""


def grant(
    claims: Claims, order: Sequence[int], least: Sequence[float] | None = None
) -> list[float]:
    """The first interval: least shares to all, then the slack in priority order.

    Pools count as one job more each: their least shares are kept by granting up to them first,
    in priority order, and their most shares by stopping there. O(J).
    """
    floors = pool_floors(claims, order) if least is None else list(least)
    room = [group.slots_max for group in claims.groups]
    slots = floors
    for j, floor in enumerate(floors):
        room[claims.group[j]] -= floor
    slack = claims.capacity - sum(floors)
    for j in order:
        if slack <= 0:
            break
        group = claims.group[j]
        more = min(slack, claims.most[j] - slots[j], room[group])
        if more > 0:
            slots[j] += more
            slack -= more
            room[group] -= more
    return slots


def pool_floors(claims: Claims, order: Sequence[int]) -> list[float]:
    """The least shares of the claims, raised so that each pool's least share is kept too.

    What a pool is guaranteed beyond its jobs' own least shares goes to its jobs in priority
    order. The sum is scaled down to the capacity where it exceeds it ("the minima are simply
    normalised if necessary", FLEX 1).
    """
    floors = list(map(float, claims.least))
    owed = [group.slots_min for group in claims.groups]
    if any(owed):
        for j, floor in enumerate(floors):
            owed[claims.group[j]] -= floor
        for j in order:
            group = claims.group[j]
            more = min(owed[group], claims.most[j] - floors[j])
            if more > 0:
                floors[j] += more
                owed[group] -= more
    limits = [group.slots_max for group in claims.groups]
    held = [0.0] * len(limits)
    for j, floor in enumerate(floors):
        held[claims.group[j]] += floor
    for g, (total, limit) in enumerate(zip(held, limits, strict=True)):
        if total > limit:  # A pool's most share is hard: its jobs' least shares give way.
            floors = [
                f * limit / total if claims.group[j] == g else f for j, f in enumerate(floors)
            ]
    return scale_to(claims.capacity, floors)


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


def pack(
    capacity: float,
    work: Sequence[float],
    least: Sequence[float],
    most: Sequence[float],
    order: Sequence[int],
) -> Packing:
    """The same schedule by events. O(J log J) for J jobs.

    In Fig. 3 a job goes from its least share over at most one stretch of partial shares to its
    most share and never back, because slack only grows as jobs end. So jobs at a constant
    share wait in a heap for their end, and only the one partial job changes at each event.
    """
    pieces: Packing = [[] for _ in work]
    share, left = list(map(float, least)), list(map(float, work))
    since = [0.0] * len(work)  # when `share` began and `left` was true
    place = {j: number for number, j in enumerate(order)}
    ends = [(left[j] / share[j], place[j], j, share[j]) for j in order if share[j] > 0]
    heapify(ends)
    ended = [False] * len(work)
    now, slack, partial = 0.0, capacity - sum(share), 0

    def close_piece(j: int) -> None:
        _extend(pieces[j], since[j], now, share[j])
        left[j] = max(0.0, left[j] - share[j] * (now - since[j]))
        since[j] = now

    while True:
        # Lines 7 to 11: the slack goes to the first job that is not at its most share.
        while slack > 0 and partial < len(order):
            j = order[partial]
            if not ended[j] and share[j] < most[j]:
                more = min(slack, most[j] - share[j])
                close_piece(j)
                is_filled = more < slack  # By rounding, share + more may miss the most share.
                share[j] = most[j] if is_filled else share[j] + more
                slack -= more
                heappush(ends, (now + left[j] / share[j], place[j], j, share[j]))
                if not is_filled:
                    break
            partial += 1
        if not ends:
            return pieces
        # Lines 12 to 15. An entry made before the job's share rose is out of date.
        end, _, j, slots = heappop(ends)
        if not ended[j] and slots == share[j]:
            now, ended[j] = end, True
            close_piece(j)
            slack += slots


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
