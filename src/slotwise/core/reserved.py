"""The free slots of one kind that are reserved for the pools which took them back."""

from __future__ import annotations

from slotwise.core.host_state import FreeSlots
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState, path_to


class Reserved:
    """The reserved slots of each host by pool; the other free slots are in `free`.

    They count as slots that are being reclaimed for the pool and for those that contain it.
    """

    def __init__(self, free: FreeSlots) -> None:
        self._free = free
        self.by_host: dict[str, dict[PoolState, int]] = {}

    def count(self) -> None:
        """Count them for their pools, which counted nothing."""
        for by_pool in self.by_host.values():
            for share, slots in by_pool.items():
                for pool in path_to(share):
                    pool.slots_being_reclaimed += slots

    def add(self, host: str, share: PoolState, slots: int) -> None:
        """Reserve as many of the free slots of a host for a pool, or all if there are fewer."""
        slots = min(slots, self._free.by_host.get(host, 0))
        if slots:
            self._free.take(host, slots)
            by_pool = self.by_host.setdefault(host, {})
            by_pool[share] = by_pool.get(share, 0) + slots
            for pool in path_to(share):
                pool.slots_being_reclaimed += slots

    def release(self, host: str, share: PoolState, slots_max: int) -> int:
        """Free up to `slots_max` of the slots that are reserved for a pool; the number."""
        by_pool = self.by_host.get(host, {})
        slots = max(0, min(slots_max, by_pool.get(share, 0)))
        if slots:
            by_pool[share] -= slots
            if not by_pool[share]:
                del by_pool[share]
            if not by_pool:
                del self.by_host[host]
            for pool in path_to(share):
                pool.slots_being_reclaimed -= slots
            self._free.give_back(host, slots)
        return slots

    def release_host(self, host: str) -> None:
        """Free all reserved slots of a host, which changes."""
        for share, slots in [*self.by_host.get(host, {}).items()]:
            self.release(host, share, slots)

    def release_for(self, phase: PhaseState, host: str) -> bool:
        """Free reserved slots for a task, first those of its pools; whether any were reserved.

        Those of other pools only if there are no others, and those last that are for an overdue
        min share.
        """
        left = width = phase.width
        for pool in path_to(phase.pool):
            left -= self.release(host, pool, left)
        others = sorted(
            self.by_host.get(host, ()),
            key=lambda pool: any(above.is_starving for above in path_to(pool)),
        )
        for pool in others:
            left -= self.release(host, pool, width - self._free.by_host.get(host, 0))
        return left < width
