"""Requests to a server, over HTTP on its unix socket. Only the standard library is needed."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.service.wire import frames, socket_of

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
    """Connections to one server; each thread has its own, which stays open between requests."""

    def __init__(self, url: str | None = None) -> None:
        self.path = socket_of(url)
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
            connection.request(method, _with_query(path, query), data, headers=_HEADERS)
            response = connection.getresponse()
            if response.status >= 400:
                raise _error(response.status, response.read())
            connection.sock.settimeout(None)
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
        """The answer to a request; a connection that has ended since then is renewed."""
        connection = getattr(self._own, "connection", None)
        is_new = connection is None
        if connection is None:
            connection = self._own.connection = self._connected()
        headers = {"Content-Type": kind}
        try:
            connection.request(method, path, body or None, headers=headers)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The server closes idle connections. If it has handled the request, its key, or the
            # names that the client chose, make the second one change nothing.
            if not is_new and isinstance(error, _NOT_HANDLED):
                return self._asked(method, path, body, kind)
            raise self._ended(error) from error
        if response.status >= 400:
            raise _error(response.status, data)
        return json.loads(data)

    def _connected(self) -> http.client.HTTPConnection:
        connection = _UnixConnection(self.path)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoServerError(
                f"no server listens at {self.path}; start one with `slotwise serve`"
            ) from None
        except OSError as error:
            raise NoServerError(
                f"the server at {self.path} cannot be reached: {error.strerror or error}"
            ) from error
        return connection

    def _ended(self, error: BaseException) -> ServerClosedError:
        return ServerClosedError(
            f"the connection to the server at {self.path} has ended"
            f" ({type(error).__name__}); what it had accepted is kept"
        )


_HEADERS = {"Content-Type": "application/json"}

_NOT_HANDLED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


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


def job_path(job: str, *more: str) -> str:
    """The path of a job, or of a part of it."""
    return "/".join(("/v1/jobs", quote(job, safe=""), *more))


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    stated = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(stated)}" if stated else path


def _error(status: int, body: bytes) -> SlotwiseError:
    kind, message = "bug", f"the server answered with status {status}"
    with suppress(ValueError, KeyError, TypeError):
        answer = json.loads(body)["error"]
        kind, message = str(answer["kind"]), str(answer["message"])
    if kind == "input":
        return InputError(message)
    if kind == "missing":
        return MissingJobError(message)
    if kind == "closed":
        return ServerClosedError(message)
    return ServerRefusedError(kind, message)
