"""Emulation of slow hosts: stops and continues worker processes to run a part of the time.

A worker of a host of speed s with a task runs for a while, is then stopped, and is continued
after a stop of (1 - s) / s of the time that it ran. See docs/decisions/0017-slowed-hosts.md for
the reasons, the cost and the accuracy.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from slotwise.backends.local.unresponsive import is_stopped

PERIOD_SECONDS = 0.05
"""The approximate length of a run and the stop after it, together."""

LEAST_SECONDS = 0.002
"""The shortest planned run or stop; for speeds near 0 or 1 the period gets longer."""

MAX_OWED = 5.0
"""The largest account of a worker, positive or negative, in seconds; more is dropped.

It matters only if the thread below could not run for a long time.
"""

TAKEN_SECONDS = 0.0001
"""The delay before the first check whether a worker has stopped; it doubles with each check."""

LOOK_SECONDS = 0.05
"""The interval of checks whether a worker that was stopped from outside continues."""

MAX_MARKS = 32
"""The number of a task's last stops and continues that are kept."""

MIN_SPEED = 0.001
"""The lowest speed that is emulated: a slower worker would be stopped for seconds at a time."""


@dataclass(slots=True)
class _Pace:
    """The account of the worker of one slot. It spans tasks, so short ones are slowed, too.

    owed   seconds for which it must still be stopped; negative if it was stopped for too long
    state  "runs", "stopping" (signalled, but it has not had a processor to stop), "stopped" by
           us, or "held": stopped from outside
    since  the instant up to which the account is booked
    due    the instant of the next action
    until  while stopping, the instant at which it is continued even if it did not stop
    looked the last instant at which it had not stopped yet
    marks  the account at the beginning of each of the last states of this task
    """

    speed: float
    owed: float
    pid: int = 0
    state: str = "runs"
    since: float = 0.0
    due: float = inf
    until: float = inf
    looked: float = 0.0
    marks: deque[tuple[float, float, str]] = field(
        default_factory=lambda: deque(maxlen=MAX_MARKS)
    )

    @property
    def by_us(self) -> bool:
        """Whether we have stopped it and not yet continued it."""
        return self.state in ("stopping", "stopped")

    @property
    def stop(self) -> float:
        """The length of a regular stop, in seconds."""
        shortest = LEAST_SECONDS / min(self.speed, 1 - self.speed)
        return max(PERIOD_SECONDS, shortest) * (1 - self.speed)

    def book(self, now: float) -> None:
        """Bring the account up to date. Stops from outside do not change it."""
        self.owed += self._earned(self.state, now - self.since)
        self.owed = max(-MAX_OWED, min(MAX_OWED, self.owed))
        self.since = now

    def turn_to(self, state: str) -> None:
        """Enter a state at the instant up to which the account is booked."""
        self.state = state
        self.marks.append((self.since, self.owed, state))

    def go_on(self, now: float, seconds_min: float = 0.0) -> None:
        """Run from now until it owes a regular stop, but at least for `seconds_min`."""
        self.since = now
        self.turn_to("runs")
        self.due = now + max(
            seconds_min, (self.stop - self.owed) * self.speed / (1 - self.speed)
        )

    def owed_within(self, started: float, over: float) -> float:
        """The account if only the time between these two instants counts.

        They delimit the task itself. Before, the worker was on its way to it; after, its reply
        may have waited for the manager for a long time.
        """
        begun, owed, _ = self.marks[0]
        early = 0.0
        if len(self.marks) < MAX_MARKS:  # Otherwise its beginning was dropped: it is long.
            early = self._owed_at(max(begun, started)) - owed
        return self._owed_at(over) - early

    def _owed_at(self, instant: float) -> float:
        for since, owed, state in reversed(self.marks):
            if since <= instant:
                return owed + self._earned(state, instant - since)
        return self.owed

    def _earned(self, state: str, seconds: float) -> float:
        """The change of the account after this time in a state."""
        if state == "stopped":
            return -seconds
        return 0.0 if state == "held" else seconds * (1 - self.speed) / self.speed


