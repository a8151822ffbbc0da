"""Channels over TCP with mutual authentication by a secret of the run, and optional TLS."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from ssl import SSLContext, SSLEOFError, SSLSocket, SSLWantReadError, SSLWantWriteError
from time import monotonic

from slotwise.jobs.channels.carriers import PEER_LOST, BrokenChannelError, hold, release
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.wire import (
    DATA,
    END,
    MESSAGE,
    Wire,
    peer_lost,
    receive_credits,
)
from slotwise.jobs.hosts import auth
from slotwise.jobs.hosts.auth import CutOffError, RefusedError
from slotwise.jobs.hosts.messages import MessageError, run
from slotwise.jobs.hosts.sockets import (
    GREETING_SECONDS,
    MAX_UNKNOWN,
    UnknownPeers,
    join_address,
    listening,
    repeated,
    split_address,
)

PIECE_BYTES = 1 << 20
"""The maximum number of bytes that one message announces."""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
"""The connection to a host that does not answer for a minute and a half is closed."""

MAX_TRIES = 3
"""How often a writer tries to connect if the listener closes the connection."""

CUT_OFF = (
    "it closed the connection during authentication, as it does if it does not know the same"
    " secret, or if only one side has TLS"
)


class Listener:
    """Waits for the writers of channels whose readers are in this process."""

    def __init__(self, host: str, secret: bytes, tls: SSLContext | None = None) -> None:
        """With `tls`, writers need a certificate that it accepts, and all data is encrypted."""
        self._secret, self._tls = secret, tls
        self._socket = listening(host)
        self._socket.setblocking(False)
        self._greetings: UnknownPeers[Greeting] = UnknownPeers(
            lambda peer: peer.socket.close(), MAX_UNKNOWN, is_known=lambda peer: peer.is_known
        )
        self._early: dict[str, socket.socket] = {}
        self.address = join_address(*self._socket.getsockname()[:2])
        """What `connect` takes; a host and a port."""
        hold(self)

    def accept(self, names: Iterable[str], timeout: float) -> dict[str, Reader]:
        """Wait for the writers of the channels with these names, and return the readers.

        A peer that does not know the secret is dropped. Writers with other names are kept for a
        later call. Raises BrokenChannelError, naming the missing channels, after `timeout`
        seconds.
        """
        wanted = list(dict.fromkeys(names))
        ends = monotonic() + timeout
        while missing := [name for name in wanted if name not in self._early]:
            now = monotonic()
            if now >= ends:
                raise BrokenChannelError(
                    f"no writer has connected to {self.address} within {timeout:g} s for"
                    f" {', '.join(missing)}"
                )
            self._serve(now, ends)
        found = {name: self._early.pop(name) for name in wanted}
        return {name: Reader(_SocketSource(Wire(found[name]))) for name in wanted}

    def close(self) -> None:
        """Stop listening. Accepted channels stay open."""
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
        # Only now: if this process was suspended, peers may have answered in time.
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
        except OSError:  # No file descriptor is left.
            if not self._greetings.drop_oldest():
                raise
            return
        try:
            _prepared(peer)
            if self._tls is not None:
                peer = auth.secured(peer, self._tls, is_agent=True)
            peer.setblocking(False)
            greeting = Greeting(peer, self._secret)
        except (OSError, ValueError):  # The peer has closed the connection.
            peer.close()
            return
        self._greetings.add(greeting)
        self._step(greeting)

    def _step(self, greeting: Greeting) -> None:
        try:
            name = greeting.step()
        except (OSError, EOFError, MessageError, RefusedError):
            self._drop(greeting)
            return
        if name is not None:
            self._greetings.remove(greeting)
            greeting.socket.settimeout(None)
            if name in self._early:  # Its writer has connected again.
                self._early[name].close()
            self._early[name] = greeting.socket

    def _drop(self, greeting: Greeting) -> None:
        greeting.socket.close()
        self._greetings.remove(greeting)


def connect(
    address: str, secret: bytes, name: str, timeout: float, tls: SSLContext | None = None
) -> Writer:
    """Connect to a listener, and return the writer of the channel with this name.

    Returns after mutual authentication, perhaps before the listener accepts the channel. With
    `tls`, the listener needs it, too, and a certificate that it accepts. If the listener closes
    the connection, as it does if this process is too slow, connecting is retried. Raises
    BrokenChannelError after `timeout` seconds.
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
        connected = made
        try:
            _prepared(made)
            if tls is not None:
                connected = auth.secured(made, tls, is_agent=False)
                assert isinstance(connected, SSLSocket)
                connected.settimeout(max(ends - monotonic(), 1e-3))
                connected.do_handshake()
            run(connected, auth.greeting({ROLE: secret}, {"name": name}, ROLE), ends)
            connected.settimeout(None)
        except BaseException as error:
            connected.close()
            if isinstance(error, ConnectionError | EOFError | SSLEOFError | CutOffError):
                if tries < MAX_TRIES:
                    continue
                reason = f"{address}, for the channel {name}: {CUT_OFF}"
            elif isinstance(error, TimeoutError):
                reason = f"{address} did not authenticate itself within {timeout:g} s"
            elif isinstance(error, MessageError):
                reason = f"{address}, for the channel {name}: it is not a listener for channels"
            elif isinstance(error, OSError | ValueError | RefusedError):
                reason = f"{address}, for the channel {name}: {error}"
            else:
                raise
            raise BrokenChannelError(reason) from None
        return Writer(_SocketSink(Wire(connected)))


