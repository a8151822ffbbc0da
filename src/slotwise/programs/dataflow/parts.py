"""The part of the output that a copy of a node writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from slotwise.programs.dataflow.nodes import Written
from slotwise.programs.dataflow.place import GroupAttempt
from slotwise.programs.formats.outputs import OUTPUT_FORMATS

BATCH_RECORDS = 1024

_PLAIN: frozenset[type] = frozenset({str, int})


class Part:
    """Writes records in an output format; the part is staged until the job commits."""

    def __init__(self, place: GroupAttempt, written: Written, copy: int) -> None:
        path = place.layout.staged(place.layout.part(written, copy), place.attempt)
        self._writer = OUTPUT_FORMATS[written.output_format](path)
        self._is_text = written.output_format == "text"
        self._records: list[Any] = []

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return self._writer.rows

    def write(self, record: object) -> None:
        """Append a record, or the rows of an Arrow table or batch."""
        if hasattr(record, "to_pylist") and hasattr(record, "schema"):
            import pyarrow as pa

            self._flush()
            is_batch = isinstance(record, pa.RecordBatch)
            self._writer.write_table(pa.Table.from_batches([record]) if is_batch else record)
            return
        self._records.append(record)
        if len(self._records) >= BATCH_RECORDS:
            self._flush()

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        with suppress(Exception):
            self._writer.close()

    def _flush(self) -> None:
        records, self._records = self._records, []
        if records:
            self._writer.write(*self._columns(records))

    def _columns(self, records: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Keys and values: those of pairs; other records are values without a key.

        In a line of text a pair is like any tuple.
        """
        pairs = [record if _is_pair(record) else (None, record) for record in records]
        keys, values = zip(*pairs, strict=True)
        if self._is_text and not {*map(type, keys), *map(type, values)} <= _PLAIN:
            return [None] * len(records), records
        return keys, values


def _is_pair(record: object) -> bool:
    return isinstance(record, tuple) and len(record) == 2
