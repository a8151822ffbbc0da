"""What the server and its clients share: the place of the socket, frames, and errors.

A frame is a JSON header and byte strings: the length of the header in four bytes, the header,
then the parts, whose lengths the header has as `sizes`. User data is only in parts.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.files import state_folder

API = 1
"""The version of the paths and of their JSON; paths begin with /v1."""

SERVER_VARIABLE = "SLOTWISE_SERVER"
"""The environment variable with the URL of the server, such as unix:/run/slotwise/socket."""

SOCKET_BYTES_MAX = 107
"""The maximum length of the path of a unix socket."""

HEADER_BYTES_MAX = 1 << 20
"""The maximum length of the header of a frame."""

PART_BYTES_MAX = 2 << 30
"""The maximum length of a part."""

_LENGTH = struct.Struct("<I")


def service_folder() -> Path:
    """The folder of the user's service: store, output of jobs, and socket."""
    return state_folder() / "service"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a server is: the path of its socket, or a host on a network."""

    path: Path | None = None
    host: str = ""
    port: int = 0
    is_secure: bool = False

    def __str__(self) -> str:
        if self.path is not None:
            return str(self.path)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.is_secure}://{host}:{self.port}"

    @property
    def is_network(self) -> bool:
        """Whether it may be another host, with other files and programs."""
        return self.path is None


def server_place(url: str | None = None) -> ServerPlace:
    """Where a server is; by default the one stated, or the user's.

    InputError for a URL that is not `unix:` and a path, or `https://` and a host.
    """
    url = url or os.environ.get(SERVER_VARIABLE, "")
    if not url:
        return ServerPlace(service_folder() / "socket")
    scheme, _, path = url.partition(":")
    if scheme == "unix" and path:
        return ServerPlace(Path(path.removeprefix("//")))
    wrong = f"server {url!r}: expected unix: and the path of its socket, or https://HOST:PORT"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError(wrong) from None
    if scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.username:
        raise InputError(wrong)
    is_secure = scheme == "https"
    return ServerPlace(None, host, port or (443 if is_secure else 80), is_secure)


def frame(header: Mapping[str, Any], parts: Sequence[bytes] = ()) -> bytes:
    """The bytes of a frame."""
    sizes = [len(part) for part in parts]
    head = json.dumps({**header, "sizes": sizes} if sizes else header).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *parts))


class Readable(Protocol):
    """A stream of bytes, such as a file or an HTTP response."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


def frames(
    stream: Readable, bytes_max: float = inf
) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """The headers and parts of a stream of frames. InputError for anything else.

    The parts of a frame have at most `bytes_max` bytes together. A stream that ends within a
    frame raises SlotwiseError.
    """
    while length := _exactly(stream, _LENGTH.size, may_end=True):
        (size,) = _LENGTH.unpack(length)
        if size > HEADER_BYTES_MAX:
            raise InputError(f"a header has {size} bytes; expected at most {HEADER_BYTES_MAX}")
        header = _header(_exactly(stream, size))
        sizes = _sizes(header)
        if sum(sizes) > bytes_max:
            raise InputError(f"a frame has {sum(sizes)} bytes; expected at most {bytes_max}")
        yield header, [_exactly(stream, one) for one in sizes]


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise InputError(f"the header of a frame is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise InputError("the header of a frame is not a JSON object")
    return header


def _sizes(header: dict[str, Any]) -> list[int]:
    sizes = header.pop("sizes", [])
    if not isinstance(sizes, list) or not all(
        type(size) is int and 0 <= size <= PART_BYTES_MAX for size in sizes
    ):
        raise InputError(
            f"the sizes of a frame are not whole numbers from 0 to {PART_BYTES_MAX}"
        )
    return sizes


def _exactly(stream: Readable, size: int, *, may_end: bool = False) -> bytes:
    pieces: list[bytes] = []
    left = size
    while left:
        piece = stream.read(left)
        if not piece:
            if may_end and left == size:
                return b""
            raise SlotwiseError("the connection to the other side ended within a message")
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
