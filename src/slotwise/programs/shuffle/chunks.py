"""Write and read pairs as chunks in partitioned files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from slotwise.programs.shuffle.partitioned import PartitionedReader, PartitionedWriter
from slotwise.programs.shuffle.sizes import column_bytes

CHUNK_PAIRS = 4096
Columns = tuple[Sequence[Any], Sequence[Any]]
"""The keys and the values of a number of pairs."""


def write_pairs(
    file: PartitionedWriter, partition: int, columns: Columns, chunk_bytes: int
) -> None:
    """Append pairs in chunks, each of at most about `chunk_bytes` in the reader's memory."""
    keys, values = columns
    if not keys:
        return
    pair_bytes = (column_bytes(keys) + column_bytes(values)) // len(keys) + 1
    step = max(1, min(CHUNK_PAIRS, chunk_bytes // pair_bytes))
    for first in range(0, len(keys), step):
        chunk = (keys[first : first + step], values[first : first + step])
        file.append(partition, pickle.dumps(chunk, protocol=5))


def read_pairs(path: Path, partition: int = 0) -> Iterator[Columns]:
    """The chunks of one partition of a file; one chunk is in memory at a time."""
    return map(pickle.loads, PartitionedReader(path).chunks(partition))
