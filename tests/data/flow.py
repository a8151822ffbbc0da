"""The functions of flow.yaml."""

from __future__ import annotations

from collections.abc import Iterator


def doubled(numbers: Iterator[int]) -> Iterator[int]:
    """Each number twice as large."""
    for number in numbers:
        yield 2 * number


def key(number: int) -> int:
    """By which numbers are sent on."""
    return number


def summed(numbers: Iterator[int]) -> Iterator[int]:
    """The sum."""
    yield sum(numbers)
