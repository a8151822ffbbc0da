"""The page that shows a scheduler: its files, and the stream of what happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nsmallest
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from slotwise import __version__
from slotwise.service.engine.engine import Engine
from slotwise.service.page.page_source import ROWS_MAX, CoreSource, OwnJob
from slotwise.service.page.page_stream import PageHub
from slotwise.service.settings import HELD
from slotwise.service.users.access import User
from slotwise.service.users.exchange import SECURITY_HEADERS

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The media types of the files of the page."""

HEADERS = {name.decode(): value.decode() for name, value in SECURITY_HEADERS} | {
    "cache-control": "no-cache"
}
"""Also where no guard adds them, as on the socket."""

STREAM_HEADERS = {**HEADERS, "cache-control": "no-store", "x-accel-buffering": "no"}
"""The second one is for proxies, which would keep events until they have many."""


class EngineSource(CoreSource):
    """The page of a service."""

    def __init__(self, engine: Engine, state: Callable[[], str]) -> None:
        """`state` is what the server does, such as `running`."""
        super().__init__(engine.core, socket.gethostname(), HELD)
        self._engine, self._state = engine, state

    def about(self) -> dict[str, Any]:
        """See `PageSource`."""
        can = ["submit", "cancel", "hold", "explain", "logs", "history", "what-if"]
        return {"kind": "service", "title": self._title, "version": __version__, "can": can}

    def snapshot(self, users: Collection[str]) -> Any:
        """See `PageSource`."""
        found = super().snapshot(users)
        found.sections["facts"]["state"] = self._state()
        return found

    def own(self, users: Collection[str]) -> Mapping[str, Sequence[OwnJob]]:
        """See `CoreSource`."""
        jobs: dict[str, list[Any]] = {user: [] for user in users}
        for record in self._engine.open_jobs():
            if (of_user := jobs.get(record.user or "")) is not None:
                of_user.append(record)
        return {
            user: [
                OwnJob(one.id, one.name, one.submitted, one.pool)
                for one in nsmallest(ROWS_MAX, found, key=lambda one: one.number)
            ]
            for user, found in jobs.items()
        }


def page_routes(hub: PageHub) -> list[Route]:
    """The routes of the page, its files and its stream."""
    folder = files("slotwise.service.page").joinpath("assets")
    assets = {
        one.name: (one.read_bytes(), KINDS[os.path.splitext(one.name)[1]])
        for one in folder.iterdir()
        if os.path.splitext(one.name)[1] in KINDS
    }

    def answer(name: str) -> Response:
        if name not in assets:
            return Response("not found", 404, HEADERS, "text/plain")
        content, kind = assets[name]
        return Response(content, headers=HEADERS, media_type=kind)

    async def page(request: Request) -> Response:
        return answer("index.html")

    async def asset(request: Request) -> Response:
        return answer(request.path_params["name"])

    async def stream(request: Request) -> Response:
        user: User = request.state.user
        return StreamingResponse(
            hub.stream(user.name),
            headers=STREAM_HEADERS,
            media_type="text/event-stream; charset=utf-8",
        )

    return [
        Route("/", page),
        Route("/page/{name}", asset),
        Route("/v1/stream", stream),
    ]
