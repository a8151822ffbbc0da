"""Functions of nodes that worker processes import."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from slotwise import Output


def doubled(numbers: Iterator[int]) -> Iterator[int]:
    """Twice each number."""
    for number in numbers:
        yield 2 * number


def total(numbers: Iterator[int]) -> Iterator[int]:
    """Their sum."""
    yield sum(numbers)


def parity(numbers: Iterator[int]) -> Iterator[Output]:
    """Even and odd numbers, with their squares."""
    for number in numbers:
        yield Output("odd" if number % 2 else "even", (number, number**2))


def failing(numbers: Iterator[int], how: str) -> Iterator[int]:
    """Fails after some records, in a way of its own."""
    for number in numbers:
        if number == 500:
            if how == "raises":
                raise ValueError("no 500, please")
            if how == "exits":
                sys.exit("enough")
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def endless() -> Iterator[int]:
    """All natural numbers."""
    yield from count()


def first_three(*streams: Iterator[int]) -> Iterator[int]:
    """Three records of each stream."""
    for stream in streams:
        yield from islice(stream, 3)


def dying_once(numbers: Iterator[int], marker: str) -> Iterator[int]:
    """Removes a file and kills its process after some records; the next attempt succeeds."""
    for number in numbers:
        if number == 500 and Path(marker).exists():
            Path(marker).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def stuck(numbers: Iterator[int], folder: str) -> Iterator[int]:
    """Names its process in a folder, and hangs without reading."""
    Path(folder, f"pid-{os.getpid()}").touch()
    while True:
        time.sleep(1000)
    yield from numbers
