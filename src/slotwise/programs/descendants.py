"""The processes that a process has started, and those that these have started, and so on."""

from __future__ import annotations

import os
from contextlib import suppress

UNKNOWN_CODE = "this program ignores SIGCHLD, or has waited for all of its children"
"""Why the exit code of a child cannot be known."""


def children(pid: int) -> list[int]:
    """The children of a process, also ended ones that it has not waited for."""
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
    """The children of a process, their children, and so on; parents come first."""
    found = children(pid)
    for one in found:  # The list grows meanwhile.
        found += children(one)
    return found
