"""Which maps have finished: told by the manager, followed by tasks that copy meanwhile.

It is a file of 8 bytes a map: its task and the attempt that won, in the order in which they
finished. The manager appends one entry at a time; a copier takes whole entries only, so it
never sees half of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from slotwise.task import stop, stop_requested

PAUSE_LEAST, PAUSE_MOST = 0.001, 0.05
"""Seconds between two looks: the first after news, then twice as long each time, up to this."""

_ENTRY = Struct("<II")


class FinishedMaps:
    """The manager's end of the file."""

    def __init__(self, path: Path) -> None:
        """Make the file; raises OSError where that fails."""
        path.touch(mode=0o600, exist_ok=False)
        self._path = path
        self._announced = 0

    def tell(self, task: int, attempt: int) -> None:
        """Tell that a map is done and which attempt won. Costs some microseconds.

        Raises OSError, and nothing has been told, where the disk takes no more.
        """
        entry = _ENTRY.pack(task, attempt)
        with self._path.open("r+b", buffering=0) as file:
            # What an attempt that failed has left of an entry is written over.
            file.seek(self._announced * _ENTRY.size)
            written = file.write(entry)
        if written != _ENTRY.size:
            raise OSError(f"cannot append to {self._path}")
        self._announced += 1


def wait_unless_stop_requested(seconds: float) -> None:
    """Sleep; but a task that was told to stop ends here, for while it waits it has no work."""
    if stop_requested():
        stop()
    time.sleep(seconds)


def finished_maps(
    path: Path, count: int, wait: Callable[[float], None] = wait_unless_stop_requested
) -> Iterator[tuple[int, int]]:
    """Each of `count` maps with the attempt that won, as they finish; waits for them."""
    seen, pause = 0, PAUSE_LEAST
    with path.open("rb", buffering=0) as file:
        while seen < count:
            data = os.pread(file.fileno(), (count - seen) * _ENTRY.size, seen * _ENTRY.size)
            whole = len(data) // _ENTRY.size
            if not whole:
                wait(pause)
                pause = min(2 * pause, PAUSE_MOST)
                continue
            yield from _ENTRY.iter_unpack(data[: whole * _ENTRY.size])
            seen, pause = seen + whole, PAUSE_LEAST
