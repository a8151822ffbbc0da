"""The input formats and their names."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from operator import add
from typing import IO, TYPE_CHECKING, Any, Protocol

from slotwise.core.errors import InputError, suggestion
from slotwise.jobs.formats.files import InputFile, open_input, reading
from slotwise.jobs.formats.parquet import ParquetInput
from slotwise.jobs.formats.splits import SplitPiece, placed

if TYPE_CHECKING:
    import pyarrow as pa


# Lines of byte ranges. Each line of a file belongs to exactly one range.

BLOCK_BYTES = 1 << 18
"""Small enough for the processor's cache: larger blocks made word count slower."""

MAX_COUNTED_BYTES = 256 << 20
"""The maximum offset for line numbers in messages, because counting takes up to a second."""


def line_pieces(file: InputFile, split_bytes: int) -> list[SplitPiece]:
    """Return byte ranges of at most `split_bytes`; a compressed file is one piece."""
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
    """Yield the lines that begin within the piece, in blocks of whole lines with offsets.

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
    """Decode a block; bytes that are not UTF-8 become U+FFFD."""
    return block.decode("utf-8", "replace")


def lines_of(offset: int, block: bytes) -> tuple[list[int], list[str]]:
    """Return the offsets of the lines of a block, and the lines without "\\n" or "\\r\\n"."""
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
    """Return file and line of an offset for messages; without an offset, file and bytes."""
    if offset is None:
        return (
            piece.path
            if piece.end is None
            else f"{piece.path}, bytes {piece.start}-{piece.end}"
        )
    if offset > MAX_COUNTED_BYTES:
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
    # The line that contains `start` belongs to this range only if it begins at `start`, that
    # is, after a line break.
    file.seek(start - 1)
    position = start - 1
    while position < end:
        part = file.readline(BLOCK_BYTES)
        position += len(part)
        if not part or part.endswith(b"\n"):
            return position if part else end
    return end


# Record numbers: the input of programs that generate their records.

BLOCK = 8192


class NumberInput:
    """Key: a number from 0; value: None. The path of the `InputFile` is not a file."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Return ranges of numbers; each number counts as one byte."""
        return [
            SplitPiece(
                file.path, start, end := min(start + split_bytes, file.size_bytes), end - start
            )
            for start in range(0, max(file.size_bytes, 1), split_bytes)
        ]

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Yield numbers and Nones in blocks."""
        end = piece.end or 0
        for start in range(piece.start, end, BLOCK):
            numbers = range(start, min(start + BLOCK, end))
            yield numbers, [None] * len(numbers)

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """Return the number."""
        return f"record {piece.start + number}"

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Yield tables with the column number (int64)."""
        import pyarrow as pa

        for numbers, _ in self.records(piece):
            yield pa.table({"number": pa.array(numbers, pa.int64())})


# Text input: one record per line.

TABLE_BYTES = 8 << 20


class TextInput:
    """Key: the byte offset of a line in its (decompressed) file; value: the line, a str.

    A line ends at "\\n" or "\\r\\n", which is removed. Bytes that are not UTF-8 are replaced
    by U+FFFD.
    """

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Return byte ranges; a compressed file is one piece."""
        return line_pieces(file, split_bytes)

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Yield offsets and lines in blocks."""
        for offset, block in line_blocks(piece):
            yield lines_of(offset, block)

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Yield tables with the columns offset (int64) and line (string)."""
        import pyarrow as pa

        for offset, block in line_blocks(piece, TABLE_BYTES):
            offsets, lines = lines_of(offset, block)
            yield pa.table({"offset": pa.array(offsets, pa.int64()), "line": pa.array(lines)})

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """Return file and line."""
        return place_of_line(piece, key)


# JSON Lines input: one value per line.


class JsonLinesInput(TextInput):
    """Key: the byte offset of a line; value: its parsed JSON, usually a dict.

    Empty lines are skipped. Raises ValueError, naming file and offset, for a line that is not
    JSON.
    """

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Yield offsets and values in blocks."""
        for offset, block in line_blocks(piece):
            filled = [
                pair for pair in zip(*lines_of(offset, block), strict=True) if pair[1].strip()
            ]
            offsets = [begin for begin, _ in filled]
            yield offsets, [_parsed(piece, begin, line) for begin, line in filled]

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Yield tables with a column for each field; types are inferred from the values."""
        import pyarrow as pa

        for _, values in self.records(piece):
            if values:
                yield pa.Table.from_pylist(list(values))


def _parsed(piece: SplitPiece, offset: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        place = f"{piece.path}, byte {offset}"
        placed_error = ValueError(f"{place}: not a line of JSON: {error}")
        raise placed(placed_error, place_of_line(piece, offset)) from error


class InputFormat(Protocol):
    """How files are split into pieces and read. A format has no state and is found by name."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Return the pieces of a file in file order, each of at most about `split_bytes`."""
        ...

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Yield the keys and values of the records of a piece in blocks of bounded size."""
        ...

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Yield the records of a piece as Arrow tables of bounded size."""
        ...

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """Return the position of a record, by its number and key, in its file for messages.

        Numbers count from 0 in each piece. The key is None for a record that could not be read,
        and for the first record of a table.
        """
        ...


NUMBERS = "numbers"
INPUT_FORMATS: dict[str, InputFormat] = {
    "text": TextInput(),
    "jsonl": JsonLinesInput(),
    "parquet": ParquetInput(),
    NUMBERS: NumberInput(),
}


def input_format(name: str) -> InputFormat:
    """Return the input format with this name; raise InputError if it is unknown."""
    if name not in tuple(INPUT_FORMATS):  # It may be unhashable.
        raise InputError(
            f"unknown input format {name!r}; {suggestion(name, sorted(INPUT_FORMATS))}"
        )
    return INPUT_FORMATS[name]
