"""A word count with a known duration. Workers import little more than this."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from slotwise.programs.mapreduce.program import MapReduce, Pair


class PacedWordCount(MapReduce):
    """Counts words, with a given time for each line, and in its reduce for each word."""

    def __init__(self, line_seconds: float, word_seconds: float) -> None:
        self.line_seconds = line_seconds
        self.word_seconds = word_seconds

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Each word of a line with its count there."""
        time.sleep(self.line_seconds)
        return Counter(value.split()).items()

    def reduce(self, key: str, values: Iterator[int]) -> Iterable[Pair]:
        """A word and its number of occurrences."""
        time.sleep(self.word_seconds)
        yield key, sum(values)
