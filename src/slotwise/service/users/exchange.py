"""One request of a network while it is answered: what it may receive and send, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import Response

from slotwise.service.answers import refusal
from slotwise.service.users.limits import (
    BODY_BYTES_MAX,
    BODY_BYTES_PER_SECOND,
    BODY_SECONDS,
    UserLoad,
)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of all answers to a network, unless the answer states its own."""


class ExchangeEndedError(Exception):
    """The request ends here, whatever its handler does; the exchange has the answer."""


class Exchange:
    """What a request receives and sends.

    is_valid  whether its user may still ask: an answer that lasts ends when a token is revoked
    """

    def __init__(
        self, receive: Receive, send: Send, load: UserLoad, is_valid: Callable[[], bool]
    ) -> None:
        self._receive, self._send = receive, send
        self._load, self._is_valid = load, is_valid
        self._is_whole, self._is_handled = False, False
        self._began, self._size = time.monotonic(), 0
        self.refusal: Response | None = None
        self.status = 0

    @asynccontextmanager
    async def open(self, *, waits: bool) -> AsyncIterator[None]:
        """Be one of the requests of the user; until its answer begins, one that is handled.

        `waits`: it takes no thread until then.
        """
        load = self._load
        load.requests += 1
        try:
            if not waits:
                await load.handled.acquire()
                self._is_handled, self._began = True, time.monotonic()
            yield
        except Exception:
            if self.refusal is None:
                raise
        finally:
            self._begins()
            load.requests -= 1
            load.bytes -= self._size

    async def receive(self) -> Message:
        """The next piece of the body. ExchangeEndedError if it is too long, or too slow."""
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await self._receive()
        except TimeoutError:
            raise self._refused(408, "slow", "the body has not come in time") from None
        if message["type"] != "http.request":
            return message
        size = len(message.get("body", b""))
        self._size += size
        self._load.bytes += size
        if self._load.bytes > BODY_BYTES_MAX:
            raise self._refused(413, "large", too_large())
        self._is_whole = not message.get("more_body", False)
        late = time.monotonic() - self._began - BODY_SECONDS
        if not self._is_whole and self._size < late * BODY_BYTES_PER_SECOND:
            raise self._refused(408, "slow", "the body comes too slowly")
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer. ExchangeEndedError if the user may no longer have it."""
        if self.refusal is not None:  # Its handler has an answer of its own to this error.
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._begins()
            message = with_security(message)
        elif message.get("more_body") and not self._is_valid():
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            raise self._refused(401, "unauthorized", "the login has ended")
        await self._send(message)

    async def answer(self, scope: Scope, answer: Response) -> None:
        """Send a whole answer that is not of a handler."""
        self.refusal, self._is_valid = None, lambda: True
        await answer(scope, self._receive, self.send)

    def _refused(self, status: int, kind: str, message: str) -> ExchangeEndedError:
        self.refusal = refusal(status, kind, message, {"connection": "close"})
        return ExchangeEndedError(message)

    def _begins(self) -> None:
        if self._is_handled:
            self._is_handled = False
            self._load.handled.release()


def too_large() -> str:
    """Why a body is refused."""
    return (
        f"the bodies of your open requests have more than {BODY_BYTES_MAX >> 20} MiB; send"
        " less, or leave large data in files"
    )


def with_security(message: Message) -> Message:
    """The beginning of an answer with SECURITY_HEADERS."""
    headers = list(message.get("headers", ()))
    stated = {name.lower() for name, _ in headers}
    headers += [one for one in SECURITY_HEADERS if one[0] not in stated]
    return {**message, "headers": headers}
