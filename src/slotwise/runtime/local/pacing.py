"""Slow hosts, played: worker processes that run a part of the time, by stop and continue.

A worker of a host of speed s runs while its task runs, is stopped when it has run for long
enough, and goes on when it has been stopped for (1 - s) / s of that time. See
docs/decisions/0017-slowed-hosts.md for why so, and for what it costs and how exact it is.
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

from slotwise.runtime.local.stopped import is_stopped

PERIOD_SECONDS = 0.05
"""A run and the stop after it take about so long together."""

LEAST_SECONDS = 0.002
"""No run and no stop is meant to be shorter: the period gets longer for very small parts."""

OWED_MOST = 5.0
"""What a worker owes of stops, or has paid too much of them, beyond this is forgotten: seconds.

It matters only where the thread below could not run for long.
"""

TAKEN_SECONDS = 0.0001
"""When we first look whether a worker has taken a stop; then after twice as long, and so on."""

LOOK_SECONDS = 0.05
"""How often we look whether a worker that somebody else has stopped goes on."""

MARKS_MOST = 32
"""So many of the last stops and continues of a task are remembered."""

SPEED_LEAST = 0.001
"""Slower than this is not played: such a worker would be stopped for a second at a time."""


@dataclass(slots=True)
class _Pace:
    """How a worker of one slot is slowed; kept from task to task, so that short ones are, too.

    owed   seconds for which it must yet be stopped for what it has run; negative: it has been
           stopped for longer than it should
    state  "runs", "stopping" (it was told, but has not had a processor to hear it), "stopped"
           by us, or "held": stopped by somebody else
    since  the instant from which on the account is open
    due    the instant at which to do something about it
    until  while stopping, the instant from which on it is continued though it took no stop
    looked the last instant at which it had not taken it
    marks  how the account stood when the last states of this task began
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
        default_factory=lambda: deque(maxlen=MARKS_MOST)
    )

    @property
    def by_us(self) -> bool:
        """Whether we have told it to stop and not yet to go on."""
        return self.state in ("stopping", "stopped")

    @property
    def stop(self) -> float:
        """The seconds of an ordinary stop."""
        min_share = LEAST_SECONDS / min(self.speed, 1 - self.speed)
        return max(PERIOD_SECONDS, min_share) * (1 - self.speed)

    def book(self, now: float) -> None:
        """Bring the account up to date. What somebody else's stop takes is not our concern."""
        self.owed += self._earned(self.state, now - self.since)
        self.owed = max(-OWED_MOST, min(OWED_MOST, self.owed))
        self.since = now

    def turn_to(self, state: str) -> None:
        """From the instant on to which the account is booked it is in this state."""
        self.state = state
        self.marks.append((self.since, self.owed, state))

    def go_on(self, now: float, min_share: float = 0.0) -> None:
        """From now on it runs, until it owes an ordinary stop, but at least for so long."""
        self.since = now
        self.turn_to("runs")
        self.due = now + max(min_share, (self.stop - self.owed) * self.speed / (1 - self.speed))

    def owed_within(self, started: float, over: float) -> float:
        """How the account stands if only what passed between these instants counts.

        That is the task itself: before, the worker was on its way to it; after, nobody may
        have listened to it for long.
        """
        begun, owed, _ = self.marks[0]
        early = 0.0
        if len(self.marks) < MARKS_MOST:  # Else the beginning is forgotten, and the task long.
            early = self._owed_at(max(begun, started)) - owed
        return self._owed_at(over) - early

    def _owed_at(self, instant: float) -> float:
        for since, owed, state in reversed(self.marks):
            if since <= instant:
                return owed + self._earned(state, instant - since)
        return self.owed

    def _earned(self, state: str, seconds: float) -> float:
        """By how much the account grows in so long a time in a state."""
        if state == "stopped":
            return -seconds
        return 0.0 if state == "held" else seconds * (1 - self.speed) / self.speed


class Pacer:
    """Slows worker processes while they run tasks, by SIGSTOP and SIGCONT to their groups.

    One thread does it by the clock. It keeps an account for each slot, so waking up late or
    being kept from running changes when a worker is stopped, but not what part of the time it
    runs. Only what stands between `begin` and `end` is signalled: call `end` before a process
    is reaped, for then its number may become that of another. After `end` a worker runs.
    A worker that somebody else has stopped is left alone until somebody continues it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._paces: dict[int, _Pace] = {}  # by slot
        self._active: dict[int, _Pace] = {}  # those with a task
        self._sleeps_until = inf
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="slotwise-pacer", daemon=True)
        # Signals are for the main thread: it alone can let them wait, and it sleeps in poll.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def begin(self, slot: int, pid: int, speed: float) -> None:
        """A task runs in the worker of a slot, which is to run this part (< 1) of the time."""
        with self._changed:
            pace = self._paces.get(slot)
            if pace is None:
                pace = self._paces[slot] = _Pace(speed, 0.0)
                pace.owed = pace.stop / 2  # The first stop comes neither early nor late.
            pace.pid = pid
            pace.marks.clear()
            pace.go_on(time.monotonic())
            self._active[slot] = pace
            if pace.due < self._sleeps_until:
                self._changed.notify()

    def end(self, slot: int, started: float = 0.0, over: float = 0.0) -> None:
        """The task of a slot is over, or its worker is about to be killed; it runs on.

        `started` and `over` are the instants at which the task itself began and ended, if it
        did: we may learn of it late.
        """
        if slot not in self._active:
            return  # This thread alone changes which are there.
        with self._changed:
            pace = self._active.pop(slot)
            owed = pace.owed_within(started, over) if started else pace.owed
            _go_on(pace)
            if started:
                pace.owed = owed

    def nudge(self, slot: int) -> None:
        """Let the worker of a slot run now, if we have stopped it: it has something to hear.

        The account remembers, so its speed stays what it is.
        """
        with self._changed:
            pace = self._active.get(slot)
            if pace is not None and pace.by_us:
                pace.due, pace.state = -inf, "stopped"
                self._changed.notify()

    def is_held(self, slot: int, pid: int) -> bool:
        """Whether somebody else has stopped the worker of a slot."""
        with self._changed:
            pace = self._active.get(slot)
            return is_stopped(pid, by_us=pace is not None and pace.by_us)

    def close(self) -> None:
        """Continue all, and stop slowing. Idempotent."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        """Stop and continue what is due until `close`; whatever happens, none stays stopped."""
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
    """Stop what has run long enough, continue what has been stopped long enough.

    What does not take a stop is continued all the same when it would have been. One that is
    starting a child may wait for that without hearing signals, while the child is stopped:
    neither would ever go on. It counts as stopped, for it did nothing.
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
        pace.book((pace.looked + now) / 2)  # It took the stop somewhere in between.
        pace.turn_to("stopped")
        pace.due = pace.since + pace.owed
    else:
        # Somebody else did it, nobody knows when: what it ran since it went on is not counted.
        pace.since, pace.due = now, now + LOOK_SECONDS
        pace.turn_to("held")


def _go_on(pace: _Pace) -> bool:
    """Continue what we have stopped; False if somebody else has stopped it, too: it stays.

    The account is brought up to date to the instant of the signal. This thread may have to
    wait for a processor at any line, the more so once the worker has been woken up.
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
