"""What carries the bytes of a channel: the interfaces that the kinds of channels implement."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

from slotwise.programs.channels.broken import BrokenChannelError

GONE = "the process at the other end has gone without closing the channel"


class ReaderLeftError(Exception):
    """The reader wants no more. It never leaves the package."""


class ByteSink(Protocol):
    """The writer's end."""

    def send(self, parts: Sequence[memoryview[int]]) -> None:
        """Send all bytes; blocks while the reader is behind.

        Raises ReaderLeftError if the reader has closed its end, and BrokenChannelError.
        """

    def close(self) -> None:
        """End the stream. Raises what `send` raises."""

    def fail(self, reason: str) -> None:
        """Break the channel; the reader gets the reason."""

    def drop(self) -> None:
        """Free what the end holds, without a word to the reader."""


class ByteSource(Protocol):
    """The reader's end."""

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        """Receive at least one byte, and return their number; 0 at the end of the stream.

        `before_wait` is called before it blocks. Raises BrokenChannelError.
        """

    def leave(self, failure: str | None) -> None:
        """Tell the writer that no more is wanted, or that the reader failed.

        A thread that waits in `receive` wakes up.
        """

    def free(self) -> None:
        """Free what the end holds, after `leave`."""


class Forgetful(Protocol):
    """An end that a forked child must not hold, or the death of its process goes unnoticed."""

    def forget(self) -> None:
        """Close the descriptors of the end in this process, without a word."""


_held: weakref.WeakSet[Forgetful] = weakref.WeakSet()


def hold(end: Forgetful) -> None:
    """Close the descriptors of an end in children that this process forks from now on."""
    _held.add(end)


def release(end: Forgetful) -> None:
    """Undo `hold`: the end is closed."""
    _held.discard(end)


def _forget_all() -> None:
    for end in list(_held):
        end.forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)


def fill(source: ByteSource, view: memoryview[int], before_wait: Callable[[], None]) -> bool:
    """Receive exactly as many bytes as the view has; False if the stream ends before the first.

    Raises BrokenChannelError.
    """
    have = 0
    while have < len(view):
        count = source.receive(view[have:], before_wait)
        if not count:
            if have:
                raise BrokenChannelError("the stream ends within a record")
            return False
        have += count
    return True
