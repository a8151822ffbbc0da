"""Write and read Arrow tables as chunks in files partitioned by the hash of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slotwise.jobs.blocks import BUCKETS, PartitionedReader, PartitionedWriter
from slotwise.jobs.mapreduce.program import stable_hash


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables; a column that a table lacks is null in its rows."""
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def write_buckets(
    file: PartitionedWriter, table: pa.Table, keys: Sequence[str], reducers: int
) -> None:
    """Append the rows of a table to the buckets of their keys, in table order."""
    if missing := [name for name in keys if name not in table.column_names]:
        raise TypeError(
            f"the mapped table lacks the key column {missing[0]!r}; it has the columns"
            f" {', '.join(table.column_names)}"
        )
    hashes = _row_hashes(table, keys)
    buckets = hashes % reducers * BUCKETS + hashes // reducers % BUCKETS
    order = np.argsort(buckets, kind="stable")
    ordered = table.take(pa.array(order))
    ends = np.cumsum(np.bincount(buckets.astype(np.int64), minlength=reducers * BUCKETS))
    start = 0
    for bucket, end in enumerate(ends.tolist()):
        if end > start:
            file.append(bucket, _encoded(ordered.slice(start, end - start)))
        start = end


def read_tables(reader: PartitionedReader, bucket: int) -> Iterator[pa.Table]:
    """Yield the tables of a bucket in the order of appending."""
    for chunk in reader.chunks(bucket):
        yield pa.ipc.open_stream(chunk).read_all()


def _encoded(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return memoryview(sink.getvalue())


def _row_hashes(table: pa.Table, keys: Sequence[str]) -> NDArray[np.uint64]:
    total = np.zeros(table.num_rows, dtype=np.uint64)
    for name in keys:
        total = total * np.uint64(31) + _column_hashes(table.column(name))
    return total


def _column_hashes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return the stable hash of each value, computed once per distinct value; null is 0."""

    encoded = pa.concat_arrays(column.chunks).dictionary_encode()
    distinct = [stable_hash(value) for value in encoded.dictionary.to_pylist()]
    hashes = np.array([*distinct, 0], dtype=np.uint64)
    positions = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    chosen: NDArray[np.uint64] = hashes[positions]
    return chosen
