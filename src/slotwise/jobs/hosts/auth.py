"""Mutual authentication of an agent and its client, before any other message.

A manager connects to run tasks. Tasks on other hosts connect to read files, or to write and
read notes. With TLS, both sides have certificates of the same authority. Without it, both know
a token, and each proves this by an HMAC of a number that the other has chosen: the client
first, and the agent only to a client that has proved it. The token is never sent. Tasks have
another token, which does not authenticate a manager.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import Mapping
from functools import cache
from time import monotonic
from typing import Any, Literal, get_args

from slotwise.core.errors import SlotwiseError
from slotwise.jobs.hosts.sockets import (
    GREETING_SECONDS,
    SECURITY_VARIABLE,
    clear_errors,
    split_address,
)

VERSION = 1
"""The version of the protocol; both sides need the same."""

MAX_HELLO = 1 << 16
"""The maximum size of a greeting in bytes."""

LENGTH = struct.Struct("!I")

Security = ssl.SSLContext | bytes
"""A context that requires certificates of both sides, or a token that both sides know."""

Role = Literal["manager", "reader", "notes"]
"""The kinds of clients of an agent: a manager, or a task for files or notes."""


class RefusedError(SlotwiseError):
    """The other side is not authenticated, or not compatible with this one."""


class SilentError(ConnectionError):
    """The other side has not answered for so long that a retry would take too long."""


def reader_token(token: bytes) -> bytes:
    """Return the token of tasks."""
    return hmac.digest(token, b"reader", "sha256")


def reach(address: str, security: Security, role: Role, seconds: float) -> socket.socket:
    """Connect a task to the agent of another host, with this timeout.

    Raises ConnectionError if it cannot be reached or refuses, SilentError without an answer.
    """
    try:
        connected = socket.create_connection(split_address(address), seconds)
    except TimeoutError as error:
        raise SilentError(f"{address}: {error}") from error
    except OSError as error:  # Also if the network is down, or the host is switched off.
        raise ConnectionError(f"{address}: {error}") from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected, _ = greet_agent(connected, security, role, {})
    except BaseException as error:
        connected.close()
        if isinstance(error, RefusedError):
            is_silent = isinstance(error.__cause__, TimeoutError)
            kind = SilentError if is_silent else ConnectionError
            raise kind(f"{address}: {error}") from error
        raise
    connected.settimeout(seconds)
    return connected


def secured(connected: socket.socket, security: Security, *, is_agent: bool) -> socket.socket:
    """Return the socket to use from now on; with TLS, another one. Does not wait.

    Raises OSError or ValueError if the other side has closed the connection.
    """
    if isinstance(security, bytes) or isinstance(connected, ssl.SSLSocket):
        return connected
    return security.wrap_socket(connected, server_side=is_agent, do_handshake_on_connect=False)


def greet_agent(
    connected: socket.socket, security: Security, role: Role, hello: dict[str, Any]
) -> tuple[socket.socket, dict[str, Any]]:
    """Return the socket to use from now on, and the greeting of the agent.

    Raises RefusedError if the agent is not authenticated, or has another version of the
    protocol, or after `GREETING_SECONDS`.
    """
    return _greet(connected, security, {"role": role, **hello}, is_agent=False)


def greet_peer(
    connected: socket.socket, security: Security, hello: dict[str, Any]
) -> tuple[socket.socket, dict[str, Any]]:
    """Do the same as the agent. The greeting of the other side includes its role."""
    return _greet(connected, security, hello, is_agent=True)


def _greet(
    connected: socket.socket, security: Security, hello: dict[str, Any], *, is_agent: bool
) -> tuple[socket.socket, dict[str, Any]]:
    ends = monotonic() + GREETING_SECONDS
    connected.settimeout(GREETING_SECONDS)
    try:
        connected = secured(connected, security, is_agent=is_agent)
        if isinstance(connected, ssl.SSLSocket):
            clear_errors()  # Connections of this thread may have failed before.
            connected.do_handshake()
        role = _role(connected, None if is_agent else hello["role"], ends)
        if isinstance(security, bytes):
            if is_agent and role != "manager":
                security = reader_token(security)
            _prove(connected, security, is_agent, ends)
        write_frame(connected, json.dumps({"protocol": VERSION, **hello}).encode())
        theirs = {**read_json(connected, ends)}
        if is_agent:
            theirs["role"] = role
        protocol = theirs["protocol"]
    except RefusedError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise RefusedError(f"invalid greeting: {error or type(error).__name__}") from error
    if protocol != VERSION:
        raise RefusedError(
            f"the other side has version {protocol} of the protocol and this one {VERSION};"
            " install the same version of slotwise on all hosts"
        )
    return connected, theirs


def _role(connected: socket.socket, mine: str | None, ends: float) -> str:
    """Send or receive the role of the client, which is its first message."""
    if mine is not None:
        write_frame(connected, mine.encode())
        return mine
    role = read_frame(connected, ends).decode()
    if role not in get_args(Role):
        raise ValueError("unknown role")
    return role


def _prove(connected: socket.socket, token: bytes, is_agent: bool, ends: float) -> None:
    """Prove that this side knows the token, and check that the other one does.

    An agent checks first, so that only authenticated clients get data computed from the token.
    """
    mine, role = os.urandom(32), b"agent" if is_agent else b"manager"
    other = b"manager" if is_agent else b"agent"
    write_frame(connected, mine)
    theirs = read_frame(connected, ends)
    proof = hmac.digest(token, role + theirs + mine, "sha256")
    if not is_agent:
        write_frame(connected, proof)
    expected = hmac.digest(token, other + mine + theirs, "sha256")
    try:
        found = read_frame(connected, ends)
    except (EOFError, ConnectionError) as error:
        if is_agent:
            raise
        raise RefusedError("the agent does not accept the token of this side") from error
    if not hmac.compare_digest(found, expected):
        raise RefusedError("the other side does not know the token")
    if is_agent:
        write_frame(connected, proof)


def write_frame(connected: socket.socket, data: bytes) -> None:
    """Send bytes with their length."""
    connected.sendall(LENGTH.pack(len(data)) + data)


def read_frame(connected: socket.socket, ends: float | None = None) -> bytes:
    """Receive the data of a `write_frame`. Raises EOFError if the connection is closed.

    Raises TimeoutError at the instant `ends`; without it, by the timeout of the socket.
    """
    (length,) = LENGTH.unpack(_exactly(connected, LENGTH.size, ends))
    if length > MAX_HELLO:
        raise ValueError("the greeting is too long")
    return _exactly(connected, length, ends)


def read_json(connected: socket.socket, ends: float | None = None) -> Any:
    """Receive a JSON value. Raises ValueError if it is invalid, and as `read_frame`."""
    try:
        return json.loads(read_frame(connected, ends))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _exactly(connected: socket.socket, count: int, ends: float | None) -> bytes:
    data = b""
    while len(data) < count:
        if ends is not None:
            connected.settimeout(max(ends - monotonic(), 1e-3))
        more = connected.recv(count - len(data))
        if not more:
            raise EOFError("the connection was closed")
        data += more
    return data


# Certificates and tokens from the configuration or from an agent.


@cache
def reader_security() -> Security:
    """Return the credentials from the agent of this host to fetch files from others."""
    tls = local_tls(ssl.Purpose.SERVER_AUTH)
    return bytes.fromhex(_given()["token"]) if tls is None else tls


@cache
def local_tls(purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """Return the TLS context of tasks on this host for connections to or from others.

    None if the cluster has no TLS.
    """
    given = _given().get("tls")
    return tls_context(given, purpose) if given else None


def tls_context(given: Mapping[str, str], purpose: ssl.Purpose) -> ssl.SSLContext:
    """Return a context with this certificate that requires one of the same authority.

    given  "ca_file", "cert" and "key": paths, or contents of the files
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, value in given.items():
            paths[name] = value
            if "\n" in value:
                paths[name] = os.path.join(folder, name)
                with open(paths[name], "w", opener=_private) as file:
                    file.write(value)
        context = ssl.create_default_context(purpose, cafile=paths["ca_file"])
        context.check_hostname = False  # Certificates of Dask name no hosts.
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(paths["cert"], paths["key"])
    return context


def _given() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ[SECURITY_VARIABLE])
    return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
