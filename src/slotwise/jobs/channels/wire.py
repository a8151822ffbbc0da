"""A socket between the two ends of a channel, and the messages on it.

To the reader: DATA (a number of bytes follow, here or in shared memory), END, FAIL with a
reason. To the writer: CREDIT (a number of bytes of shared memory are free again), CLOSE, FAIL.
A process that ends without END, CLOSE or FAIL breaks the channel, because the kernel closes its
socket. Zeros between messages are ignored: an interrupted writer completes with them what it
has begun to send.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from struct import Struct
from threading import Lock
from time import monotonic

from slotwise.jobs.channels.carriers import (
    PEER_LOST,
    BrokenChannelError,
    ReaderLeftError,
    hold,
    release,
)
from slotwise.jobs.hosts.sockets import repeated

DATA, END, FAIL, CREDIT, CLOSE = range(1, 6)
MESSAGE = Struct("<BQ")
MAX_REASON_BYTES = 1 << 16

RECORD_BYTES = 1 << 14
"""The maximum size of a TLS record. OpenSSL sends one at a time."""

MAX_PARTS = 512
"""The maximum number of buffers that one system call sends."""

FAIL_SECONDS = 5.0
"""How long a failing end waits until it can send the reason."""


class Wire:
    """The messages on a connected, blocking socket, perhaps with TLS.

    It does not matter how TLS ends a stream, because a channel has a message for the end and is
    broken without it. Two threads may use a wire, as in a channel that spills: OpenSSL is
    called with a lock and never waits, and threads wait without the lock.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._tls = connected if isinstance(connected, ssl.SSLSocket) else None
        if self._tls is not None:
            self._tls.setblocking(False)
        self._lock = Lock()
        self._head = memoryview(bytearray(MESSAGE.size))
        self._have = 0
        self._peer_failed = False
        hold(self)

    def send_message(self, kind: int, number: int = 0) -> None:
        """Send a message. Raises OSError."""
        self._send_all(MESSAGE.pack(kind, number))

    def send_failure(self, reason: str, filler: int = 0) -> None:
        """Send FAIL after `filler` zeros, unless the peer failed; errors are ignored."""
        if self._peer_failed:
            return
        text = reason.encode("utf-8", "replace")[:MAX_REASON_BYTES]
        with suppress(OSError):
            data = bytes(filler) + MESSAGE.pack(FAIL, len(text)) + text
            self._send_all(data, FAIL_SECONDS)

    def next_message(self, before_wait: Callable[[], None] | None) -> tuple[int, int] | None:
        """Return the next message; raise BrokenChannelError for FAIL.

        Calls `before_wait` before blocking, or returns None instead of blocking without it.
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
            self._peer_failed = True
            raise BrokenChannelError(self._reason(number))
        return kind, number

    def receive(
        self, into: memoryview[int], before_wait: Callable[[], None] | None
    ) -> int | None:
        """Receive at least one byte and return the number. `before_wait` as `next_message`."""
        try:
            try:
                count = self._received(into, 0.0)
            except BlockingIOError:
                if before_wait is None:
                    return None
                before_wait()
                count = self._received(into, inf)
        except OSError as error:
            raise peer_lost(error) from None
        if not count:
            raise BrokenChannelError(PEER_LOST)
        return count

    def send_some(self, views: Sequence[memoryview[int]]) -> int:
        """Send as many of the first bytes as possible without waiting; return the number.

        Raises OSError; BlockingIOError if nothing can be sent. With TLS, the next call must
        begin with the rest.
        """
        if self._tls is None:
            return self.socket.sendmsg(views[:MAX_PARTS], [], socket.MSG_DONTWAIT)
        return self._encrypt(_first(views), 0.0)

    def _send_all(self, data: bytes, seconds: float | None = None) -> None:
        if self._tls is None:
            if seconds is not None:
                self.socket.settimeout(seconds)
            self.socket.sendall(data)
            return
        view, ends = memoryview(data), inf if seconds is None else monotonic() + seconds
        while view:
            view = view[self._encrypt(view, ends) :]

    def _received(self, into: memoryview[int], ends: float) -> int:
        if self._tls is None:
            return self.socket.recv_into(into, 0, 0 if ends else socket.MSG_DONTWAIT)
        return self._call(self._tls.recv_into, into, ends)

    def _encrypt(self, data: memoryview[int], ends: float) -> int:
        """Send at least one byte and return the number."""
        assert self._tls is not None
        sent = self._call(self._tls.send, data, ends)
        with suppress(BlockingIOError):
            while sent < len(data):
                sent += self._call(self._tls.send, data[sent:], 0.0)
        return sent

    def _call(
        self, call: Callable[[memoryview[int]], int], data: memoryview[int], ends: float
    ) -> int:
        """Repeat a call of OpenSSL until it returns.

        Raises TimeoutError at the instant `ends`, or BlockingIOError at once if that is 0.
        """
        while True:
            with self._lock:
                try:
                    return repeated(call, data)
                except ssl.SSLWantReadError:
                    awaited = select.POLLIN
                except ssl.SSLWantWriteError:
                    awaited = select.POLLOUT
            if not ends:
                raise BlockingIOError("the socket is not ready")
            if (left := ends - monotonic()) <= 0:
                raise TimeoutError("timed out")
            poll = select.poll()
            poll.register(self.socket, awaited)
            poll.poll(None if left == inf else left * 1e3 + 1)

    def wait_for_room(self) -> None:
        """Wait until the socket can send or has received something."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        poll.poll()

    def leave(self, failure: str | None) -> None:
        """Send CLOSE or FAIL to the writer. A waiting thread sees the end of the stream."""
        if failure is None:
            with suppress(OSError):
                self.send_message(CLOSE)
        else:
            self.send_failure(failure)
        with suppress(OSError):
            # The method of an SSL socket would also reset its TLS state.
            socket.socket.shutdown(self.socket, socket.SHUT_RD)

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


def receive_credits(line: Wire) -> int:
    """Return the bytes of all received credits, without waiting for more.

    Raises ReaderLeftError if the reader has closed its end, and BrokenChannelError if it failed
    or its process ended.
    """
    credit = 0
    while message := line.next_message(None):
        credit += credit_of(message)
    return credit


def credit_of(message: tuple[int, int]) -> int:
    """Return the credit of a message to the writer. Raises ReaderLeftError for CLOSE."""
    if message[0] == CLOSE:
        raise ReaderLeftError
    return message[1]


def peer_lost(error: OSError) -> BrokenChannelError:
    """Return the error for an end whose peer is lost, from the error of the kernel."""
    if isinstance(error, (ConnectionError, BlockingIOError, ssl.SSLEOFError)):
        return BrokenChannelError(PEER_LOST)
    return BrokenChannelError(f"{PEER_LOST}, or can no longer be reached: {error}")


def _nothing() -> None:
    pass


def _first(views: Sequence[memoryview[int]]) -> memoryview[int]:
    """Return the first view, or small views joined up to the size of a record."""
    if len(views[0]) >= RECORD_BYTES:
        return views[0]
    joined = bytearray()
    for view in views:
        joined += view[: RECORD_BYTES - len(joined)]
        if len(joined) == RECORD_BYTES:
            break
    return memoryview(joined)
