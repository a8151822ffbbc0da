"""A reader whose writer never waits: what is not read yet goes to memory, then to disk."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.carriers import ByteSource
from slotwise.programs.channels.streams import Reader
from slotwise.programs.work_folder import keeping

PIECE_BYTES = 1 << 16


class Spilling(Reader):
    """The records of another reader, which a thread drains as bytes, without unpickling them.

    At most about `memory_bytes` of them are in memory; further ones are in a file without a
    name in `folder`. The thread ends at the end of the stream, and with `close` or `fail`.
    """

    def __init__(self, reader: Reader, memory_bytes: int, folder: str | Path) -> None:
        super().__init__(_Store(reader.detach(), memory_bytes, folder))


class _Store:
    """What has come and is not read. All fields below the lock are used with it."""

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
        """Receive until the end; the thread."""
        room = memoryview(bytearray(PIECE_BYTES))
        try:
            while not self._is_closed and (count := self._source.receive(room, _nothing)):
                with self._changed:
                    self._put(room[:count])
                    self._changed.notify()
        except BaseException as error:
            self._failure = error
            if not isinstance(error, BrokenChannelError):
                # The writer would wait for room, and the reader perhaps for that writer.
                self._source.leave(f"what waits for its reader cannot be stored: {error}")
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def _put(self, piece: memoryview[int]) -> None:
        fits = self._bytes + len(piece) <= self._memory_bytes
        if fits and self._read_at == self._write_at:
            self._pieces.append(memoryview(bytes(piece)))
            self._bytes += len(piece)
            return
        with keeping(self._folder):
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
