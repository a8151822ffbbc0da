"""Messages between managers, agents and tasks: lists of plain values and of opaque bytes.

A frame is a length in four bytes, then that number of bytes. Greetings are frames with text and
JSON, because programs without msgpack greet, too. All later messages are frames with a msgpack
list. This module never unpickles: pickles of users are bytes in the messages, which only
workers and the readers of results open. The worst that invalid bytes do is a MessageError.

What is to be received is a generator that yields how many bytes it needs next. So the same code
runs on sockets that block (`run`) and on others, as in the listener of channels.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
from collections import deque
from collections.abc import Generator, Iterator
from functools import cache
from struct import Struct
from time import monotonic
from typing import Any, TypeVar

from slotwise.jobs.hosts.sockets import repeated

MAX_GREETING = 1 << 16
"""The most bytes in a frame of a greeting."""

MAX_MESSAGE = 2**32 - 1
"""The most bytes in a message, which is the limit of the format."""

MAX_DATA = MAX_MESSAGE - (1 << 16)
"""The most bytes of user data in a message."""

CHUNK = 1 << 18
"""Bytes received in one call."""

LENGTH = Struct("!I")

Message = list[Any]

Found = TypeVar("Found")
Takes = Generator[int, bytes, Found]
"""Yields the number of bytes that it needs next."""

Steps = Generator[int | bytes, bytes, Found]
"""Yields the number of bytes that it needs next, or bytes to send."""


class MessageError(ValueError):
    """The received bytes are not a message."""


def too_large(size: int) -> str:
    """Why `size` bytes cannot be sent in a message; empty if they can."""
    if size <= MAX_DATA:
        return ""
    return (
        f"{size:,} bytes are too many to be sent between hosts (at most {MAX_DATA:,}); pass"
        " the path of a file that all hosts see"
    )


def frame(data: bytes) -> bytes:
    """Return bytes with their length."""
    return LENGTH.pack(len(data)) + data


def take_frame(most: int) -> Takes[bytes]:
    """Receive the data of a `frame`. Raises MessageError for more bytes than `most`."""
    (size,) = LENGTH.unpack((yield LENGTH.size))
    if size > most:
        raise MessageError(f"a frame has {size} bytes; expected at most {most}")
    return (yield size)


def take_json() -> Takes[Any]:
    """Receive a JSON value. Raises MessageError if it is invalid."""
    data = yield from take_frame(MAX_GREETING)
    try:
        return json.loads(data)
    except RecursionError:
        raise MessageError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise MessageError(str(error)) from None


def encoded(message: Message) -> bytes:
    """Return a message as a frame. ValueError if it is too large."""
    data: bytes = _msgpack().packb(message)
    return frame(data)


def decoded(data: bytes | memoryview[int]) -> Message:
    """Return the message in the data of a frame. Raises MessageError."""
    try:
        found = _msgpack().unpackb(data)
    except Exception as error:  # Invalid data raises many types of errors.
        raise MessageError(f"it is not a message: {error}") from error
    if type(found) is not list:
        raise MessageError("it is not a message")
    return found


@cache
def _msgpack() -> Any:
    """Return the module, which the extra dask installs. Only hosts of a cluster need it."""
    import msgpack

    return msgpack


# On sockets that block.


def run(
    connected: socket.socket, steps: Steps[Found] | Takes[Found], ends: float | None = None
) -> Found:
    """Return the result of the steps. Raises what they raise, and OSError.

    Raises EOFError if the other side has closed the connection, and TimeoutError at the instant
    `ends`; without it, by the timeout of the socket.
    """
    try:
        wanted = next(steps)
        while True:
            if isinstance(wanted, bytes):
                connected.sendall(wanted)
                wanted = next(steps)
                continue
            try:
                data = _exactly(connected, wanted, ends)
            except (EOFError, ConnectionError) as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(data)
    except StopIteration as done:
        found: Found = done.value
        return found


def send(connected: socket.socket, message: Message) -> None:
    """Send a message. Raises OSError."""
    connected.sendall(encoded(message))


def receive(connected: socket.socket) -> Message:
    """Receive a message. Raises MessageError, and as `run`."""
    return decoded(run(connected, take_frame(MAX_MESSAGE)))


def _exactly(connected: socket.socket, count: int, ends: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if ends is not None:
            connected.settimeout(max(ends - monotonic(), 1e-3))
        more = connected.recv(min(count - len(data), CHUNK))
        if not more:
            raise EOFError("the connection was closed")
        data += more
    return bytes(data)


# On sockets that do not block.


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
    """A socket, perhaps with TLS, that passes messages and does not block.

    `send` collects messages, and `flush` sends them in one call. `receive` raises EOFError when
    the peer has disconnected.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._pack = _msgpack().Packer(autoreset=True).pack
        self._new: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()  # The begin of a message.
        self._needs = 0  # How many bytes of it are needed before it is looked at again.
        self._wants_read = False  # TLS has to receive before it can send.
        self.channel = connected.fileno()

    def send(self, message: Message) -> None:
        """Send a message with the next `flush`. ValueError if it is too large."""
        data = self._pack(message)
        self._new += LENGTH.pack(len(data)), data

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
    def unsent(self) -> int:
        """The bytes that the last `flush` could not send."""
        return sum(map(len, self._unsent))

    @property
    def events(self) -> int:
        """The events to wait for with poll."""
        waits = bool(self._unsent) and not self._wants_read
        return select.POLLIN | select.POLLOUT if waits else select.POLLIN

    def receive(self) -> list[Message]:
        """All available messages. EOFError if the peer has disconnected or sends other data."""
        messages: list[Message] = []
        while True:
            try:
                data = repeated(self._socket.recv, CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return messages
            except OSError:
                data = b""
            if not data:
                if messages:
                    return messages
                raise EOFError
            try:
                messages += self.feed(data)
            except MessageError as error:
                raise EOFError from error
            if len(data) < CHUNK and not isinstance(self._socket, ssl.SSLSocket):
                return messages

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that end with these bytes. Raises MessageError."""
        whole: bytes | bytearray = data
        if self._received:
            self._received += data
            if len(self._received) < self._needs:
                return
            whole, self._received = self._received, bytearray()
        at, size = 0, len(whole)
        while at < size:
            begin = end = at + LENGTH.size
            if begin <= size:
                end += LENGTH.unpack_from(whole, at)[0]
            if begin > size or end > size:
                self._received += memoryview(whole)[at:]
                self._needs = end - at
                return
            yield decoded(memoryview(whole)[begin:end])
            at = end

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()
