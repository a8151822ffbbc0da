"""Partitioned files, appended to in any order: map outputs and sorted runs.

A file is a sequence of byte chunks, each of one partition; then the index, which has for each
partition the number of its chunks, and the start and length of each in reading order; then the
lengths of the chunks and of the index. All numbers have 8 bytes. Chunks of one partition need
not be adjacent, so a task that spills appends to the same file and never has to merge.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Self

from slotwise.programs.lost_input import IncompleteFileError
from slotwise.programs.work_folder import private

BUCKETS = 16
"""Partitions of a file for the tables of one reduce, so that it need not hold all at once."""

Place = tuple[Path, int]
"""A partitioned file, and the first of a reduce's partitions in it."""

_LENGTHS = Struct("<QQ")


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

    @property
    def descriptor(self) -> int:
        """Of the file, for what writes chunks to it and reports them to `has_written`."""
        self._file.flush()
        return self._file.fileno()

    def has_written(self, partition: int, sizes: Iterable[int]) -> None:
        """Chunks of these sizes, of one partition, were written to `descriptor`."""
        for size in sizes:
            self._index[partition].append((0, self.bytes, size))
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
                numbers = array("Q")
                for places in self._index:
                    numbers.append(len(places))
                    numbers.extend(number for place in places for number in place[1:])
                index = numbers.tobytes()
                self._file.write(index + _LENGTHS.pack(self.bytes, len(index)))


class PartitionedReader:
    """Reads one file. Only its index stays in memory; the file is open only while reading.

    Raises OSError; IncompleteFileError for a file whose end is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._index = read_index(file, path)

    def chunks(self, partition: int) -> Iterator[bytes]:
        """The chunks of a partition, one at a time, by turn and then in order of appending."""
        places = self._index[partition]
        if not places:
            return
        with self._path.open("rb") as file:
            for offset, size in places:
                file.seek(offset)
                chunk = file.read(size)
                if len(chunk) < size:
                    raise IncompleteFileError(self._path)
                yield chunk


def read_index(file: BinaryIO, path: Path) -> list[list[tuple[int, int]]]:
    """The start and length of each chunk of each partition, in reading order.

    Raises OSError; IncompleteFileError for a file whose end is missing.
    """
    start, length = _find_index(file, path)
    file.seek(start)
    numbers = iter(array("Q", file.read(length)))
    return [[(next(numbers), next(numbers)) for _ in range(count)] for count in numbers]


def is_complete(path: Path) -> bool:
    """Whether a file is there, up to its end. Raises OSError if this cannot be found out."""
    try:
        with path.open("rb") as file:
            _find_index(file, path)
    except (FileNotFoundError, IncompleteFileError):
        return False
    return True


def _find_index(file: BinaryIO, path: Path) -> tuple[int, int]:
    """The start and the length of the index."""
    size = file.seek(0, 2)
    if size >= _LENGTHS.size:
        file.seek(-_LENGTHS.size, 2)
        start, length = _LENGTHS.unpack(file.read(_LENGTHS.size))
        if start + length + _LENGTHS.size == size:
            return start, length
    raise IncompleteFileError(path)
