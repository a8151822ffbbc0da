"""Pairs of user code: checks, batches, chunks in files, and their size in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from sys import getsizeof
from traceback import walk_tb
from typing import Any, NamedTuple

from slotwise.jobs.blocks import PartitionedReader, PartitionedWriter
from slotwise.jobs.mapreduce.program import Pair
from slotwise.jobs.transfer import pickled

_BATCH_PAIRS = 1024
"""As many as stay in the processor's cache until they are buffered; more was slower."""
_FIRST_BATCH_PAIRS = 64
_SIZED_PAIRS = 64
_STREAM_PAIRS = 8192
_STREAM_PAIR_BYTES = 1024
_NUMBERS: frozenset[type] = frozenset({int, float, bool})
_KEY, _VALUE = itemgetter(0), itemgetter(1)


class PairStream:
    """The pairs of many calls of user code, as columns of at most about `batch_bytes`.

    `results` has the result of each call: a generator, a list, or None for no pairs. Calls are
    made when their pairs are needed. Raises TypeError, naming `what`, for other items than
    pairs. `place` is called with errors raised during the last call.
    """

    def __init__(
        self,
        results: Iterable[Iterable[Pair] | None],
        what: str,
        batch_bytes: int,
        place: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self.what = what
        self._pairs = chain.from_iterable(filter(None, results))
        self._batch_bytes = batch_bytes
        self._place = place
        self._size = _FIRST_BATCH_PAIRS
        self._is_plain = False
        self._value_bytes = 0

    def __iter__(self) -> Iterator[Columns]:
        while True:
            with self._named_errors(own_frames=1):
                batch = list(islice(self._pairs, self._size))
            if not batch:
                return
            columns = checked_columns(batch, self.what)
            self._adapt(batch, columns)
            yield columns

    def pass_on(self, take: Callable[[Iterator[Pair], int], None]) -> None:
        """Pass the next pairs to `take` one by one if the last were small with number values.

        Such pairs need no measuring, and without a batch they stay in the cache.
        """
        if self._is_plain:
            with self._named_errors(own_frames=2):
                take(islice(self._pairs, _STREAM_PAIRS), self._value_bytes * _STREAM_PAIRS)

    def _adapt(self, batch: list[Pair], columns: Columns) -> None:
        # Batches have one pair if pairs are megabytes, and about a thousand if they are small.
        some = batch[:: len(batch) // _SIZED_PAIRS + 1]
        pair_bytes = sum(map(deep_bytes, some)) // len(some) + 1
        self._size = max(1, min(_BATCH_PAIRS, 2 * self._size, self._batch_bytes // pair_bytes))
        numbers = set(map(type, columns[1])) <= _NUMBERS
        self._is_plain = numbers and pair_bytes <= _STREAM_PAIR_BYTES
        self._value_bytes = 8 + column_bytes(columns[1]) // len(batch)

    @contextmanager
    def _named_errors(self, own_frames: int) -> Iterator[None]:
        """Name the program in errors caused by its results; keep errors raised by its code."""
        try:
            yield
        except Exception as error:
            cause = error
            codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
            # If user code raised the error, its frames follow ours. The first is this one.
            if len(codes) == own_frames + 1 and isinstance(error, TypeError | ValueError):
                cause = TypeError(
                    f"{self.what} must yield pairs (key, value), or return a list of them:"
                    f" {error}"
                )
            # The results of many calls are checked together: the call at fault is unknown.
            if checked_columns.__code__ not in codes:
                self._place(cause)
            if cause is error:
                raise
            raise cause from error


def checked_columns(batch: list[Pair], what: str) -> Columns:
    """Return the keys and values of pairs. Raises TypeError for an item that is not a pair."""
    for kind in set(map(type, batch)):
        if not issubclass(kind, tuple):
            _refuse(next(item for item in batch if type(item) is kind), what)
    if set(map(len, batch)) - {2}:
        _refuse(next(item for item in batch if len(item) != 2), what)
    # Two passes are faster than zip(*batch), which makes an iterator for each pair.
    return list(map(_KEY, batch)), list(map(_VALUE, batch))


def check_pair(item: Any, what: str) -> None:
    """Raise TypeError for an item that is not a tuple of two."""
    if not isinstance(item, tuple) or len(item) != 2:
        _refuse(item, what)


def _refuse(item: Any, what: str) -> None:
    raise TypeError(f"{what} must yield pairs (key, value); it yielded {item!r:.80}")


# Chunks of pairs in partitioned files.

CHUNK_PAIRS = 4096
REFERENCE_BYTES = 8
Columns = tuple[Sequence[Any], Sequence[Any]]
"""The keys and values of pairs."""


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
    """Yield the chunks of one partition of a file; one chunk is in memory at a time."""
    return map(pickle.loads, PartitionedReader(path).chunks(partition))


def grouped_bytes(lists: Sequence[list[Any]]) -> int:
    """Return the bytes of all values in lists, with the references to them."""
    values = list(chain.from_iterable(lists))
    return column_bytes(values) + REFERENCE_BYTES * len(values)


# Estimates of the memory of values: lengths of text are exact, the rest is sampled.

SAMPLE_STEP = 16
_NUMBER_BYTES: frozenset[type] = frozenset({int, float, bool, type(None)})
_TEXTS: frozenset[type] = frozenset({str, bytes})
_TEXT_BYTES = 49
_SHARED = frozenset([None, *range(-5, 257)])
"""Values of which the interpreter has one object (True equals 1, and False equals 0)."""


def column_bytes(values: Sequence[Any]) -> int:
    """Return the bytes of the objects of a column, without the references to them.

    All lengths of text and bytes are counted. Of other values one in 16 is measured, with
    everything that it contains.
    """
    kinds = set(map(type, values))
    if not kinds:
        return 0
    sample = values[::SAMPLE_STEP]
    if kinds <= _TEXTS:
        # All lengths, to include each long text; bytes per character from the sample.
        width = (sum(map(getsizeof, sample)) - _TEXT_BYTES * len(sample)) / (
            sum(map(len, sample)) or 1
        )
        return _TEXT_BYTES * len(values) + round(sum(map(len, values)) * max(width, 1))
    if kinds <= _NUMBER_BYTES:
        own = sum(getsizeof(value) for value in sample if value not in _SHARED)
        return own * len(values) // len(sample)
    return sum(map(deep_bytes, sample)) * len(values) // len(sample)


def new_keys_bytes(table: dict[Any, Any], added: int) -> int:
    """Return the bytes of the last `added` keys of a table."""
    return column_bytes(list(islice(reversed(table), added)))


def table_bytes(table: dict[Any, Any]) -> int:
    """Return the bytes of a table without its entries, plus half for its next growth."""
    return getsizeof(table) * 3 // 2


def deep_bytes(value: Any) -> int:
    """Return the bytes of a value and of everything in its containers and attributes."""
    own = getsizeof(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return own + sum(map(deep_bytes, value))
    if isinstance(value, dict):
        return own + sum(map(deep_bytes, value.keys())) + sum(map(deep_bytes, value.values()))
    attributes = getattr(value, "__dict__", None)
    return own if attributes is None else own + deep_bytes(dict(attributes))
