"""Record numbers, the input of programs that generate their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.programs.formats.files import InputFile
from slotwise.programs.formats.splits import SplitPiece

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 8192


class NumberInput:
    """Key: a number from 0; value: None. The path of the `InputFile` is not a file."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Ranges of numbers; each number counts as one byte."""
        return [
            SplitPiece(
                file.path, start, end := min(start + split_bytes, file.size_bytes), end - start
            )
            for start in range(0, max(file.size_bytes, 1), split_bytes)
        ]

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Numbers and Nones, in blocks."""
        end = piece.end or 0
        for start in range(piece.start, end, BLOCK):
            numbers = range(start, min(start + BLOCK, end))
            yield numbers, [None] * len(numbers)

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """The number."""
        return f"record {piece.start + number}"

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Tables with the column number (int64)."""
        import pyarrow as pa

        for numbers, _ in self.records(piece):
            yield pa.table({"number": pa.array(numbers, pa.int64())})
