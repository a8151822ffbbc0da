"""Identity and total order of keys, also of keys for which Python has neither.

In Python a NaN is not equal to itself and has no place in the order of numbers, and sets are
ordered by inclusion, so that most pairs of sets have no order. Here all NaN are one key, which
sorts after the numbers, and sets have an arbitrary total order. All other keys are as in
Python; -0.0 equals 0.0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from heapq import merge
from itertools import chain
from numbers import Number
from operator import is_
from typing import Any

from slotwise.jobs.mapreduce.program import MapReduce, Pair

PLAIN: frozenset[type] = frozenset(
    {str, bytes, int, bool, type(None), date, datetime, time, timedelta}
)
"""Types with total order in which each value equals itself."""

_NAN = float("nan")
_UNEQUAL: dict[type, Any] = {}
"""For each non-number type, the first value found that does not equal itself, such as NaT."""


def one(key: Any) -> Any:
    """Return the key; for unequal keys that count as one, always the same object."""
    kind = key.__class__
    if kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, key))):
        return key
    if kind is float:
        return key if key == key else _NAN
    if isinstance(key, tuple):
        items = tuple(map(one, key))
        return key if all(map(is_, items, key)) else tuple.__new__(kind, items)
    if isinstance(key, frozenset):
        members = frozenset(map(one, key))
        return key if members == key else members
    if _equals_itself(key):
        return key
    return _NAN if isinstance(key, Number) else _UNEQUAL.setdefault(kind, key)


def ones(keys: Sequence[Any]) -> Sequence[Any]:
    """Apply `one` to each key."""
    return keys if is_ordered(keys) else list(map(one, keys))


def is_ordered(keys: Collection[Any]) -> bool:
    """Return whether each key equals itself, and Python's own order of the keys is total.

    Costs a few nanoseconds per key for strings, numbers, and tuples of them.
    """
    kinds = set(map(type, keys))
    if kinds <= PLAIN:
        return True
    if kinds == {float}:
        return _equals_itself(sum(keys))  # NaN if one of them is.
    if kinds == {tuple} and PLAIN.issuperset(map(type, chain.from_iterable(keys))):
        return True
    if any(issubclass(kind, frozenset) for kind in kinds):
        return False
    flat = (key for key in keys if not isinstance(key, tuple | list))
    nested = (key for key in keys if isinstance(key, tuple | list))
    inner = list(chain.from_iterable(nested))
    return all(map(_equals_itself, flat)) and (not inner or is_ordered(inner))


def total(key: Any) -> Any:
    """Return a sort key for keys without a total order; equal for keys that count as one."""
    kind = key.__class__
    if kind in PLAIN:
        return key
    if isinstance(key, tuple) and kind.__lt__ is tuple.__lt__:
        return tuple(map(total, key))
    if isinstance(key, list) and kind.__lt__ is list.__lt__:
        return list(map(total, key))
    if isinstance(key, frozenset):
        return _Members(tuple(sorted({(_family(member), total(member)) for member in key})))
    return key if _equals_itself(key) else LAST


class _Last:
    """Sorts after everything else."""

    __array_ufunc__ = None  # Otherwise the comparison of a numpy number would take over.

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


LAST = _Last()


@dataclass(frozen=True, order=True)
class _Members:
    """The members of a set, sorted."""

    members: tuple[tuple[str, Any], ...]


def _family(member: Any) -> str:
    """Return the group of comparable types of a member; not all types can be compared."""
    if isinstance(member, Number):
        return "number"
    families = (kind for kind in (str, bytes, tuple, frozenset) if isinstance(member, kind))
    return next(families, type(member)).__qualname__


def _equals_itself(value: Any) -> bool:
    try:
        return bool(value == value)
    except (ArithmeticError, TypeError, ValueError):
        return True  # It cannot be compared, so it could not be sorted either.


# The order of keys within a reduce, and across reduces for a total order: Python's order for
# keys for which this is total, and the order above for others.


@dataclass(frozen=True)
class Order:
    """The sorting of the keys of a program; `rank` is None if keys are sorted directly."""

    program_name: str
    rank: Callable[[Any], Any] | None = None
    descending: bool = False

    @classmethod
    def of(cls, program: MapReduce) -> Order:
        """Return the order that a program defines."""
        if type(program).sort_key is MapReduce.sort_key:
            return cls(program.name, None, program.descending)
        sort_key = program.sort_key
        return cls(program.name, lambda key: (sort_key(key), key), program.descending)

    def keys(self, keys: Iterable[Any]) -> list[Any]:
        """Return the keys, sorted."""
        found = list(keys)
        if self.rank is None and is_ordered(found):
            with self._sorting_errors():
                return sorted(found, reverse=self.descending)
        return [found[position] for position in self.positions(found)]

    def positions(self, keys: Sequence[Any]) -> list[int]:
        """Return the positions of the keys in sorted order. The sort is stable."""
        with self._sorting_errors():
            ranks = self._ranks(keys)
            return sorted(range(len(keys)), key=ranks.__getitem__, reverse=self.descending)

    def is_total(self, keys: Sequence[Any]) -> bool:
        """Return whether the keys, or their ranks, have a total order in Python."""
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
        """Return the range of each key: the number of sorted split points up to it."""
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
                f"{self.program_name}: a key cannot be hashed ({error}); use strings, numbers"
                " or tuples of them as keys"
            ) from error

    def _ranks(self, keys: Sequence[Any]) -> Sequence[Any]:
        """Return the values by which keys are compared."""
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
