"""Sockets with TLS for channels: as much of a socket as channels use.

How TLS ends a stream does not matter: a channel has a message of its own for the end, and is
broken if the stream ends without it.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Sequence
from math import inf
from threading import Lock
from time import monotonic
from typing import TypeVar

from slotwise.programs.hosts.passing import repeated

RECORD_BYTES = 1 << 14
"""The largest record of TLS. OpenSSL sends one at a time."""

Found = TypeVar("Found")


class TlsSocket:
    """A connected socket with TLS; the handshake is part of the first call.

    The calls are those of a socket. If one ends before it has sent all, the next one must begin
    with the rest. Two threads may use it, as a channel does that spills: OpenSSL is called with
    a lock and never waits, and threads wait without the lock.
    """

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, *, is_listener: bool
    ) -> None:
        """Take over the socket and its timeout. OSError or ValueError if the peer has gone."""
        self._timeout = connected.gettimeout()
        connected.setblocking(False)
        self._tls = context.wrap_socket(
            connected, server_side=is_listener, do_handshake_on_connect=False
        )
        self._lock = Lock()

    def recv(self, size: int, /) -> bytes:
        """Receive some bytes; none at the end of the stream."""
        return self._do(lambda: repeated(self._tls.recv, size), self._ends())

    def recv_into(self, into: memoryview[int], size: int = 0, flags: int = 0) -> int:
        """Receive at least one byte; 0 at the end of the stream."""
        ends = 0.0 if flags & socket.MSG_DONTWAIT else self._ends()
        return self._do(lambda: repeated(self._tls.recv_into, into, size or len(into)), ends)

    def send(self, data: bytes, /) -> int:
        """Send some bytes; how many."""
        return self._do(lambda: self._send(memoryview(data)), self._ends())

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes."""
        ends, sent = self._ends(), 0
        while sent < len(data):
            left = memoryview(data)[sent:]
            sent += self._do(lambda left=left: self._send(left), ends)  # type: ignore[misc]

    def sendmsg(
        self,
        views: Sequence[memoryview[int]],
        controls: Sequence[tuple[int, int, bytes]],
        flags: int,
        /,
    ) -> int:
        """Send some of the first bytes, as far as there is room; how many."""
        assert flags == socket.MSG_DONTWAIT
        return self._do(lambda: self._send(_first(views)), 0.0)

    def settimeout(self, seconds: float | None, /) -> None:
        """Set how long calls wait; without a limit for None."""
        self._timeout = seconds

    def shutdown(self, how: int, /) -> None:
        """Shut down the connection below TLS; it wakes up a thread that waits."""
        socket.socket.shutdown(self._tls, how)

    def fileno(self) -> int:
        """The descriptor, for poll."""
        return self._tls.fileno()

    def close(self) -> None:
        """Close the socket, without a word to the peer."""
        self._tls.close()

    def _ends(self) -> float:
        if not self._timeout:
            return inf if self._timeout is None else 0.0
        return monotonic() + self._timeout

    def _do(self, call: Callable[[], Found], ends: float) -> Found:
        """What a call of OpenSSL returns. TimeoutError at an instant; at 0, BlockingIOError."""
        while True:
            with self._lock:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    awaited = select.POLLIN
                except ssl.SSLWantWriteError:
                    awaited = select.POLLOUT
                except ssl.SSLEOFError:
                    raise ConnectionResetError("the peer has closed the connection") from None
            if not ends:
                raise BlockingIOError("the socket is not ready")
            if (left := ends - monotonic()) <= 0:
                raise TimeoutError("timed out")
            poll = select.poll()
            poll.register(self._tls, awaited)
            poll.poll(None if left == inf else left * 1e3 + 1)

    def _send(self, data: memoryview[int]) -> int:
        sent = 0
        try:
            while sent < len(data):
                sent += repeated(self._tls.send, data[sent:])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not sent:
                raise
        return sent


def _first(views: Sequence[memoryview[int]]) -> memoryview[int]:
    """The first of these bytes: small views in one record, large ones as they are."""
    if len(views[0]) >= RECORD_BYTES:
        return views[0]
    joined = bytearray()
    for view in views:
        joined += view[: RECORD_BYTES - len(joined)]
        if len(joined) == RECORD_BYTES:
            break
    return memoryview(joined)
