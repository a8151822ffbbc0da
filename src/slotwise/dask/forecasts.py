"""The forecasts of the gate: its loop is the event loop of Dask's scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from slotwise.core.loop import Record
from slotwise.core.state import State
from slotwise.dask.options import GateOptions

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""Seconds between two looks of a question whether the gate has been opened."""


class GateLoop:
    """The loop of a gate for its forecasts.

    `records` are those that the gate calls for each turn.
    """

    def __init__(
        self,
        events: asyncio.AbstractEventLoop,
        state: State,
        options: GateOptions,
        records: list[Record],
        is_open: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self.state, self.scheduler_name = state, options.scheduler
        self.penalty = options.objective.penalty
        self._events, self._records, self._is_open = events, records, is_open
        self._clock = clock

    @property
    def now(self) -> float:
        """Seconds since the gate began."""
        return self._clock()

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the event loop; an open gate changes no state."""
        if self._is_own_thread() or self._is_open():
            return question()

        async def answer() -> T:
            return question()

        asked = asyncio.run_coroutine_threadsafe(answer(), self._events)
        while not self._is_open():
            try:
                return asked.result(LOOK_SECONDS)
            except TimeoutError:  # Dask is busy, or has ended.
                continue
        asked.cancel()
        return question()

    def _is_own_thread(self) -> bool:
        """Whether this is the thread of the event loop."""
        with suppress(RuntimeError):
            return asyncio.get_running_loop() is self._events
        return False

    def observe(self, record: Record) -> None:
        """Call a record for each turn from now on."""
        self.ask(lambda: self._records.append(record))
