"""Partitioned files, appended to in any order: map outputs and sorted runs.

A chunk of a partition is a block of the file. Chunks of one partition need not be adjacent, so
a task that spills appends to the same file and never has to merge.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from slotwise.programs.blocks import Index, index_of
from slotwise.programs.lost_input import IncompleteFileError
from slotwise.programs.work_folder import create

BUCKETS = 16
"""Partitions of a file for the tables of one reduce, so that it need not hold all at once."""

Place = tuple[Path, int]
"""A partitioned file, and the first of a reduce's partitions in it."""


class PartitionedWriter:
    """Writes one file; leaving its context finishes it, or abandons it on an error."""

    def __init__(self, path: Path, partitions: int) -> None:
        self._file = create(path)
        self._index: list[list[tuple[int, int, int]]] = [[] for _ in range(partitions)]
        self.bytes = 0

    def append(self, partition: int, data: bytes | memoryview, turn: int = 0) -> None:
        """Append a chunk to a partition; it is read after chunks with lower turns."""
        size = self._file.write(data)
        self._index[partition].append((turn, self.bytes, self.bytes + size))
        self.bytes += size

    @property
    def descriptor(self) -> int:
        """Of the file, for what writes chunks to it and reports them to `has_written`."""
        self._file.flush()
        return self._file.fileno()

    def has_written(self, partition: int, sizes: Iterable[int]) -> None:
        """Chunks of these sizes, of one partition, were written to `descriptor`."""
        for size in sizes:
            self._index[partition].append((0, self.bytes, self.bytes + size))
            self.bytes += size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                for places in self._index:
                    places.sort()  # Within one turn, in the order of appending.
                every = chain.from_iterable(self._index)
                numbers = array("Q", (n for _, start, end in every for n in (start, end)))
                index = index_of(self.bytes, numbers.tobytes(), map(len, self._index))
                self._file.write(index)


class PartitionedReader:
    """Reads one file. Only its index stays in memory; the file is open only while reading.

    Raises OSError; IncompleteFileError for a file whose end is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._index = Index(file, path)

    def chunks(self, partition: int) -> Iterator[bytes]:
        """The chunks of a partition, one at a time, by turn and then in order of appending."""
        places = self._index.part(partition)
        if not places:
            return
        with self._path.open("rb") as file:
            for start, end in zip(places[::2], places[1::2], strict=True):
                file.seek(start)
                chunk = file.read(end - start)
                if len(chunk) < end - start:
                    raise IncompleteFileError(self._path)
                yield chunk
