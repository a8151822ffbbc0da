"""The sources of map output for a reduce: files read in place, or copies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from slotwise.jobs.blocks import PartitionedReader, PartitionedWriter, Place, is_complete
from slotwise.jobs.execution import LostInputError, SuccessfulAttempts
from slotwise.jobs.hosts.task_files import TaskFile, in_place, lost_local_files
from slotwise.jobs.mapreduce.program import COPY_PHASE, MapReduceLayout
from slotwise.task import stop, stop_requested


@dataclass(frozen=True, slots=True)
class InPlace:
    """All maps are done; files of their successful attempts are read in place.

    Files on other hosts are fetched first.
    """

    winners: SuccessfulAttempts

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """Return the file of each map."""
        copies = layout.attempt_dir("reduce", task, attempt) / "fetched"
        return in_place(self.files(layout, task * buckets), buckets, copies)

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """Return the error for lost files on this host; `places` finds those of others."""
        return lost_local_files(self.files(layout))

    def files(self, layout: MapReduceLayout, part: int = 0) -> list[TaskFile]:
        """Return the files of all maps, from a part on."""
        found = map(self.winners.of, range(len(self.winners.attempts)))
        return [
            TaskFile("map", number, attempt, address, layout.map_file(number, attempt), part)
            for number, (attempt, address) in enumerate(found)
        ]


@dataclass(frozen=True, slots=True)
class IncrementalCopy:
    """Some of `maps` maps still run; output is copied into one file as they finish."""

    maps: int
    phase: str = "reduce"

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """Return one file when all maps are done and copied."""
        path = layout.copied_file(self.phase, task, attempt)
        copy_partition(layout, task, path, buckets, self.maps)
        return [(path, 0)]

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """Return None: the only place is a file of the task itself."""
        return None


@dataclass(frozen=True, slots=True)
class CompleteCopy:
    """All maps are done; a copy task copies their output into one file."""

    maps: InPlace

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """Return one file."""
        path = layout.copied_file(COPY_PHASE, task, attempt)
        fetched = path.with_name("fetched")
        with PartitionedWriter(path, buckets) as copy:
            files = self.maps.files(layout, task * buckets)
            for place in in_place(files, buckets, fetched):
                _copy(place, buckets, copy)
        for left in path.parent.glob(f"{fetched.name}-*"):
            left.unlink()
        return [(path, 0)]

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """Return the error for lost files of maps."""
        return self.maps.lost(layout, task)


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy task has copied everything in this attempt.

    address  the address that serves its file; empty if all hosts see it
    """

    attempt: int
    address: str = ""

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """Return the file of the copy task."""
        copies = layout.attempt_dir("reduce", task, attempt) / "fetched"
        return in_place([self._file(layout, task)], buckets, copies)

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """Return the error if the file of the copy task is on this host and lost."""
        return lost_local_files([self._file(layout, task)])

    def _file(self, layout: MapReduceLayout, task: int) -> TaskFile:
        path = layout.copied_file(COPY_PHASE, task, self.attempt)
        return TaskFile(COPY_PHASE, task, self.attempt, self.address, path, 0)


PairSource = InPlace | IncrementalCopy | CompleteCopy | Copied
"""Where the input of a reduce is.

`places` returns the first of the `buckets` partitions of a reduce per file, in map order, after
copying if needed. `lost` returns the error for all lost files of other tasks in these, or None.
"""


def copy_partition(
    layout: MapReduceLayout, task: int, path: Path, buckets: int, maps: int
) -> int:
    """Copy the output of each map for a reduce into one file, as maps finish; return the bytes.

    The chunks are read in the order of the map numbers, independent of the order in which the
    maps finished. One chunk is in memory at a time. Raises LostInputError for lost map output.
    """
    with PartitionedWriter(path, buckets) as copy:
        for number, winner in finished_maps(layout.finished_maps, maps):
            try:
                place = layout.map_file(number, winner), task * buckets
                _copy(place, buckets, copy, number)
            except OSError as error:
                # The map may have been withdrawn meanwhile, or have finished again.
                known = {**finished_so_far(layout.finished_maps), number: winner}
                if lost := _lost_maps(layout, known.items()):
                    raise lost from error
                raise
    return copy.bytes


def _copy(place: Place, buckets: int, copy: PartitionedWriter, turn: int = 0) -> None:
    """Append the `buckets` partitions at a place to another file."""
    path, first = place
    written = PartitionedReader(path)
    for bucket in range(buckets):
        for chunk in written.chunks(first + bucket):
            copy.append(bucket, chunk, turn)


def _lost_maps(
    layout: MapReduceLayout, winners: Iterable[tuple[int, int]]
) -> LostInputError | None:
    files = ((task, attempt, layout.map_file(task, attempt)) for task, attempt in winners)
    return LostInputError.of("map", (one for one in files if not is_complete(one[2])))


# The file of finished maps: the manager appends to it, and tasks that copy poll it.
#
# It has an entry of 8 bytes for each map: its task and the successful attempt, in the order in
# which the maps finished. An entry that withdraws a map whose output was lost has `LOST` in
# place of the attempt; another entry follows when the map is done again. Readers ignore partial
# entries.

MIN_PAUSE, MAX_PAUSE = 0.001, 0.05
"""Seconds between two polls: the minimum, after a new entry, is doubled up to the maximum."""

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

    def announce(self, task: int, attempt: int) -> None:
        """Append a finished map and its successful attempt. Costs a few microseconds.

        Raises OSError if the write fails, for example on a full disk; readers then ignore the
        entry.
        """
        self._append(_ENTRY.pack(task, attempt))

    def withdraw(self, tasks: Iterable[int]) -> None:
        """Append that the output of these maps is lost. Raises OSError as `announce`."""
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
    """Sleep, or end the task after a stop request: a waiting task has no work to keep."""
    if stop_requested():
        stop()
    time.sleep(seconds)


def finished_maps(
    path: Path, count: int, wait: Callable[[float], None] = wait_unless_stop_requested
) -> Iterator[tuple[int, int]]:
    """Yield each of `count` maps with its successful attempt, waiting until they finish.

    A map is yielded once, even if its output is lost afterwards.
    """
    seen: set[int] = set()
    position, pause = 0, MIN_PAUSE
    with path.open("rb", buffering=0) as file:
        while len(seen) < count:
            # Read everything: a much later entry may withdraw a map.
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
    """Return the successful attempt of each map that has finished. Raises OSError."""
    return _entries(path.read_bytes())[0]


def _entries(data: bytes) -> tuple[dict[int, int], int]:
    """Return the attempts by map, without withdrawn maps, and the bytes of whole entries."""
    size = len(data) // _ENTRY.size * _ENTRY.size
    latest = dict(_ENTRY.iter_unpack(data[:size]))
    return {task: attempt for task, attempt in latest.items() if attempt != LOST}, size
