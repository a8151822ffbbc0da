"""The page of a session: a server at a port of this machine that ends with the session."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import webbrowser
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from slotwise.backends.attempt_logs import AttemptFile, file_name, files_of_job
from slotwise.core.errors import InputError, SlotwiseError
from slotwise.forecast.eta import Eta
from slotwise.insight.explanation import explanation_lines
from slotwise.running import account
from slotwise.service.answers import PlainResponse, refusal
from slotwise.service.engine.following import output_of
from slotwise.service.page.page import page_routes
from slotwise.service.page.page_source import CoreSource
from slotwise.service.page.page_stream import PageHub
from slotwise.service.users.access import own_user
from slotwise.service.users.guard import Guard, GuardRules
from slotwise.service.users.logins import logins_of
from slotwise.sessions.intake import SessionCore
from slotwise.sessions.what_if import Asked, change_of, plain_answer

START_SECONDS, END_SECONDS = 10.0, 2.0
"""How long the start of the server may take, and how long its end is awaited."""

STATES = {"completed": "done"}
"""The states of a session that the page shows by other names."""

NUMBERS = ("tasks", "tasks_done", "tasks_running", "slots")
"""The keys of the numbers of a job."""

LIST_MAX = 1_000
"""The most jobs in one list."""


class SessionSource(CoreSource):
    """What the page shows of a session, and asks it to do."""

    def about(self) -> dict[str, Any]:
        """See `PageSource`."""
        can = ["cancel", "explain", "logs", "history", "what-if"]
        return {"kind": "session", "title": self._title, "can": can}

    def jobs(self, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of the jobs that are not over and of the last that ended, as of a service."""
        found = listed(self._core.ask(lambda: list(self._rows())), query)
        return with_etas(found, self._core.etas)

    def explained(self, name: str) -> dict[str, Any]:
        """Why a job holds no more slots."""
        found = self._core.explain(name)
        return {"job": name, "text": "\n".join(explanation_lines(found, is_now=True))}

    def cancel(self, name: str) -> None:
        """Cancel a job; no effect on one that is over."""
        self._core.cancel_job(name)

    def what_if(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """What another pool, scheduler or host would do. InputError as of the session."""
        core = self._core
        given = {key: stated[key] for key in Asked._fields if stated.get(key)}
        found = core.forecasts.what_if(change_of(core, (), Asked(**given)))
        return plain_answer(found.moved(time.time() - core.now))

    def files(self, name: str) -> Iterator[tuple[int, AttemptFile]]:
        """The files with the output of a job."""
        logs = self._core.opened.logs
        found = files_of_job(Path(logs.folder) / file_name(name)) if logs else ()
        return ((0, one) for one in sorted(found, key=lambda one: one[1:5]))

    def is_over(self, name: str) -> bool:
        """Whether a job is over."""
        return self._core.ask(lambda: not self._core.state.phases_of(name))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """The jobs in order of arrival; those that are over first."""
        epoch, state, views = self._reader.epoch, self._core.state, self._core.views

        def instant(at: float | None) -> float | None:
            return None if at is None else round(epoch + at, 3)

        ended = [(one.job, one.life, one.state, one.at, one.why) for one in views.ended()]
        live = [(name, life, "", None, None) for name, life in views.lives()]
        for name, life, ending, at, why in (*ended, *live):
            numbers = (life.tasks, life.done, 0, 0)
            found = STATES.get(ending, ending)
            if at is None:
                numbers = self._reader.numbers(name)
                waits = "waiting" if name in state.awaiting_jobs else "queued"
                found = "running" if numbers[2] else waits
            yield {
                "id": name,
                "name": "",
                "user": "",
                "pool": life.pool,
                "state": found,
                "reason": why or "",
                "submitted": instant(life.arrival),
                "begun": instant(life.started),
                "ended": instant(at),
                **dict(zip(NUMBERS, numbers, strict=True)),
                **{"tasks_failed": life.raised, "code": None, "after": [], "held": False},
                **{"priority": "", "weight": 1.0, "deadline": None, "output": None},
            }


def listed(rows: Iterable[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """What `GET /v1/jobs` answers, of jobs in order of arrival."""
    states = set(filter(None, query.get("state", "").split(",")))
    limit, skip = (int(query.get(name) or 0) for name in ("limit", "offset"))
    limit, is_oldest = min(limit or 100, LIST_MAX), query.get("order") == "oldest"
    wanted = [
        row
        for row in rows
        if (not states or row["state"] in states)
        and query.get("pool", row["pool"]) == row["pool"]
        and query.get("ids", row["id"]) == row["id"]
        and query.get("search", "") in row["id"]
    ]
    if (key := query.get("sort")) in ("begun", "ended", "pool"):
        wanted.sort(key=lambda row: (row[key] is not None, row[key]))
    if not is_oldest:
        wanted.reverse()
    found = wanted[skip : skip + limit]
    return {"jobs": found if is_oldest else found[::-1], "more": len(wanted) > skip + limit}


def with_etas(
    found: dict[str, Any], etas: Callable[[Iterable[str]], Mapping[str, Eta]]
) -> dict[str, Any]:
    """Rows of jobs with their forecasts, which `etas` has in Unix seconds."""
    known = etas([row["id"] for row in found["jobs"] if row["ended"] is None])
    for row in found["jobs"]:
        eta = known.get(row["id"])
        row["eta"] = None if eta is None else eta.to_plain()
    return found


Handler = Callable[[Request], Awaitable[Response]]


def _answering(handler: Handler) -> Handler:
    @wraps(handler)
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (SlotwiseError, RuntimeError, ValueError) as error:
            return refusal(400, "input", str(error))

    return answer


def session_app(source: Any, hub: PageHub) -> Starlette:
    """The routes of the page of a session, as of a service; of others, those that they can."""

    async def jobs(request: Request) -> Response:
        return PlainResponse(await run_in_threadpool(source.jobs, request.query_params))

    async def one(request: Request) -> Response:
        found = await run_in_threadpool(source.jobs, {"ids": _name(request)})
        if not found["jobs"]:
            return refusal(404, "missing", f"job {_name(request)!r} is not known any more")
        return PlainResponse({**found["jobs"][0], "tasks_listed": []})

    async def explain(request: Request) -> Response:
        return PlainResponse(await run_in_threadpool(source.explained, _name(request)))

    async def cancel(request: Request) -> Response:
        await run_in_threadpool(source.cancel, _name(request))
        return PlainResponse({"id": _name(request)})

    async def what_if(request: Request) -> Response:
        stated = await request.json()
        if not isinstance(stated, dict):
            raise InputError("the body is not an object of JSON; send one")
        return PlainResponse(await run_in_threadpool(source.what_if, stated))

    async def logs(request: Request) -> Response:
        name, query = _name(request), request.query_params
        pieces = output_of(
            lambda: source.files(name),
            lambda: source.is_over(name),
            asyncio.sleep,
            follows=query.get("follow") == "1",
            tail=int(query.get("tail") or 0),
        )
        return StreamingResponse(pieces, media_type="application/octet-stream")

    job, can = "/v1/jobs/{job:path}", source.about()["can"]
    routes = {
        "history": Route("/v1/jobs", _answering(jobs)),
        "explain": Route(f"{job}/explain", _answering(explain)),
        "logs": Route(f"{job}/logs", _answering(logs)),
        "what-if": Route("/v1/what-if", _answering(what_if), methods=["POST"]),
        "cancel": Route(f"{job}/cancel", _answering(cancel), methods=["POST"]),
    }
    able = [route for name, route in routes.items() if name in can]
    return Starlette(routes=[*page_routes(hub), *able, Route(job, _answering(one))])


def _name(request: Request) -> str:
    return str(request.path_params["job"])


class LoopbackPage:
    """A server of a page in a thread, for the account of this process only.

    `source` is what is shown, `app` makes the application for its hub.
    """

    def __init__(
        self, source: Any, app: Callable[[Any, PageHub], Starlette], port: int = 0
    ) -> None:
        """InputError for a port that is in use, or not allowed."""
        listening = socket.socket()
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as error:
            listening.close()
            raise InputError(f"port {port} cannot be used for the page: {error}") from error
        listening.listen(64)
        self._listening, self.port = listening, listening.getsockname()[1]
        me = own_user(account() or "user")
        self._user, self._logins = me, logins_of({me.name: me})
        self._source, self._app = source, app
        self._thread = threading.Thread(target=self._serve, name="slotwise page", daemon=True)
        self._started = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread.start()
        self._started.wait(START_SECONDS)

    def link(self) -> str:
        """A URL with a code that one browser can use, within five minutes."""
        code = self._logins.new_code(self._user.name)
        return f"http://127.0.0.1:{self.port}/login?code={code}"

    def show(self, opens: bool) -> str:
        """A link, which the browser of this machine opens if it is asked to."""
        link = self.link()
        if opens:
            webbrowser.open(link)
        return link

    def close(self) -> None:
        """End the server. Idempotent; may be called from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    def join(self) -> None:
        """Wait for the end of the server, for some seconds at most."""
        self._thread.join(END_SECONDS)

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        hub = PageHub(self._source)
        guard = Guard(self._app(self._source, hub), GuardRules(port=self.port), self._logins)
        config = uvicorn.Config(
            guard,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = server = uvicorn.Server(config)
        snapshots = asyncio.create_task(hub.run())
        ending = asyncio.create_task(_ends(server, hub))
        self._started.set()
        with self._listening:
            await server.serve([self._listening])
        for task in (snapshots, ending):
            task.cancel()


async def _ends(server: uvicorn.Server, hub: PageHub) -> None:
    """Close the streams as soon as the server is to end, which waits for them."""
    while not server.should_exit:
        await asyncio.sleep(0.1)
    await hub.close()


def open_session_page(core: SessionCore, port: int) -> LoopbackPage:
    """The page of a session, which is served from now on."""
    title = f"session since {time.strftime('%H:%M', time.localtime(time.time() - core.now))}"
    return LoopbackPage(SessionSource(core, title), session_app, port)
