"""Check the pairs that user code yields, and collect them in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from traceback import walk_tb
from typing import Any

from slotwise.programs.mapreduce.program import Pair
from slotwise.programs.shuffle.chunks import Columns
from slotwise.programs.shuffle.sizes import column_bytes, deep_bytes

_BATCH_PAIRS = 1024
"""This many stay in the processor's cache until they are buffered; more was slower."""
_FIRST_BATCH_PAIRS = 64
_SIZED_PAIRS = 64
_STREAM_PAIRS = 8192
_STREAM_PAIR_BYTES = 1024
_NUMBERS: frozenset[type] = frozenset({int, float, bool})
_KEY, _VALUE = itemgetter(0), itemgetter(1)


class PairStream:
    """The pairs of many calls of user code, as columns of at most about `batch_bytes`.

    `results` has the result of each call: a generator, a list, or None for no pairs. Calls are
    made when their pairs are needed. Raises TypeError, naming `what`, for anything but pairs.
    `place` is called with errors raised during the last call.
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
        """Pass the next pairs to `take` one by one, if the last were small with number values.

        Such pairs need no measuring, and they stay in the cache if they skip the batch.
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
            # If user code raised the error, its frames follow ours. The first frame is this
            # one.
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
    """The keys and the values of pairs; raises TypeError for an item that is not a pair."""
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
