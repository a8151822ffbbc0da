"""A machine on which a script is played: time passes when the script says so.

Time stands still while any thread of slotwise works. So what is logged depends on nothing else.
"""

from __future__ import annotations

import queue
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from math import ceil, inf
from pathlib import Path
from typing import Any

from golden.script import OWN, At, Does, Script

TICK = 1 / 1024
"""The resolution of the clock: sums of instants are exact."""

START = 4096.0
"""What the clock shows at the beginning."""

CHANNELS = 1 << 20
"""The channel of the first worker process; file descriptors are smaller."""

SLEEP, POLL = time.sleep, select.poll


class Machine:
    """Plays a script; the thread that made it is the user.

    now        the instant that clocks show
    workers    the worker processes in the order of their starts, which act when they are due
    has_slept  whether the task that was run last had to wait for others
    is_over    no more time passes
    """

    def __init__(self, script: Script) -> None:
        self.now = START
        self._does = iter([*script.tasks])
        self._others = cycle(script.others)
        self._at = deque(sorted(script.at, key=lambda one: one.at))
        self._user = threading.current_thread()
        self._others_before = {*threading.enumerate()} - {self._user}
        self._waits: dict[threading.Thread, Any] = {}
        self._orders: queue.Queue[At] = queue.Queue()
        self._results: dict[str, Any] = {}
        self._is_interrupted = self.has_slept = self.is_over = False
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self.workers: list[Any] = []

    def next_task(self) -> Does:
        """What the worker that gets the next task does."""
        return next(self._does, None) or next(self._others)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function when this time is over."""
        self._later.append((self.now + seconds, len(self._later), function))

    # The user of a session.

    def use(self, session: Any) -> None:
        """Do in this thread what the script has for users, at the instants that it gives."""
        for _ in range(sum(one.do not in OWN for one in self._at)):
            order = self._orders.get()
            target: Any = session
            *of, name = order.do.split(".")
            if of:
                target = self._results[of[0]]
            given = [self._named(one) for one in order.args]
            options = {name: self._named(one) for name, one in order.options.items()}
            found = getattr(target, name)(*given, **options)
            if order.to:
                self._results[order.to] = found

    def _named(self, given: Any) -> Any:
        is_name = isinstance(given, str) and given.startswith("@")
        return self._results[given[1:]] if is_name else given

    # The thread that polls.

    def wait(self, seconds: float, ready: Callable[[], list[Any]]) -> list[Any]:
        """Let time pass until something is ready, or for this time; what is ready."""
        end = self.now + ceil(seconds / TICK) * TICK if seconds < inf else inf
        while True:
            self._rest()
            assert not self.is_over, "the user has failed"
            if found := ready():
                self._is_interrupted = False
                return found
            if self._is_interrupted:  # The user has not noticed it yet.
                SLEEP(0.0001)
                continue
            due = [(at, 0, number, call) for at, number, call in self._later]
            due += [(START + one.at, 1, 0, self._next) for one in [*self._at][:1]]
            due += [(w.due, 2, w.number, w.act) for w in self.workers if w.due < inf]
            at = min((one[0] for one in due), default=inf)
            if max(at, self.now) > end:
                self.now = end
                return []
            assert at < inf, "the script is over, and nothing else will happen"
            self.now = max(at, self.now)
            now = self.now
            self._later = [one for one in self._later if one[0] > now]
            for instant, _, _, act in sorted(due, key=lambda one: one[:3]):
                if instant <= now:
                    act()
                    self._rest()

    def _next(self) -> None:
        """Do the next thing in the script."""
        one = self._at.popleft()
        if one.do == "interrupt":
            self._is_interrupted = threading.current_thread() is not self._user
            signal.raise_signal(signal.SIGINT)
        elif one.do == "write":
            Path(*one.args).write_text("")
        elif one.do in OWN:
            for number in one.args:
                getattr(self.workers[number], f"be_{one.do}")()
        else:
            self._orders.put(one)

    def _rest(self) -> None:
        """Wait until all threads of slotwise, and the user, wait for something to happen."""
        me = threading.current_thread()
        while not self.is_over and not all(
            self._waits_now(thread)
            for thread in threading.enumerate()
            if thread is not me and thread not in self._others_before
        ):
            SLEEP(0.0001)

    def _waits_now(self, thread: threading.Thread) -> bool:
        found = self._waits.get(thread)
        if isinstance(found, threading.Thread):
            return found.is_alive()
        return found is not None and bool(found._waiters)  # Empty once it is notified.

    @contextmanager
    def waiting(self, what: Any) -> Iterator[None]:
        """This thread waits for a condition or a thread."""
        me = threading.current_thread()
        before = self._waits.get(me)
        self._waits[me] = what
        try:
            yield
        finally:
            self._waits[me] = before


class Poll:
    """`select.poll`, in which time passes as the machine says."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._real = machine, POLL()
        self._scripted: dict[int, int] = {}

    def register(self, channel: int, events: int = select.POLLIN) -> None:
        """Wait for a channel, too."""
        if channel < CHANNELS:
            self._real.register(channel, events)
        else:
            self._scripted[channel] = events

    def unregister(self, channel: int) -> None:
        """Wait for a channel no more."""
        if channel < CHANNELS:
            self._real.unregister(channel)
        else:
            del self._scripted[channel]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """The channels that are ready, those of workers in the order of their starts."""
        seconds = inf if milliseconds is None else milliseconds / 1000
        return self._machine.wait(seconds, self._ready)

    def _ready(self) -> list[tuple[int, int]]:
        real = [(channel, event) for channel, event in self._real.poll(0)]
        workers = self._machine.workers
        readable = [c for c in self._scripted if workers[c - CHANNELS].messages]
        return real + [(channel, select.POLLIN) for channel in sorted(readable)]