class _SocketSink:
    def __init__(self, line: Wire) -> None:
        self._line = line
        self._is_within = False  # Whether a piece may be sent in part.

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
                count = self._line.send_some(views)
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
        self._piece_left = 0  # The bytes of the current piece to receive.

    def receive(self, into: memoryview[int], before_wait: Callable[[], None]) -> int:
        while not self._piece_left:  # A piece may be empty if its writer was interrupted.
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
    """Split the bytes into pieces of at most PIECE_BYTES."""
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
    """Return the views without their first `count` bytes."""
    for number, view in enumerate(views):
        if count < len(view):
            return [view[count:], *views[number + 1 :]]
        count -= len(view)
    return []


def _prepared(connected: socket.socket) -> None:
    """Let the socket send small batches at once, and detect lost hosts. Raises OSError."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# The greeting of the package (`hosts.auth`), by a secret of the run, also with TLS. Both sides
# check the secret before the writer sends the name of its channel. The TLS handshake comes
# before this, and counts for the same time. A listener with TLS drops a writer without it at
# once, because its first bytes are not TLS.

ROLE = "writer"


class Greeting:
    """The listener's side of the greeting of one peer, whose socket does not block.

    ends  the deadline for answers of the peer; infinite once it is authenticated
    """

    def __init__(self, peer: socket.socket, secret: bytes) -> None:
        self.socket = peer
        self.ends = monotonic() + GREETING_SECONDS
        self._steps = auth.greeting({ROLE: secret}, {})
        self._wanted = next(self._steps)
        self._have = b""
        self._sent = 0

    def step(self) -> str | None:
        """Read available bytes; return the name of the channel once complete, else None.

        May be called at once. Raises RefusedError, MessageError, EOFError and OSError.
        """
        while True:
            try:
                if isinstance(self._wanted, bytes):
                    self._send(self._wanted)
                    self._wanted = next(self._steps)
                    continue
                if missing := self._wanted - len(self._have):
                    came = repeated(self.socket.recv, missing)
                    if not came:
                        raise EOFError
                    self._have += came
                if len(self._have) == self._wanted:
                    have, self._have = self._have, b""
                    self._wanted = self._steps.send(have)
            except (BlockingIOError, SSLWantReadError, SSLWantWriteError):
                return None
            except StopIteration as done:
                return str(done.value.get("name"))

    @property
    def is_known(self) -> bool:
        """Whether the peer has proved that it knows the secret: only then is the proof sent."""
        return self._sent > 1

    def _send(self, data: bytes) -> None:
        """Send a few bytes; the buffer of a new connection always has room for them."""
        if repeated(self.socket.send, data) < len(data):
            raise RefusedError("it does not read")
        self._sent += 1
        if self.is_known:
            self.ends = inf
