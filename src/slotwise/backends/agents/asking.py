"""Starts agents beside the workers of a Dask cluster, and connects to them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from math import inf
from typing import Any

from distributed import Client

from slotwise import __version__
from slotwise.backends.agents.plugin import END_SECONDS, AgentOrder, begin_agent, end_agent
from slotwise.backends.agents.slots import AgentHost, connect
from slotwise.core.errors import SlotwiseError
from slotwise.jobs.hosts.auth import RefusedError, Security

MIN_PAUSE, MAX_PAUSE = 1.0, 60.0
"""Seconds until a worker that cannot be used is asked again; doubled each time."""


@dataclass(slots=True)
class Question:
    """A pending or answered request to a worker.

    name    the name of the worker
    answer  the connection to its agent, or an error
    pause   seconds from a refusal to the next request
    due     the time of the next request, as `time.monotonic()`; inf before the answer
    """

    name: str
    answer: Future[AgentHost]
    pause: float
    due: float = inf


class RunInLoop:
    """Starts agents beside Dask workers, and connects to them, in the event loop of the client.

    Each worker is asked separately, so that a frozen one does not delay others, and not again
    before it has answered. A worker that cannot be used is asked again after a growing pause.
    """

    def __init__(self, client: Client, order: AgentOrder, security: Security) -> None:
        self._client, self._order, self._security = client, order, security
        self._questions: dict[str, Question] = {}  # by address
        self._begun: set[str] = set()  # the addresses of workers whose answers were taken

    def ask(self, names: Mapping[str, str]) -> None:
        """Ask the workers that are due, given by address; forget all other workers."""
        for address in self._questions.keys() - names.keys():
            _drop(self._questions.pop(address))
        for address, name in names.items():
            before = self._questions.get(address)
            if before and before.answer.cancelled():  # By Dask, with all tasks of its client.
                before = None
            if before is None or before.due <= time.monotonic():
                pause = MIN_PAUSE if before is None else min(2 * before.pause, MAX_PAUSE)
                loop: Any = self._client.loop
                answer = asyncio.run_coroutine_threadsafe(
                    self._host(address, name), loop.asyncio_loop
                )
                self._questions[address] = Question(name, answer, pause)

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` until all workers that were asked have answered."""
        wait([question.answer for question in self._questions.values()], seconds)

    def answers(self) -> dict[str, AgentHost | SlotwiseError | OSError]:
        """The answers since the last call, by address.

        A SlotwiseError says why a worker cannot be used. With an OSError, it may be leaving.
        """
        found: dict[str, AgentHost | SlotwiseError | OSError] = {}
        for address, question in list(self._questions.items()):
            answer = question.answer
            if question.due == inf and answer.done() and not answer.cancelled():
                self._begun.add(address)
                if isinstance(error := answer.exception(), Exception):
                    question.due = time.monotonic() + question.pause
                    found[address] = _reason(question.name, error)
                else:
                    found[address] = answer.result()
                    del self._questions[address]
        return found

    def silent(self) -> dict[str, str]:
        """The names of the workers that have not answered, by address."""
        silent = ((a, q) for a, q in self._questions.items() if not q.answer.done())
        return {address: question.name for address, question in silent}

    def close(self) -> None:
        """Cancel all requests, and close the connections that were not returned."""
        for address, question in self._questions.items():
            if question.answer.done():
                self._begun.add(address)
            _drop(question)

    def end(self, known: Iterable[str]) -> None:
        """End the agents beside the `known` workers that have answered.

        The agent of a worker that does not answer exits later by itself.
        """
        self._client.sync(  # type: ignore[no-untyped-call]
            self._end, list(self._begun.intersection(known)), callback_timeout=END_SECONDS + 1
        )

    async def _host(self, address: str, name: str) -> AgentHost:
        """Start an agent beside a worker, and connect to it."""
        found = await self._client.run(
            begin_agent, self._order, workers=[address], on_error="return"
        )
        answer = found[address]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            raise RefusedError(answer)
        return await asyncio.to_thread(connect, name, tuple(answer), self._security)

    async def _end(self, workers: list[str]) -> None:
        await self._client.run(end_agent, self._order.name, workers=workers, on_error="ignore")


def _drop(question: Question) -> None:
    """Cancel a request; if it was answered, close its connection."""
    answer = question.answer
    if not answer.cancel() and answer.exception() is None:
        answer.result().stream.close()


def _reason(name: str, error: Exception) -> SlotwiseError | OSError:
    """The error for a worker that cannot be used, with the host and a remedy."""
    if isinstance(error, SlotwiseError | OSError):
        return error
    place = f"host {name!r}"
    if missing := re.search(r"No module named '(\w+)", str(error)):  # Dask sends the text only.
        return RefusedError(
            f"{place}: {missing[1]} is not installed; install it in the environment of this"
            f" Dask worker: pip install 'slotwise[dask]=={__version__}'"
        )
    return RefusedError(
        f"{place}: its agent cannot be started: {error}; it needs the version of slotwise that"
        f" this program has, {__version__}"
    )
