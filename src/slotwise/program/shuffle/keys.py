"""Which keys are one, and an order of all of them, where Python's own say something else.

A NaN is not equal to itself and has no place among numbers; sets are ordered by inclusion, so
that most pairs of them have no order. Here all NaN are one key, which comes behind the numbers,
and sets have an order that only has to be one. All else is as in Python; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import chain
from numbers import Number
from operator import is_
from typing import Any

PLAIN: frozenset[type] = frozenset(
    {str, bytes, int, bool, type(None), date, datetime, time, timedelta}
)
"""Types each of whose values equals itself and has its place among the others."""

_NAN = float("nan")
_UNEQUAL: dict[type, Any] = {}
"""Of each type that is no number, the first value that did not equal itself: NaT, for one."""


def one(key: Any) -> Any:
    """The key itself; or of keys that are one, but not equal, always the same object."""
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
    """The same for many keys."""
    return keys if is_ordered(keys) else list(map(one, keys))


def is_ordered(keys: Collection[Any]) -> bool:
    """Whether each of these keys equals itself, and Python's own order of them is total.

    It costs some nanoseconds a key where these are text or numbers, or tuples of them.
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
    """What a key is sorted by where keys have no total order; equal for keys that are one."""
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
    """Comes behind everything else."""

    __array_ufunc__ = None  # Else numpy would compare its numbers with it by itself.

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


LAST = _Last()


@dataclass(frozen=True, order=True)
class _Members:
    """The members of a set in order."""

    members: tuple[tuple[str, Any], ...]


def _family(member: Any) -> str:
    """Members of one set may be of types that cannot be compared with each other."""
    if isinstance(member, Number):
        return "number"
    families = (kind for kind in (str, bytes, tuple, frozenset) if isinstance(member, kind))
    return next(families, type(member)).__qualname__


def _equals_itself(value: Any) -> bool:
    try:
        return bool(value == value)
    except (ArithmeticError, TypeError, ValueError):
        return True  # It does not say; nor could it be sorted.
