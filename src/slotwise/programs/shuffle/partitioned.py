"""Partitioned files, appended to in any order: map outputs and sorted runs.

A file is a sequence of byte chunks, each of one partition; then the index, which has for each
partition the positions of its chunks in reading order; then the length of the index in 8
bytes. Chunks of one partition need not be adjacent, so a task that spills appends to the same
file and never has to merge.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from slotwise.programs.work_folder import private

BUCKETS = 16
"""Partitions of a file for the tables of one reduce, so that it need not hold all at once."""

_LENGTH_BYTES = 8


class PartitionedWriter:
    """Writes one file; leaving its context finishes it, or abandons it on an error."""

    def __init__(self, path: Path, partitions: int) -> None:
        self._file = open(path, "wb", opener=private)  # noqa: SIM115
        self._index: list[list[tuple[int, int, int]]] = [[] for _ in range(partitions)]
        self.bytes = 0

    def append(self, partition: int, data: bytes | memoryview, turn: int = 0) -> None:
        """Append a chunk to a partition; it is read after chunks with lower turns."""
        size = self._file.write(data)
        self._index[partition].append((turn, self.bytes, size))
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
                index = pickle.dumps(self._index, protocol=5)
                self._file.write(index + len(index).to_bytes(_LENGTH_BYTES, "little"))


class PartitionedReader:
    """Reads one file. Only its index stays in memory; the file is open only while reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            file.seek(-_LENGTH_BYTES, 2)
            end = file.tell()
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            file.seek(end - length)
            self._index: list[list[tuple[int, int, int]]] = pickle.loads(file.read(length))

    def chunks(self, partition: int) -> Iterator[bytes]:
        """The chunks of a partition, one at a time, by turn and then in order of appending."""
        places = self._index[partition]
        if not places:
            return
        with self._path.open("rb") as file:
            for _, offset, size in places:
                file.seek(offset)
                yield file.read(size)
