"""Carriers of the bytes of a channel (the interfaces of its kinds), and records as frames."""

from __future__ import annotations

import os
import pickle
import sys
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Protocol

from slotwise.jobs.transfer import ALIGNMENT, pickled

PEER_LOST = "the process at the other end ended without closing the channel"


class ReaderLeftError(Exception):
    """The reader has closed its end. Never leaves the package."""


class ByteSink(Protocol):
    """The writer's end."""

    def send(self, parts: Sequence[memoryview[int]]) -> None:
        """Send all bytes. Blocks while the reader is slower.

        Raises ReaderLeftError if the reader has closed its end, and BrokenChannelError.
        """

    def close(self) -> None:
        """End the stream. Raises what `send` raises."""

    def fail(self, reason: str) -> None:
        """Break the channel and send the reason to the reader."""

    def drop(self) -> None:
        """Free the resources of the end without a message to the reader."""


class ByteSource(Protocol):
    """The reader's end."""

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        """Receive at least one byte and return the number; 0 at the end of the stream.

        Calls `before_wait` before blocking. Raises BrokenChannelError.
        """

    def leave(self, failure: str | None) -> None:
        """Notify the writer that the reader stops, or failed; wakes a thread in `receive`."""

    def free(self) -> None:
        """Free the resources of the end, after `leave`."""


class ClosedOnFork(Protocol):
    """An end to close in forked children: a copy would hide the death of its process."""

    def forget(self) -> None:
        """Close the descriptors of the end in this process, without a message."""


_held: weakref.WeakSet[ClosedOnFork] = weakref.WeakSet()


def hold(end: ClosedOnFork) -> None:
    """Close the descriptors of an end in children that are forked from now on."""
    _held.add(end)


def release(end: ClosedOnFork) -> None:
    """Undo `hold`: the end is closed."""
    _held.discard(end)


def _forget_all() -> None:
    for end in list(_held):
        end.forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)


def fill(source: ByteSource, view: memoryview[int], before_wait: Callable[[], None]) -> bool:
    """Fill the view, or return False at the end of the stream. Raises BrokenChannelError."""
    have = 0
    while have < len(view):
        count = source.receive(view[have:], before_wait)
        if not count:
            if have:
                raise BrokenChannelError("the stream ends within a record")
            return False
        have += count
    return True


