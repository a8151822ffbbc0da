"""The malleable packing scheme as the FLEX paper gives it: Fig. 3, line by line."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.policy.packing import Packing


def pack_by_the_book(
    capacity: float,
    work: Sequence[float],
    min_share: Sequence[float],
    max_share: Sequence[float],
    order: Sequence[int],
) -> Packing:
    """Fig. 3 of the FLEX paper, line by line. O(J^2).

    Requires sum(min_share) <= capacity and max_share > 0. Jobs that end together are removed
    one by one.
    """
    left = list(map(float, work))
    pieces: Packing = [[] for _ in work]
    start = 0.0  # line 1: T_0
    remaining = list(order)  # line 2
    while remaining:  # line 3
        slots = {j: float(min_share[j]) for j in remaining}  # line 4
        slack = capacity - sum(slots.values())  # lines 5 and 6
        for j in remaining:  # lines 7 to 11
            if slack <= 0:
                break
            more = min(slack, max_share[j] - min_share[j])
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


def _extend(
    pieces: list[tuple[float, float, float]], start: float, end: float, slots: float
) -> None:
    """Add a piece, or extend the last one if it continues with the same slots."""
    if end <= start or slots <= 0:
        return
    if pieces and pieces[-1][1] == start and pieces[-1][2] == slots:
        pieces[-1] = (pieces[-1][0], end, slots)
    else:
        pieces.append((start, end, slots))
