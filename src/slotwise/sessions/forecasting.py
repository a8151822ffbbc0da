"""The forecasts of a session, or of a server: made by a thread of their own, within 2 % of a
processor, and kept across restarts."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from slotwise.core.errors import InputError
from slotwise.core.loop import Record
from slotwise.core.state import State
from slotwise.forecast.eta import Eta, WhatIf
from slotwise.forecast.forecaster import Forecaster
from slotwise.forecast.situation import Change, Situation, changed, situation_of
from slotwise.policy.scheduler import SCHEDULERS

T = TypeVar("T")

PROCESSOR_PART = 0.02
"""The part of one processor that forecasts take on average."""

SAVED_SECONDS = 0.5
"""The most seconds of a processor that may be used at once after a rest."""

REST_SECONDS = 1.0
"""The least seconds between two forecasts that nobody waits for."""

WRITE_SECONDS = 60.0
"""Seconds between two writes of what was learned."""

KEPT_BYTES_MAX = 64 << 20
"""A larger file is not read: it is not one of forecasts, which take 10 MB for 2,000 users."""

CLOSE_SECONDS = 1.0
"""How long the end waits for the thread."""

WAIT_SECONDS = 0.1
"""How long a question waits for the first forecast of a job, unless it says otherwise."""


class Loop(Protocol):
    """What forecasts need of a scheduling loop that runs in another thread."""

    state: State
    scheduler_name: str
    penalty: str

    @property
    def now(self) -> float:
        """The present instant, on the clock of the state: that of the last turn is earlier."""
        ...

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the loop."""
        ...

    def observe(self, record: Record) -> None:
        """Call a record for each turn from now on, in the thread of the loop."""
        ...


