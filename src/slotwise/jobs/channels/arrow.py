"""Arrow tables and batches as bytes. Only this module of the package imports pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TYPES: tuple[type, ...] = (pa.RecordBatch, pa.Table)


class _BufferSink:
    """A file that keeps the buffers written to it without copying them."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[memoryview[int]] = []

    def write(self, data: Any) -> int:
        self.parts.append(memoryview(data).cast("B"))
        return len(data)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def encode(record: Any) -> list[memoryview[int]]:
    """Return a table or batch as the bytes of an Arrow stream; columns are not copied."""
    collected = _BufferSink()
    with pa.ipc.new_stream(collected, record.schema) as stream:
        stream.write(record)
    return collected.parts


def allocate(size: int) -> memoryview[int]:
    """Return memory that Arrow reuses when the columns in it are no longer used."""
    return memoryview(pa.allocate_buffer(size)).cast("B")


def decode(body: memoryview[int], is_table: bool) -> Any:
    """Return the table or batch of a stream; its columns stay in `body`."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        if is_table:
            return stream.read_all()
        return stream.read_next_batch()


def runs(records: Sequence[object]) -> list[tuple[bool, Sequence[object]]]:
    """Split records into single Arrow records and runs of other records."""
    split: list[tuple[bool, Sequence[object]]] = []
    first = 0
    for number, record in enumerate(records):
        if isinstance(record, TYPES):
            if first < number:
                split.append((False, records[first:number]))
            split.append((True, records[number : number + 1]))
            first = number + 1
    if first < len(records):
        split.append((False, records[first:]))
    return split
