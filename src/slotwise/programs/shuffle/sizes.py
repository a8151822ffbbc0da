"""Estimate the memory of values in bytes: lengths of text are exact, the rest is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from sys import getsizeof
from typing import Any

SAMPLE_STEP = 16
_NUMBERS: frozenset[type] = frozenset({int, float, bool, type(None)})
_TEXTS: frozenset[type] = frozenset({str, bytes})
_TEXT_BYTES = 49
_SHARED = frozenset([None, *range(-5, 257)])
"""The interpreter has one object for each of these (True equals 1, and False equals 0)."""


def column_bytes(values: Sequence[Any]) -> int:
    """The bytes of the objects of a column, without the references to them.

    All lengths of text and bytes are counted. Of other values one in 16 is measured, with all
    that it holds.
    """
    kinds = set(map(type, values))
    if not kinds:
        return 0
    sample = values[::SAMPLE_STEP]
    if kinds <= _TEXTS:
        # All lengths, so that no long text is missed; bytes per character from the sample.
        width = (sum(map(getsizeof, sample)) - _TEXT_BYTES * len(sample)) / (
            sum(map(len, sample)) or 1
        )
        return _TEXT_BYTES * len(values) + round(sum(map(len, values)) * max(width, 1))
    if kinds <= _NUMBERS:
        own = sum(getsizeof(value) for value in sample if value not in _SHARED)
        return own * len(values) // len(sample)
    return sum(map(deep_bytes, sample)) * len(values) // len(sample)


def new_keys_bytes(table: dict[Any, Any], added: int) -> int:
    """The bytes of the last `added` keys of a table."""
    return column_bytes(list(islice(reversed(table), added)))


def table_bytes(table: dict[Any, Any]) -> int:
    """The bytes of a table without its entries, plus half as much for its next growth."""
    return getsizeof(table) * 3 // 2


def deep_bytes(value: Any) -> int:
    """The bytes of a value and of all that its containers and attributes hold."""
    own = getsizeof(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return own + sum(map(deep_bytes, value))
    if isinstance(value, dict):
        return own + sum(map(deep_bytes, value.keys())) + sum(map(deep_bytes, value.values()))
    attributes = getattr(value, "__dict__", None)
    return own if attributes is None else own + deep_bytes(dict(attributes))
