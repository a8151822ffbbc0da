"""How a manager and an agent make sure of each other before anything else is said.

With TLS, both have certificates of the same authority. Without it, both know a token, and each
proves this by an HMAC of a number that the other has chosen. The token is never sent.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import ssl
import struct
from typing import Any

from slotwise.model.errors import SlotwiseError

VERSION = 1
"""Of the protocol; both sides need the same."""

GREETING_SECONDS = 10.0
"""How long the other side may take for its greeting."""

HELLO_MOST = 1 << 16
"""The largest greeting in bytes."""

LENGTH = struct.Struct("!I")

Security = ssl.SSLContext | bytes
"""A context that demands certificates of both sides, or a token that both sides know."""


class RefusedError(SlotwiseError):
    """The other side is not the one that was expected, or cannot work with this one."""


def greet(
    connected: socket.socket, security: Security, hello: dict[str, Any], *, is_agent: bool
) -> tuple[socket.socket, dict[str, Any]]:
    """The socket to use from now on, and what the other side says of itself.

    Both sides call this. RefusedError if the other one is not known, or speaks another
    protocol. Blocks for at most `GREETING_SECONDS` for each message.
    """
    connected.settimeout(GREETING_SECONDS)
    try:
        if isinstance(security, ssl.SSLContext):
            connected = security.wrap_socket(connected, server_side=is_agent)
        else:
            _prove(connected, security, is_agent)
        _write(connected, json.dumps({"protocol": VERSION, **hello}).encode())
        theirs = json.loads(_read(connected))
        protocol = theirs["protocol"]
    except RefusedError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise RefusedError(f"no valid greeting: {error or type(error).__name__}") from error
    if protocol != VERSION:
        raise RefusedError(
            f"the other side speaks version {protocol} of the protocol and this one {VERSION};"
            " install the same version of slotwise on all hosts"
        )
    return connected, theirs


def _prove(connected: socket.socket, token: bytes, is_agent: bool) -> None:
    """Prove that this side knows the token, and check that the other one does."""
    mine, role = os.urandom(32), b"agent" if is_agent else b"manager"
    other = b"manager" if is_agent else b"agent"
    _write(connected, mine)
    theirs = _read(connected)
    _write(connected, hmac.digest(token, role + theirs + mine, "sha256"))
    if not hmac.compare_digest(
        _read(connected), hmac.digest(token, other + mine + theirs, "sha256")
    ):
        raise RefusedError("the other side does not know the token")


def _write(connected: socket.socket, data: bytes) -> None:
    connected.sendall(LENGTH.pack(len(data)) + data)


def _read(connected: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_exactly(connected, LENGTH.size))
    if length > HELLO_MOST:
        raise ValueError("the greeting is too long")
    return _exactly(connected, length)


def _exactly(connected: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connected.recv(count - len(data))
        if not more:
            raise EOFError("the connection was closed")
        data += more
    return data
