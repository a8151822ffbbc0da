"""Requests to a server, over HTTP on its unix socket or on a network.

Only the standard library is needed.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from slotwise.core.errors import InputError, PromiseRefused, SlotwiseError
from slotwise.service.wire import ServerPlace, frames, server_place

if TYPE_CHECKING:
    from slotwise.service.clients.credentials import Credential

BUSY_SECONDS = 60.0
"""How long requests are repeated that the server has no time for."""

CONNECT_SECONDS = 10.0
"""How long a connection to the socket may take."""


class NoServerError(SlotwiseError):
    """No server listens at the socket."""


class MissingJobError(InputError):
    """The server has no job with this id."""


class ServerClosedError(SlotwiseError):
    """The server is draining, or the connection to it has ended."""


class ServerRefusedError(SlotwiseError):
    """The server could not do what was asked; `kind` is one of those of the interface."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Transport:
    """Connections to one server; each thread has its own, which stays open between requests.

    credential  the token for a server on a network; by default the one that is stored
    """

    def __init__(self, url: str | None = None, credential: Credential | None = None) -> None:
        self.place = server_place(url)
        self._headers, self._ca, self._variable = {}, None, ""
        if self.place.is_network:
            from slotwise.service.clients.credentials import credential_for

            found = credential_for(str(self.place)) if credential is None else credential
            self._headers = {"Authorization": f"Bearer {found.token}"}
            self._ca, self._variable = found.ca, found.variable
        self._own = threading.local()
        self._streams: set[http.client.HTTPConnection] = set()

    def get(self, path: str, **query: Any) -> Any:
        """The JSON that the server answers; queries that are None are left out."""
        return self._asked("GET", _with_query(path, query), b"", "application/json")

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send JSON; the JSON that the server answers."""
        return self._asked("POST", path, json.dumps(body or {}).encode(), "application/json")

    def post_frames(self, path: str, body: bytes) -> Any:
        """Send frames; the JSON that the server answers."""
        return self._asked("POST", path, body, "application/octet-stream")

    def stream(
        self, path: str, body: Mapping[str, Any] | None = None, **query: Any
    ) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """The frames that the server sends, as they come; GET without a body, else POST.

        It has a connection of its own, which closing the iterator ends.
        """
        connection = self._connected()
        self._streams.add(connection)
        try:
            data = None if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request(method, _with_query(path, query), data, headers=headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise self._error(response.status, response.read())
            yield from frames(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._ended(error) from error
        finally:
            self._streams.discard(connection)
            connection.close()

    def end_streams(self) -> None:
        """Let the streams of all threads end now."""
        for connection in list(self._streams):
            with suppress(OSError, AttributeError):  # It may have just been closed.
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection of this thread."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def _asked(self, method: str, path: str, body: bytes, kind: str) -> Any:
        """The answer to a request, which is made again if the server is busy."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            response, data = self._answered(method, path, body, kind)
            if response.status < 400:
                return json.loads(data)
            error = self._error(response.status, data)
            is_busy = isinstance(error, ServerRefusedError) and error.kind == "busy"
            if not is_busy or time.monotonic() > until:
                raise error
            stated = response.getheader("Retry-After", "1")
            time.sleep(min(5.0, float(stated) if stated.isdecimal() else 1.0))

    def _answered(
        self, method: str, path: str, body: bytes, kind: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """A response; a connection that has ended since the last one is renewed."""
        connection = getattr(self._own, "connection", None)
        is_new = connection is None
        if connection is None:
            connection = self._own.connection = self._connected()
        headers = {**self._headers, "Content-Type": kind}
        try:
            try:
                connection.request(method, path, body or None, headers=headers)
            except (BrokenPipeError, ConnectionResetError):
                if not (is_new and self.place.is_network):
                    raise  # Else it may have refused the body before the end.
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The server closes idle connections. If it has handled the request, its key, or the
            # names that the client chose, make the second one change nothing.
            if is_new or not _is_end(error):
                raise self._ended(error) from error
            try:
                return self._answered(method, path, body, kind)
            except NoServerError as none:  # The one that has ended may return.
                raise ServerClosedError(str(none)) from none
        return response, data

    def _connected(self) -> http.client.HTTPConnection:
        place = self.place
        try:
            if place.path is not None:
                connection: http.client.HTTPConnection = _UnixConnection(place.path)
                connection.connect()
            else:
                connection = _network_connection(place, self._ca)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoServerError(
                f"no server listens at {place}; start one with `slotwise serve`"
            ) from None
        except OSError as error:
            raise NoServerError(
                f"the server at {place} cannot be reached: {error.strerror or error}"
                f"{_remedy(place, error)}"
            ) from error
        return connection

    def _error(self, status: int, body: bytes) -> SlotwiseError:
        error = _error(status, body)
        if status != 401 or not self._variable:
            return error
        what = str(error).partition(";")[0]
        remedy = f"{self._variable} states it, before what is stored: correct or unset that"
        return ServerRefusedError("unauthorized", f"{what}; {remedy}")

    def _ended(self, error: BaseException) -> ServerClosedError:
        return ServerClosedError(
            f"the connection to the server at {self.place} has ended"
            f" ({type(error).__name__}); what it had accepted is kept"
        )


_ENDS = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


def _is_end(error: Exception) -> bool:
    """Whether the other side has closed the connection before it has answered."""
    is_of_tls = type(error).__name__ in ("SSLEOFError", "SSLZeroReturnError")  # Slow to load.
    return is_of_tls or isinstance(error, _ENDS)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(CONNECT_SECONDS)
            self.sock.connect(str(self._path))
            self.sock.settimeout(None)
        except BaseException:
            self.sock.close()
            raise


def _network_connection(place: ServerPlace, ca: str | None) -> http.client.HTTPConnection:
    """A connection that is open, and notices when the other host has left. OSError.

    InputError if the authority cannot be read.
    """
    connection: http.client.HTTPConnection
    if place.is_secure:
        import ssl

        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise InputError(
                f"the authority {ca!r} cannot be read: {error.strerror or error};"
                f" `slotwise login {place} --ca FILE` names another"
            ) from error
        connection = http.client.HTTPSConnection(
            place.host, place.port, timeout=CONNECT_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(place.host, place.port, timeout=CONNECT_SECONDS)
    connection.connect()
    sock = connection.sock
    sock.settimeout(None)  # Some answers take minutes.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _remedy(place: ServerPlace, error: OSError) -> str:
    """What to do after an error of TLS, with a semicolon; empty for others."""
    if not place.is_secure:
        return ""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"; `slotwise login {place} --ca FILE` names its authority"
    elif isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"; without TLS it is at http://{str(place).partition('://')[2]}"
    return ""


_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""The numbers by which OpenSSL says that nobody it knows has signed a certificate."""

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def job_path(job: str, *more: str) -> str:
    """The path of a job, or of a part of it."""
    return "/".join(("/v1/jobs", quote(job, safe=""), *more))


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    stated = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(stated)}" if stated else path


def _error(status: int, body: bytes) -> SlotwiseError:
    kind, message, earliest = "bug", f"the server answered with status {status}", None
    with suppress(ValueError, KeyError, TypeError):
        answer = json.loads(body)["error"]
        kind, message = str(answer["kind"]), str(answer["message"])
        earliest = answer.get("earliest")
    if kind == "input":
        return InputError(message)
    if kind == "promise":
        return PromiseRefused(message, earliest)
    if kind == "missing":
        return MissingJobError(message)
    if kind == "closed":
        return ServerClosedError(message)
    return ServerRefusedError(kind, message)
