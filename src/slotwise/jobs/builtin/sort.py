"""Sort lines in total order."""

from __future__ import annotations

from collections.abc import Iterable

from slotwise.jobs.mapreduce.program import MapReduce, Pair


class Sort(MapReduce):
    """Output: all lines, sorted by code points if the output parts are read in sequence."""

    total_order = True
    map_bytes_per_second = 30e6
    reduce_bytes_per_second = 40e6

    def __init__(self, descending: bool = False) -> None:
        self.descending = descending

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Return the line as key."""
        return ((value, None),)
