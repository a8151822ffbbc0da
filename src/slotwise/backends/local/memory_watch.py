"""Watches the memory of attempts to which an amount was allotted, and says which to stop."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal, NamedTuple

from slotwise.core.units import size_text
from slotwise.jobs.memory import free_within_limits, memory_limit, reserve

CHECK_SECONDS = 0.25
"""The interval of checks. What an attempt uses for a shorter time may not be noticed."""

SHORT_PART = 4
"""A machine is short of memory when less than this part of the reserve is free.

That is 128 MiB on a machine of 8 GiB, and 1 GiB from 64 GiB on.
"""


class Allotment(NamedTuple):
    """The memory that an attempt got, in bytes; if it `is_limit`, it may not use more."""

    memory: int
    is_limit: bool = False


class Excess(NamedTuple):
    """An attempt to stop: its slot, the bytes that it used, and why.

    It has `exceeded` its limit, or the machine is `short` of memory.
    """

    slot: int
    used: int
    status: Literal["exceeded", "short"]
    reason: str


class MemoryWatch:
    """Checks regularly what the attempts use that got an amount of memory, while any runs.

    An attempt that uses more than its limit is stopped. While the machine is short of memory,
    so is the attempt that is most above what it got, one at each check, so that the memory of
    the last one is free before another is stopped. Attempts within what they got stay.

    next_check  the instant of the next necessary check; infinity while none is watched
    """

    def __init__(self, used: Callable[[int], int], root: str = "/") -> None:
        """`used` returns the memory of the attempt in a slot; see `memory_limit` for `root`."""
        self._used, self._root = used, root
        self._watched: dict[int, Allotment] = {}
        self._peaks: dict[int, int] = {}
        self.next_check = inf

    def begin(self, slot: int, got: Allotment, now: float) -> None:
        """Watch the attempt that begins now in a slot."""
        self._watched[slot] = got
        self.next_check = min(self.next_check, now + CHECK_SECONDS)

    def end(self, slot: int) -> int:
        """Do not watch a slot any more; returns the most memory seen, or 0 if it was none."""
        if self._watched.pop(slot, None) is not None and not self._watched:
            self.next_check = inf
        return self._peaks.pop(slot, 0)

    def check(self, now: float) -> list[Excess]:
        """The attempts to stop. Costs about 0.1 ms for each attempt that is watched."""
        self.next_check = now + CHECK_SECONDS
        used = {slot: self._used(slot) for slot in self._watched}
        self._peaks = {slot: max(size, self._peaks.get(slot, 0)) for slot, size in used.items()}
        above = {slot: used[slot] - got.memory for slot, got in self._watched.items()}
        found = [
            Excess(
                slot,
                used[slot],
                "exceeded",
                f"used {size_text(used[slot])}, limit {size_text(got)}",
            )
            for slot, (got, is_limit) in self._watched.items()
            if is_limit and above[slot] > 0
        ]
        slot = max(above, key=lambda one: (above[one], -one), default=-1)
        if found or slot < 0 or above[slot] <= 0:
            return found
        free = free_within_limits(self._root)
        if free >= reserve(memory_limit(self._root)) // SHORT_PART:
            return []
        got = self._watched[slot].memory
        reason = (
            f"stopped because only {size_text(max(0, free))} of memory were left: it used"
            f" {size_text(used[slot])} and had got {size_text(got)}"
        )
        return [Excess(slot, used[slot], "short", reason)]
