"""The order of keys within a reduce, and across reduces for a total order.

It is Python's order for keys that have a total order there, and that of `keys.py` for others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import Any

from slotwise.programs.mapreduce.program import MapReduce, Pair
from slotwise.programs.shuffle.keys import is_ordered, total


@dataclass(frozen=True)
class Order:
    """How the keys of a program are sorted; `rank` is None if keys are sorted directly."""

    program_name: str
    rank: Callable[[Any], Any] | None = None
    descending: bool = False

    @classmethod
    def of(cls, program: MapReduce) -> Order:
        """The order that a program defines."""
        if type(program).sort_key is MapReduce.sort_key:
            return cls(program.name, None, program.descending)
        sort_key = program.sort_key
        return cls(program.name, lambda key: (sort_key(key), key), program.descending)

    def keys(self, keys: Iterable[Any]) -> list[Any]:
        """The keys, sorted."""
        found = list(keys)
        if self.rank is None and is_ordered(found):
            with self._sorting_errors():
                return sorted(found, reverse=self.descending)
        return [found[position] for position in self.positions(found)]

    def positions(self, keys: Sequence[Any]) -> list[int]:
        """The positions of the keys in sorted order; the sort is stable."""
        with self._sorting_errors():
            ranks = self._ranks(keys)
            return sorted(range(len(keys)), key=ranks.__getitem__, reverse=self.descending)

    def is_total(self, keys: Sequence[Any]) -> bool:
        """Whether the keys, or their ranks, have a total order in Python."""
        return is_ordered(keys if self.rank is None else list(map(self.rank, keys)))

    def merged(self, streams: Sequence[Iterator[Pair]], is_total: bool) -> Iterator[Pair]:
        """Merge sorted streams of pairs; equal keys are in the order of the streams."""
        rank, by = self.rank, _key_of
        if rank is not None and is_total:
            by = lambda pair: rank(pair[0])  # noqa: E731
        elif not is_total:
            by = lambda pair: total(pair[0] if rank is None else rank(pair[0]))  # noqa: E731
        return merge(*streams, key=by, reverse=self.descending)

    def ranges(self, keys: Sequence[Any], points: Sequence[Any]) -> list[int]:
        """The range of each key: the number of sorted split points up to and including it."""
        with self._sorting_errors():
            ranks, cuts = self._ranks(keys), self._ranks(points)
            if self.descending:
                last, rising = len(cuts), cuts[::-1]
                return [last - bisect_left(rising, value) for value in ranks]
            return [bisect_right(cuts, value) for value in ranks]

    @contextmanager
    def hashing_errors(self) -> Iterator[None]:
        """Name the program in errors about keys that cannot be hashed."""
        try:
            yield
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise TypeError(
                f"{self.program_name}: a key cannot be hashed ({error}); use text, numbers or"
                " tuples of them as keys"
            ) from error

    def _ranks(self, keys: Sequence[Any]) -> Sequence[Any]:
        """The values by which keys are compared."""
        ranks = keys if self.rank is None else list(map(self.rank, keys))
        return ranks if is_ordered(ranks) else list(map(total, ranks))

    @contextmanager
    def _sorting_errors(self) -> Iterator[None]:
        try:
            yield
        except TypeError as error:
            raise TypeError(
                f"{self.program_name}: its keys cannot be sorted ({error}); map must yield keys"
                " of one type, or define sort_key(self, key)"
            ) from error


def _key_of(pair: Pair) -> Any:
    return pair[0]
