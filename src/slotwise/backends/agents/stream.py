"""Messages between a manager and its agents: lists of plain values, in batches, over a socket.

User data are bytes in these messages, and are not unpickled by this module.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from typing import Any

import msgpack

from slotwise.jobs.hosts.sockets import repeated

CHUNK = 1 << 18
"""Bytes received in one call."""

MAX_MESSAGE = 2**32 - 1
"""The largest message in bytes, which is the limit of the format."""

MAX_DATA = MAX_MESSAGE - (1 << 16)
"""The most bytes of user data in a message."""


def too_large(size: int) -> str:
    """Why `size` bytes cannot be sent in a message; empty if they can."""
    if size <= MAX_DATA:
        return ""
    return (
        f"{size:,} bytes are too many to be sent between hosts (at most {MAX_DATA:,}); pass"
        " the path of a file that all hosts see"
    )


Message = list[Any]


def tune(connected: socket.socket) -> None:
    """Send small messages at once, and detect the loss of the peer's host within 30 s."""
    tcp = socket.IPPROTO_TCP
    connected.setsockopt(tcp, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(tcp, socket.TCP_KEEPIDLE, 10)
    connected.setsockopt(tcp, socket.TCP_KEEPINTVL, 5)
    connected.setsockopt(tcp, socket.TCP_KEEPCNT, 3)
    connected.setsockopt(tcp, socket.TCP_USER_TIMEOUT, 25_000)


class MessageStream:
    """A non-blocking socket, perhaps with TLS, that passes messages.

    `send` collects messages, and `flush` sends them in one call. `receive` raises EOFError when
    the peer has disconnected.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._packer = msgpack.Packer(autoreset=True)
        self._unpacker = msgpack.Unpacker(max_buffer_size=MAX_MESSAGE)
        self._new: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._wants_read = False  # TLS has to receive before it can send.
        self.channel = connected.fileno()

    def send(self, message: Message) -> None:
        """Send a message with the next `flush`. ValueError if it is too large."""
        self._new.append(self._packer.pack(message))

    def flush(self) -> None:
        """Send as much as possible without blocking."""
        if self._new:
            self._unsent.append(memoryview(b"".join(self._new)))
            self._new.clear()
        self._wants_read = False
        try:
            while self._unsent:
                sent = repeated(self._socket.send, self._unsent[0])
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except ssl.SSLWantReadError:
            self._wants_read = True
        except OSError:
            self._unsent.clear()  # `receive` reports that the peer has disconnected.

    @property
    def events(self) -> int:
        """The events to wait for with poll."""
        waits = bool(self._unsent) and not self._wants_read
        return select.POLLIN | select.POLLOUT if waits else select.POLLIN

    def receive(self) -> list[Message]:
        """All available messages. EOFError if the peer has disconnected or sends other data."""
        is_over = False
        while True:
            try:
                data = repeated(self._socket.recv, CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                data = b""
            if not data:
                is_over = True
                break
            self._unpacker.feed(data)
            if len(data) < CHUNK and not isinstance(self._socket, ssl.SSLSocket):
                break
        try:
            messages: list[Message] = list(self._unpacker)
        except Exception as error:  # Invalid data raises many types of errors.
            raise EOFError from error
        if is_over and not messages:
            raise EOFError
        return messages

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()
