"""Pairs as rows with named fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rows_of(keys: Sequence[Any], values: Sequence[Any]) -> list[dict[str, Any]]:
    """{"key": ..., "value": ...} for each pair; a pair (None, dict) is the dict alone."""
    return [
        value if key is None and isinstance(value, dict) else {"key": key, "value": value}
        for key, value in zip(keys, values, strict=True)
    ]