class Forecasts:
    """Forecasts of all jobs of a loop, renewed as often as the processor time allows.

    With 1,000 jobs they get 4 to 6 s old, with 10,000 12 to 35 s, by scheduler (`scripts/bench
    eta` measures it). Any thread may ask.
    """

    def __init__(self, loop: Loop, kept: Path | None = None) -> None:
        """`kept`: the file that keeps what is learned; it may be missing or damaged."""
        self._loop, self._kept = loop, kept
        self._lock = threading.Lock()  # Of the forecaster, which one thread uses at a time.
        self._changed = threading.Condition()
        self._etas: Mapping[str, Eta] = {}
        state = loop.state
        self._is_closed = False
        self._last: Situation | None = None
        self._is_wanted = loop.ask(lambda: any(state.jobs_left()) or bool(state.not_admitted))
        self._credit, self._credit_at = SAVED_SECONDS, time.monotonic()
        self._cost, self._written = 0.0, time.monotonic()
        self._taken = 0.0  # Seconds of the thread of the loop, of the last forecast.
        self.processor_seconds = 0.0  # Of all forecasts so far.
        self._forecaster = Forecaster()
        self._load()
        loop.observe(
            lambda now, events, decisions: self._forecaster.on_turn(
                loop.state, now, events, decisions
            )
        )
        self._thread = threading.Thread(
            target=self._run, name="slotwise forecasts", daemon=True
        )
        self._thread.start()

    def etas(self) -> Mapping[str, Eta]:
        """The last forecast of each job, without waiting; the clock is that of the loop."""
        return self._etas

    def eta(self, job: str, timeout: float | None = None) -> Eta | None:
        """The last forecast of a job; None if it is over, unknown, or has none in time.

        It waits for the first forecast of a job, at most `timeout` seconds.
        """
        until = time.monotonic() + (WAIT_SECONDS if timeout is None else timeout)
        with self._changed:
            while job not in self._etas and not self._is_closed:
                self._is_wanted = True
                self._changed.notify_all()
                left = min(until - time.monotonic(), threading.TIMEOUT_MAX)
                if not self._changed.wait(max(0.0, left)):
                    break
            return self._etas.get(job)

    def what_if(self, change: Change) -> WhatIf:
        """The present course beside that after a change, simulated now.

        InputError for an unknown scheduler, for inconsistent pools, or for hosts that are not
        there, or there already. It costs as much as two forecasts.
        """
        if change.scheduler is not None and change.scheduler not in SCHEDULERS:
            names = ", ".join(SCHEDULERS)
            raise InputError(f"unknown scheduler {change.scheduler!r}; expected one of {names}")
        state = self._loop.state

        def read() -> tuple[Situation, Situation]:
            situation = self._situation()
            return situation, changed(situation, change, state.cluster, state.pools)

        situations = self._loop.ask(read)
        with self._lock:
            return self._forecaster.what_if(*situations)

    def close(self) -> None:
        """End the thread and keep what was learned. Idempotent."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():  # Else it makes machine code, which cannot be ended.
            with self._lock:
                self._forecaster.learn()
                self._save()

    def _situation(self) -> Situation:
        loop = self._loop
        found = situation_of(loop.state, loop.scheduler_name, loop.penalty, self._last)
        self._last = found
        return replace(found, now=max(found.now, loop.now))

    def _run(self) -> None:
        has_failed = False
        while self._wait():
            used, self._taken = time.thread_time(), 0.0
            try:
                self._renew()
            except Exception as error:  # Whatever it is, jobs and later forecasts continue.
                if not (has_failed or self._is_closed):
                    has_failed = True
                    text = "".join(traceback.format_exception(error))
                    print(
                        f"slotwise: a forecast failed; jobs continue:\n{text}", file=sys.stderr
                    )
            with self._changed:
                self._cost = time.thread_time() - used + self._taken
                self.processor_seconds += self._cost
                self._credit -= self._cost
                self._changed.notify_all()

    def _renew(self) -> None:
        """Forecast the present state, and keep what was learned from time to time."""

        def read() -> Situation:
            start = time.perf_counter()
            situation = self._situation()
            self._taken = time.perf_counter() - start
            return situation

        situation = self._loop.ask(read)
        with self._lock:
            found = self._forecaster.forecast(situation)
        with self._changed:
            self._etas = found
            self._changed.notify_all()
        if time.monotonic() - self._written > WRITE_SECONDS:
            self._written = time.monotonic()
            with self._lock:  # Questions also learn.
                self._save()

    def _wait(self) -> bool:
        """Wait until forecasts are due; False at the end."""
        began = time.monotonic()
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                self._credit += PROCESSOR_PART * (now - self._credit_at)
                self._credit = min(self._credit, max(SAVED_SECONDS, self._cost))
                self._credit_at = now
                rest = 0.0 if self._is_wanted else began + REST_SECONDS - now
                lacks = (0.0 if self._is_wanted else self._cost) - self._credit
                rest = max(rest, lacks / PROCESSOR_PART)
                if rest <= 0 and (self._is_wanted or self._has_work):
                    self._is_wanted = False
                    return True
                self._changed.wait(max(rest, REST_SECONDS / 10) if rest > 0 else REST_SECONDS)
        return False

    @property
    def _has_work(self) -> bool:
        return bool(self._etas) or self._forecaster.has_news

    # What is kept.

    def _load(self) -> None:
        if self._kept is None:
            return
        try:
            if self._kept.is_file() and self._kept.stat().st_size <= KEPT_BYTES_MAX:
                self._forecaster.restore(json.loads(self._kept.read_text("utf-8")))
        except Exception:  # Anything may be in it, such as nesting without an end.
            return  # It is learned again, and the file is replaced.

    def _save(self) -> None:
        if self._kept is None:
            return
        try:
            made = self._kept.with_name(f".{self._kept.name}.{os.getpid()}")
            made.write_text(json.dumps(self._forecaster.plain()), "utf-8")
            os.replace(made, self._kept)
        except OSError:
            return  # A full disk: the next write may succeed.
