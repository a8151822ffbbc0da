"""The HTTP interface of a service, version 1; docs/service-interface.md describes it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from slotwise import __version__
from slotwise.core.errors import InputError, PromiseRefused, SlotwiseError, shown, suggestion
from slotwise.service.answers import PlainResponse, refusal
from slotwise.service.engine.calls import CallFrames, Frame
from slotwise.service.engine.engine import (
    OVER,
    Engine,
    MissingError,
    OverError,
)
from slotwise.service.engine.following import followed
from slotwise.service.engine.hub import HubListener, of_client, of_job
from slotwise.service.engine.retention import forget_output
from slotwise.service.engine.rights import (
    LimitError,
    check_sees,
    check_submits,
    may_see,
    row_for,
    scoped,
)
from slotwise.service.engine.submitting import ACTIONS, JobSubmitter, Submission
from slotwise.service.engine.what_if import WhatIfs
from slotwise.service.http import views
from slotwise.service.http.telemetry import telemetry_routes
from slotwise.service.page.page import EngineSource, page_routes
from slotwise.service.page.page_stream import PageHub
from slotwise.service.settings import environment_of
from slotwise.service.store.records import StoredJob
from slotwise.service.store.schema import StoreError
from slotwise.service.store.store import SORTS
from slotwise.service.users.access import ForbiddenError, Role, User
from slotwise.service.users.guard import address_of
from slotwise.service.wire import API, frame, frames

BODY_BYTES_MAX = 4 << 30
"""The longest body of a request."""

JSON_BYTES_MAX = 16 << 20
"""The longest JSON from a network: its objects take up to 25 times the memory, and nothing else
is done while it is parsed."""

WAIT_SECONDS_MAX = 600.0
"""The longest time for which a request waits for the end of a job."""

ETA_SECONDS_MAX, ETA_POLL_SECONDS = 60.0, 0.1
"""The longest time for which a request waits for the first forecast of a job, and the time
between two looks, which ask nothing of the loop."""

BEAT_SECONDS = 15.0
"""Seconds without news after which a stream sends a frame that says so."""

LIST_MAX = 10_000
"""The most jobs in one list."""

DIGITS_MAX = 15
"""The most digits of a number in a query."""

WHAT_IF: Mapping[str, type] = {
    **{"pools": dict, "scheduler": str},
    **{"hosts": list, "without_hosts": list},
}
"""The keys of a change that is asked about, beside `jobs`, and their types."""

T = TypeVar("T")
Routes = TypeVar("Routes")
"""A class whose methods take a request."""


class ClosedError(SlotwiseError):
    """The server accepts nothing now."""


class LargeError(SlotwiseError):
    """A body is longer than it may be."""


STATUS = {
    ClosedError: (503, "closed"),
    MissingError: (404, "missing"),
    OverError: (409, "over"),
    InputError: (400, "input"),
    StoreError: (507, "full"),
    ForbiddenError: (403, "forbidden"),
    LimitError: (429, "limit"),
    LargeError: (413, "large"),
}


def answering(
    handler: Callable[[Routes, Request], Awaitable[Response]],
) -> Callable[[Routes, Request], Awaitable[Response]]:
    """A handler whose errors become JSON with a kind and a message."""

    @wraps(handler)
    async def answer(routes: Routes, request: Request) -> Response:
        try:
            return await handler(routes, request)
        except PromiseRefused as error:
            return refusal(409, "promise", str(error), earliest=error.earliest)
        except SlotwiseError as error:
            known = (STATUS[kind] for kind in STATUS if isinstance(error, kind))
            status, name = next(known, (500, "failed"))
            return refusal(status, name, str(error))
        except ClientDisconnect:
            return refusal(400, "input", "the body has not ended")  # Nobody reads it.
        except RecursionError:  # Of the parser of JSON; it is a RuntimeError.
            return refusal(400, "input", "the body is nested too deeply")
        except RuntimeError as error:  # The session is closed.
            return refusal(503, "closed", str(error))
        except asyncio.CancelledError:  # It waited for a job, and the server stops.
            return refusal(503, "closed", "the server stops; jobs are kept")

    return answer


class ServiceApp:
    """The routes of a service, as methods that take a request."""

    def __init__(
        self, engine: Engine, reload: Callable[[], list[str]], stop: Callable[[], None]
    ) -> None:
        self._engine, self._reload, self._stop = engine, reload, stop
        self._started = time.time()
        self.is_draining = False
        self.is_restoring = True
        self._calls, self._submitter = CallFrames(engine), JobSubmitter(engine)
        self._what_ifs = WhatIfs(engine, self._submitter)
        self.pages = PageHub(EngineSource(engine, lambda: self.state))

    @property
    def state(self) -> str:
        """What the server does."""
        return (
            "draining" if self.is_draining else "restoring" if self.is_restoring else "running"
        )

    def app(self, *more: BaseRoute) -> Starlette:
        """The application for a server of ASGI, with further routes."""
        job = "/v1/jobs/{job:path}"
        routes = [
            Route("/v1", self._route(ServiceApp.status)),
            Route("/v1/jobs", self._route(ServiceApp.list)),
            Route("/v1/jobs", self._route(ServiceApp.submit), methods=["POST"]),
            Route("/v1/what-if", self._route(ServiceApp.what_if), methods=["POST"]),
            Route("/v1/objects", self._route(ServiceApp.submit_object), methods=["POST"]),
            Route("/v1/calls", self._route(ServiceApp.calls), methods=["POST"]),
            Route("/v1/results", self._route(ServiceApp.results), methods=["POST"]),
            Route("/v1/pools", self._route(ServiceApp.pools)),
            Route("/v1/workers", self._route(ServiceApp.workers)),
            Route("/v1/reload", self._route(ServiceApp.reload), methods=["POST"]),
            Route("/v1/stop", self._route(ServiceApp.stop), methods=["POST"]),
            Route(f"{job}/wait", self._route(ServiceApp.wait)),
            Route(f"{job}/explain", self._route(ServiceApp.explain)),
            Route(f"{job}/eta", self._route(ServiceApp.eta)),
            Route(f"{job}/logs", self._route(ServiceApp.logs)),
            *(
                Route(f"{job}/{name}", self._route(partial_action(name)), methods=["POST"])
                for name in ACTIONS
            ),
            Route(job, self._route(ServiceApp.job)),
            *page_routes(self.pages),
            *more,
            *telemetry_routes(self._engine, lambda: self.is_restoring or self.is_draining),
        ]
        return Starlette(routes=routes)

    def _route(
        self, handler: Callable[[ServiceApp, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        return partial(answering(handler), self)

    # Requests.

    async def status(self, request: Request) -> Response:
        """The state of the server."""
        numbers = await run_in_threadpool(views.status_json, self._engine)
        found = {
            "version": __version__,
            "api": API,
            "started": self._started,
            "state": "draining" if self.is_draining else "running",
            "restoring": self.is_restoring,
            **numbers,
        }
        if user_of(request).is_admin:
            found |= {"pid": os.getpid(), "folder": str(self._engine.folder)}
        else:
            del found["changes"]
        return PlainResponse(found)

    async def submit(self, request: Request) -> Response:
        """Accept jobs."""
        self._check_open()
        body = await json_of(request)
        given = Submission(
            jobs=_of(body, "jobs", list, []),
            user=_of(body, "user", str, None),
            hold=_of(body, "hold", bool, False),
            **self._about(request, body),
        )
        return await self._submitted(request, given)

    async def what_if(self, request: Request) -> Response:
        """What jobs, or another pool, scheduler or host, would do; nothing is changed."""
        self._check_open()
        body = await json_of(request)
        for key, kind in WHAT_IF.items():
            _of(body, key, kind, None)
        given = Submission(
            jobs=_of(body, "jobs", list, []),
            user=_of(body, "user", str, None),
            **self._surroundings(user_of(request), body),
            by=user_of(request),
        )
        return PlainResponse(await run_in_threadpool(self._what_ifs.answer, given, body))

    async def submit_object(self, request: Request) -> Response:
        """Accept a pickled job, which only a process of its own unpickles."""
        self._check_open()
        given_frames = await _frames_of(request)
        if [len(parts) for _, parts in given_frames] != [1]:
            raise InputError("expected one frame with one part, the pickled job")
        ((body, parts),) = given_frames
        entry = {**_of(body, "entry", dict, {}), "object": True}
        given = Submission(jobs=[entry], pickle=parts[0], **self._about(request, body))
        return await self._submitted(request, given)

    def _about(self, request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
        """What all submissions state beside their jobs."""
        key, client = (_of(body, name, str, None) for name in ("key", "client"))
        return {
            **self._surroundings(user_of(request), body),
            "by": user_of(request),
            "key": key and self._scoped(request, key),
            "client": client and self._scoped(request, client),
        }

    def _surroundings(self, user: User, body: Mapping[str, Any]) -> dict[str, Any]:
        """Folder and environment: what a network leaves out is as usual for the account."""
        environ, is_own = _environ(body), user is self._engine.own
        if is_own and "environ" in body and "folder" in body:
            return {"folder": _folder(body, ""), "environ": environ}  # The usual case: fast.
        has_own = not is_own and self._engine.settings.run_as
        usual = environment_of(user.account if has_own else None)
        if not is_own or "environ" not in body:
            environ = {**usual, **environ}
        return {"folder": _folder(body, usual["HOME"]), "environ": environ}

    def _scoped(self, request: Request, name: str) -> str:
        return scoped(user_of(request), self._engine.own, name)

    async def _submitted(self, request: Request, given: Submission) -> Response:
        records = await run_in_threadpool(self._submitter.submit, given)
        audited(request, jobs=[one.id for one in records], pool=records[0].pool)
        jobs = [
            {
                "id": one.id,
                "number": one.number,
                "state": "held" if one.held else _plain_state(one.state),
            }
            for one in records
        ]
        return PlainResponse({"jobs": jobs}, 201)

    async def calls(self, request: Request) -> Response:
        """Handle frames with calls, in order."""
        self._check_open()
        given, user = await _frames_of(request), user_of(request)
        answer = await run_in_threadpool(self._calls.handle, given, user)
        if any(header.get("op") == "open" for header, _ in given):
            audited(request, jobs=list(answer["jobs"].values()))
        return PlainResponse(answer)

    async def results(self, request: Request) -> Response:
        """Stream the ends of the calls and jobs of a client: until it leaves, or once."""
        body = await json_of(request)
        client = _of(body, "client", str, "")
        if not client:
            raise InputError("client is missing; give the name of the client")
        calls, jobs = _numbers(_of(body, "calls", dict, {})), _of(body, "jobs", list, [])
        if _of(body, "once", bool, False):
            ended = filter(None, self._calls.ended(calls, jobs, user_of(request)))
            return StreamingResponse(ended, media_type="application/octet-stream")
        news = self._news(self._scoped(request, client), calls, jobs, user_of(request))
        return StreamingResponse(news, media_type="application/octet-stream")

    async def _news(
        self, client: str, calls: Mapping[str, Any], jobs: Sequence[Any], user: User
    ) -> AsyncIterator[bytes]:
        topics = [of_client(client), *(of_job(str(job)) for job in jobs)]
        with HubListener(self._engine.hub, topics) as listener:
            # What has ended by now is read after the listener was added: nothing is missed.
            yield frame({"beat": time.time()})
            async for one in iterate_in_threadpool(self._calls.ended(calls, jobs, user)):
                if one:
                    yield one
            if begun := await run_in_threadpool(self._engine.begun, client):
                yield begun
            try:
                while True:
                    news = await listener.take(BEAT_SECONDS)
                    if listener.is_overrun:
                        return
                    found = [one for one in news if isinstance(one, bytes)]
                    if any(one in OVER for one in news if isinstance(one, str)):  # A job ended.
                        ended = self._calls.ended({}, jobs, user)
                        found += await run_in_threadpool(list, ended)
                    yield b"".join(found) or frame({"beat": time.time()})
            finally:
                self._calls.left(client)

    async def list(self, request: Request) -> Response:
        """List the newest jobs, or with `order=oldest` the first ones, by number or `sort`."""
        query, oldest = request.query_params, request.query_params.get("order") == "oldest"
        limit = min(_whole(query.get("limit", "100"), "limit"), LIST_MAX)
        before, states = query.get("before"), _states(query.get("state"))
        ids, skip = _names(query.get("ids")), _whole(query.get("offset", "0"), "offset")
        at_most, offset, array = limit + 1, skip, query.get("array")
        if states == ["running"] and ids is None:
            ids = await run_in_threadpool(views.running, self._engine)
        elif 0 < len({*(states or ())} & views.LIVE) < len(views.LIVE):
            # The session knows which of the open ones are in these states.
            at_most, offset = LIST_MAX, 0
        records = await run_in_threadpool(
            self._engine.store.jobs,
            states=None if states is None else _stored(states),
            pool=query.get("pool"),
            user=query.get("user"),
            limit=at_most,
            before=None if before is None else _whole(before, "before"),
            ids=ids,
            array=None if array is None else _whole(array, "array"),
            search=query.get("search"),
            sort=_sort(query.get("sort")),
            offset=offset,
            oldest=oldest,
        )
        jobs = await run_in_threadpool(views.jobs_json, self._engine, records)
        if not (by := user_of(request)).is_admin:
            settings = self._engine.settings
            pairs = zip(records, jobs, strict=True)
            jobs = [row_for(by, record, row, settings) for record, row in pairs]
        wanted = [one for one in jobs if states is None or one["state"] in states]
        if skip > offset:
            wanted = wanted[skip:] if oldest else wanted[: max(0, len(wanted) - skip)]
        more = len(wanted) > limit
        shown = wanted[:limit] if oldest else wanted[max(0, len(wanted) - limit) :]
        return PlainResponse({"jobs": shown, "more": more})

    async def job(self, request: Request) -> Response:
        """All about a job."""
        return await self._job(request)

    async def _job(self, request: Request) -> Response:
        engine, by = self._engine, user_of(request)
        record = await run_in_threadpool(engine.found, _job_of(request))
        if may_see(by, record, engine.settings):
            return PlainResponse(await run_in_threadpool(views.job_json, engine, record))
        (row,) = await run_in_threadpool(views.jobs_json, engine, [record])
        return PlainResponse(row_for(by, record, row, engine.settings))

    async def _seen(self, request: Request, what: str) -> StoredJob:
        """A job that the user may see and change. ForbiddenError for that of another one."""
        record = await run_in_threadpool(self._engine.found, _job_of(request))
        check_sees(user_of(request), record, self._engine.settings, what)
        return record

    async def wait(self, request: Request) -> Response:
        """Wait for the end of a job, at most for a time."""
        job = _job_of(request)
        seconds = min(_seconds(request.query_params.get("timeout", "30")), WAIT_SECONDS_MAX)
        until = time.monotonic() + seconds
        with HubListener(self._engine.hub, [of_job(job)]) as listener:
            while True:
                record = await run_in_threadpool(self._engine.found, job)
                left = until - time.monotonic()
                if record.state in OVER or left <= 0:
                    return await self._job(request)
                await listener.take(left)

    async def explain(self, request: Request) -> Response:
        """Why a job holds no more slots."""
        record = await self._seen(request, "have it explained")
        found = await run_in_threadpool(views.explained_json, self._engine, record)
        return PlainResponse(found)

    async def eta(self, request: Request) -> Response:
        """When a job starts and ends; for its first forecast it waits, at most for a time."""
        seconds = min(_seconds(request.query_params.get("timeout", "10")), ETA_SECONDS_MAX)
        job, until, engine = _job_of(request), time.monotonic() + seconds, self._engine
        found = await run_in_threadpool(views.eta_json, engine, job)
        if found["eta"] is None and found["state"] not in (*OVER, "held"):
            while engine.is_open(job) and not engine.core.etas([job]):
                if time.monotonic() >= until:
                    break
                await asyncio.sleep(ETA_POLL_SECONDS)
            found = await run_in_threadpool(views.eta_json, engine, job)
        return PlainResponse(found)

    async def logs(self, request: Request) -> Response:
        """What the tasks of a job printed, and print."""
        query, job = request.query_params, _job_of(request)
        await self._seen(request, "read its output")
        task = query.get("task")
        pieces = followed(
            self._engine,
            job,
            task=None if task is None else _whole(task, "task"),
            stream=query.get("stream"),
            follows=query.get("follow") == "1",
            tail=_whole(query.get("tail", "0"), "tail"),
        )
        return StreamingResponse(pieces, media_type="application/octet-stream")

    async def pools(self, request: Request) -> Response:
        """The pools."""
        return PlainResponse({"pools": await run_in_threadpool(views.pools_json, self._engine)})

    async def workers(self, request: Request) -> Response:
        """The hosts."""
        found = await run_in_threadpool(views.workers_json, self._engine)
        return PlainResponse({"workers": found})

    async def reload(self, request: Request) -> Response:
        """Read the configuration again."""
        user_of(request).check(Role.ADMIN, "reload the configuration")
        self._check_open()
        return PlainResponse({"changes": await run_in_threadpool(self._reload)})

    async def stop(self, request: Request) -> Response:
        """Stop the server as SIGTERM does."""
        user_of(request).check(Role.ADMIN, "stop the server")
        asyncio.get_running_loop().call_later(0.05, self._stop)
        return PlainResponse({"state": "draining"})

    async def act(self, request: Request, name: str) -> Response:
        """Cancel, hold, release, change or forget a job."""
        self._check_open()
        stated, job, engine = await json_of(request, {}), _job_of(request), self._engine
        if not user_of(request).is_admin:
            await self._seen(request, f"{name} it")
        audited(request, jobs=[job])
        if pool := stated.get("pool"):
            check_submits(user_of(request), pool, engine.settings)
        if name == "change":
            await run_in_threadpool(engine.change, job, stated)
        elif name == "forget":
            await run_in_threadpool(engine.forget, job)
            await run_in_threadpool(forget_output, engine, job)
            return PlainResponse({"id": job})
        else:
            await run_in_threadpool(getattr(engine, name), job)
        return await self._job(request)

    def close_left(self) -> None:
        """Close the streams of clients that have left long ago."""
        self._calls.close_left(self._engine.hub.clients())

    def _check_open(self) -> None:
        if self.is_draining or self.is_restoring:
            what = "stops" if self.is_draining else "has just started"
            raise ClosedError(f"the server {what}; try again in some seconds")


def partial_action(name: str) -> Callable[[ServiceApp, Request], Awaitable[Response]]:
    """The handler of an action on a job."""

    async def act(server: ServiceApp, request: Request) -> Response:
        return await server.act(request, name)

    return act


def user_of(request: Request) -> User:
    """Who asks, as the guard has found."""
    user: User = request.state.user
    return user


async def json_of(request: Request, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in the body of a request. InputError for another body.

    `default` stands for an empty body. LargeError for a body that is too long.
    """
    body = await _body(request, _json_bytes_max(request))
    return default if default is not None and not body else _object(body)


