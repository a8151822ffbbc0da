"""Assign keys to reduces with a hash that is the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from numbers import Number
from typing import Any
from zlib import crc32


def stable_hash(key: Any) -> int:
    """A number >= 0 that is equal for equal keys, independent of PYTHONHASHSEED.

    Supports text, bytes, numbers, None, dates, and tuples and frozensets of these. Raises
    TypeError for other keys, because their `hash()` may differ between processes.
    """
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if key is None:
        return 0
    if isinstance(key, Number):
        if key != key:
            return 1
        # Equal numbers of any types have equal hashes, which do not depend on a seed.
        return crc32(hash(key).to_bytes(8, "little", signed=True))
    if isinstance(key, tuple):
        return crc32(b"".join(stable_hash(item).to_bytes(4, "little") for item in key))
    if isinstance(key, frozenset):
        return sum(set(map(stable_hash, key))) % 2**32  # The set counts all NaN once.
    if isinstance(key, datetime):
        # Two datetimes with time zones are equal if their instants are equal.
        return stable_hash(key.isoformat() if key.tzinfo is None else key.timestamp())
    if isinstance(key, date):
        return crc32(key.toordinal().to_bytes(4, "little"))
    raise TypeError(
        f"no stable hash for a key of type {type(key).__name__}: {key!r:.80}; use text, numbers"
        " or tuples of them as keys, or define partition(self, key, reducers)"
    )


def hash_partitions(keys: Sequence[Any], reducers: int) -> list[int]:
    """The reduce of each key, by its stable hash."""
    if reducers == 1:
        return [0] * len(keys)
    try:
        # Nearly all keys are text, and encode() is most of the cost.
        return [crc32(key.encode()) % reducers for key in keys]
    except (AttributeError, UnicodeEncodeError):
        return [stable_hash(key) % reducers for key in keys]
