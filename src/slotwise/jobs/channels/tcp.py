"""Channels over TCP, with authentication of both ends by a secret of the run; TLS if wanted."""

from __future__ import annotations

import hmac
import secrets
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING

from slotwise.jobs.channels.carriers import PEER_LOST, BrokenChannelError, hold, release
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.wire import (
    DATA,
    END,
    MESSAGE,
    Connected,
    Wire,
    peer_lost,
    receive_credits,
)
from slotwise.jobs.hosts.sockets import (
    GREETING_SECONDS,
    MAX_UNKNOWN,
    UnknownPeers,
    join_address,
    listening,
    split_address,
)

if TYPE_CHECKING:
    from ssl import SSLContext


PIECE_BYTES = 1 << 20
"""The number of bytes that one message announces at most."""

MAX_PARTS = 512
"""The number of buffers that one system call sends at most."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""A host that does not answer for a minute and a half has gone."""

MAX_TRIES = 3
"""How often a writer connects if the listener breaks off."""

CUT_OFF = (
    "it closed the connection during the authentication, as it does if it does not know the"
    " same secret, or demands TLS"
)


class Listener:
    """Waits for the writers of channels whose readers are in this process."""

    def __init__(self, host: str, secret: bytes, tls: SSLContext | None = None) -> None:
        """With `tls`, writers need a certificate that it accepts, and all is encrypted."""
        self._secret, self._tls = secret, tls
        self._socket = listening(host)
        self._socket.setblocking(False)
        self._greetings: UnknownPeers[Greeting] = UnknownPeers(
            lambda greeting: greeting.socket.close(),
            MAX_UNKNOWN,
            is_known=lambda greeting: greeting.is_known,
        )
        self._early: dict[str, Connected] = {}
        self.address = join_address(*self._socket.getsockname()[:2])
        """What `connect` takes; a host and a port."""
        hold(self)

    def accept(self, names: Iterable[str], timeout: float) -> dict[str, Reader]:
        """The readers of the channels with these names, once all their writers have come.

        A peer that does not know the secret is dropped. Writers with other names wait for a
        later call. Raises BrokenChannelError, naming those that are missing, after `timeout`
        seconds.
        """
        wanted = list(dict.fromkeys(names))
        ends = monotonic() + timeout
        while missing := [name for name in wanted if name not in self._early]:
            now = monotonic()
            if now >= ends:
                raise BrokenChannelError(
                    f"after {timeout:g} s no writer has come to {self.address} for"
                    f" {', '.join(missing)}"
                )
            self._serve(now, ends)
        found = {name: self._early.pop(name) for name in wanted}
        return {name: Reader(_SocketSource(Wire(found[name]))) for name in wanted}

    def close(self) -> None:
        """Accept nobody any more. Channels that were accepted stay."""
        release(self)
        self.forget()

    def forget(self) -> None:
        """Close all descriptors."""
        while self._greetings.drop_oldest():
            pass
        for connected in self._early.values():
            connected.close()
        self._early = {}
        self._socket.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self, now: float, until: float) -> None:
        """Wait for peers, and take one step with each that has sent something."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        for greeting in self._greetings:
            poll.register(greeting.socket, select.POLLIN)
        wakes = min([until, *(greeting.ends for greeting in self._greetings)])
        ready = {number for number, _ in poll.poll(max(0.0, wakes - now) * 1e3 + 1)}
        for greeting in self._greetings:
            if greeting.socket.fileno() in ready:
                self._step(greeting)
        # Only now: while this process was stopped, peers may have answered in time.
        for greeting in [each for each in self._greetings if each.ends <= now]:
            self._drop(greeting)
        if self._socket.fileno() in ready:
            self._take()

    def _take(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except BlockingIOError:
            return
        except ConnectionError:
            return
        except OSError:  # There is no descriptor left.
            if not self._greetings.drop_oldest():
                raise
            return
        peer.setblocking(False)
        try:
            greeting = Greeting(_prepared(peer, self._tls, is_listener=True), self._secret)
        except (OSError, ValueError):  # It is gone.
            peer.close()
            return
        self._greetings.add(greeting)
        self._step(greeting)

    def _step(self, greeting: Greeting) -> None:
        try:
            name = greeting.step()
        except (OSError, ImpostorError):
            self._drop(greeting)
            return
        if name is not None:
            self._greetings.remove(greeting)
            greeting.socket.settimeout(None)
            if name in self._early:  # Its writer has tried again.
                self._early[name].close()
            self._early[name] = greeting.socket

    def _drop(self, greeting: Greeting) -> None:
        greeting.socket.close()
        self._greetings.remove(greeting)


def connect(
    address: str, secret: bytes, name: str, timeout: float, tls: SSLContext | None = None
) -> Writer:
    """The writer of a channel whose reader is at the listener with this address.

    With `tls`, the listener needs it, too, and a certificate that it accepts.
    It returns when both have authenticated each other, perhaps before the listener accepts the
    channel. A listener that breaks off is tried again, because it does so if this process is
    too slow. Raises BrokenChannelError if that takes longer than `timeout` seconds.
    """
    ends, tries = monotonic() + timeout, 0
    while True:
        tries += 1
        left = max(ends - monotonic(), 1e-3)
        try:
            made = socket.create_connection(split_address(address), left)
        except TimeoutError:
            raise BrokenChannelError(f"{address} did not answer within {timeout:g} s") from None
        except OSError as error:
            raise BrokenChannelError(f"{address} cannot be reached: {error}") from None
        connected: Connected = made
        try:
            connected = _prepared(made, tls, is_listener=False)
            greet(connected, secret, name, ends)
            connected.settimeout(None)
        except BaseException as error:
            connected.close()
            if isinstance(error, ConnectionError):
                if tries < MAX_TRIES:
                    continue
                reason = f"{address}, for the channel {name}: {CUT_OFF}"
            elif isinstance(error, TimeoutError):
                reason = f"{address} did not authenticate itself within {timeout:g} s"
            elif isinstance(error, (OSError, ValueError, ImpostorError)):
                reason = f"{address}, for the channel {name}: {error}"
            else:
                raise
            raise BrokenChannelError(reason) from None
        return Writer(_SocketSink(Wire(connected)))


class _SocketSink:
    def __init__(self, line: Wire) -> None:
        self._line = line
        self._is_within = False  # Whether a piece is perhaps sent in part.

    def send(self, parts: Sequence[memoryview[int]]) -> None:
        receive_credits(self._line)
        for piece in _pieces(parts):
            self._push(piece)

    def close(self) -> None:
        try:
            receive_credits(self._line)
            self._send_end()
        finally:
            self._line.close()

    def fail(self, reason: str) -> None:
        # The reader expects the rest of a piece that an exception has interrupted.
        self._line.send_failure(reason, self._is_within * (MESSAGE.size + PIECE_BYTES))
        self._line.close()

    def drop(self) -> None:
        self._line.close()

    def _push(self, piece: list[memoryview[int]]) -> None:
        self._is_within = True
        views = [memoryview(MESSAGE.pack(DATA, sum(map(len, piece)))), *piece]
        while views:
            try:
                count = self._line.socket.sendmsg(views[:MAX_PARTS], [], socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._line.wait_for_room()
                receive_credits(self._line)
                continue
            except OSError as error:
                receive_credits(self._line)
                raise peer_lost(error) from None
            views = _after(views, count)
        self._is_within = False

    def _send_end(self) -> None:
        try:
            self._line.send_message(END)
        except OSError as error:
            receive_credits(self._line)
            raise peer_lost(error) from None


class _SocketSource:
    def __init__(self, line: Wire) -> None:
        self._line = line
        self._piece_left = 0  # The bytes of the current piece that have not been received.

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        while not self._piece_left:  # The writer may be interrupted before it gives a number.
            message = self._line.next_message(before_wait)
            assert message is not None
            kind, self._piece_left = message
            if kind == END:
                return 0
            if kind != DATA or self._piece_left > PIECE_BYTES:
                raise BrokenChannelError(PEER_LOST)
        count = self._line.receive(into[: self._piece_left], before_wait)
        assert count is not None
        self._piece_left -= count
        return count

    def leave(self, failure: str | None) -> None:
        self._line.leave(failure)

    def free(self) -> None:
        self._line.close()


def _pieces(parts: Sequence[memoryview[int]]) -> Iterator[list[memoryview[int]]]:
    """The same bytes in pieces of at most PIECE_BYTES."""
    piece: list[memoryview[int]] = []
    room = PIECE_BYTES
    for part in parts:
        at = 0
        while at < len(part):
            taken = part[at : at + room]
            piece.append(taken)
            at += len(taken)
            room -= len(taken)
            if not room:
                yield piece
                piece, room = [], PIECE_BYTES
    if piece:
        yield piece


def _after(views: list[memoryview[int]], count: int) -> list[memoryview[int]]:
    """What is left of the views after so many bytes."""
    for number, view in enumerate(views):
        if count < len(view):
            return [view[count:], *views[number + 1 :]]
        count -= len(view)
    return []


def _prepared(
    connected: socket.socket, tls: SSLContext | None, *, is_listener: bool
) -> Connected:
    """The socket to use: it sends small batches at once, and notices a host that has gone.

    OSError or ValueError if the peer has gone.
    """
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if tls is None:
        return connected
    from slotwise.jobs.channels.wire import TlsSocket

    return TlsSocket(connected, tls, is_listener=is_listener)


# Mutual authentication of the ends of a TCP channel by a secret that both know.
#
# Each end sends the name of the protocol, and the listener a random number. The writer answers
# with one of its own and the HMAC of both, the listener with another HMAC of both, then the
# writer with the name of its channel. Until then an end reads no more than 96 bytes from the
# other, at most 10 s long, and unpickles nothing.
#
# With TLS, its handshake comes before, and counts for these 10 s. A listener with TLS sees in
# the name of the protocol that a writer has none, and drops it at once.

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
