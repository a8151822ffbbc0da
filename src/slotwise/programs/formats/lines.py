"""Read the lines of byte ranges; each line of a file belongs to exactly one range."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import accumulate, count
from operator import add
from typing import IO

from slotwise.programs.formats.files import InputFile, open_input, reading
from slotwise.programs.formats.splits import SplitPiece

BLOCK_BYTES = 1 << 18
"""Small enough for the processor's cache: larger blocks made word count slower."""

COUNTED_MOST_BYTES = 256 << 20
"""Messages give line numbers up to this offset, because counting takes up to a second."""


def line_pieces(file: InputFile, split_bytes: int) -> list[SplitPiece]:
    """Byte ranges of at most `split_bytes`; a compressed file is one piece."""
    if file.is_compressed or file.size_bytes == 0:
        return [SplitPiece(file.path, 0, None, file.size_bytes, file.version)]
    ends = range(split_bytes, file.size_bytes + split_bytes, split_bytes)
    pieces = ((end - split_bytes, min(end, file.size_bytes)) for end in ends)
    return [
        SplitPiece(file.path, start, end, end - start, file.version) for start, end in pieces
    ]


def line_blocks(
    piece: SplitPiece, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, bytes]]:
    """The lines that begin within the piece, in blocks of whole lines with their offsets.

    A line ends after "\\n"; the last line of a file may lack it. The first line begins after a
    UTF-8 byte order mark. One block, of at least one line, is in memory at a time.
    """
    end = float("inf") if piece.end is None else piece.end
    with reading(piece.path, piece.version) as file:
        position = _first_line(file, piece.start, end)
        while position < end:
            block = file.read(int(min(block_bytes, end - position)))
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            begin, position = int(position), position + len(block)
            if begin == 0 and block.startswith(BOM_UTF8):
                begin, block = len(BOM_UTF8), block.removeprefix(BOM_UTF8)
            if block:
                yield begin, block


def text_of(block: bytes) -> str:
    """A block as text; bytes that are not UTF-8 become U+FFFD."""
    return block.decode("utf-8", "replace")


def lines_of(offset: int, block: bytes) -> tuple[list[int], list[str]]:
    """The lines of a block without their ends ("\\n" or "\\r\\n"), and where they begin."""
    text = text_of(block)
    raw = text.split("\n") if len(text) == len(block) else block.split(b"\n")
    # Each line begins one byte, the line break, after the end of the line before it.
    ends = accumulate(map(len, raw), initial=offset)
    offsets = list(map(add, ends, count()))
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()
    return offsets[: len(lines)], lines


def place_of_line(piece: SplitPiece, offset: int | None) -> str:
    """The file and line of an offset, for messages; without an offset, the file and bytes."""
    if offset is None:
        return (
            piece.path
            if piece.end is None
            else f"{piece.path}, bytes {piece.start}-{piece.end}"
        )
    if offset > COUNTED_MOST_BYTES:
        return f"{piece.path}, byte {offset}"
    with open_input(piece.path) as file:
        before, left = 0, offset
        while left and (block := file.read(min(left, BLOCK_BYTES))):
            before, left = before + block.count(b"\n"), left - len(block)
    return f"{piece.path}, line {before + 1} (byte {offset})"


def _first_line(file: IO[bytes], start: int, end: float) -> float:
    """Seek to the first line that begins at or after `start`; return its offset."""
    if start == 0:
        return 0
    # The line that contains `start` belongs to this range only if it begins there. The byte
    # before decides that.
    file.seek(start - 1)
    position = start - 1
    while position < end:
        part = file.readline(BLOCK_BYTES)
        position += len(part)
        if not part or part.endswith(b"\n"):
            return position if part else end
    return end
