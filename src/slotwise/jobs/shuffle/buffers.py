"""Buffers that hold pairs in bounded memory until they are spilled or reduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

from slotwise.jobs.blocks import PartitionedWriter
from slotwise.jobs.mapreduce.program import MapReduce, Pair
from slotwise.jobs.shuffle.keys import PLAIN, Order, is_ordered, one, ones
from slotwise.jobs.shuffle.pairs import (
    CHUNK_PAIRS,
    REFERENCE_BYTES,
    Columns,
    Grouped,
    check_pair,
    checked_columns,
    column_bytes,
    grouped_bytes,
    new_keys_bytes,
    read_pairs,
    table_bytes,
    write_pairs,
)

Groups = Iterator[tuple[Any, Iterator[Any]]]

SLICE_PAIRS = 8192
_SAMPLE_VALUES = 256
_ABSENT = object()
_REFERENCES_BYTES = 16
_SORTING_BYTES = 40
"""An integer position and its reference in the sorted list of positions."""
_LIST_BYTES = 96
"""A list with capacity for four values."""


class SortBuffer:
    """Keeps every pair and sorts on drain, for keys that rarely repeat."""

    def __init__(self, order: Order, limit_bytes: int) -> None:
        self._order = order
        self._limit_bytes = limit_bytes
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Add columns of pairs."""
        self._keys.extend(keys)
        self._values.extend(values)
        own = column_bytes(keys) + column_bytes(values)
        self._bytes += own + (_REFERENCES_BYTES + _SORTING_BYTES) * len(keys)

    def take(self, pairs: Iterator[Pair], values_bytes: int) -> None:
        """Add pairs. Their size is measured; `values_bytes` is ignored."""
        self.add(*checked_columns(list(pairs), f"map of {self._order.program_name}"))

    def is_full(self) -> bool:
        """Return whether the pairs have reached the memory limit."""
        return self._bytes >= self._limit_bytes

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """Remove all pairs in slices, always sorted, so that later sorts find runs."""
        held, values, self._keys, self._values, self._bytes = (
            self._keys,
            self._values,
            [],
            [],
            0,
        )
        keys = ones(held)
        positions = self._order.positions(keys)
        for first in range(0, len(positions), SLICE_PAIRS):
            part = positions[first : first + SLICE_PAIRS]
            yield [keys[i] for i in part], [values[i] for i in part]

    def groups(self) -> Groups:
        """Return each key, sorted, with its values in the order of arrival."""
        slices = self.drain(in_order=True)
        return grouped(chain.from_iterable(zip(*columns, strict=True) for columns in slices))


