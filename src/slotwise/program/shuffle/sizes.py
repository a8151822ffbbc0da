"""How many bytes of memory values take: exact for flat ones, sampled for nested ones."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any

SAMPLE_STEP = 16
_NUMBERS: frozenset[type] = frozenset({int, float, bool, type(None)})
_FLAT: frozenset[type] = _NUMBERS | {str, bytes}
_NUMBER_BYTES = 32


def column_bytes(values: Sequence[Any]) -> int:
    """The bytes that the objects of a column take, without the references to them.

    Numbers count 32 each; text and bytes are measured one by one; of nested values one in 16
    is measured, with all that it holds.
    """
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return _NUMBER_BYTES * len(values)
    if kinds <= _FLAT:
        return sum(map(getsizeof, values))
    sample = values[::SAMPLE_STEP]
    return sum(map(deep_bytes, sample)) * len(values) // len(sample)


def deep_bytes(value: Any) -> int:
    """The bytes of a value and of all that its containers and attributes hold."""
    own = getsizeof(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return own + sum(map(deep_bytes, value))
    if isinstance(value, dict):
        return own + sum(map(deep_bytes, value.keys())) + sum(map(deep_bytes, value.values()))
    attributes = getattr(value, "__dict__", None)
    return own if attributes is None else own + deep_bytes(dict(attributes))
