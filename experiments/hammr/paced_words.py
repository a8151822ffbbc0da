"""The nodes of a word count with a known duration. Workers import nothing more than this."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

Pair = tuple[str, int]


def map_words(lines: Iterable[str], line_seconds: float) -> Iterator[Pair]:
    """Each word of a line with its count there; every line takes the given time."""
    for line in lines:
        time.sleep(line_seconds)
        yield from Counter(line.split()).items()


def reduce_words(pairs: Iterable[Pair], word_seconds: float) -> Iterator[Pair]:
    """Each word with its count, from pairs that are sorted by word."""
    for word, group in groupby(pairs, key=word_of):
        time.sleep(word_seconds)
        yield word, sum(count for _, count in group)


def word_of(pair: Pair) -> str:
    """The key of a pair."""
    return pair[0]
