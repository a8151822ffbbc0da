"""The order of keys within a reduce, and over all reduces of a total order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from typing import Any

from slotwise.program.mapreduce import MapReduce, Pair


@dataclass(frozen=True)
class Order:
    """How the keys of a program are sorted; `rank` is None where keys sort as they are."""

    program_name: str
    rank: Callable[[Any], Any] | None = None
    descending: bool = False

    @classmethod
    def of(cls, program: MapReduce) -> Order:
        """The order that a program asks for."""
        if type(program).sort_key is MapReduce.sort_key:
            return cls(program.name, None, program.descending)
        sort_key = program.sort_key
        return cls(program.name, lambda key: (sort_key(key), key), program.descending)

    def keys(self, keys: Iterable[Any]) -> list[Any]:
        """The keys, sorted."""
        with self._sorting_errors():
            return sorted(keys, key=self.rank, reverse=self.descending)

    def positions(self, keys: Sequence[Any]) -> list[int]:
        """The positions of the keys in sorted order; equal keys stay as they are."""
        rank = self.rank
        ranks = keys if rank is None else list(map(rank, keys))
        with self._sorting_errors():
            return sorted(range(len(keys)), key=ranks.__getitem__, reverse=self.descending)

    def merged(self, streams: Sequence[Iterator[Pair]]) -> Iterator[Pair]:
        """The pairs of sorted streams in one; equal keys in the order of the streams."""
        rank = self.rank
        if rank is None:
            return merge(*streams, key=_key_of, reverse=self.descending)
        return merge(*streams, key=lambda pair: rank(pair[0]), reverse=self.descending)

    def ranges(self, keys: Sequence[Any], points: Sequence[Any]) -> list[int]:
        """Between which of the sorted split points each key lies, counted from the first."""
        rank = self.rank
        ranks = keys if rank is None else list(map(rank, keys))
        cuts = points if rank is None else list(map(rank, points))
        with self._sorting_errors():
            if self.descending:
                last, rising = len(cuts), cuts[::-1]
                return [last - bisect_left(rising, value) for value in ranks]
            return [bisect_right(cuts, value) for value in ranks]

    @contextmanager
    def hashing_errors(self) -> Iterator[None]:
        """Say whose keys they are where one cannot be hashed."""
        try:
            yield
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise TypeError(
                f"{self.program_name}: a key cannot be hashed ({error}); use text, numbers or"
                " tuples of them as keys"
            ) from error

    @contextmanager
    def _sorting_errors(self) -> Iterator[None]:
        try:
            yield
        except TypeError as error:
            raise TypeError(
                f"{self.program_name}: its keys cannot be sorted ({error}); let map yield keys"
                " of one type, or define sort_key(self, key)"
            ) from error


def _key_of(pair: Pair) -> Any:
    return pair[0]
