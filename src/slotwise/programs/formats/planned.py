"""The input of a job as it is when the job is planned: its files, and how they are split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotwise.programs.formats import inputs as formats
from slotwise.programs.formats.files import InputFile, find_inputs
from slotwise.programs.formats.splits import Split, SplitPiece, pack

SPLIT_BYTES = 64 << 20
"""The default of `split_bytes`."""


@dataclass(frozen=True, slots=True)
class PlannedInput:
    """Files, or the numbers of records that a program generates, each of `record_bytes`."""

    files: Sequence[InputFile]
    format_name: str
    record_bytes: int = 1

    @classmethod
    def of_files(
        cls, patterns: Sequence[str], format_name: str, base_dir: str | Path | None
    ) -> PlannedInput:
        """The files of these patterns. InputError for no match or an unknown format."""
        formats.input_format(format_name)
        return cls(find_inputs(patterns, base_dir), format_name)

    @classmethod
    def of_numbers(cls, count: int, record_bytes: int) -> PlannedInput:
        """The numbers from 0 below `count`."""
        return cls([InputFile("records", count)], formats.NUMBERS, record_bytes)

    def splits(self, split_bytes: int) -> list[Split]:
        """The split of each task that reads."""
        size = max(1, split_bytes // self.record_bytes)
        return pack(self._pieces(size), size)

    def sample(self, most: int, least_bytes: int) -> list[SplitPiece]:
        """At most `most` pieces, spread evenly over the input."""
        total = sum(file.size_bytes for file in self.files)
        pieces = list(self._pieces(max(total // most, least_bytes)))
        return pieces[:: len(pieces) // most + 1]

    def bytes_of(self, split: Split) -> int:
        """The bytes of a split."""
        return self.record_bytes * sum(piece.size_bytes for piece in split)

    def _pieces(self, size: int) -> Iterable[SplitPiece]:
        format = formats.input_format(self.format_name)
        return (piece for file in self.files for piece in format.pieces(file, size))
