"""The file of finished maps: the manager appends to it, and tasks that copy poll it.

It has an entry of 8 bytes for each map: its task and the attempt that won, in the order in
which the maps finished. An entry that withdraws a map, whose output was lost, has `LOST` in
place of the attempt; another entry follows when the map is done again. Readers take whole
entries only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from struct import Struct

from slotwise.task import stop, stop_requested

MIN_PAUSE, MAX_PAUSE = 0.001, 0.05
"""Seconds between two polls: the first pause after a new entry, doubled up to the second."""

LOST = 2**32 - 1
"""Replaces the number of the attempt in an entry that withdraws a map."""

_ENTRY = Struct("<II")


class FinishedMaps:
    """The writer of the file, in the manager."""

    def __init__(self, path: Path) -> None:
        """Create the file; raises OSError on failure."""
        path.touch(mode=0o600, exist_ok=False)
        self._path = path
        self._bytes = 0

    def tell(self, task: int, attempt: int) -> None:
        """Append a finished map and the attempt that won. Costs a few microseconds.

        Raises OSError if the write fails, for example on a full disk; the entry is then not
        visible to readers.
        """
        self._append(_ENTRY.pack(task, attempt))

    def withdraw(self, tasks: Iterable[int]) -> None:
        """Append that the output of these maps is lost. Raises OSError like `tell`."""
        self._append(b"".join(_ENTRY.pack(task, LOST) for task in tasks))

    def _append(self, entries: bytes) -> None:
        with self._path.open("r+b", buffering=0) as file:
            # Overwrite the partial entry of an earlier write that failed.
            file.seek(self._bytes)
            written = file.write(entries)
        if written != len(entries):
            raise OSError(f"cannot append to {self._path}")
        self._bytes += len(entries)


def wait_unless_stop_requested(seconds: float) -> None:
    """Sleep, or end the task if it was asked to stop: a waiting task has no work to keep."""
    if stop_requested():
        stop()
    time.sleep(seconds)


def finished_maps(
    path: Path, count: int, wait: Callable[[float], None] = wait_unless_stop_requested
) -> Iterator[tuple[int, int]]:
    """Yield each of `count` maps with the attempt that won, as they finish; wait for them.

    A map is yielded once, even if its output is lost afterwards.
    """
    seen: set[int] = set()
    position, pause = 0, MIN_PAUSE
    with path.open("rb", buffering=0) as file:
        while len(seen) < count:
            # All that is there: a map may be withdrawn by an entry far behind its own.
            more = os.fstat(file.fileno()).st_size - position
            latest, size = _entries(os.pread(file.fileno(), more, position))
            if not size:
                wait(pause)
                pause = min(2 * pause, MAX_PAUSE)
                continue
            position, pause = position + size, MIN_PAUSE
            for task, attempt in latest.items():
                if task not in seen:
                    seen.add(task)
                    yield task, attempt


def finished_so_far(path: Path) -> Mapping[int, int]:
    """The attempt that won of each map that has finished by now. Raises OSError."""
    return _entries(path.read_bytes())[0]


def _entries(data: bytes) -> tuple[dict[int, int], int]:
    """The attempts by map, without maps that were withdrawn; the bytes of whole entries."""
    size = len(data) // _ENTRY.size * _ENTRY.size
    latest = dict(_ENTRY.iter_unpack(data[:size]))
    return {task: attempt for task, attempt in latest.items() if attempt != LOST}, size
