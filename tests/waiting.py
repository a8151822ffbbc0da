"""Waiting for what must happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""The seconds after which something that has not happened never will."""


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; it must hold in the end."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)
