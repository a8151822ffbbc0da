"""What user code yields, checked and in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from slotwise.program.mapreduce import Pair
from slotwise.program.shuffle.chunks import Columns
from slotwise.program.shuffle.sizes import deep_bytes

_BATCH_PAIRS = 1024
"""So many stay in the processor's cache until they are in a buffer; more made it slower."""
_FIRST_BATCH_PAIRS = 64
_SIZED_PAIRS = 64
_KEY, _VALUE = itemgetter(0), itemgetter(1)


def batches(
    results: Iterable[Iterable[Pair] | None], what: str, batch_bytes: int
) -> Iterator[Columns]:
    """The pairs of many calls of user code, as columns of at most about `batch_bytes`.

    `results` is what each call gave: a generator, a list, or None for nothing. Calls are made
    as their pairs are needed. Raises TypeError, naming `what`, for anything but pairs.
    """
    pairs = chain.from_iterable(filter(None, results))
    size = _FIRST_BATCH_PAIRS
    while batch := _take(pairs, size, what):
        columns = checked_columns(batch, what)
        yield columns
        # Pairs of megabytes come one by one, small ones by thousands.
        some = batch[:: len(batch) // _SIZED_PAIRS + 1]
        pair_bytes = sum(map(deep_bytes, some)) // len(some) + 1
        size = max(1, min(_BATCH_PAIRS, 2 * size, batch_bytes // pair_bytes))


def checked_columns(batch: list[Pair], what: str) -> Columns:
    """The keys and the values of pairs; raises TypeError for what is not a tuple of two."""
    for kind in set(map(type, batch)):
        if not issubclass(kind, tuple):
            _refuse(next(item for item in batch if type(item) is kind), what)
    if set(map(len, batch)) - {2}:
        _refuse(next(item for item in batch if len(item) != 2), what)
    # Two passes are faster than zip(*batch), which makes an iterator for each pair.
    return list(map(_KEY, batch)), list(map(_VALUE, batch))


def _take(pairs: Iterator[Pair], size: int, what: str) -> list[Pair]:
    try:
        return list(islice(pairs, size))
    except TypeError as error:
        # An error from within user code has its frame below ours; one without is chain's own.
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise TypeError(
                f"{what} must yield pairs (key, value) or return a list of them: {error}"
            ) from error
        raise


def _refuse(item: Any, what: str) -> None:
    raise TypeError(f"{what} must yield pairs (key, value); it yielded {item!r:.80}")