class ValueTable:
    """Keeps the values of each key together; combines them at the memory limit.

    Appending a value to the list of its key costs no more than adding it up, and the combine of
    the program runs once for many values. Keys with one value need no list.
    """

    def __init__(
        self,
        combine: Callable[[Any, Iterator[Any]], Iterable[Pair] | None] | None,
        order: Order,
        limit_bytes: int,
    ) -> None:
        self._combine = combine
        self._order = order
        self._limit_bytes = limit_bytes
        self._single: dict[Any, Any] = {}
        self._many: dict[Any, list[Any]] = {}
        self._entries_bytes = 0

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Add columns of pairs. Raises TypeError for a key that cannot be hashed."""
        values_bytes = column_bytes(values) + REFERENCE_BYTES * len(values)
        self.take(zip(ones(keys), values, strict=True), values_bytes, are_ones=True)

    def take(self, pairs: Iterator[Pair], values_bytes: int, are_ones: bool = False) -> None:
        """Add pairs one by one; `are_ones` if `keys.ones` has been applied to the keys."""
        single, many = self._single, self._many
        known = len(single) + len(many)
        list_of = many.get
        with self._order.hashing_errors():
            for pair in pairs:
                if type(pair) is not tuple:
                    check_pair(pair, f"map of {self._order.program_name}")
                key, value = pair
                if (held := list_of(key)) is not None:
                    held.append(value)
                elif key in single:
                    many[key] = [single.pop(key), value]
                elif are_ones or key.__class__ in PLAIN or (same := one(key)) is key:
                    single[key] = value
                elif same in many:  # Not found above, since the key does not equal itself.
                    many[same].append(value)
                else:
                    many[same] = [single.pop(same), value] if same in single else [value]
        # New keys with two values have left `single`; older keys are measured in their place.
        self._entries_bytes += new_keys_bytes(single, len(single) + len(many) - known)
        self._entries_bytes += values_bytes

    def add_grouped(self, keys: Sequence[Any], lists: Sequence[list[Any]]) -> None:
        """Add keys, each with a list of values that the table takes over."""
        single, many = self._single, self._many
        known = len(single) + len(many)
        for key, values in zip(ones(keys), lists, strict=True):
            if (held := many.get(key)) is not None:
                held += values
            elif key in single:
                many[key] = [single.pop(key), *values]
            else:
                many[key] = values
        self._entries_bytes += new_keys_bytes(many, len(single) + len(many) - known)
        self._entries_bytes += grouped_bytes(lists)

    def is_full(self) -> bool:
        """Return whether the pairs have reached the memory limit, even after combining."""
        if self._bytes() < self._limit_bytes:
            return False
        if self._combine is None:
            return True
        for keys, values in self.drain(in_order=False):
            self.add(keys, values)
        # A table that stays half full would be combined repeatedly with little effect.
        return self._bytes() >= self._limit_bytes // 2

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """Remove all pairs, combined, in slices."""
        single, many = self._single, self._many
        self._single, self._many, self._entries_bytes = {}, {}, 0
        if in_order:
            # Values are removed slice by slice, so that combining needs little memory.
            keys = self._order.keys(chain(single, many))
            lists = (many.pop(key) if key in many else [single.pop(key)] for key in keys)
            return self._slices(self._combined(keys, lists))
        return chain(_columns(single), self._slices(self._combined(many, many.values())))

    def drain_grouped(self) -> Iterator[Columns | Grouped]:
        """Remove all pairs in slices; without a combine, the values of a key stay together."""
        if self._combine is not None:
            return self.drain(in_order=False)
        single, many = self._single, self._many
        self._single, self._many, self._entries_bytes = {}, {}, 0
        return chain(_columns(single), _grouped_slices(many))

    def groups(self) -> Groups:
        """Yield each key, sorted, with its values in the order of arrival."""
        single, many = self._single, self._many
        for key in self._order.keys(chain(single, many)):
            yield key, iter(many[key] if key in many else (single[key],))

    def _combined(self, keys: Iterable[Any], lists: Iterable[list[Any]]) -> Iterator[Pair]:
        if self._combine is None:
            return chain.from_iterable(map(zip, map(repeat, keys), lists))
        return chain.from_iterable(filter(None, map(self._combine, keys, map(iter, lists))))

    def _slices(self, pairs: Iterator[Pair]) -> Iterator[Columns]:
        while batch := list(islice(pairs, SLICE_PAIRS)):
            yield checked_columns(batch, f"combine of {self._order.program_name}")

    def _bytes(self) -> int:
        tables = table_bytes(self._single) + table_bytes(self._many)
        return tables + _LIST_BYTES * len(self._many) + self._entries_bytes


class SumTable:
    """Keeps one value for each key, to which further values are added."""

    def __init__(self, add: Callable[[Any, Any], Any], order: Order, limit_bytes: int) -> None:
        self._add = add
        self._order = order
        self._limit_bytes = limit_bytes
        self._table: dict[Any, Any] = {}
        self._entries_bytes = 0

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Add columns of pairs. Raises TypeError for a key that cannot be hashed."""
        self.take(zip(ones(keys), values, strict=True), 0, are_ones=True)

    def take(self, pairs: Iterator[Pair], values_bytes: int, are_ones: bool = False) -> None:
        """Add pairs one by one. Values are measured in the table, not by `values_bytes`."""
        add, table, known = self._add, self._table, len(self._table)
        held_of = table.get
        with self._order.hashing_errors():
            for pair in pairs:
                if type(pair) is not tuple:
                    check_pair(pair, f"map of {self._order.program_name}")
                key, value = pair
                held = held_of(key, _ABSENT)
                if held is not _ABSENT:
                    table[key] = add(held, value)
                elif are_ones or key.__class__ in PLAIN or (same := one(key)) is key:
                    table[key] = value
                else:  # Not found above, since the key does not equal itself.
                    held = held_of(same, _ABSENT)
                    table[same] = value if held is _ABSENT else add(held, value)
        self._measure(known)

    def fold(self, fold_chunk: Callable[[str, Counter[Any]], None], text: str) -> None:
        """Add the pairs of many lines with the program's `fold_chunk`."""
        if not isinstance(self._table, Counter):
            self._table = Counter(self._table)
        known = len(self._table)
        fold_chunk(text, self._table)
        new = list(islice(reversed(self._table), len(self._table) - known))
        if is_ordered(new):
            self._measure(known)
        else:
            again = [(key, self._table.pop(key)) for key in reversed(new)]
            self.take(iter(again), 0)

    def is_full(self) -> bool:
        """Return whether the pairs have reached the memory limit."""
        return table_bytes(self._table) + self._entries_bytes >= self._limit_bytes

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """Remove all pairs in slices."""
        table, self._table, self._entries_bytes = self._table, {}, 0
        return _columns(table, self._order.keys(table) if in_order else None)

    def groups(self) -> Groups:
        """Return each key, sorted, with the sum of its values."""
        table = self._table
        return ((key, iter((table[key],))) for key in self._order.keys(table))

    def _measure(self, known: int) -> None:
        """Add the size of the new keys, and of their values as estimated from a sample."""
        table = self._table
        if added := len(table) - known:
            sample = [table[key] for key in islice(reversed(table), min(added, _SAMPLE_VALUES))]
            self._entries_bytes += new_keys_bytes(table, added)
            self._entries_bytes += column_bytes(sample) * added // len(sample)


