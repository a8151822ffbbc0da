"""The two ends of a channel: the writer and the reader of its records.

The writer collects records until it has enough of them, or until 50 ms after it last sent some.
No thread watches the clock: each write checks it, and all collected records are sent before a
reader of the same thread waits for input. So records wait longer only while a node computes
without writing or reading; `Writer.flush` sends them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from time import monotonic
from typing import NoReturn

from slotwise.jobs.channels.carriers import (
    BATCH,
    HEAD,
    PICKLES,
    WHOLE,
    BrokenChannelError,
    ByteSink,
    ByteSource,
    Packed,
    ReaderLeftError,
    decode,
    fill,
)

BATCH_BYTES = 1 << 17
"""Collected records are sent when they have this number of bytes."""

PATIENCE = 0.05
"""The seconds for which records are collected."""

MAX_TOGETHER = 256
"""The maximum number of records that are pickled together; fewer if they are large."""

UNTIMED = 15
"""Records between two checks of the clock in a writer that is not timely."""

REUSED_BYTES = 1 << 18
"""The maximum size of a frame of pickles that is received into reused memory."""


class Writer:
    """The writer's end. Do not change a record after writing it.

    Without `is_timely`, records are collected without a limit of time. As a context manager,
    the writer closes the channel, or fails it after an error.
    """

    def __init__(
        self, sink: ByteSink, *, batch_bytes: int = BATCH_BYTES, is_timely: bool = True
    ) -> None:
        self._sink = sink
        self._batch_bytes, self._is_timely = batch_bytes, is_timely
        self._records: list[object] = []
        self._packed = Packed()
        self._together = 1
        self._due = monotonic() + PATIENCE
        self._is_open = True
        self.is_wanted = True
        """False once the reader is known to have closed its end: writes are dropped then."""
        if is_timely:
            _writers().add(self)

    def write(self, record: object) -> None:
        """Write one record. Blocks while the reader is slower.

        Raises BrokenChannelError if the reader failed, and TypeError if this record or an
        earlier one cannot be pickled.
        """
        records = self._records
        records.append(record)
        if len(records) >= self._together or monotonic() >= self._due:
            self._pack()

    def write_all(self, records: Iterable[object]) -> None:
        """Write records faster than by `write`; stop if the reader has closed its end."""
        clock, waiting = monotonic, self._records
        append = waiting.append
        rest = iter(records)
        for first in rest:
            append(first)
            due = self._due
            if not self._is_timely:  # No reader is waiting for these records.
                waiting.extend(islice(rest, UNTIMED))
            elif clock() < due:
                for record in islice(rest, max(0, self._together - len(waiting))):
                    append(record)
                    if clock() >= due:
                        break
            if len(waiting) >= self._together or clock() >= self._due:
                self._pack()
                if not self.is_wanted:
                    return

    def flush(self) -> None:
        """Send all collected records. Raises what `write` raises."""
        self._pack(sends=True)

    def close(self) -> None:
        """End the stream after all records.

        Raises what `write` raises; the channel is then broken.
        """
        if not self._is_open:
            return
        try:
            self.flush()
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}")
            raise
        self._end()
        if self.is_wanted:
            try:
                self._sink.close()
            except ReaderLeftError:
                self._left()

    def fail(self, reason: str) -> None:
        """Break the channel: the reader raises BrokenChannelError with this reason."""
        if self._is_open:
            self._end()
            if self.is_wanted:
                self._sink.fail(reason)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.fail(f"{type(error).__name__}: {error}")

    @property
    def is_waiting(self) -> bool:
        """Whether it holds unsent records."""
        return bool(self._records or self._packed.bytes)

    def _pack(self, *, sends: bool = False) -> None:
        if not self._is_open:
            raise ValueError("a record was written to a channel after its end")
        records = self._records.copy()
        self._records.clear()
        if not self.is_wanted:
            return
        if records:
            before = self._packed.bytes
            self._packed.add(records)
            mean = (self._packed.bytes - before) // len(records) + 1
            self._together = max(
                1, min(2 * self._together, MAX_TOGETHER, self._batch_bytes // mean)
            )
        is_due = monotonic() >= self._due
        if sends or self._packed.bytes >= self._batch_bytes or (is_due and self._is_timely):
            self._send()
            is_due = True
        if is_due:
            self._due = monotonic() + PATIENCE

    def _send(self) -> None:
        if self._packed.bytes:
            try:
                self._sink.send(self._packed.take())
            except ReaderLeftError:
                self._left()

    def _left(self) -> None:
        self.is_wanted = False
        self._packed = Packed()
        self._sink.drop()

    def _end(self) -> None:
        self._is_open = False
        self._together = 0  # The next write notices.
        self._records.clear()
        self._packed = Packed()
        _writers().discard(self)


class Reader:
    """The reader's end: an iterable of records. Iterating again continues where it stopped."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._buffer: memoryview[int] | None = None
        self._records = chain.from_iterable(self._lists())
        self._is_open = True
        self.failure: BaseException | None = None
        """The error that ended the records, also if user code has handled it."""

    def __iter__(self) -> Iterator[object]:
        """Return the records in order. BrokenChannelError if the writer failed or ended."""
        if self.failure is not None:
            raise self.failure
        return self._records

    def close(self) -> None:
        """Stop reading: records that the writer writes from now on are dropped."""
        self._close(None)

    def fail(self, reason: str) -> None:
        """Break the channel: the writer raises BrokenChannelError with this reason."""
        self._close(reason)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.fail(f"{type(error).__name__}: {error}")

    def detach(self) -> ByteSource:
        """Return the source of the unread bytes, and stop reading."""
        self._is_open = False
        return self._source

    def _close(self, failure: str | None) -> None:
        if self._is_open:
            self._is_open = False
            self._source.leave(failure)
            self._source.free()

    def _lists(self) -> Iterator[Sequence[object]]:
        try:
            while self._is_open and (frame := self._frame()):
                yield from decode(*frame)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise
        self.close()

    def _frame(self) -> tuple[int, memoryview[int]] | None:
        head = memoryview(bytearray(HEAD.size))
        if not fill(self._source, head, flush_writers):
            return None
        kind, size = HEAD.unpack(head)
        if not PICKLES <= kind <= BATCH:
            self._raise_failure()
        body = self._room(kind, size + 1)
        if not fill(self._source, body, flush_writers):
            raise BrokenChannelError("the stream ends within a record")
        if body[size] != WHOLE[0]:
            self._raise_failure()
        return kind, body[:size]

    def _raise_failure(self) -> NoReturn:
        """Raise the failure that the writer reports after an incomplete frame."""
        room = memoryview(bytearray(BATCH_BYTES))
        while self._source.receive(room, flush_writers):
            pass
        raise BrokenChannelError("the stream is damaged")

    def _room(self, kind: int, size: int) -> memoryview[int]:
        if kind == PICKLES and size <= REUSED_BYTES:
            if self._buffer is None:
                self._buffer = memoryview(bytearray(REUSED_BYTES))
            return self._buffer[:size]
        if kind <= PICKLES + 1:
            return memoryview(bytearray(size))
        from slotwise.jobs.channels import arrow

        return arrow.allocate(size)


def flush_writers() -> None:
    """Send the records collected in writers of this thread. Raises as `Writer.write`."""
    for writer in list(_writers()):
        if writer.is_waiting:
            writer.flush()


class _Local(threading.local):
    def __init__(self) -> None:
        self.writers: weakref.WeakSet[Writer] = weakref.WeakSet()


_local = _Local()


def _writers() -> weakref.WeakSet[Writer]:
    """Return the open writers of this thread."""
    return _local.writers


# A forked child must not send records that writers of its parent have collected.
os.register_at_fork(after_in_child=lambda: _writers().clear())
