"""A socket between the two ends of a channel, and the messages on it.

To the reader: DATA (so many bytes follow, here or in shared memory), END, FAIL with a reason.
To the writer: CREDIT (so many bytes of shared memory are free again), CLOSE, FAIL. An end that
goes without END, CLOSE or FAIL breaks the channel, because the kernel closes its socket. Zeros
between messages mean nothing: a writer that was interrupted fills up with them what it began.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.carriers import GONE, ReaderLeftError, hold, release

if TYPE_CHECKING:  # With ssl it takes long to import.
    from slotwise.programs.channels.tls import TlsSocket

Connected: TypeAlias = "socket.socket | TlsSocket"
"""A socket with or without TLS."""

DATA, END, FAIL, CREDIT, CLOSE = range(1, 6)
MESSAGE = Struct("<BQ")
MAX_REASON_BYTES = 1 << 16

FAIL_SECONDS = 5.0
"""How long an end that fails waits for room to say why."""


class Wire:
    """The messages on a connected socket, which blocks."""

    def __init__(self, connected: Connected) -> None:
        self.socket = connected
        self._head = memoryview(bytearray(MESSAGE.size))
        self._have = 0
        self._has_heard_failure = False
        hold(self)

    def tell(self, kind: int, number: int = 0) -> None:
        """Send a message. Raises OSError."""
        self.socket.sendall(MESSAGE.pack(kind, number))

    def tell_failure(self, reason: str, filler: int = 0) -> None:
        """Send FAIL, after so many zeros; errors are ignored.

        It is not sent to a peer that has failed itself, which may not read any more.
        """
        if self._has_heard_failure:
            return
        text = reason.encode("utf-8", "replace")[:MAX_REASON_BYTES]
        with suppress(OSError):
            self.socket.settimeout(FAIL_SECONDS)
            self.socket.sendall(bytes(filler) + MESSAGE.pack(FAIL, len(text)) + text)

    def next_message(self, before_wait: Callable[[], None] | None) -> tuple[int, int] | None:
        """The next message; FAIL is raised as BrokenChannelError.

        Calls `before_wait` before it blocks. Without it, returns None instead of blocking.
        """
        head = self._head
        while self._have < MESSAGE.size:
            count = self.receive(head[self._have :], before_wait)
            if count is None:
                return None
            self._have += count
            if not head[0]:
                rest = bytes(head[: self._have]).lstrip(b"\0")
                self._have = len(rest)
                head[: len(rest)] = rest
        self._have = 0
        kind, number = MESSAGE.unpack(self._head)
        if kind == FAIL:
            self._has_heard_failure = True
            raise BrokenChannelError(self._reason(number))
        return kind, number

    def receive(
        self, into: memoryview[int], before_wait: Callable[[], None] | None
    ) -> int | None:
        """Receive at least one byte and return their number; None instead of blocking."""
        try:
            try:
                count = self.socket.recv_into(into, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if before_wait is None:
                    return None
                before_wait()
                count = self.socket.recv_into(into)
        except OSError as error:
            raise gone(error) from None
        if not count:
            raise BrokenChannelError(GONE)
        return count

    def wait_for_room(self) -> None:
        """Wait until something can be sent or has come."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        poll.poll()

    def leave(self, failure: str | None) -> None:
        """Tell the writer CLOSE or FAIL. For a thread that waits, the other end has gone."""
        if failure is None:
            with suppress(OSError):
                self.tell(CLOSE)
        else:
            self.tell_failure(failure)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close the socket."""
        release(self)
        self.socket.close()

    def forget(self) -> None:
        """Close the socket in a forked child."""
        self.socket.close()

    def _reason(self, size: int) -> str:
        text = bytearray(min(size, MAX_REASON_BYTES))
        view, have = memoryview(text), 0
        try:
            while have < len(text):
                have += self.receive(view[have:], _nothing) or 0
        except BrokenChannelError:
            del view
            del text[have:]
        return text.decode("utf-8", "replace")


def listen_back(line: Wire) -> int:
    """The bytes of all credits that have come, for the writer, which does not wait for more.

    Raises ReaderLeftError if the reader has closed its end, and BrokenChannelError if it failed
    or has gone.
    """
    credit = 0
    while message := line.next_message(None):
        credit += credit_of(message)
    return credit


def credit_of(message: tuple[int, int]) -> int:
    """The credit of a message to the writer. Raises ReaderLeftError for CLOSE."""
    if message[0] == CLOSE:
        raise ReaderLeftError
    return message[1]


def gone(error: OSError) -> BrokenChannelError:
    """The error of an end whose peer has gone, as the kernel reports it."""
    if isinstance(error, (ConnectionError, BlockingIOError)):
        return BrokenChannelError(GONE)
    return BrokenChannelError(f"{GONE}, or cannot be reached any more: {error}")


def _nothing() -> None:
    pass
