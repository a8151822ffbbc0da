"""A program whose maps read and take a known time. Workers import nothing more than this."""

from __future__ import annotations

import time
from collections.abc import Iterable

from slotwise.jobs.mapreduce.program import MapReduce, Pair


class PacedRead(MapReduce):
    """Each line that it reads takes the given time."""

    num_reducers = 0

    def __init__(self, line_seconds: float) -> None:
        self._line_seconds = line_seconds

    def map(self, key: int, value: str) -> Iterable[Pair]:
        """Nothing, after the time of a line."""
        time.sleep(self._line_seconds)
        return ()
