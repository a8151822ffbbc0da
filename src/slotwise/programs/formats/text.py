"""Text input: one record a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.programs.formats.files import InputFile
from slotwise.programs.formats.lines import line_blocks, line_pieces, lines_of, place_of_line
from slotwise.programs.formats.splits import SplitPiece

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_BYTES = 8 << 20


class TextInput:
    """Key: the byte offset of a line in its (decompressed) file; value: the line, a str.

    A line ends at "\\n" or "\\r\\n", which is removed. Bytes that are not UTF-8 are replaced
    by U+FFFD.
    """

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Byte ranges; a compressed file is one piece."""
        return line_pieces(file, split_bytes)

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Offsets and lines, in blocks."""
        for offset, block in line_blocks(piece):
            yield lines_of(offset, block)

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Tables with the columns offset (int64) and line (string)."""
        import pyarrow as pa

        for offset, block in line_blocks(piece, TABLE_BYTES):
            offsets, lines = lines_of(offset, block)
            yield pa.table({"offset": pa.array(offsets, pa.int64()), "line": pa.array(lines)})

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """File and line."""
        return place_of_line(piece, key)
