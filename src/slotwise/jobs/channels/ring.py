"""Channels in shared memory, between processes that are forked from one.

The memory is an unnamed ring. The writer copies bytes into it and sends their number on a
socket pair; the reader copies them out and sends the number of free bytes. So waiting takes no
processor time, each message orders the accesses to memory, and the death of a process closes
its socket.
"""

from __future__ import annotations

import mmap
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from slotwise.jobs.channels.carriers import PEER_LOST, BrokenChannelError
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.wire import (
    CREDIT,
    DATA,
    END,
    Wire,
    credit_of,
    peer_lost,
    receive_credits,
)

CAPACITY = 1 << 22
"""The default size of a ring in bytes."""

STEPS = 4
"""Messages per round of the ring at least: both ends then copy at the same time."""


class SharedRing:
    """A channel to create before a fork.

    Each process that has it must then call `writer`, `reader` or `leave`: while another process
    holds a copy of an end, the death of the process that uses it is not detected.
    """

    def __init__(self, capacity_bytes: int = CAPACITY) -> None:
        self._memory: mmap.mmap | None = mmap.mmap(-1, max(capacity_bytes, STEPS))
        self._ends = socket.socketpair()

    def writer(self) -> Writer:
        """Return the writer's end. Processes forked from now on do not have it."""
        return Writer(_RingSink(*self._claim(0)))

    def reader(self) -> Reader:
        """Return the reader's end. Processes forked from now on do not have it."""
        return Reader(_RingSource(*self._claim(1)))

    def leave(self) -> None:
        """Close both ends in this process, which uses neither."""
        if self._memory is not None:
            memory, line = self._claim(0)
            line.close()
            memory.close()

    def _claim(self, end: int) -> tuple[mmap.mmap, Wire]:
        memory, self._memory = self._memory, None
        if memory is None:
            raise ValueError("this process has already taken an end of the ring")
        self._ends[1 - end].close()
        return memory, Wire(self._ends[end])


class _RingEnd:
    """The common part of both ends: the line, and a position in the ring."""

    def __init__(self, memory: mmap.mmap, line: Wire) -> None:
        self._memory, self._line = memory, line
        self._ring = memoryview(memory)
        self._capacity = len(memory)
        self._step = self._capacity // STEPS
        self._at = 0

    def _advance(self, count: int) -> None:
        self._at += count
        if self._at == self._capacity:
            self._at = 0

    def _free(self) -> None:
        self._line.close()
        self._ring.release()
        self._memory.close()


class _RingSink(_RingEnd):
    def __init__(self, memory: mmap.mmap, line: Wire) -> None:
        super().__init__(memory, line)
        self._room = self._capacity
        self._unreported = 0

    def send(self, parts: Sequence[memoryview[int]]) -> None:
        self._room += receive_credits(self._line)
        for part in parts:
            at = 0
            while at < len(part):
                if not self._room:
                    self._wait()
                count = min(len(part) - at, self._room, self._capacity - self._at, self._step)
                self._ring[self._at : self._at + count] = part[at : at + count]
                at += count
                self._advance(count)
                self._room -= count
                self._unreported += count
                if self._unreported >= self._step:
                    self._report(DATA)
        self._report(DATA)

    def close(self) -> None:
        try:
            receive_credits(self._line)
            self._report(END)
        finally:
            self._free()

    def fail(self, reason: str) -> None:
        self._line.send_failure(reason)
        self._free()

    def drop(self) -> None:
        self._free()

    def _wait(self) -> None:
        self._report(DATA)
        message = self._line.next_message(_nothing)
        assert message is not None
        self._room += credit_of(message)

    def _report(self, kind: int) -> None:
        if kind == DATA and not self._unreported:
            return
        try:
            self._line.send_message(kind, self._unreported)
        except OSError as error:
            receive_credits(self._line)
            raise peer_lost(error) from None
        self._unreported = 0


class _RingSource(_RingEnd):
    def __init__(self, memory: mmap.mmap, line: Wire) -> None:
        super().__init__(memory, line)
        self._available = self._unreported = 0

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        if not self._available:
            message = self._line.next_message(before_wait)
            assert message is not None
            kind, number = message
            if kind == END:
                return 0
            if kind != DATA or number > self._capacity:
                raise BrokenChannelError(PEER_LOST)
            self._available = number
        count = min(self._available, len(into), self._capacity - self._at)
        into[:count] = self._ring[self._at : self._at + count]
        self._advance(count)
        self._available -= count
        self._unreported += count
        if self._unreported >= self._step:
            with suppress(OSError):  # The writer may have ended; its bytes stay readable.
                self._line.send_message(CREDIT, self._unreported)
            self._unreported = 0
        return count

    def leave(self, failure: str | None) -> None:
        self._line.leave(failure)

    def free(self) -> None:
        self._free()


def _nothing() -> None:
    pass
