"""The format of files of map output, sorted runs and channels: blocks of bytes by part.

A file has the blocks; then, for each part, the start and end of its blocks in reading order;
then, for each part, the number of blocks up to its last one; then the tail, by which a complete
file is recognized. Numbers have 8 bytes. Blocks of one part need not be adjacent, so a file is
written in one pass.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Self

from slotwise.jobs.execution import IncompleteFileError
from slotwise.jobs.work_folder import create

MAGIC = b"slotwise"
_TAIL = Struct("<QQI8s")
"""The length of the blocks, the number of parts, the checksum of the index, MAGIC."""


def index_of(size: int, places: bytes, counts: Iterable[int]) -> bytes:
    """Return the end of a file whose blocks have `size` bytes.

    places  the start and end of each block, part by part
    counts  the number of blocks of each part
    """
    ends = array("Q", accumulate(counts))
    index = places + ends.tobytes()
    return index + _TAIL.pack(size, len(ends), zlib.crc32(index), MAGIC)


class Index:
    """The positions of the blocks of each part of a file.

    Raises OSError; IncompleteFileError for a file whose end is missing.
    """

    def __init__(self, file: BinaryIO, path: str | Path) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < _TAIL.size:
            raise IncompleteFileError(path)
        file.seek(size - _TAIL.size)
        blocks_end, parts, checksum, magic = _TAIL.unpack(file.read(_TAIL.size))
        index_size = size - _TAIL.size - blocks_end
        if magic != MAGIC or index_size < 8 * parts:
            raise IncompleteFileError(path)
        file.seek(blocks_end)
        index = file.read(index_size)
        if len(index) < index_size or zlib.crc32(index) != checksum:
            raise IncompleteFileError(path)
        self._numbers = array("Q", index)
        self._ends = len(self._numbers) - parts

    def part(self, number: int) -> array[int]:
        """Return the start and end of each block of a part. Raises IndexError."""
        at = self._ends + number
        first = self._numbers[at - 1] if number else 0
        return self._numbers[2 * first : 2 * self._numbers[at]]


def is_complete(path: Path) -> bool:
    """Return whether a file exists and is complete. Raises OSError if it cannot be read."""
    try:
        with path.open("rb") as file:
            Index(file, path)
    except (FileNotFoundError, IncompleteFileError):
        return False
    return True


# Partitioned files: map outputs and sorted runs. A chunk of a partition is a block of the file.
# Chunks of one partition need not be adjacent, so a task that spills appends to the same file
# and never has to merge.

BUCKETS = 16
"""Partitions per reduce of a file of tables: a reduce need not hold all its rows at once."""

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
        """The file descriptor. Report chunks written to it with `has_written`."""
        self._file.flush()
        return self._file.fileno()

    def has_written(self, partition: int, sizes: Iterable[int]) -> None:
        """Record that chunks of one partition, of these sizes, were written to `descriptor`."""
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
        """Yield the chunks of a partition by turn, then in order of appending."""
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
