"""Splits: the pieces of files that one task reads. Also positions of errors in input files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from slotwise.jobs.formats.files import Version
from slotwise.jobs.locations import Blocks

PACK_PARTS = 64
MIN_PACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """A part of one file: bytes, row groups or numbers with `start` <= position < `end`.

    `end` None means the end of the file. `size_bytes` is the size of the piece in the file.
    `version` is that of the file, or None if the input is not a file. `within` has the first
    byte and the end of a piece whose `start` and `end` are not bytes.
    """

    path: str
    start: int
    end: int | None
    size_bytes: int
    version: Version | None = None
    within: tuple[int, int] | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte of the piece in its file, and the end."""
        return self.within or (self.start, self.start + self.size_bytes)

    def __str__(self) -> str:
        return (
            f"{self.path}, whole"
            if self.end is None
            else f"{self.path}, {self.start}-{self.end}"
        )


Split = tuple[SplitPiece, ...]

HeldBy = Mapping[str, Blocks]
"""The hosts that hold the blocks of each file, by the path of the file."""


def bytes_on_hosts(pieces: Iterable[SplitPiece], held: HeldBy) -> Counter[str]:
    """Return how many bytes of these pieces each host holds."""
    found: Counter[str] = Counter()
    for piece in pieces:
        start, end = piece.extent
        for offset, length, hosts in held.get(piece.path, ()):
            common = min(end, offset + length) - max(start, offset)
            if common > 0 or start == end:
                size = piece.size_bytes * common // max(1, end - start)
                found.update(dict.fromkeys(hosts, size))
    return found


def pack(pieces: Iterable[SplitPiece], split_bytes: int) -> list[Split]:
    """Pack pieces into splits, in their order; small pieces share a split.

    The pieces of a shared split have at most 1/64 of all input or 1 MiB, whichever is larger,
    and at most `split_bytes`. So thousands of tiny files become few tasks, and a few small
    files still run in parallel. Empty pieces are left out, unless all are empty.
    """
    pieces = list(pieces)
    total = sum(piece.size_bytes for piece in pieces)
    most = min(split_bytes, max(total // PACK_PARTS, MIN_PACK_BYTES))
    filled = [piece for piece in pieces if piece.size_bytes] or pieces[:1]
    return [tuple(split) for split in _packed(filled, most)]


def _packed(pieces: list[SplitPiece], most: int) -> Iterator[list[SplitPiece]]:
    split: list[SplitPiece] = []
    held = 0
    for piece in pieces:
        if split and held + piece.size_bytes > most:
            yield split
            split, held = [], 0
        split.append(piece)
        held += piece.size_bytes
    if split:
        yield split


# Positions of errors in input files.

_Error = TypeVar("_Error", bound=Exception)

WHERE = "slotwise_where"
"""The attribute with the position, which worker processes print before the traceback."""


def placed(error: _Error, where: str) -> _Error:
    """Attach a position to an error and return the error."""
    vars(error)[WHERE] = where
    return error


def is_placed(error: Exception) -> bool:
    """Return whether an error has a position."""

    return WHERE in vars(error)
