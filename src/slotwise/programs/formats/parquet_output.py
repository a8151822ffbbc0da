"""Parquet output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slotwise.programs.formats.files import create_output
from slotwise.programs.formats.rows import rows_of
from slotwise.programs.shuffle.sizes import column_bytes

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 1 << 16
GROUP_BYTES = 32 << 20


class ParquetOutput:
    """Columns key and value for pairs, or the columns of the tables; the first rows set types.

    A pair (None, dict) is a row with the dict's fields. A part without rows is an empty table.
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
