"""Sort records by their keys."""

from __future__ import annotations

from collections.abc import Iterable

from slotwise.jobs.builtin.teragen import KEY_BYTES
from slotwise.jobs.mapreduce.program import MapReduce, Pair


class TeraSort(MapReduce):
    """Output: lines in the format of teragen, in total order of their first 10 characters."""

    total_order = True
    map_bytes_per_second = 70e6
    reduce_bytes_per_second = 150e6

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Return the first 10 characters as key and the text after the tab as value."""
        return ((value[:KEY_BYTES], value[KEY_BYTES + 1 :]),)
