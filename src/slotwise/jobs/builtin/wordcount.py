"""Count the occurrences of each word."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable

from slotwise.jobs.mapreduce.program import MapReduce, Pair


class WordCount(MapReduce):
    """Output: each word and its count. Words are split by str.split()."""

    map_bytes_per_second = 40e6

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Return each word of a line with the count 1."""
        return ((word, 1) for word in value.split())

    def fold_chunk(self, text: str, table: Counter[str]) -> None:
        """Count the words of many lines; line breaks are white space like any other."""
        table.update(text.split())

    # A C function, so adding two counts needs no Python frame.
    add = operator.add
