"""Find lines that match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable

from slotwise.core.errors import InputError
from slotwise.jobs.mapreduce.program import MapReduce, Pair


class Grep(MapReduce):
    """Output: the matching lines, in input order if the output parts are read in sequence.

    `pattern` is a regular expression of Python's re, searched in each line, or plain text if
    `fixed`. With `filename`, each line is preceded by the path of its file and a tab. The job
    is map-only.
    """

    num_reducers = 0
    map_bytes_per_second = 100e6

    def __init__(
        self,
        pattern: str,
        fixed: bool = False,
        ignore_case: bool = False,
        invert: bool = False,
        filename: bool = False,
    ) -> None:
        if not isinstance(pattern, str) or not pattern:
            raise InputError(f"grep: pattern is {pattern!r}; expected a non-empty string")
        try:
            self._search = re.compile(
                re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0
            ).search
        except re.error as error:
            raise InputError(
                f"grep: pattern {pattern!r} is not a regular expression: {error}; correct it,"
                " or set fixed: true for plain text"
            ) from error
        self._invert = invert
        self._filename = filename
        # A chunk without the text has no line with it; checking with `in` is fast.
        self._needed = pattern if fixed and not ignore_case and not invert else ""

    def map(self, key: object, value: str) -> Iterable[Pair]:
        """Return the line if it matches."""
        if (self._search(value) is None) == self._invert:
            return ((self.path if self._filename else None, value),)
        return ()

    def map_chunk(self, text: str) -> Iterable[Pair]:
        """Yield the matching lines of a chunk of text."""
        if self._needed not in text:
            return
        search, invert = self._search, self._invert
        label = self.path if self._filename else None
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        for line in lines:
            if (search(line) is None) == invert:
                yield label, line
