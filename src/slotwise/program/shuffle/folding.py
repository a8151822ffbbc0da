"""Combined values by key, as a program's fold_chunk keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from sys import getsizeof
from typing import Any

from slotwise.program.shuffle.buffers import SLICE_PAIRS, new_keys_bytes
from slotwise.program.shuffle.chunks import Columns
from slotwise.program.shuffle.sizes import column_bytes


class FoldTable:
    """The Counter that `fold_chunk` adds to, with an eye on its size.

    Values are measured when their key is new: a program whose values grow should use
    `map_chunk` and `combine` instead.
    """

    def __init__(
        self, fold_chunk: Callable[[str, Counter[Any]], None], limit_bytes: int
    ) -> None:
        self._fold_chunk = fold_chunk
        self._limit_bytes = limit_bytes
        self._table: Counter[Any] = Counter()
        self._entries_bytes = 0

    def add(self, text: str) -> None:
        """Fold the lines of a text in."""
        table, known = self._table, len(self._table)
        self._fold_chunk(text, table)
        added = len(table) - known
        values = [table[key] for key in islice(reversed(table), min(added, 64))]
        if values:
            self._entries_bytes += column_bytes(values) * added // len(values)
            self._entries_bytes += new_keys_bytes(table, known)

    def is_full(self) -> bool:
        """Whether the table takes the memory it may."""
        # A dict that grows holds its old and its new table for a moment.
        return getsizeof(self._table) * 3 // 2 + self._entries_bytes >= self._limit_bytes

    def drain(self) -> Iterator[Columns]:
        """All pairs in slices; the table is empty afterwards."""
        table, self._table, self._entries_bytes = self._table, Counter(), 0
        keys, values = iter(table), iter(table.values())
        while part := list(islice(keys, SLICE_PAIRS)):
            yield part, list(islice(values, SLICE_PAIRS))
