"""Connections from a network: TLS, how many there may be, and how slow they may be."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from slotwise.core.errors import InputError
from slotwise.service.settings import NetworkSettings
from slotwise.service.users.limits import group_of

HEADER_SECONDS = 10.0
"""How long the headers of a request may take, and the handshake of TLS."""

UNREAD_SECONDS = 60.0
"""How long a client may read nothing of an answer."""

IDLE_SECONDS = 75.0
"""How long a connection without a request stays open."""

HEADER_BYTES_MAX = 32 << 10
"""The longest headers of a request."""

BACKLOG = 256
"""The connections that the system keeps until they are accepted."""


class NetworkProtocol(H11Protocol):
    """Serves HTTP to other hosts, and closes the connections of those that are too slow.

    How slow a body may be is limited where it is read.
    """

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Expect the headers of a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take data. What begins a request must complete its headers in time."""
        if self._late is None and self._must_come_soon():
            self._expect()
        super().data_received(data)
        if self._late is not None and not self._must_come_soon():
            self._late.cancel()
            self._late = None

    def pause_writing(self) -> None:
        """Wait for the client to read, at most for UNREAD_SECONDS."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._has_read()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, even if the client has not read the last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        if self._late is not None:
            self._late.cancel()
        self._has_read()
        super().connection_lost(exc)

    def _has_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _must_come_soon(self) -> bool:
        """Whether headers are expected, or the rest of a body that nobody wants any more."""
        state = self.conn.their_state
        return state is h11.IDLE or (
            state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
        )

    def _expect(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.abort)


class NetworkListener:
    """Accepts connections at an address, and gives them to a server."""

    def __init__(self, network: NetworkSettings) -> None:
        """Listen. InputError if the address or the certificate cannot be used."""
        self._network = network
        self._tls = tls_context(network)
        self._socket = _bound(network)
        self._open: Counter[str] = Counter()
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self, app: Any, state: ServerState, most: int) -> None:
        """Accept connections from now on, for an application.

        They belong to the server with this state. At most `most` are open at once, and half of
        them from one address.
        """
        self._state, self._most = state, most
        self._config = uvicorn.Config(
            app,
            interface="asgi3",
            proxy_headers=False,  # A client may state any address in these.
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=NetworkProtocol,
            timeout_keep_alive=int(IDLE_SECONDS),
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            server_header=False,
        )
        self._config.load()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def port(self) -> int:
        """The port where it listens."""
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The beginning of its URLs."""
        return self._network.url(self.port)

    @property
    def count(self) -> int:
        """The connections that are open."""
        return self._open.total()

    def stop(self) -> None:
        """Accept no more; the server closes the connections that are open."""
        for task in (self._accepting, *self._handshakes):
            if task is not None:
                task.cancel()
        self._socket.close()

    def renew(self, network: NetworkSettings) -> None:
        """Read the certificate again, for later connections. InputError changes nothing."""
        tls_context(network)
        if self._tls is not None:
            _load(self._tls, network)
        self._network = network

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, place = await loop.sock_accept(self._socket)
            except OSError:  # No descriptor is left; some connections will end.
                await asyncio.sleep(0.1)
                continue
            address = group_of(str(place[0]))
            if self.count >= self._most or self._open[address] >= max(1, self._most // 2):
                connection.close()
                continue
            self._open[address] += 1
            task = loop.create_task(self._begin(connection, address))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _begin(self, connection: socket.socket, address: str) -> None:
        """Make a connection one of the server's, after the handshake of TLS."""
        loop, is_begun = asyncio.get_running_loop(), False

        def protocol() -> NetworkProtocol:
            return _Counted(self._config, self._state, {}, loop, lambda: self._end(address))

        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HEADER_SECONDS if self._tls else None,
            )
            is_begun = True
        except (OSError, ssl.SSLError):
            pass  # It did not speak TLS, or was too slow.
        finally:
            if not is_begun:
                connection.close()
                self._end(address)

    def _end(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]


class _Counted(NetworkProtocol):
    """It says when its connection has ended."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(config, state, app_state, loop)
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
        super().connection_lost(exc)


def tls_context(network: NetworkSettings) -> ssl.SSLContext | None:
    """How connections are encrypted; None if they are not. InputError for a wrong file."""
    if network.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, network)
    return context


def _load(context: ssl.SSLContext, network: NetworkSettings) -> None:
    assert network.certificate is not None
    try:
        context.load_cert_chain(network.certificate, network.key)
    except (OSError, ssl.SSLError) as error:
        both = _named(network.certificate, network.key)
        raise InputError(
            f"{both} cannot be used ({error.strerror or error}); give PEM files of a"
            " certificate and its key"
        ) from None


def _named(certificate: Path, key: Path | None) -> str:
    return f"certificate {str(certificate)!r}" + (f" with key {str(key)!r}" if key else "")


def _bound(network: NetworkSettings) -> socket.socket:
    """A socket that listens. InputError for an address that cannot be used."""
    place = f"{network.host}:{network.port}"
    try:
        found = socket.getaddrinfo(
            network.host, network.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(found[0][0], socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"listen is {place}: {error.strerror or error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            if listening.family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(found[0][4])
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise InputError(
            f"listen is {place}: {error.strerror or error}; name another address or port"
        ) from None
    return listening
