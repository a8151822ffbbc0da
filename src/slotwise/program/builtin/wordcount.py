"""How often each word occurs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable

from slotwise.program.mapreduce import MapReduce, Pair


class WordCount(MapReduce):
    """Words are what str.split() gives; output: word and count."""

    map_bytes_per_second = 40e6

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Each word of a line, once."""
        return ((word, 1) for word in value.split())

    def fold_chunk(self, text: str, table: Counter[str]) -> None:
        """Count the words of many lines; a line break is white space as any other."""
        table.update(text.split())

    # Of two counts of a word their sum; as it is, it is called without a frame of Python.
    add = operator.add
