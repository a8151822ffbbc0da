"""Channels in files: a file per writing node, with a stream (a part) per copy of the reader."""

from __future__ import annotations

import os
import tempfile
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from slotwise.core.errors import WorkFolderError
from slotwise.jobs.blocks import Index, index_of
from slotwise.jobs.channels.carriers import BrokenChannelError, ByteSource
from slotwise.jobs.channels.streams import BATCH_BYTES, Reader, Writer
from slotwise.jobs.execution import IncompleteFileError
from slotwise.jobs.work_folder import create, work_folder_errors

WAITING_BYTES = 1 << 25
"""Approximate memory of the unwritten records of all streams of one file, in bytes."""


class FileWriter:
    """Writes a file in one pass. Without `close`, which writes its end, it is incomplete."""

    def __init__(self, path: str | Path, parts: int) -> None:
        self._file = create(path)
        self._at = 0
        # For each stream, the start and end of its blocks.
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
        """Return the writer of one stream. Its methods may raise WorkFolderError."""
        return self._writers[number]

    def close(self) -> None:
        """End all streams and the file. May raise WorkFolderError."""
        try:
            for writer in self._writers:
                writer.close()
            places = b"".join(places.tobytes() for places in self._places)
            counts = (len(places) // 2 for places in self._places)
            self._file.write(index_of(self._at, places, counts))
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file and leave it incomplete."""
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
    """Reads one stream of a file, which is open only from the first record to the last.

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


# A reader whose writer never waits: unread bytes are stored in memory, then on disk.

PIECE_BYTES = 1 << 16


class Spilling(Reader):
    """The records of another reader, which a thread drains as bytes, without unpickling them.

    At most about `memory_bytes` are stored in memory, and the rest in an unnamed file in
    `folder`. The thread ends at the end of the stream, and with `close` or `fail`.
    """

    def __init__(self, reader: Reader, memory_bytes: int, folder: str | Path) -> None:
        super().__init__(_Store(reader.detach(), memory_bytes, folder))


class _Store:
    """Received bytes that are not read yet. Fields defined below the lock are used with it."""

    def __init__(self, source: ByteSource, memory_bytes: int, folder: str | Path) -> None:
        self._source = source
        self._memory_bytes, self._folder = memory_bytes, folder
        self._changed = threading.Condition()
        self._pieces: deque[memoryview[int]] = deque()
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._read_at = self._write_at = 0
        self._has_ended = self._is_closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._drain, name="spilling", daemon=True)
        self._thread.start()

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        with self._changed:
            is_empty = not (self._has_any or self._has_ended)
        if is_empty:
            before_wait()
        with self._changed:
            while not (self._has_any or self._has_ended):
                self._changed.wait()
            if self._pieces:
                return self._from_memory(into)
            if self._read_at < self._write_at:
                return self._from_file(into)
            if self._failure is not None:
                raise self._failure
            return 0

    def leave(self, failure: str | None) -> None:
        self._is_closed = True
        self._source.leave(failure)

    def free(self) -> None:
        self._thread.join()
        self._source.free()
        self._pieces.clear()
        if self._file is not None:
            self._file.close()

    @property
    def _has_any(self) -> bool:
        return bool(self._pieces) or self._read_at < self._write_at

    def _from_memory(self, into: memoryview[int]) -> int:
        piece = self._pieces.popleft()
        count = min(len(piece), len(into))
        into[:count] = piece[:count]
        if count < len(piece):
            self._pieces.appendleft(piece[count:])
        self._bytes -= count
        return count

    def _from_file(self, into: memoryview[int]) -> int:
        assert self._file is not None
        most = self._write_at - self._read_at
        count = os.preadv(self._file.fileno(), [into[:most]], self._read_at)
        self._read_at += count
        if self._read_at == self._write_at:
            self._file.truncate(0)
            self._read_at = self._write_at = 0
        return count

    def _drain(self) -> None:
        """Receive until the end of the stream; run by the thread."""
        room = memoryview(bytearray(PIECE_BYTES))
        try:
            while not self._is_closed and (count := self._source.receive(room, _nothing)):
                with self._changed:
                    self._put(room[:count])
                    self._changed.notify()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, BrokenChannelError):
                # Otherwise the writer would wait for room, and perhaps the reader for it.
                self._source.leave(f"unread records cannot be stored: {error}")
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def _put(self, piece: memoryview[int]) -> None:
        fits = self._bytes + len(piece) <= self._memory_bytes
        if fits and self._read_at == self._write_at:
            self._pieces.append(memoryview(bytes(piece)))
            self._bytes += len(piece)
            return
        with work_folder_errors(self._folder):
            if self._file is None:
                self._file = tempfile.TemporaryFile(  # noqa: SIM115
                    dir=self._folder, buffering=0
                )
            assert self._file is not None
            while piece:
                count = os.pwritev(self._file.fileno(), [piece], self._write_at)
                self._write_at += count
                piece = piece[count:]


def _nothing() -> None:
    pass
