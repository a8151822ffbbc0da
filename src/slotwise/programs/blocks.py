"""The format of map output, sorted runs and file channels: blocks of bytes, each of one part.

A file is a sequence of blocks; then for each part the start and the end of each of its blocks,
in reading order; then for each part the number of blocks up to its last one; then the tail,
which tells whether the file is complete. Numbers have 8 bytes. Blocks of one part need not be
adjacent, so a file is written in one pass.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from slotwise.programs.lost_input import IncompleteFileError

MAGIC = b"slotwise"
_TAIL = Struct("<QQI8s")
"""The length of the blocks, the number of parts, the checksum of the index, MAGIC."""


def index_of(size: int, places: bytes, counts: Iterable[int]) -> bytes:
    """The end of a file whose blocks have `size` bytes.

    places  for one part after another, the start and the end of each of its blocks
    counts  the number of blocks of each part
    """
    ends = array("Q", accumulate(counts))
    index = places + ends.tobytes()
    return index + _TAIL.pack(size, len(ends), zlib.crc32(index), MAGIC)


class Index:
    """Where the blocks of each part of a file are.

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
        """The start and the end of each block of a part. IndexError if there is none."""
        at = self._ends + number
        first = self._numbers[at - 1] if number else 0
        return self._numbers[2 * first : 2 * self._numbers[at]]


def is_complete(path: Path) -> bool:
    """Whether a file is there, up to its end. Raises OSError if this cannot be found out."""
    try:
        with path.open("rb") as file:
            Index(file, path)
    except (FileNotFoundError, IncompleteFileError):
        return False
    return True
