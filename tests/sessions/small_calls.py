"""Calls of tests, in a module that worker processes import quickly."""

from __future__ import annotations

import time


def work(number: int, seconds: float) -> int:
    """A call that lasts a while."""
    time.sleep(seconds)
    return 2 * number


def double(number: int) -> int:
    """A task of `Calls`."""
    return 2 * number
