"""JSON Lines input: one value a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.programs.formats.files import InputFile
from slotwise.programs.formats.lines import line_blocks, line_pieces, lines_of, place_of_line
from slotwise.programs.formats.places import placed
from slotwise.programs.formats.splits import SplitPiece

if TYPE_CHECKING:
    import pyarrow as pa


class JsonLinesInput:
    """Key: the byte offset of a line; value: its parsed JSON, usually a dict.

    Empty lines are skipped. Raises ValueError, naming file and offset, for a line that is not
    JSON.
    """

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Byte ranges; a compressed file is one piece."""
        return line_pieces(file, split_bytes)

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Offsets and values, in blocks."""
        for offset, block in line_blocks(piece):
            filled = [
                pair for pair in zip(*lines_of(offset, block), strict=True) if pair[1].strip()
            ]
            offsets = [begin for begin, _ in filled]
            yield offsets, [_parsed(piece, begin, line) for begin, line in filled]

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Tables with a column for each field; types are inferred from the values."""
        import pyarrow as pa

        for _, values in self.records(piece):
            if values:
                yield pa.Table.from_pylist(list(values))

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """File and line."""
        return place_of_line(piece, key)


def _parsed(piece: SplitPiece, offset: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        place = f"{piece.path}, byte {offset}"
        placed_error = ValueError(f"{place}: not a line of JSON: {error}")
        raise placed(placed_error, place_of_line(piece, offset)) from error
