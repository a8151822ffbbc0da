"""Messages between processes: plain values in JSON, with payloads of opaque bytes.

Managers, agents and tasks use them, on any stream: TCP, TLS, Unix sockets. A message is a frame
(a length of four bytes, then so many bytes) with a JSON list, followed by its payloads. The
first item of the list has the index and the size of each payload; the others are the values of
the message. This module never unpickles: the worst that invalid bytes do is a MessageError.
Pickles of users are payloads, which only workers and the readers of results open.

What is to be received is a generator that yields how many bytes it needs next. So the same code
runs on sockets that block (`run`) and on others (`MessageStream`).
"""

from __future__ import annotations

import json
import select
import socket
import ssl
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from struct import Struct
from time import monotonic
from typing import Any, Protocol, TypeVar

from slotwise.jobs.hosts.sockets import repeated

MAX_GREETING = 1 << 16
"""The most bytes in a frame of a greeting."""

MAX_HEAD = 1 << 26
"""The most bytes in the JSON of a message."""

MAX_DATA = 2**32 - (1 << 16) - 1
"""The most bytes in all payloads of a message."""

CHUNK = 1 << 18
"""Bytes received in one call."""

LENGTH = Struct("!I")

Found = TypeVar("Found")
Takes = Generator[int, bytes, Found]
"""Yields the number of bytes that it needs next."""

Steps = Generator[int | bytes, bytes, Found]
"""Yields the number of bytes that it needs next, or bytes to send."""

Message = list[Any]


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


def take_frame(most: int = MAX_GREETING) -> Takes[bytes]:
    """Receive the data of a `frame`. Raises MessageError for more bytes than `most`."""
    (size,) = LENGTH.unpack((yield LENGTH.size))
    if size > most:
        raise MessageError(f"a frame has {size} bytes; expected at most {most}")
    return (yield size)


def take_json(most: int = MAX_GREETING) -> Takes[Any]:
    """Receive a JSON value. Raises MessageError if it is invalid."""
    data = yield from take_frame(most)
    try:
        return json.loads(data)
    except RecursionError:
        raise MessageError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise MessageError(str(error)) from None


def head(values: Message, payloads: Sequence[int] = ()) -> bytes:
    """Return the frame of a message, without its payloads: index and size of each, in turn."""
    return frame(_encode([payloads, *values]).encode())


def parts_of(message: Message) -> list[bytes | bytearray]:
    """Return a message in parts to send; its items that are bytes are the payloads.

    Raises ValueError if it is too large.
    """
    values = list(message)
    sizes: list[int] = []
    payloads: list[bytes | bytearray] = []
    for at, part in enumerate(message):
        if isinstance(part, bytes | bytearray):
            values[at] = None
            sizes += at, len(part)
            payloads.append(part)
    if reason := too_large(sum(map(len, payloads))):
        raise ValueError(reason)
    return [head(values, sizes), *payloads]


def take_head() -> Takes[tuple[Message, list[int]]]:
    """Receive a message without its payloads, and the index and size of each, in turn."""
    data = yield from take_frame(MAX_HEAD)
    try:
        sizes, *values = _decode(data.decode())
        for at in sizes[::2]:
            if values[at] is not None:
                raise ValueError
        if sizes and (set(map(type, sizes)) != {int} or min(sizes) < 0 or len(sizes) % 2):
            raise ValueError
    except (ValueError, TypeError, LookupError, RecursionError):
        raise MessageError("it has no valid head") from None
    return values, sizes


def take_message() -> Takes[Message]:
    """Receive a message."""
    values, sizes = yield from take_head()
    if reason := too_large(sum(sizes[1::2])):
        raise MessageError(reason)
    for at, size in zip(sizes[::2], sizes[1::2], strict=True):
        values[at] = yield size
    return values


_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


# On sockets that block.


class Blocking(Protocol):
    """What is used of a socket that blocks."""

    def recv(self, size: int, /) -> bytes:
        """Receive at most so many bytes."""
        ...

    def sendall(self, data: bytes, /) -> None:
        """Send all bytes."""
        ...

    def settimeout(self, seconds: float | None, /) -> None:
        """Set how long the other methods wait."""
        ...


def run(
    connected: Blocking, steps: Steps[Found] | Takes[Found], ends: float | None = None
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
    connected.sendall(b"".join(parts_of(message)))


def receive(connected: socket.socket) -> Message:
    """Receive a message. Raises as `run`."""
    return run(connected, take_message())


def _exactly(connected: Blocking, count: int, ends: float | None) -> bytes:
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


class Outbox:
    """Bytes to send on a socket that does not block."""

    def __init__(self) -> None:
        self._parts: deque[memoryview[int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Sequence[bytes | bytearray]) -> None:
        """Send these bytes, too; small parts together, and large ones without a copy."""
        if sum(map(len, parts)) < CHUNK:
            parts = [b"".join(parts)]
        self._parts.extend(map(memoryview, parts))

    def send(self, connected: socket.socket) -> None:
        """Send as much as possible without blocking. Raises as the socket."""
        parts = self._parts
        while parts:
            sent = repeated(connected.send, parts[0])
            if sent < len(parts[0]):
                parts[0] = parts[0][sent:]
            else:
                parts.popleft()

    def clear(self) -> None:
        """Drop all bytes."""
        self._parts.clear()


class Inbox:
    """The messages in bytes that are received in pieces of any size."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._begin()

    def _begin(self) -> None:
        self._steps = take_message()
        self._needs = next(self._steps)

    def add(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that end with these bytes. Raises MessageError."""
        self._bytes += data
        at = 0
        while len(self._bytes) - at >= self._needs:
            taken = bytes(memoryview(self._bytes)[at : at + self._needs])
            at += self._needs
            try:
                self._needs = self._steps.send(taken)
            except StopIteration as done:
                yield done.value
                self._begin()
        del self._bytes[:at]


class MessageStream:
    """A socket, perhaps with TLS, that passes messages and does not block.

    `send` collects messages, and `flush` sends them in one call. `receive` raises EOFError when
    the peer has disconnected.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._inbox, self._outbox = Inbox(), Outbox()
        self._new: list[bytes | bytearray] = []
        self._wants_read = False  # TLS has to receive before it can send.
        self.channel = connected.fileno()

    def send(self, message: Message) -> None:
        """Send a message with the next `flush`. ValueError if it is too large."""
        self._new += parts_of(message)

    def flush(self) -> None:
        """Send as much as possible without blocking."""
        if self._new:
            self._outbox.add(self._new)
            self._new.clear()
        self._wants_read = False
        try:
            self._outbox.send(self._socket)
        except (BlockingIOError, ssl.SSLWantWriteError):
            pass
        except ssl.SSLWantReadError:
            self._wants_read = True
        except OSError:
            self._outbox.clear()  # `receive` reports that the peer has disconnected.

    @property
    def events(self) -> int:
        """The events to wait for with poll."""
        waits = bool(self._outbox) and not self._wants_read
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
                messages += self._inbox.add(data)
            except MessageError as error:
                raise EOFError from error
            if len(data) < CHUNK and not isinstance(self._socket, ssl.SSLSocket):
                return messages

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()
