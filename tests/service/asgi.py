"""Requests to an ASGI application, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotwise.service.users.guard import App, Message


@dataclass
class Answer:
    """What an application has answered."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        """The cookie that it sets, as a browser sends it."""
        return self.headers["set-cookie"].partition(";")[0]


def asked(
    app: App,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | Mapping[str, Any] = b"",
    *,
    host: str | None = "localhost:8443",
    address: str = "192.0.2.7",
) -> Answer:
    """The answer to one request."""
    path, _, query = target.partition("?")
    stated = {**({} if host is None else {"host": host}), **(headers or {})}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in stated.items()],
        "client": (address, 40000),
        "server": ("127.0.0.1", 8443),
        "state": {},
    }
    answer, messages = Answer(), [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return answer
