"""The paths of a dataflow job's files while it runs, and of its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slotwise.programs.dataflow.nodes import Channel, Written
from slotwise.programs.formats.outputs import SUFFIXES
from slotwise.programs.layout import Layout


@dataclass(frozen=True, slots=True)
class DataflowLayout(Layout):
    """The paths of one dataflow job; `numbers` are those of its stages, by name."""

    numbers: Mapping[str, int]

    def attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """The directory for the files of one attempt; names of stages may be too long."""
        return self.folder / f"{self.numbers[phase]}-{task}-{attempt}"

    def channel_file(self, attempt_dir: Path, channel: Channel, writer: int) -> Path:
        """The file that a copy of the writer of a channel writes."""
        return attempt_dir / f"channel-{channel.number}-{writer}"

    def fetched_files(self, attempt_dir: Path, channel: Channel, reader: int) -> Path:
        """What begins the names of files that a copy of the reader fetches from other hosts."""
        return attempt_dir / f"fetched-{channel.number}-{reader}"

    def part(self, written: Written, copy: int) -> str:
        """The part of the output that a copy of a node writes, with its folder."""
        name = f"part-n-{copy:05}{SUFFIXES[written.output_format]}"
        return f"{written.folder}/{name}" if written.folder else name
