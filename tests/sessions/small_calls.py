"""Calls of tests, in a module that worker processes import quickly, and waits of tests."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 120.0
"""Seconds; a test that waits for this long has failed."""


def work(number: int, seconds: float) -> int:
    """A call that lasts a while."""
    time.sleep(seconds)
    return 2 * number


def double(number: int) -> int:
    """A task of `Calls`."""
    return 2 * number


def wait_for_file(path: str) -> str:
    """A call that lasts until a file exists."""
    while not os.path.exists(path):
        time.sleep(0.005)
    return path


def touch_and_wait(mark: str, until: str) -> None:
    """A call that says that it has begun, and lasts until a file exists."""
    open(mark, "a").close()
    wait_for_file(until)


def fail(text: str) -> None:
    """A call that raises."""
    raise LookupError(text)


class Odd(Exception):
    """An exception whose pickle gives a number."""

    def __reduce__(self) -> tuple[object, ...]:
        return (int, (3,))


def raise_odd() -> None:
    """A call that raises it."""
    raise Odd


@contextmanager
def released(path: Path) -> Iterator[str]:
    """The name of a file that exists at the end of the block, also if a check fails."""
    try:
        yield str(path)
    finally:
        path.touch()


def await_(path: Path) -> None:
    """Wait in this process until a file exists."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


class TwoPartsError(Exception):
    """An exception that pickle cannot read again, because it passes on other arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}-{second}")


def raise_two_parts() -> None:
    """Fail with it."""
    raise TwoPartsError("a", "b")