class BrokenChannelError(BaseException):
    """An end of the channel failed or its process ended; `reason` names the end and the cause.

    It is not an Exception, so that `except Exception` in user code does not catch it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# Records as frames: a kind, the length of the body, the body, and a last byte that is not zero.
#
# Carriers may fill up with zeros what an interrupted writer has not sent, so a frame that ends
# with zero is incomplete. A body has pickles of lists of records (PICKLES), or one such pickle
# with large buffers outside of it (BUFFERS), or an Arrow table or batch as an Arrow stream.

HEAD = Struct("<BQ")
"""The head of a frame: its kind and the length of its body."""

PICKLES, BUFFERS, TABLE, BATCH = range(1, 5)

WHOLE = b"\x01"
"""The last byte of a frame."""

LARGE = 1 << 16
"""The minimum bytes of a buffer, as of a NumPy array, that is not copied into a pickle."""

MAX_JOINED = 1 << 20
"""A smaller frame of pickles, in bytes, is sent as one part."""

_ZEROS = memoryview(bytes(ALIGNMENT))


class Packed:
    """Encoded records to be sent."""

    def __init__(self) -> None:
        self.bytes = 0
        self._frames: list[memoryview[int]] = []
        self._pickles: list[bytes] = []

    def add(self, records: Sequence[object]) -> None:
        """Encode records. Raises TypeError, naming its type, if one cannot be pickled."""
        if "pyarrow" in sys.modules and any(map(_is_arrow, set(map(type, records)))):
            from slotwise.jobs.channels import arrow

            for is_arrow, run in arrow.runs(records):
                if is_arrow:
                    parts = arrow.encode(run[0])
                    is_table = isinstance(run[0], arrow.TYPES[1])
                    self._add_frame(TABLE if is_table else BATCH, parts)
                else:
                    self._add_pickle(run)
        else:
            self._add_pickle(records)

    def take(self) -> list[memoryview[int]]:
        """Remove and return all bytes."""
        self._end_pickles()
        frames, self._frames, self.bytes = self._frames, [], 0
        return frames

    def _add_pickle(self, records: Sequence[object]) -> None:
        buffers: list[pickle.PickleBuffer] = []

        def take(buffer: pickle.PickleBuffer) -> bool:
            is_small = buffer.raw().nbytes < LARGE
            if not is_small:
                buffers.append(buffer)
            return is_small

        try:
            body = pickled(records, take, buffers)
        except Exception as error:
            if refused := _refused(records):
                raise refused from error
            raise  # A signal handler raised it.
        if not buffers:
            self._pickles.append(body)
            self.bytes += len(body)
            return
        raws = [buffer.raw() for buffer in buffers]
        sizes = array("Q", [len(raws), *map(len, raws), *(raw.readonly for raw in raws)])
        parts = [memoryview(sizes).cast("B")]
        for part in (*raws, memoryview(body)):
            parts += _padding(sum(map(len, parts))), part
        self._add_frame(BUFFERS, parts)

    def _add_frame(self, kind: int, parts: list[memoryview[int]]) -> None:
        self._end_pickles()
        size = sum(map(len, parts))
        self._frames += [memoryview(HEAD.pack(kind, size)), *parts, memoryview(WHOLE)]
        self.bytes += size

    def _end_pickles(self) -> None:
        if pickles := self._pickles:
            self._pickles = []
            lengths = array("Q", [len(pickles), *map(len, pickles)])
            size = lengths.itemsize * len(lengths) + sum(lengths[1:])
            parts = [HEAD.pack(PICKLES, size), lengths.tobytes(), *pickles, WHOLE]
            # One part costs less to send than many; a large pickle is not copied.
            self._frames += map(memoryview, [b"".join(parts)] if size < MAX_JOINED else parts)


def decode(kind: int, body: memoryview[int]) -> Iterator[Sequence[object]]:
    """Yield the records of a frame in lists, which do not refer to `body` for PICKLES."""
    if kind == PICKLES:
        (count,) = body[:8].cast("Q")
        at = 8 * (count + 1)
        for size in body[8:at].cast("Q"):
            yield pickle.loads(body[at : at + size])
            at += size
    elif kind == BUFFERS:
        (count,) = body[:8].cast("Q")
        at = 8 * (2 * count + 1)
        sizes = body[8:at].cast("Q")
        buffers = []
        for size, is_readonly in zip(sizes[:count], sizes[count:], strict=True):
            at += len(_padding(at))
            view = body[at : at + size]
            buffers.append(view.toreadonly() if is_readonly else view)
            at += size
        at += len(_padding(at))
        yield pickle.loads(body[at:], buffers=buffers)
    else:
        from slotwise.jobs.channels import arrow

        yield (arrow.decode(body, kind == TABLE),)


def _padding(at: int) -> memoryview[int]:
    """Return zeros up to the next multiple of ALIGNMENT."""
    return _ZEROS[: -at % ALIGNMENT]


def _is_arrow(kind: type) -> bool:
    return kind.__module__ == "pyarrow.lib" and kind.__name__ in ("RecordBatch", "Table")


def _refused(records: Sequence[object]) -> TypeError | None:
    """Return the error that names the type of the first record that cannot be pickled."""
    for record in records:
        try:
            pickled(record, None, [])
        except Exception as error:
            kind = type(record)
            name = f"{kind.__module__}.{kind.__qualname__}"
            return TypeError(
                f"a record of type {name} cannot be pickled, so it cannot pass a channel:"
                f" {type(error).__name__}: {error}"
            )
    return None
