"""The file of finished maps: the manager appends to it, and tasks that copy poll it.

It has an entry of 8 bytes for each map: its task and the attempt that won, in the order in
which the maps finished. The manager appends one entry at a time; readers take whole entries
only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from slotwise.task import stop, stop_requested

PAUSE_LEAST, PAUSE_MOST = 0.001, 0.05
"""Seconds between two polls: the first pause after a new entry, doubled up to the second."""

_ENTRY = Struct("<II")


class FinishedMaps:
    """The writer of the file, in the manager."""

    def __init__(self, path: Path) -> None:
        """Create the file; raises OSError on failure."""
        path.touch(mode=0o600, exist_ok=False)
        self._path = path
        self._announced = 0

    def tell(self, task: int, attempt: int) -> None:
        """Append a finished map and the attempt that won. Costs a few microseconds.

        Raises OSError if the write fails, for example on a full disk; the entry is then not
        visible to readers.
        """
        entry = _ENTRY.pack(task, attempt)
        with self._path.open("r+b", buffering=0) as file:
            # Overwrite the partial entry of an earlier write that failed.
            file.seek(self._announced * _ENTRY.size)
            written = file.write(entry)
        if written != _ENTRY.size:
            raise OSError(f"cannot append to {self._path}")
        self._announced += 1


def wait_unless_stop_requested(seconds: float) -> None:
    """Sleep, or end the task if it was asked to stop: a waiting task has no work to keep."""
    if stop_requested():
        stop()
    time.sleep(seconds)


def finished_maps(
    path: Path, count: int, wait: Callable[[float], None] = wait_unless_stop_requested
) -> Iterator[tuple[int, int]]:
    """Yield each of `count` maps with the attempt that won, as they finish; wait for them."""
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
