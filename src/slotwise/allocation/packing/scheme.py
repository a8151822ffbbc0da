"""The malleable packing scheme: the schedule of a priority order of jobs (FLEX 3.1).

There are three implementations with the same result: `pack_by_the_book`, Fig. 3 line by line,
the oracle; `EventPacker`, by events; and `CompiledPacker`, the same compiled, for large
problems. `packer_for` chooses one of the latter two, also for `pack` and `completions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.allocation.compiled import has_numba
from slotwise.allocation.packing.packer import (
    CompiledPacker,
    EventPacker,
    Order,
    Packer,
    Values,
)
from slotwise.allocation.packing.pieces import Packing
from slotwise.objective.costs import Floats

COMPILED_FROM = 5_000
"""Number of jobs from which one packing is worth machine code: Python takes milliseconds below.
"""

COMPILED_FROM_ALL = 1_000_000
"""Jobs times packings from which many packings are: Python takes a second for these."""


def packer_for(
    capacity: float, work: Values, min_share: Values, max_share: Values, packings: float = 1
) -> Packer:
    """The packer for a problem that will be packed in about `packings` orders.

    Requires work > 0, 0 <= min_share <= max_share, 0 < max_share <= capacity and
    sum(min_share) <= capacity, which `Malleable` ensures. Large problems use machine code if
    numba (extra `fast`) is installed; the results are identical to the bit.
    """
    count = len(work)
    is_large = count >= COMPILED_FROM or count * packings >= COMPILED_FROM_ALL
    packer = CompiledPacker if is_large and has_numba() else EventPacker
    return packer(capacity, work, min_share, max_share)


def completions(
    capacity: float, work: Values, min_share: Values, max_share: Values, order: Order
) -> Floats:
    """The completion of each job in this order, seconds. O(J log J) for J jobs."""
    return packer_for(capacity, work, min_share, max_share).completions(order)


def pack(
    capacity: float, work: Values, min_share: Values, max_share: Values, order: Order
) -> Packing:
    """The schedule of this order as lists. O(J log J) for J jobs."""
    return packer_for(capacity, work, min_share, max_share).pieces(order).by_claim(len(work))


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
