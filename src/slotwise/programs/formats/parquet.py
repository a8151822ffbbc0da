"""Parquet input: one record a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.model.errors import InputError, check_installed
from slotwise.programs.formats.files import InputFile, open_input, reading
from slotwise.programs.formats.splits import SplitPiece

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1 << 16


class ParquetInput:
    """Key: the number of a row in its row group; value: the row, a dict."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Runs of whole row groups of at most `split_bytes` together, or one larger group."""
        sizes, begins = _groups(file)

        def piece(start: int, end: int, held: int) -> SplitPiece:
            within = begins[start], begins[end]
            return SplitPiece(file.path, start, end, held, file.version, within)

        pieces: list[SplitPiece] = []
        start, held = 0, 0
        for group, size in enumerate(sizes):
            if group > start and held + size > split_bytes:
                pieces.append(piece(start, group, held))
                start, held = group, 0
            held += size
        pieces.append(piece(start, len(sizes), held))
        return pieces

    def records(self, piece: SplitPiece) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
        """Row numbers and rows, in blocks."""
        for group, number, table in _batches(piece):
            del group
            rows = table.to_pylist()
            yield range(number, number + len(rows)), rows

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Tables of the file's columns."""
        return (table for _, _, table in _batches(piece))

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """File, row group and row, counted from 0."""
        import pyarrow.parquet as pq

        with open_input(piece.path) as stream:
            metadata = pq.ParquetFile(stream).metadata
        group, row = piece.start, number
        while group < metadata.num_row_groups and row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        return f"{piece.path}, row group {group}, row {row}"


def _groups(file: InputFile) -> tuple[list[int], list[int]]:
    """The sizes of the row groups; their first bytes, and the end of the file."""
    check_installed("pyarrow", "Parquet input", "arrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_input(file.path) as stream:
            metadata = pq.ParquetFile(stream).metadata
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"input {file.path!r} cannot be read as Parquet: {error}") from error
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    begins = [_begin(group.column(0)) if group.num_columns else 0 for group in groups]
    return [group.total_byte_size for group in groups], [*begins, file.size_bytes]


def _begin(column: Any) -> int:
    """The first byte of a column of a row group."""
    first: int = column.data_page_offset
    return min(first, column.dictionary_page_offset or first)


def _batches(piece: SplitPiece) -> Iterator[tuple[int, int, pa.Table]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(piece.path, piece.version) as stream:
        file = pq.ParquetFile(stream)
        for group in range(piece.start, piece.end or 0):
            number = 0
            for batch in file.iter_batches(TABLE_ROWS, row_groups=[group]):
                yield group, number, pa.Table.from_batches([batch])
                number += batch.num_rows
