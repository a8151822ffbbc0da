"""The live page of the gate, which the scheduler's process serves when it is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from slotwise.core.errors import InputError, MissingExtraError
from slotwise.insight.explanation import explanation_lines
from slotwise.insight.waiting import explain_now

if TYPE_CHECKING:
    from slotwise.dask.gate import Gate
    from slotwise.forecast.eta import Eta
    from slotwise.service.page.page_source import PageSample, PageSnapshot, StateReader

T = TypeVar("T")

EXTENSION = "slotwise_page"

ASK_SECONDS = 30.0
"""How long the page waits for a scheduler that is busy."""


def page(client: Any, port: int = 0) -> Any:
    """Serve the live page of a cluster's gate beside its scheduler, and return a link to it.

    port  on the host of the scheduler, for browsers there; 0 finds a free one. Later calls keep
          the first. From another machine: `ssh -L PORT:127.0.0.1:PORT HOST`

    The link works once, within five minutes. For an asynchronous client, await the result.
    InputError if the scheduler has no gate, or the port cannot be used; MissingExtraError if
    the environment of the scheduler lacks the extra `serve`.
    """
    return client.run_on_scheduler(open_page, port=port)


async def open_page(port: int, dask_scheduler: Any) -> str:
    """Serve the page; the rest of the scheduler continues meanwhile."""
    if dask_scheduler.plugins.get("slotwise") is None:
        raise InputError("this scheduler has no gate; call slotwise.dask.install(client)")
    loop = asyncio.get_running_loop()

    def serve() -> Any:
        try:  # Only here: schedulers without a page do not load it.
            from slotwise.service.page.session_page import LoopbackPage, session_app
        except ModuleNotFoundError as error:
            if error.name not in ("uvicorn", "starlette", "anyio"):
                raise
            raise MissingExtraError("the page of the gate", "serve") from error
        return LoopbackPage(GateSource(dask_scheduler, loop), session_app, port)

    served = dask_scheduler.extensions.get(EXTENSION)
    if served is None:
        served = PageExtension(await loop.run_in_executor(None, serve))
        dask_scheduler.extensions[EXTENSION] = served
    return str(served.page.link())


class PageExtension:
    """The page as an extension of a scheduler, which ends with it."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def teardown(self) -> None:
        """End the page; called by Dask."""
        self.page.close()


class GateSource:
    """What the page shows of the gate that a scheduler has at the time.

    It is asked in threads of the page, and reads in that of the scheduler.
    """

    def __init__(self, scheduler: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduler, self._loop = scheduler, loop
        self._reader: tuple[Gate, StateReader] | None = None

    def about(self) -> dict[str, Any]:
        """See `PageSource`."""
        title = f"the gate of {self._scheduler.address}"
        return {"kind": "gate", "title": title, "can": ["explain", "history"]}

    def sample(self) -> PageSample:
        """See `PageSource`."""
        return self._ask(lambda gate, reader: reader.sample())

    def snapshot(self, users: Collection[str]) -> PageSnapshot:
        """See `PageSource`."""

        from slotwise.service.page.page_source import add_etas

        def read(gate: Gate, reader: StateReader) -> PageSnapshot:
            jobs = dict.fromkeys(users, reader.first_jobs())
            found = reader.snapshot(jobs, gate.options.scheduler)
            state = "Dask runs all tasks without the gate" if gate.is_open else "running"
            found.sections["facts"].update(
                objective=gate.options.objective.penalty, state=state
            )
            return found

        found = self._ask(read)
        add_etas(found, self._etas)
        return found

    def _etas(self, jobs: Iterable[str]) -> dict[str, Eta]:
        """The forecasts of some computations, in Unix seconds."""
        epoch, known = self._ask(lambda gate, reader: (reader.epoch, gate.forecasts.etas()))
        return {job: known[job].moved(epoch) for job in jobs if job in known}

    def jobs(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The computations that `slotwise.dask.status` lists, as jobs of a service."""
        from slotwise.service.page.session_page import listed, with_etas

        rows = self._ask(lambda gate, reader: list(_rows(gate)))
        return with_etas(listed(rows, query), self._etas)

    def explained(self, name: str) -> dict[str, Any]:
        """Why a computation holds no more slots."""

        def read(gate: Gate, reader: StateReader) -> str:
            phases = gate._state.phases_of(name)
            pool = phases[0].job.pool if phases else ""
            asked = name, pool, gate.options.scheduler, gate.options.objective
            found = explain_now(gate._state, *asked)
            return "\n".join(explanation_lines(found, is_now=True))

        return {"job": name, "text": self._ask(read)}

    def _ask(self, question: Callable[[Gate, StateReader], T]) -> T:
        from slotwise.service.page.page_source import StateReader

        async def ask() -> T:
            gate = self._scheduler.plugins.get("slotwise")
            if gate is None:
                raise InputError("this scheduler has no gate now")
            if self._reader is None or self._reader[0] is not gate:
                self._reader = gate, StateReader(gate._state, time.time() - gate.now)
            return question(*self._reader)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(ASK_SECONDS)


def _rows(gate: Gate) -> Iterator[dict[str, Any]]:
    now = time.time()
    for number, one in enumerate(gate.status().computations):
        yield {
            **{"id": one.name, "number": number, "name": "", "user": "", "pool": one.pool},
            "state": "running" if one.running else "queued",
            **{"tasks": one.tasks, "tasks_done": one.done, "tasks_running": one.running},
            **{"tasks_failed": 0, "slots": one.running, "reason": one.reason, "code": None},
            "submitted": round(now - one.seconds, 3),
            **{"begun": None, "ended": None, "deadline": None, "output": None, "after": []},
            **{"priority": "", "weight": 1.0, "held": False},
        }
