"""Write and read pairs as chunks in partitioned files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.programs.shuffle.partitioned import PartitionedReader, PartitionedWriter
from slotwise.programs.shuffle.sizes import column_bytes
from slotwise.programs.transfer import pickled

CHUNK_PAIRS = 4096
REFERENCE_BYTES = 8
Columns = tuple[Sequence[Any], Sequence[Any]]
"""The keys and the values of a number of pairs."""


class Grouped(NamedTuple):
    """Keys, each with a list of values: a shorter form of pairs whose keys repeat."""

    keys: Sequence[Any]
    lists: Sequence[list[Any]]


def write_pairs(
    file: PartitionedWriter, partition: int, columns: Columns | Grouped, chunk_bytes: int
) -> None:
    """Append pairs in chunks, each of at most about `chunk_bytes` in the reader's memory."""
    keys, values = columns
    if not keys:
        return
    is_grouped = isinstance(columns, Grouped)
    values_bytes = grouped_bytes(values) if is_grouped else column_bytes(values)
    pair_bytes = (column_bytes(keys) + values_bytes) // len(keys) + 1
    step = max(1, min(CHUNK_PAIRS, chunk_bytes // pair_bytes))
    for first in range(0, len(keys), step):
        chunk = (keys[first : first + step], values[first : first + step])
        made = Grouped(*chunk) if is_grouped else chunk
        file.append(partition, pickled(made, None, []))


def read_pairs(path: Path, partition: int = 0) -> Iterator[Columns | Grouped]:
    """The chunks of one partition of a file; one chunk is in memory at a time."""
    return map(pickle.loads, PartitionedReader(path).chunks(partition))


def grouped_bytes(lists: Sequence[list[Any]]) -> int:
    """The bytes of all values in lists, with the references to them."""
    values = list(chain.from_iterable(lists))
    return column_bytes(values) + REFERENCE_BYTES * len(values)
