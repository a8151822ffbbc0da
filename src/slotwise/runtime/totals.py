"""The shares of pools that cover several kinds of slots with one common number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from slotwise.model.cluster import ANY_KIND
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import ShareKey
from slotwise.runtime.hosts import FreeSlots
from slotwise.runtime.pool_state import CrossKindLimit, PoolState


class CrossKindLimits:
    """The common shares of all kinds of slots, if the cluster has several kinds."""

    def __init__(self, free: Mapping[str, FreeSlots]) -> None:
        self._free = free
        self._by_key: dict[ShareKey, CrossKindLimit] = {}

    def of(self, key: ShareKey, pool: Pool) -> CrossKindLimit | None:
        """The total of a share; None if the share has no number for several kinds."""
        has_number = ANY_KIND in pool.slots_min or ANY_KIND in pool.slots_max
        if key.kind != ANY_KIND or not has_number or len(self._free) == 1:
            return None
        if key not in self._by_key:
            min_share, max_share = (
                pool.slots_min.get(ANY_KIND, 0),
                pool.slots_max.get(ANY_KIND, inf),
            )
            self._by_key[key] = CrossKindLimit(min_share, max_share, self._free)
        return self._by_key[key]


def set_guarantees(pools: Sequence[PoolState]) -> None:
    """Set the slots of its allocation that each share is owed.

    That is its min share, or the sum owed below it if that is more. `pools` holds all shares of
    all kinds, each before the one that contains it.
    """
    if any(pool.total is not None for pool in pools):
        # Parts of a total have equal depth, and everything below any of them must come first.
        pools = sorted(pools, key=lambda pool: -pool.depth)
    divided: set[ShareKey] = set()
    for pool in pools:
        if pool.total is None:
            pool.owed = min(max(pool.owed, pool.min_share), pool.allocated)
        elif pool.key not in divided:
            divided.add(pool.key)
            pool.total.divide()
        if pool.parent is not None:
            pool.parent.owed += pool.owed