class CpuThrottle:
    """Slows worker processes while they run tasks, by SIGSTOP and SIGCONT to their groups.

    One thread does this. It keeps an account for each slot, so that a late wake-up or a lack of
    processor time changes when a worker is stopped, but not which part of the time it runs.
    Signals are sent only between `begin` and `end`. Call `end` before a process is reaped,
    because its process id may then be reused. After `end` a worker runs. A worker that was
    stopped from outside is not signalled until it is continued from outside.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paces: dict[int, _Pace] = {}  # by slot
        self._active: dict[int, _Pace] = {}  # those with a task
        self._sleeps_until = inf
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="slotwise-pacer", daemon=True)
        # Signals must reach the main thread: it can delay them, and it must wake up from poll.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def begin(self, slot: int, pid: int, speed: float) -> None:
        """Slow the worker of a slot, which has a task; `speed` < 1 is its part of the time."""
        with self._changed:
            pace = self._paces.get(slot)
            if pace is None:
                pace = self._paces[slot] = _Pace(speed, 0.0)
                pace.owed = pace.stop / 2  # The first stop is neither early nor late.
            pace.pid = pid
            pace.marks.clear()
            pace.go_on(time.monotonic())
            self._active[slot] = pace
            if pace.due < self._sleeps_until:
                self._changed.notify()

    def end(self, slot: int, started: float = 0.0, over: float = 0.0) -> None:
        """Stop slowing a slot: its task is over, or its worker is about to be killed.

        `started` and `over` are the instants at which the task itself began and ended, if it
        did; the call may come later.
        """
        if slot not in self._active:
            return  # No lock: only this thread changes the keys.
        with self._changed:
            pace = self._active.pop(slot)
            owed = pace.owed_within(started, over) if started else pace.owed
            _go_on(pace)
            if started:
                pace.owed = owed

    def forget(self, slot: int) -> None:
        """Drop the account of a slot that is removed and has no task."""
        self._paces.pop(slot, None)

    def nudge(self, slot: int) -> None:
        """Let the worker of a slot run now, if we have stopped it, so that it gets a signal.

        The account is kept, so its speed does not change.
        """
        with self._changed:
            pace = self._active.get(slot)
            if pace is not None and pace.by_us:
                pace.due, pace.state = -inf, "stopped"
                self._changed.notify()

    def is_held(self, slot: int, pid: int) -> bool:
        """Whether the worker of a slot was stopped from outside."""
        with self._changed:
            pace = self._active.get(slot)
            return is_stopped(pid, by_us=pace is not None and pace.by_us)

    def close(self) -> None:
        """Continue all workers and stop slowing them. Idempotent."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        """Stop and continue workers as due until `close`. At the end none is left stopped."""
        with self._changed:
            try:
                while not self._is_over:
                    due = min((pace.due for pace in self._active.values()), default=inf)
                    now = time.monotonic()
                    if due > now:
                        self._sleeps_until = due
                        self._changed.wait(min(due - now, threading.TIMEOUT_MAX))
                        self._sleeps_until = -inf
                        continue
                    for pace in self._active.values():
                        if pace.due <= now:
                            _turn(pace)
            finally:
                for pace in self._active.values():
                    _go_on(pace)
                self._active.clear()


def _turn(pace: _Pace) -> None:
    """Stop a worker that has run long enough, continue one that was stopped long enough.

    A worker that does not stop on the signal is continued at the same time as if it had. While
    it starts a child, it may wait for the child with signals blocked; the child is stopped, so
    neither would ever continue. This time counts as stopped, since the worker did nothing.
    """
    now = time.monotonic()
    if pace.state == "stopping" and pace.until <= now:
        pace.turn_to("stopped")
    if pace.state == "stopped":
        if _go_on(pace):
            pace.go_on(pace.since, LEAST_SECONDS)
        else:
            pace.due = pace.since + LOOK_SECONDS
        return
    if pace.state == "runs" and not is_stopped(pace.pid, by_us=False):
        _signal(pace, signal.SIGSTOP)
        pace.book(time.monotonic())
        pace.turn_to("stopping")
        now = pace.looked = pace.since
        pace.until = now + pace.owed
    if not is_stopped(pace.pid, by_us=False):
        if pace.state == "held":
            pace.go_on(now)
        else:
            pace.looked, pace.due = now, now + max(TAKEN_SECONDS, now - pace.since)
    elif pace.state == "stopping":
        pace.book((pace.looked + now) / 2)  # It stopped somewhere in between.
        pace.turn_to("stopped")
        pace.due = pace.since + pace.owed
    else:
        # It was stopped from outside at an unknown instant: its run since then is not counted.
        pace.since, pace.due = now, now + LOOK_SECONDS
        pace.turn_to("held")


def _go_on(pace: _Pace) -> bool:
    """Continue a worker that we stopped; False if it stays stopped from outside, too.

    The account is booked just before the signal, because this thread may lose the processor at
    any line, most likely when the worker has been woken up.
    """
    is_held = pace.by_us and is_stopped(pace.pid, by_us=True)
    pace.book(time.monotonic())
    if is_held:
        pace.turn_to("held")
    elif pace.by_us:
        _signal(pace, signal.SIGCONT)
        pace.state = "runs"
    return not is_held


def _signal(pace: _Pace, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pace.pid, number)