Buffer = SortBuffer | ValueTable | SumTable
"""The pairs that a task holds in memory."""


def buffer_for(program: MapReduce, limit_bytes: int) -> Buffer:
    """Return the buffer that suits a program."""
    order = Order.of(program)
    if (add := getattr(program, "add", None)) is not None:
        return SumTable(add, order, limit_bytes)
    combine = getattr(program, "combine", None)
    if program.total_order and combine is None:
        return SortBuffer(order, limit_bytes)
    return ValueTable(combine, order, limit_bytes)


def _columns(table: dict[Any, Any], order: list[Any] | None = None) -> Iterator[Columns]:
    """Yield the entries of a table in slices, in the order of the table or of `order`."""
    keys = iter(table if order is None else order)
    values = iter(table.values()) if order is None else map(table.__getitem__, order)
    while part := list(islice(keys, SLICE_PAIRS)):
        yield part, list(islice(values, SLICE_PAIRS))


def _grouped_slices(lists: dict[Any, list[Any]]) -> Iterator[Grouped]:
    """Yield the entries of a table of lists in slices of about SLICE_PAIRS values."""
    keys: list[Any] = []
    parts: list[list[Any]] = []
    count = 0
    for key, values in lists.items():
        for first in range(0, len(values), SLICE_PAIRS):
            part = values[first : first + SLICE_PAIRS] if len(values) > SLICE_PAIRS else values
            keys.append(key)
            parts.append(part)
            count += len(part)
            if count >= SLICE_PAIRS:
                yield Grouped(keys, parts)
                keys, parts, count = [], [], 0
    if keys:
        yield Grouped(keys, parts)


def grouped(pairs: Iterator[Pair]) -> Groups:
    """Group sorted pairs by equal keys: each key with an iterator of its values."""
    for key, group in groupby(pairs, key=itemgetter(0)):
        yield key, (value for _, value in group)


# Sorted runs on disk, and their merge, for pairs that do not fit in memory.

FAN_IN = 32
"""The maximum number of runs merged at once, and so of chunks in memory and open files."""


class SortedRuns:
    """The runs of one reduce task; equal keys keep the order in which they were spilled."""

    def __init__(self, directory: Path, order: Order, chunk_bytes: int) -> None:
        self._directory = directory
        self._order = order
        self._chunk_bytes = chunk_bytes
        self._paths: list[Path] = []
        self._written = 0
        self._is_total = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing was spilled."""
        return not self._paths

    def spill(self, slices: Iterator[Columns]) -> None:
        """Write sorted slices as one run."""
        self._paths.append(self._write(slices))

    def merged(self) -> Iterator[Pair]:
        """Yield all pairs in order; call it once. Costs log32(number of runs) passes."""
        while len(self._paths) > FAN_IN:
            groups = [self._paths[i : i + FAN_IN] for i in range(0, len(self._paths), FAN_IN)]
            self._paths = [self._merge_to_run(group) for group in groups]
        return self._merge(self._paths)

    def _merge(self, paths: list[Path]) -> Iterator[Pair]:
        streams = [self._pairs(path) for path in paths]
        return self._order.merged(streams, self._is_total)

    def _pairs(self, path: Path) -> Iterator[Pair]:
        # Keys that are one key but not equal were the same object before they were written.
        is_total = self._is_total
        return chain.from_iterable(
            zip(keys if is_total else ones(keys), values, strict=True)
            for keys, values in read_pairs(path)
        )

    def _merge_to_run(self, paths: list[Path]) -> Path:
        merged = self._write(_slices(self._merge(paths)))
        for path in paths:
            path.unlink()
        return merged

    def _write(self, slices: Iterator[Columns]) -> Path:
        path = self._directory / f"run-{self._written}"
        self._written += 1
        with PartitionedWriter(path, partitions=1) as file:
            for columns in slices:
                self._is_total = self._is_total and self._order.is_total(columns[0])
                write_pairs(file, 0, columns, self._chunk_bytes)
        return path


def _slices(pairs: Iterator[Pair]) -> Iterator[Columns]:
    while batch := list(islice(pairs, CHUNK_PAIRS)):
        keys, values = zip(*batch, strict=True)
        yield keys, values
