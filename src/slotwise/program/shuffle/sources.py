"""How a reduce comes to what the maps have written for it: in place, or copied before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slotwise.program.layout import COPY_PHASE, Layout
from slotwise.program.shuffle.finished_maps import finished_maps
from slotwise.program.shuffle.partitioned import PartitionedReader, PartitionedWriter

Place = tuple[Path, int]
"""A partitioned file, and the first of the partitions in it that are meant."""


class PairSource(Protocol):
    """Says where the input of a reduce is, and first brings it there if need be."""

    def places(self, layout: Layout, task: int, attempt: int, buckets: int) -> Iterable[Place]:
        """Where the `buckets` partitions of a reduce begin, in the order of the maps."""
        ...


@dataclass(frozen=True, slots=True)
class InPlace:
    """Every map is done: `attempts` won. What they wrote is read where it lies."""

    attempts: tuple[int, ...]

    def places(self, layout: Layout, task: int, attempt: int, buckets: int) -> Iterable[Place]:
        """The file of each map."""
        for number, winner in enumerate(self.attempts):
            yield layout.map_file(number, winner), task * buckets


@dataclass(frozen=True, slots=True)
class AsTheyCome:
    """Some of `maps` maps go on: what they write is copied into one file as they finish."""

    maps: int
    phase: str = "reduce"

    def places(self, layout: Layout, task: int, attempt: int, buckets: int) -> Iterable[Place]:
        """One file; returns when all maps are done and copied."""
        path = layout.copied_file(self.phase, task, attempt)
        copy_partition(layout, task, path, buckets, self.maps)
        return [(path, 0)]


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy task has copied everything: this attempt of it won."""

    attempt: int

    def places(self, layout: Layout, task: int, attempt: int, buckets: int) -> Iterable[Place]:
        """The file of the copy task."""
        return [(layout.copied_file(COPY_PHASE, task, self.attempt), 0)]


def copy_partition(layout: Layout, task: int, path: Path, buckets: int, maps: int) -> int:
    """Copy what each map writes for a reduce into one file, as maps finish; the bytes copied.

    The copy reads as if the maps had finished in their order: whoever reads it cannot tell
    when they did. One chunk is in memory at a time.
    """
    with PartitionedWriter(path, buckets) as copy:
        for number, winner in finished_maps(layout.finished_maps, maps):
            written = PartitionedReader(layout.map_file(number, winner))
            for bucket in range(buckets):
                for chunk in written.chunks(task * buckets + bucket):
                    copy.append(bucket, chunk, number)
    return copy.bytes
