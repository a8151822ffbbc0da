"""A clock that stands still until a script says otherwise, for code that runs in real time.

What is due is called in the order of time, and of the script at the same time. Threads run one
at a time, and only while the clock stands still.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

TICK = 1e-9
"""The least time that a wait takes: a rounded one must end, too."""


class ScriptedTime:
    """The clock, and what is due.

    now  what `time.monotonic` and `time.time` return
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this when so many seconds have passed."""
        heappush(self._due, (self.now + seconds, next(self._numbers), call))

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this at this time."""
        heappush(self._due, (seconds, next(self._numbers), call))

    def step(self, until: float = inf) -> bool:
        """Go on to the next instant until then at which calls are due, and make them.

        False if there is none; then it is `until`.
        """
        if not self._due or self._due[0][0] > until:
            assert until < inf, "the script has ended, but what it drives waits for more"
            self.now = max(self.now, until)
            return False
        at = self._due[0][0]
        self.now = max(self.now, at)
        calls = []
        while self._due and self._due[0][0] == at:
            calls.append(heappop(self._due)[2])
        for call in calls:
            call()
        return True

    @contextmanager
    def replaced(self, **more: Any) -> Iterator[None]:
        """Let all modules of slotwise that import `time` have this clock.

        `more` are names of modules, with dots as two underscores, and what to replace in them.
        """
        clocks = dict.fromkeys(("monotonic", "time", "perf_counter"), lambda: self.now)
        clock = SimpleNamespace(**{**vars(time), **clocks})
        with ExitStack() as stack:
            for name, module in list(sys.modules.items()):
                if name.startswith("slotwise.") and vars(module).get("time") is time:
                    stack.enter_context(patch.object(module, "time", clock))
            for name, values in more.items():
                module = sys.modules["slotwise." + name.replace("__", ".")]
                stack.enter_context(patch.multiple(module, **values))
            yield


_OWN = threading.local()


class ScriptedThread:
    """A thread that runs when it is due, and until it waits for a `ScriptedEvent` or ends."""

    def __init__(
        self,
        clock: ScriptedTime,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        *,
        delay: float = 0.0,
        **_: object,
    ) -> None:
        self._clock, self._delay = clock, delay
        self._goes, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, args=(target, args), daemon=True)

    def start(self) -> None:
        """Begin after the delay."""
        self._thread.start()
        self._clock.after(self._delay, self._resume)

    def join(self, timeout: float | None = None) -> None:
        """Let it end, without waiting for what it waits for."""
        while not self._is_over:
            self._resume()
        self._thread.join()

    def pause(self, seconds: float) -> None:
        """Wait; called by the thread itself."""
        self._clock.after(seconds, self._resume)
        self._rests.release()
        self._goes.acquire()

    def _resume(self) -> None:
        if not self._is_over:
            self._goes.release()
            self._rests.acquire()

    def _run(self, target: Callable[..., object], args: tuple[object, ...]) -> None:
        self._goes.acquire()
        _OWN.thread = self
        try:
            target(*args)
        finally:
            self._is_over = True
            self._rests.release()


class ScriptedEvent(threading.Event):
    """An event for which scripted threads wait."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for this time, or until `join` ends the wait."""
        assert timeout is not None
        if not self.is_set():
            _OWN.thread.pause(timeout)
        return self.is_set()


def threads(clock: ScriptedTime, delay: float = 0.0) -> SimpleNamespace:
    """What stands for the module `threading`; each thread begins after `delay` seconds."""

    def make(target: Callable[..., object], **details: Any) -> ScriptedThread:
        return ScriptedThread(clock, target, delay=delay, **details)

    return SimpleNamespace(
        Thread=make, Event=ScriptedEvent, current_thread=threading.current_thread
    )
