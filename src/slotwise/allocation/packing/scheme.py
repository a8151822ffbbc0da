"""The malleable packing scheme: the schedule of a priority order of jobs (FLEX 3.1).

There are two implementations with the same result: `EventPacker`, by events, and
`CompiledPacker`, the same compiled, for large problems. `packer_for` chooses one of them, also
for `pack` and `completions`. The tests compare them with Fig. 3 of the paper line by line.
"""

from __future__ import annotations

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
