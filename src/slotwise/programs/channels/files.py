"""Channels in files: one file of a writing node with one stream for each copy of the reader.

A stream is a part of a file of blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slotwise.model.errors import WorkFolderError
from slotwise.programs.blocks import Index, index_of
from slotwise.programs.channels.streams import BATCH_BYTES, Reader, Writer
from slotwise.programs.lost_input import IncompleteFileError
from slotwise.programs.work_folder import create

WAITING_BYTES = 1 << 25
"""About what the records of all streams of one file take in memory before they are written."""


class FileWriter:
    """Writes a file in one pass. `close` writes its end; without it, it is incomplete."""

    def __init__(self, path: str | Path, parts: int) -> None:
        self._file = create(path)
        self._at = 0
        # For each stream the start and the end of its blocks.
        self._places = [array("Q") for _ in range(parts)]
        size = max(1, min(BATCH_BYTES, WAITING_BYTES // max(parts, 1)))
        self._writers = [
            Writer(_FileSink(self, part), batch_bytes=size, is_timely=False)
            for part in range(parts)
        ]

    @property
    def parts(self) -> int:
        """The number of streams."""
        return len(self._writers)

    @property
    def bytes(self) -> int:
        """The bytes of the blocks written."""
        return self._at

    def part(self, number: int) -> Writer:
        """The writer of one stream. WorkFolderError passes."""
        return self._writers[number]

    def close(self) -> None:
        """End all streams and the file. WorkFolderError passes."""
        try:
            for writer in self._writers:
                writer.close()
            places = b"".join(places.tobytes() for places in self._places)
            counts = (len(places) // 2 for places in self._places)
            self._file.write(index_of(self._at, places, counts))
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, incomplete."""
        for writer in self._writers:
            writer.fail("the file was abandoned")
        with suppress(OSError, WorkFolderError):
            self._file.close()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def append(self, part: int, block: Sequence[memoryview[int]]) -> None:
        """Append a block to a stream."""
        start = self._at
        for view in block:
            self._file.write(view)
            self._at += len(view)
        places = self._places[part]
        if places and places[-1] == start:
            places[-1] = self._at
        else:
            places.extend((start, self._at))


class FileReader(Reader):
    """Reads one stream of a file. The file is open only from the first record to the last.

    Raises OSError; IncompleteFileError for a file whose end is missing.
    """

    def __init__(self, path: str | Path, part: int) -> None:
        super().__init__(_FileSource(path, part))


class _FileSink:
    def __init__(self, file: FileWriter, part: int) -> None:
        self._file, self._part = file, part

    def send(self, parts: Sequence[memoryview[int]]) -> None:
        self._file.append(self._part, parts)

    def close(self) -> None:
        pass

    def fail(self, reason: str) -> None:
        pass

    def drop(self) -> None:
        pass


class _FileSource:
    def __init__(self, path: str | Path, part: int) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        with open(path, "rb") as file:
            self._places = Index(file, path).part(part)
        self._next = self._left = 0

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        if not self._left:
            if self._next == len(self._places):
                return 0
            start, end = self._places[self._next : self._next + 2]
            self._next += 2
            self._left = end - start
            if self._file is None:
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115
            self._file.seek(start)
        assert self._file is not None
        count = self._file.readinto(into[: self._left])  # type: ignore[attr-defined]
        if not count:
            raise IncompleteFileError(self._path)
        self._left -= count
        return int(count)

    def leave(self, failure: str | None) -> None:
        pass

    def free(self) -> None:
        if self._file is not None:
            self._file.close()
