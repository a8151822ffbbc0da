"""The sources from which a reduce reads map output: in place, or copied first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slotwise.programs.blocks import is_complete
from slotwise.programs.hosts.in_place import in_place
from slotwise.programs.hosts.task_files import TaskFile, lost_here
from slotwise.programs.lost_input import LostInputError
from slotwise.programs.mapreduce.layout import COPY_PHASE, MapReduceLayout
from slotwise.programs.shuffle.finished_maps import finished_maps, finished_so_far
from slotwise.programs.shuffle.partitioned import (
    PartitionedReader,
    PartitionedWriter,
    Place,
)
from slotwise.programs.task_result import SuccessfulAttempts


class PairSource(Protocol):
    """Returns where the input of a reduce is, and copies it there first if needed."""

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """The first of the `buckets` partitions of a reduce in each file, in map order."""
        ...

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """The error for all files of `places` of other tasks that are lost, or None."""
        ...


@dataclass(frozen=True, slots=True)
class InPlace:
    """All maps are done; the files of the attempts that won are read in place.

    Those on other hosts are fetched first.
    """

    winners: SuccessfulAttempts

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """The file of each map."""
        copies = layout.attempt_dir("reduce", task, attempt) / "fetched"
        return in_place(self.files(layout, task * buckets), buckets, copies)

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """The files of all maps on this host; `places` finds those that others have lost."""
        return lost_here(self.files(layout))

    def files(self, layout: MapReduceLayout, part: int = 0) -> list[TaskFile]:
        """The files of all maps, from a part on."""
        found = map(self.winners.of, range(len(self.winners.attempts)))
        return [
            TaskFile("map", number, attempt, address, layout.map_file(number, attempt), part)
            for number, (attempt, address) in enumerate(found)
        ]


@dataclass(frozen=True, slots=True)
class AsTheyCome:
    """Some of `maps` maps still run; their output is copied into one file as they finish."""

    maps: int
    phase: str = "reduce"

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """One file; returns when all maps are done and copied."""
        path = layout.copied_file(self.phase, task, attempt)
        copy_partition(layout, task, path, buckets, self.maps)
        return [(path, 0)]

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """The place is a file of its own."""
        return None


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All maps are done; a copy task copies their output into one file."""

    maps: InPlace

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """One file."""
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
        """As of its maps."""
        return self.maps.lost(layout, task)


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy task has copied everything, and this attempt of it won.

    address  where its file is fetched; empty if all hosts see it
    """

    attempt: int
    address: str = ""

    def places(
        self, layout: MapReduceLayout, task: int, attempt: int, buckets: int
    ) -> Iterable[Place]:
        """The file of the copy task."""
        copies = layout.attempt_dir("reduce", task, attempt) / "fetched"
        return in_place([self._file(layout, task)], buckets, copies)

    def lost(self, layout: MapReduceLayout, task: int) -> LostInputError | None:
        """The file of the copy task, if it is on this host."""
        return lost_here([self._file(layout, task)])

    def _file(self, layout: MapReduceLayout, task: int) -> TaskFile:
        path = layout.copied_file(COPY_PHASE, task, self.attempt)
        return TaskFile(COPY_PHASE, task, self.attempt, self.address, path, 0)


def copy_partition(
    layout: MapReduceLayout, task: int, path: Path, buckets: int, maps: int
) -> int:
    """Copy the output of each map for a reduce into one file, as maps finish; return the bytes.

    The chunks are read in the order of the map numbers, independent of the order in which the
    maps finished. One chunk is in memory at a time. LostInputError if map output is lost.
    """
    with PartitionedWriter(path, buckets) as copy:
        for number, winner in finished_maps(layout.finished_maps, maps):
            try:
                place = layout.map_file(number, winner), task * buckets
                _copy(place, buckets, copy, number)
            except OSError as error:
                # It may have been withdrawn meanwhile, or have finished again.
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