def audited(request: Request, **about: Any) -> None:
    """Note what a request changes, for its line in the record of such requests."""
    request.state.audited = about


async def _body(request: Request, most: int = BODY_BYTES_MAX) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise LargeError(f"the body has more than {most} bytes; send less at once")
        pieces.append(piece)
    return b"".join(pieces)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise InputError(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"the body is {shown(found)}; expected an object")
    return found


def _json_bytes_max(request: Request) -> int:
    return JSON_BYTES_MAX if address_of(request.scope) else BODY_BYTES_MAX


async def _frames_of(request: Request) -> list[Frame]:
    """The frames in the body of a request; their headers together are short enough."""
    stream, most = io.BytesIO(await _body(request)), _json_bytes_max(request)
    found, size = list[Frame](), 0
    try:
        for header, parts in frames(stream):
            found.append((header, parts))
            size += sum(map(len, parts))
            if stream.tell() - size > most:
                raise LargeError(f"the headers have more than {most} bytes; send less at once")
    except (InputError, LargeError):
        raise
    except SlotwiseError:
        raise InputError("the body ends within a frame") from None
    return found


def _numbers(calls: Mapping[str, Any]) -> Mapping[str, list[int]]:
    for key, numbers in calls.items():
        if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
            raise InputError(f"calls: {key!r} has {shown(numbers)}; give a list of numbers")
    return calls


