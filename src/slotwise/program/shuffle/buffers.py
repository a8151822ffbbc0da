"""Pairs in bounded memory: sorted, or combined in a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from sys import getsizeof
from typing import Any, Protocol

from slotwise.program.mapreduce import MapReduce, Pair
from slotwise.program.shuffle.chunks import Columns
from slotwise.program.shuffle.order import Order
from slotwise.program.shuffle.pairs import checked_columns
from slotwise.program.shuffle.sizes import column_bytes

Groups = Iterator[tuple[Any, Iterator[Any]]]

SLICE_PAIRS = 32_768
_REFERENCES_BYTES = 16
_SORTING_BYTES = 40
"""A position and its place in the sorted list of positions."""
_LIST_BYTES = 96
"""A list with room for four values."""


class Buffer(Protocol):
    """Pairs that a task holds until they are spilled or reduced."""

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Take pairs in."""
        ...

    def is_full(self) -> bool:
        """Whether the pairs take the memory they may."""
        ...

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """All pairs in slices, sorted by key if `in_order`; the buffer is empty afterwards."""
        ...

    def groups(self) -> Groups:
        """Each key, sorted, with its values; the buffer is not used afterwards."""
        ...


def buffer_for(program: MapReduce, limit_bytes: int) -> Buffer:
    """A table for a program that combines, else a buffer that sorts."""
    combine = getattr(program, "combine", None)
    order = Order.of(program)
    if combine is None:
        return SortBuffer(order, limit_bytes)
    return CombineTable(combine, order, limit_bytes)


class SortBuffer:
    """Keeps every pair and sorts them when they leave."""

    def __init__(self, order: Order, limit_bytes: int) -> None:
        self._order = order
        self._limit_bytes = limit_bytes
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._bytes = 0

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Take pairs in."""
        self._keys.extend(keys)
        self._values.extend(values)
        own = column_bytes(keys) + column_bytes(values)
        self._bytes += own + (_REFERENCES_BYTES + _SORTING_BYTES) * len(keys)

    def is_full(self) -> bool:
        """Whether the pairs take the memory they may."""
        return self._bytes >= self._limit_bytes

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """All pairs in slices; sorted whether asked or not, so that later sorts find runs."""
        keys, values, self._keys, self._values, self._bytes = (
            self._keys,
            self._values,
            [],
            [],
            0,
        )
        positions = self._order.positions(keys)
        for first in range(0, len(positions), SLICE_PAIRS):
            part = positions[first : first + SLICE_PAIRS]
            yield [keys[i] for i in part], [values[i] for i in part]

    def groups(self) -> Groups:
        """Each key, sorted, with its values in the order they came."""
        return grouped(
            chain.from_iterable(zip(*columns, strict=True) for columns in self.drain(True))
        )


class CombineTable:
    """Keeps values by key and combines them when memory gets short.

    Values are appended to a list for each key, which costs no more than adding them up; the
    program's combine runs once for many values.
    """

    def __init__(
        self,
        combine: Callable[[Any, Iterator[Any]], Iterable[Pair]],
        order: Order,
        limit_bytes: int,
    ) -> None:
        self._combine = combine
        self._order = order
        self._limit_bytes = limit_bytes
        self._table: defaultdict[Any, list[Any]] = defaultdict(list)
        self._keys_bytes = 0
        self._values_bytes = 0

    def add(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Take pairs in."""
        table, known = self._table, len(self._table)
        try:
            for key, value in zip(keys, values):  # noqa: B905  (strict costs time here)
                table[key].append(value)
        except TypeError as error:
            raise TypeError(
                f"{self._order.program_name}: a key that cannot be hashed ({error}); with"
                " combine, keys must be text, numbers or tuples of them"
            ) from error
        self._keys_bytes += new_keys_bytes(table, known)
        self._values_bytes += column_bytes(values) + 8 * len(values)

    def is_full(self) -> bool:
        """Whether the pairs take the memory they may, even after combining."""
        if self._bytes() < self._limit_bytes:
            return False
        self._combine_all()
        # A table that stays half full would be combined again and again for little.
        return self._bytes() >= self._limit_bytes // 2

    def drain(self, in_order: bool) -> Iterator[Columns]:
        """All pairs, combined, in slices."""
        table, self._table = self._table, defaultdict(list)
        self._keys_bytes = self._values_bytes = 0
        keys = self._order.keys(table) if in_order else list(table)
        # The lists go as the slices leave, so that combining needs little memory of its own.
        pairs = chain.from_iterable(
            ((key, values[0]),)
            if len(values := table.pop(key)) == 1
            else self._combined(key, values)
            for key in keys
        )
        while batch := list(islice(pairs, SLICE_PAIRS)):
            yield checked_columns(batch, f"combine of {self._order.program_name}")

    def groups(self) -> Groups:
        """Each key, sorted, with its values; not combined once more."""
        table = self._table
        return ((key, iter(table[key])) for key in self._order.keys(table))

    def _combined(self, key: Any, values: list[Any]) -> Iterable[Pair]:
        return self._combine(key, iter(values)) or ()

    def _combine_all(self) -> None:
        for keys, values in self.drain(in_order=False):
            self.add(keys, values)

    def _bytes(self) -> int:
        # A dict that grows holds its old and its new table for a moment.
        shell = getsizeof(self._table) * 3 // 2 + _LIST_BYTES * len(self._table)
        return shell + self._keys_bytes + self._values_bytes


def new_keys_bytes(table: dict[Any, Any], known: int) -> int:
    """The bytes of the keys that a table got since it had `known` of them."""
    return column_bytes(list(islice(reversed(table), len(table) - known)))


def grouped(pairs: Iterator[Pair]) -> Groups:
    """Sorted pairs by equal keys: each key with an iterator of its values."""
    for key, group in groupby(pairs, key=itemgetter(0)):
        yield key, (value for _, value in group)
