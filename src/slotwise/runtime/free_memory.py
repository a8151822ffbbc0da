"""The memory that this machine has free."""

from __future__ import annotations

from contextlib import suppress


def free_memory() -> int | None:
    """The bytes that programs can get without swapping; None if the system does not say it."""
    with suppress(OSError, StopIteration, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as lines:
            line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    return None