def _of(body: Mapping[str, Any], key: str, kind: type[T], default: Any) -> Any:
    found = body.get(key)
    if found is None:
        return default
    if not isinstance(found, kind):
        raise InputError(f"{key} is {shown(found)}; expected {kind.__name__}")
    return found


def _folder(body: Mapping[str, Any], usual: str) -> str:
    found: str = _of(body, "folder", str, usual)
    if not os.path.isabs(found):
        raise InputError(f"folder is {shown(found)}; give an absolute path")
    return found


def _environ(body: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, Any] = _of(body, "environ", dict, {})
    names = "".join(found)
    with suppress(TypeError):  # A value that should be a string has another type.
        values = "".join(found.values())
        if "" not in found and "=" not in names and _is_of_system(names + values):
            return found
    for name, value in found.items():
        if not (
            isinstance(value, str) and name and "=" not in name and _is_of_system(name + value)
        ):
            raise InputError(f"environ: {shown(name)} is not a variable with a string")
    return dict(found)


def _is_of_system(text: str) -> bool:
    """Whether a process can have it in its environment."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _whole(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise InputError(
            f"{what} is {shown(text)}; give a whole number >= 0, at most {10**DIGITS_MAX - 1}"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found >= 0:  # Nor NaN.
        raise InputError(f"timeout is {text!r}; give seconds >= 0")
    return found


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name for name in text.split(",") if name]


def _states(text: str | None) -> list[str] | None:
    """The states of a query. InputError for one that no job has."""
    names = _names(text)
    known = sorted({*views.LIVE, *OVER})
    for name in names or ():
        if name not in known:
            raise InputError(f"state {name!r} is not one; {suggestion(name, known)}")
    return names


def _sort(text: str | None) -> str:
    """The column by which jobs are listed. InputError for one by which they cannot be."""
    found = text or SORTS[0]
    if found not in SORTS:
        raise InputError(f"sort {found!r} is not one; {suggestion(found, SORTS)}")
    return found


def _stored(states: list[str]) -> list[str]:
    """The states in the store that jobs in these states have."""
    return sorted({one if one in OVER else "open" for one in states})


def _plain_state(state: str) -> str:
    return "queued" if state == "open" else state


def _job_of(request: Request) -> str:
    return str(request.path_params["job"])
