"""The memory of this machine that tasks may use, and what processes use. In bytes."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from slotwise.jobs.endings import descendants, memory_groups

RESERVE_PART, RESERVE_MIN, RESERVE_MAX = 16, 256 << 20, 4 << 30
"""The part of the memory that tasks do not get, and its least and greatest size.

It is for the kernel, the page cache, the manager, idle workers and other programs. Their needs
grow more slowly than the memory of machines: 512 MiB of 8 GiB, 4 GiB from 64 GiB on.
"""

PAGE = os.sysconf("SC_PAGE_SIZE")


def usable_memory(root: str = "/") -> int:
    """The memory that tasks may use together: the limit less a reserve; at least 0.

    `root` is the folder with `proc` and `sys`.
    """
    limit = memory_limit(root)
    return max(0, limit - reserve(limit))


def reserve(limit: int) -> int:
    """The part of this much memory that tasks do not get."""
    return min(max(limit // RESERVE_PART, RESERVE_MIN), RESERVE_MAX)


def memory_limit(root: str = "/") -> int:
    """The memory of this machine, or the least limit of the control groups of this process."""
    return min(limit for limit, _ in _limits(root))


def free_within_limits(root: str = "/") -> int:
    """The memory that processes can still get: the machine's, or what a group's limit leaves.

    What can be freed by dropping pages of files counts as free.
    """
    return min(free for _, free in _limits(root))


def _limits(root: str) -> Iterator[tuple[int, int]]:
    """Each limit on the memory of this process, with what is free below it."""
    machine = _numbers(Path(root, "proc/meminfo"))
    yield machine["MemTotal:"] << 10, machine["MemAvailable:"] << 10
    for folder, is_v2 in memory_groups(root):
        names = ("max", "current") if is_v2 else ("limit_in_bytes", "usage_in_bytes")
        with suppress(OSError, ValueError):  # "max" means that there is none.
            limit, used = (int(Path(folder, f"memory.{name}").read_text()) for name in names)
            inactive = "inactive_file" if is_v2 else "total_inactive_file"
            yield limit, limit - used + _numbers(Path(folder, "memory.stat")).get(inactive, 0)


def _numbers(path: Path) -> dict[str, int]:
    """The first number of each line of a file, by the first word."""
    words = (line.split() for line in path.read_text().splitlines())
    return {name: int(number) for name, number, *_ in words}


# The memory of processes.

SAMPLE_SECONDS = 0.25
"""How often the memory of a running command is read: after this time, and then as often."""

SAMPLE_PART = 0.02
"""The part of the time that reading may take. For many processes it is read less often."""


def reset_peak() -> None:
    """Let the kernel's peak of this process begin again, where that is permitted.

    The peak of a new child begins with it, since they share memory until it runs its program.
    """
    with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
        file.write(b"5")


def wait_for_end(
    pid: int, processes: Callable[[], Iterable[int]], report: Callable[[int], None]
) -> tuple[int, int]:
    """Wait for the end of a child: its status as `os.wait4` returns it, and a peak of memory.

    `report` gets the memory of its `processes` together from time to time. The peak is that of
    the largest one, which the kernel knows also of a short command. It is at least the peak of
    this process, about 40 MB, with which a child shares memory until it runs its program.
    ChildProcessError if the status is unknown.
    """
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        raise ChildProcessError from None
    try:
        watch(watched, processes, report)
    finally:
        os.close(watched)
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_maxrss << 10


def watch(
    pidfd: int, processes: Callable[[], Iterable[int]], report: Callable[[int], None]
) -> None:
    """Wait for the end of a process, of any parent; `report` is that of `wait_for_end`."""
    pause, ended = SAMPLE_SECONDS, select.poll()
    ended.register(pidfd, select.POLLIN)
    while not ended.poll(pause * 1000):
        began = time.monotonic()
        report(memory_of(processes()))
        pause = max(SAMPLE_SECONDS, (time.monotonic() - began) / SAMPLE_PART)


def tree_memory(pid: int) -> int:
    """The resident memory of a process and its descendants; 0 if it has ended."""
    return memory_of([pid, *descendants(pid)])


def memory_of(pids: Iterable[int]) -> int:
    """The resident memory of processes. What several of them share counts once.

    Costs about 10 microseconds for one process. For several it takes 0.1 ms and more for each,
    since the kernel goes through their pages.
    """
    known = {pid: used for pid in pids if (used := _resident(pid))}
    if len(known) < 2:
        return sum(known.values())
    return sum(_share(pid, used) for pid, used in known.items())


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _share(pid: int, resident: int) -> int:
    """The memory of a process, with its part of what it shares; all of it if not permitted."""
    with suppress(OSError, ValueError, IndexError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(rollup.split("\nPss:", 1)[1].split(None, 1)[0]) << 10
    return resident
