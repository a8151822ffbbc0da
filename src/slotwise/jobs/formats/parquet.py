"""Parquet input, with one record per row, and Parquet output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slotwise.core.errors import InputError, check_installed
from slotwise.jobs.formats.files import InputFile, create_output, open_input, reading
from slotwise.jobs.formats.splits import SplitPiece
from slotwise.jobs.shuffle.pairs import column_bytes

if TYPE_CHECKING:
    import pyarrow as pa


TABLE_ROWS = 1 << 16


class ParquetInput:
    """Key: the number of a row in its row group; value: the row, a dict."""

    def pieces(self, file: InputFile, split_bytes: int) -> list[SplitPiece]:
        """Return runs of row groups of at most `split_bytes` together, or one larger group."""
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
        """Yield row numbers and rows in blocks."""
        for group, number, table in _batches(piece):
            del group
            rows = table.to_pylist()
            yield range(number, number + len(rows)), rows

    def tables(self, piece: SplitPiece) -> Iterator[pa.Table]:
        """Return tables of the columns of the file."""
        return (table for _, _, table in _batches(piece))

    def where(self, piece: SplitPiece, number: int, key: Any) -> str:
        """Return file, row group and row, counted from 0."""
        import pyarrow.parquet as pq

        with open_input(piece.path) as stream:
            metadata = pq.ParquetFile(stream).metadata
        group, row = piece.start, number
        while group < metadata.num_row_groups and row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        return f"{piece.path}, row group {group}, row {row}"


def _groups(file: InputFile) -> tuple[list[int], list[int]]:
    """Return the sizes of the row groups, and their first bytes with the end of the file."""
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
    """Return the first byte of a column of a row group."""
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


# Parquet output.

GROUP_ROWS = 1 << 16
GROUP_BYTES = 32 << 20


class ParquetOutput:
    """Columns key and value for pairs, or the columns of the tables; the first rows set types.

    A pair (None, dict) is a row with the fields of the dict. A part without rows is an empty
    table.
    Raises ValueError if later rows do not fit the types of the first.
    """

    def __init__(self, path: str) -> None:
        self.rows = 0
        self._file = create_output(path)
        self._writer: Any = None
        self._pending: list[dict[str, Any]] = []
        self._pending_bytes = 0

    def write(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Append a row for each pair."""
        self._pending += rows_of(keys, values)
        self._pending_bytes += column_bytes(keys) + column_bytes(values)
        if len(self._pending) >= GROUP_ROWS or self._pending_bytes >= GROUP_BYTES:
            self._flush()

    def write_table(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        schema = self._writer.schema
        try:
            fitting = table.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError) as error:
            raise ValueError(
                f"Parquet output: rows with columns {table.schema} do not fit the first rows,"
                f" {schema}: {error}; reduce must always yield the same fields and types"
            ) from error
        self._writer.write_table(fitting, row_group_size=GROUP_ROWS)
        self.rows += table.num_rows

    def close(self) -> None:
        """Write what is pending and finish the file."""
        import pyarrow as pa

        self._flush()
        if self._writer is None:
            self.write_table(pa.table({}))
        self._writer.close()
        self._file.close()

    def _flush(self) -> None:
        import pyarrow as pa

        rows, self._pending, self._pending_bytes = self._pending, [], 0
        if not rows:
            return
        if self._writer is None:
            self.write_table(pa.Table.from_pylist(rows))
            return
        try:
            table = pa.Table.from_pylist(rows, schema=self._writer.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"Parquet output: rows do not fit the types of the first rows,"
                f" {self._writer.schema}: {error}; reduce must always yield the same types"
            ) from error
        self.write_table(table)


def rows_of(keys: Sequence[Any], values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return {"key": ..., "value": ...} for each pair; for (None, dict), the dict alone."""
    return [
        value if key is None and isinstance(value, dict) else {"key": key, "value": value}
        for key, value in zip(keys, values, strict=True)
    ]
