"""Mutual authentication of the ends of a TCP channel by a secret that both know.

Each end sends the name of the protocol, and the listener a random number. The writer answers
with one of its own and the HMAC of both, the listener with another HMAC of both, then the
writer with the name of its channel. Until then an end reads no more than 96 bytes from the
other, at most 10 s long, and unpickles nothing.

With TLS, its handshake comes before, and counts for these 10 s. A listener with TLS sees in the
name of the protocol that a writer has none, and drops it at once.
"""

from __future__ import annotations

import hmac
import secrets
from math import inf
from struct import Struct
from time import monotonic

from slotwise.programs.channels.wire import Connected
from slotwise.programs.unknown_peers import GREETING_SECONDS

PROTOCOL = b"slotwise channel 2\n".ljust(32, b"\0")
NONCE_BYTES = HMAC_BYTES = 32
_LENGTH = Struct("<H")


class ImpostorError(Exception):
    """The peer does not know the secret. It never leaves the package."""


class Greeting:
    """The listener's side with one peer, whose socket does not block.

    ends  until when the peer may answer; one that has proved its knowledge has no limit
    """

    def __init__(self, peer: Connected, secret: bytes) -> None:
        self.socket = peer
        self.ends = monotonic() + GREETING_SECONDS
        self._secret = secret
        self._ours = secrets.token_bytes(NONCE_BYTES)
        self._expects, self._have = len(PROTOCOL) + NONCE_BYTES + HMAC_BYTES, b""
        self.is_known = self._has_begun = self._knows_length = False

    def step(self) -> str | None:
        """Take what has come: the name of the channel, or None if more is to come.

        The first step may be taken at once. Raises ImpostorError and OSError.
        """
        while True:
            try:
                if not self._has_begun:
                    _send(self.socket, PROTOCOL + self._ours)
                    self._has_begun = True
                came = self.socket.recv(self._expects - len(self._have))
            except BlockingIOError:
                return None
            if not came:
                raise ImpostorError("it has closed the connection")
            self._have += came
            if len(self._have) == self._expects:
                taken, self._have = self._have, b""
                if not self.is_known:
                    self._check(taken)
                elif not self._knows_length:
                    (self._expects,) = _LENGTH.unpack(taken)
                    self._knows_length = True
                else:
                    return taken.decode("utf-8", "replace")

    def _check(self, answer: bytes) -> None:
        answer = answer[len(PROTOCOL) :]  # Those with another name prove something else.
        theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(self._secret, b"writer", self._ours, theirs)):
            raise ImpostorError("it does not know the secret of the run")
        _send(self.socket, _proof(self._secret, b"reader", self._ours, theirs))
        self.is_known, self.ends, self._expects = True, inf, _LENGTH.size


def greet(peer: Connected, secret: bytes, name: str, ends: float) -> None:
    """The writer's side, until an instant.

    Raises ImpostorError, and OSError: ConnectionError if the peer closes the connection,
    perhaps because this end was too slow.
    """
    peer.settimeout(max(ends - monotonic(), 1e-3))
    peer.sendall(PROTOCOL)
    theirs = _receive(peer, len(PROTOCOL) + NONCE_BYTES, ends)
    if not theirs.startswith(PROTOCOL):
        raise ImpostorError("it is no listener for channels of this version")
    theirs = theirs[len(PROTOCOL) :]
    ours = secrets.token_bytes(NONCE_BYTES)
    peer.sendall(ours + _proof(secret, b"writer", theirs, ours))
    proof = _receive(peer, HMAC_BYTES, ends)
    if not hmac.compare_digest(proof, _proof(secret, b"reader", theirs, ours)):
        raise ImpostorError("it does not know the secret of the run")
    text = name.encode()
    peer.sendall(_LENGTH.pack(len(text)) + text)


def _proof(secret: bytes, role: bytes, reader: bytes, writer: bytes) -> bytes:
    return hmac.digest(secret, PROTOCOL + role + reader + writer, "sha256")


def _send(peer: Connected, data: bytes) -> None:
    """Send a few bytes, for which the buffer of a new connection always has room."""
    if peer.send(data) < len(data):
        raise ImpostorError("it does not read")


def _receive(peer: Connected, size: int, ends: float) -> bytes:
    data = b""
    while len(data) < size:
        peer.settimeout(max(ends - monotonic(), 1e-3))
        came = peer.recv(size - len(data))
        if not came:
            raise ConnectionResetError
        data += came
    return data
