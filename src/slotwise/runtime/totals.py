"""Shares of a pool that cover several kinds of slots with one common number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from slotwise.model.cluster import ANY_KIND
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import ShareKey
from slotwise.runtime.hosts import FreeSlots
from slotwise.runtime.ordering import whole

if TYPE_CHECKING:
    from slotwise.runtime.pool_state import PoolState


class Total:
    """A pool's common share of all kinds of slots, with one part for each kind.

    Each allocation divides the guarantee among the parts. A shortage counts slots of all kinds,
    so its clock continues when the missing slots move to another part.

    parts          by kind of slot
    min_share_due  when it will have lacked slots of its min share for too long
    """

    __slots__ = (
        "_free",
        "_served",
        "_service",
        "max_share",
        "min_share",
        "min_share_due",
        "parts",
    )

    def __init__(
        self, min_share: float, max_share: float, free: Mapping[str, FreeSlots]
    ) -> None:
        self.min_share, self.max_share, self._free = min_share, max_share, free
        self.parts: dict[str, PoolState] = {}
        self.min_share_due = inf
        self._served = dict.fromkeys(free, 0.0)
        self._service = 0.0

    @property
    def running(self) -> int:
        """The slots of all kinds that it holds."""
        return sum([part.running for part in self.parts.values()])

    @property
    def away(self) -> int:
        """The slots that it holds on unresponsive hosts."""
        return sum([part.away for part in self.parts.values()])

    def room(self, part: PoolState) -> float:
        """The number of further slots of this kind that it may hold.

        It excludes slots of other kinds that are being taken back for it.
        """
        kept = sum([other.coming for other in self.parts.values() if other is not part])
        return self.max_share - self.running - kept

    def lacks(self) -> int:
        """The usable slots of its min share that it lacks; below 0 if it holds more."""
        return self._owed() - sum([part.held for part in self.parts.values()])

    def missing(self) -> int:
        """Like `lacks`, without the slots that are already being taken back for it."""
        return self._owed() - sum([part.expected for part in self.parts.values()])

    def watch(self, now: float, patience: float) -> float:
        """Update the instant at which its shortage will be overdue; inf without a shortage."""
        if self.lacks() <= 0:
            self.min_share_due = inf
        elif self.min_share_due == inf:
            self.min_share_due = now + patience
        return self.min_share_due

    def divide(self) -> None:
        """Guarantee each part up to its allocation until the min share is reached.

        Guarantees below the parts are counted already. Whole slots come first.
        """
        parts = self.parts.values()
        for part in parts:
            part.owed = min(part.owed, part.allocated)
        more = self.min_share - sum([part.owed for part in parts])
        for is_whole in (True, False):
            for part in parts:
                top = whole(part.allocated) if is_whole else part.allocated
                given = max(0.0, min(more, top - part.owed))
                part.owed += given
                more -= given

    def serve(self, part: PoolState) -> None:
        """Count a launch as service of a part, in inverse proportion to its allocation."""
        if part.allocated > 0:
            self._service = max(self._service, self._served[part.slot_kind])
            self._served[part.slot_kind] = self._service + 1.0 / part.allocated

    def is_turn_of_others(self, part: PoolState) -> bool:
        """Whether the rest of the max share should go to slots of other kinds.

        These are kinds with free slots and a backlog for which the pool holds a smaller part of
        its share, or has had less service.
        """
        mine, wanted = self._turn(part), 0
        for other in self.parts.values():
            if (
                other.backlogged
                and self._free[other.slot_kind].by_host
                and self._turn(other) < mine
            ):
                wanted += max(1, whole(other.share) - other.held)
        return wanted > 0 and wanted >= self.max_share - self.running

    def _owed(self) -> int:
        owed = sum([min(part.owed, part.usable) for part in self.parts.values()])
        return whole(min(owed, self.max_share - self.away))

    def _turn(self, part: PoolState) -> tuple[float, float, str]:
        return part.ranked()[0], self._served[part.slot_kind], part.slot_kind


class Totals:
    """The common shares of all kinds of slots, if the cluster has several kinds."""

    def __init__(self, free: Mapping[str, FreeSlots]) -> None:
        self._free = free
        self._by_key: dict[ShareKey, Total] = {}

    def of(self, key: ShareKey, pool: Pool) -> Total | None:
        """The total of a share; None if the share has no number for several kinds."""
        has_number = ANY_KIND in pool.slots_min or ANY_KIND in pool.slots_max
        if key.kind != ANY_KIND or not has_number or len(self._free) == 1:
            return None
        if key not in self._by_key:
            min_share, max_share = (
                pool.slots_min.get(ANY_KIND, 0),
                pool.slots_max.get(ANY_KIND, inf),
            )
            self._by_key[key] = Total(min_share, max_share, self._free)
        return self._by_key[key]


def owe(pools: Sequence[PoolState]) -> None:
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
