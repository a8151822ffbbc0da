"""Processes: how one has ended, whether the kernel lacked memory, and which others it has."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress


def signalled(number: int) -> str:
    """The end of a process by this signal, as a part of a sentence."""
    with suppress(ValueError):
        return f"was killed by signal {number} ({signal.Signals(number).name})"
    return f"was killed by signal {number}"


class OomKills:
    """How many processes the kernel has killed for lack of memory since the last reading.

    It counts them for the control group of this process, or else for the whole machine. The
    count is read when this object is made, and by `hint`.
    """

    __slots__ = ("_count", "_root")

    def __init__(self, root: str = "/") -> None:
        """`root` is the folder with `proc` and `sys`."""
        self._root = root
        _, self._count = self._read()

    def hint(self) -> str:
        """The end of a sentence about a killed process; empty if the count has not grown."""
        place, count = self._read()
        before, self._count = self._count, count
        if count <= before:
            return ""
        killed = "a process" if count == before + 1 else f"{count - before} processes"
        counter = os.path.relpath(place, self._root)
        return (
            f"; meanwhile the kernel has killed {killed} for lack of memory (oom_kill in"
            f" /{counter}): state the memory of its tasks (`resources`), or use fewer slots"
        )

    def _read(self) -> tuple[str, int]:
        """The first counter that exists, and the file that has it."""
        for place in self._places():
            with suppress(OSError, ValueError), open(place) as lines:
                for line in lines:
                    name, _, number = line.partition(" ")
                    if name == "oom_kill":
                        return place, int(number)
        return "", 0

    def _places(self) -> Iterator[str]:
        """The files that may have a counter, the most specific ones first."""
        for folder, is_v2 in memory_groups(self._root):
            name = "memory.events" if is_v2 else "memory.oom_control"
            yield os.path.join(folder, name)
        yield os.path.join(self._root, "proc/vmstat")


def memory_groups(root: str = "/") -> Iterator[tuple[str, bool]]:
    """The folders of the control groups of this process that may limit or count its memory.

    The most specific ones first; each with whether it is of version 2.
    """
    with suppress(OSError), open(os.path.join(root, "proc/self/cgroup")) as lines:
        for line in lines:
            _, controllers, group = line.rstrip("\n").split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = os.path.join(root, "sys/fs/cgroup", "memory" if controllers else "")
            path = group.strip("/")
            while path:
                yield os.path.join(top, path), not controllers
                path = os.path.dirname(path)
            yield top, not controllers  # A container may see its own group as the whole tree.


# Descendants of processes.

UNKNOWN_CODE = "this program ignores SIGCHLD, or has waited for all of its children"
"""The reason why the exit code of a child is unknown."""


def children(pid: int) -> list[int]:
    """Return the children of a process, also ended ones that it has not waited for."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                suppress(OSError),
                open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file,
            ):
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, parents first."""
    found = children(pid)
    for one in found:  # The list grows during the loop.
        found += children(one)
    return found


def owner_of(pid: int) -> int | None:
    """The number of the account that has started a process; None if it has ended."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        status = file.read(4096)
        return int(status[status.index(b"\nUid:") + 5 :].split(None, 1)[0])
    return None


def send_to_own(pids: Iterable[int], number: signal.Signals, owner: int | None) -> None:
    """Send a signal to those of these processes that an account has started; None: to all.

    A process may have ended, and another one may have its number. Root would end that of
    anybody, and a user can wait for the right moment.
    """
    for pid in pids:
        with suppress(OSError):
            found = os.pidfd_open(pid)
            try:
                if owner is None or owner_of(pid) == owner:
                    signal.pidfd_send_signal(found, number)
            finally:
                os.close(found)
