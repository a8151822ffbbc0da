"""List the files that contain each word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slotwise.jobs.mapreduce.program import MapReduce, Pair


class InvertedIndex(MapReduce):
    """Output: each word and the sorted paths of its files. Words are split by str.split()."""

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Return each distinct word of a line with the file."""
        return self.map_chunk(value)

    def map_chunk(self, text: str) -> Iterable[Pair]:
        """Return each distinct word of many lines with the file."""
        path = self.path
        return [(word, path) for word in set(text.split())]

    def combine(self, key: str, values: Iterator[str]) -> Iterable[Pair]:
        """Return each file of a word once."""
        return [(key, path) for path in sorted(set(values))]

    def reduce(self, key: str, values: Iterator[str]) -> Iterable[Pair]:
        """Return all files of a word, sorted."""
        return ((key, tuple(sorted(set(values)))),)
