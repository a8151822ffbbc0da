"""Mutual authentication of a listener and its client, before any other message.

A manager connects to an agent to run tasks. Tasks on other hosts connect to read files, or to
write and read notes. A writer of a channel connects to its reader. With TLS, both sides have
certificates of the same authority. Without it, and in channels, both know a token, and each
proves this by an HMAC of a number that the other has chosen: the client first, and the listener
only to a client that has proved it. The token is never sent. Tasks have another token, which
does not authenticate a manager.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from time import monotonic
from typing import Any, Literal, get_args

from slotwise.core.errors import SlotwiseError
from slotwise.jobs.hosts.messages import MessageError, Steps, frame, run, take_frame, take_json
from slotwise.jobs.hosts.sockets import (
    GREETING_SECONDS,
    SECURITY_VARIABLE,
    clear_errors,
    split_address,
)

VERSION = 3
"""The version of the protocol; both sides need the same. All versions greet in the same way."""

MAX_PROOF = 64
"""The most bytes in each of the frames of a peer that is not authenticated yet."""

NONCE_BYTES = 32
"""The size of the number that each side chooses at random."""

Security = ssl.SSLContext | bytes
"""A context that requires certificates of both sides, or a token that both sides know."""

Role = Literal["manager", "reader", "notes"]
"""The kinds of clients of an agent: a manager, or a task for files or notes."""


class RefusedError(SlotwiseError):
    """The other side is not authenticated, or not compatible with this one."""


class CutOffError(RefusedError):
    """The other side has closed the connection after the proof of this one."""


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
    secret = security if isinstance(security, bytes) else None
    return _greet(connected, security, greeting({role: secret}, hello, role))


def greet_peer(
    connected: socket.socket, security: Security, hello: dict[str, Any]
) -> tuple[socket.socket, dict[str, Any]]:
    """Do the same as the agent. The greeting of the other side includes its role."""
    return _greet(connected, security, greeting(_secrets(security), hello), is_agent=True)


def _secrets(security: Security) -> dict[str, bytes | None]:
    """Return what each role of a client has to know; nothing further with TLS."""
    if not isinstance(security, bytes):
        return dict.fromkeys(get_args(Role))
    tasks = reader_token(security)
    return {"manager": security, "reader": tasks, "notes": tasks}


def _greet(
    connected: socket.socket,
    security: Security,
    steps: Steps[dict[str, Any]],
    *,
    is_agent: bool = False,
) -> tuple[socket.socket, dict[str, Any]]:
    ends = monotonic() + GREETING_SECONDS
    connected.settimeout(GREETING_SECONDS)
    try:
        connected = secured(connected, security, is_agent=is_agent)
        if isinstance(connected, ssl.SSLSocket):
            clear_errors()  # Connections of this thread may have failed before.
            connected.do_handshake()
        return connected, run(connected, steps, ends)
    except (OSError, ValueError, EOFError) as error:
        raise RefusedError(f"invalid greeting: {error or type(error).__name__}") from error


def greeting(
    secrets: Mapping[str, bytes | None], hello: dict[str, Any], role: str = ""
) -> Steps[dict[str, Any]]:
    """Greet the other side of a new connection; return its greeting and the role of the client.

    The client gives its role. Raises RefusedError; CutOffError if the other side closes the
    connection during the proof; MessageError for bytes other than a greeting.

    secrets  by role, what both sides have to know; None if TLS has authenticated them
    """
    is_client, number = bool(role), os.urandom(NONCE_BYTES)
    if is_client:
        yield frame(role.encode())
    if any(secret is not None for secret in secrets.values()):
        yield frame(number)
    if not is_client:
        role = (yield from take_frame(MAX_PROOF)).decode("utf-8", "replace")
        if role not in secrets:
            raise MessageError("unknown role")
    if (secret := secrets[role]) is not None:
        yield from _proof(secret, number, is_client)
    mine = frame(json.dumps({"protocol": VERSION, **hello}).encode())
    if is_client:
        yield mine
    theirs = yield from take_json()
    if not is_client:  # Only now: what ends a greeting is the answer of the listener.
        yield mine
    if not isinstance(theirs, dict) or "protocol" not in theirs:
        raise MessageError("it has no version")
    if (protocol := theirs["protocol"]) != VERSION:
        raise RefusedError(
            f"the other side has version {protocol} of the protocol and this one {VERSION};"
            " install the same version of slotwise on all hosts"
        )
    return {**theirs, "role": role}


def _proof(secret: bytes, mine: bytes, is_client: bool) -> Steps[None]:
    """Prove that this side knows the secret, and check that the other one does.

    The listener checks first, so that only authenticated clients get data computed from it.
    """
    own_role, peer_role = (b"manager", b"agent") if is_client else (b"agent", b"manager")
    theirs = yield from take_frame(MAX_PROOF)
    if len(theirs) != NONCE_BYTES:
        raise MessageError("it has no random number")
    proof = hmac.digest(secret, own_role + theirs + mine, "sha256")
    expected = hmac.digest(secret, peer_role + mine + theirs, "sha256")
    if is_client:
        yield frame(proof)
    try:
        found = yield from take_frame(MAX_PROOF)
    except (EOFError, ConnectionError) as error:
        if not is_client:
            raise
        raise CutOffError("the agent does not accept the token of this side") from error
    if not hmac.compare_digest(found, expected):
        raise RefusedError("the other side does not know the token")
    if not is_client:
        yield frame(proof)


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
    import tempfile  # Tasks without TLS do not need it.

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
