"""Functions for the code of a running task: stop early, and keep work for the next attempt.

When a scheduler takes a slot back, it first asks the running task to stop. It kills the task
only if the task still runs at the end of its grace period. `docs/howto/survive-preemption.md`
describes what a task can do in between. All functions refer to the task that runs in this
process. Outside of a task no stop is requested, nothing is kept, and hooks are never called.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any, NoReturn

SPEED_VARIABLE = "SLOTWISE_HOST_SPEED"
"""The environment variable of a worker process with the speed of its host."""

Hook = Callable[[float], object]
"""Called with the seconds until the task is killed, when it is asked to stop."""


class Stopped(BaseException):
    """Ends a task that was asked to stop; see `stop`.

    It is not an Exception, so that `except Exception` in user code does not catch it.
    """

    def __init__(self, value: object) -> None:
        super().__init__("the task ends before it is done because it was asked to stop")
        self.value = value


def stop_requested() -> bool:
    """Whether the task has been asked to stop. Takes less than a microsecond."""
    return _attempt is not None and _attempt.until() is not None


def seconds_left() -> float:
    """The seconds until the task is killed; infinity if it has not been asked to stop."""
    until = None if _attempt is None else _attempt.until()
    return float("inf") if until is None else max(0.0, until - time.monotonic())


def on_stop_request(hook: Hook | None) -> None:
    """Call `hook(seconds_left)` when the task is asked to stop, or now if it already was.

    The hook is called once, in the task's own thread, between any two steps of the task, like
    a signal handler. It may call `stop`. Any other exception that it raises is shown on stderr,
    and the task continues. A later hook replaces an earlier one; None removes it.
    """
    if _attempt is not None:
        _attempt.hooks[:] = [] if hook is None else [hook]
        _attempt.on_signal()


def stop(keep: object = None) -> NoReturn:
    """End the task now, before it is done, and keep a value for its next attempt.

    The next attempt, in any process, gets the value from `kept`. Without a value, the value
    that an earlier attempt kept remains. Call this in the task's own thread. It raises Stopped,
    which is not an Exception: unless the task returns, it counts as stopped, however it ends.
    RuntimeError if the task has not been asked to stop.
    """
    if _attempt is None or _attempt.until() is None:
        raise RuntimeError(
            "this task was not asked to stop; check slotwise.task.stop_requested() first"
        )
    _attempt.stopped = Stopped(keep)
    raise _attempt.stopped


def kept(default: Any = None) -> Any:
    """The value kept by the latest earlier attempt that kept one, or the default.

    Raises whatever unpickling the value raises.
    """
    if _attempt is None or not _attempt.has_kept:
        return default
    return _attempt.kept()


def progress(done: float, total: float | None = None) -> None:
    """Report how much of the task is done, in any unit, and the total if it is known.

    `slotwise.Future.progress` returns the last report. It takes about a microsecond: the
    numbers are written to shared memory, which the session reads on request.
    """
    if _attempt is not None:
        _attempt.report(done, float("nan") if total is None else total)


def host_speed() -> float:
    """The speed of the host on which this task runs: 1, unless the host is emulated.

    An emulated host runs its tasks a part of the time. This does not slow down waiting, such as
    a sleep or a request over a network. A task can use this number to slow down its waits too.
    """
    return float(os.environ.get(SPEED_VARIABLE, "1"))


_PIECE_SECONDS = 1.0
"""The longest sleep at once: a signal that comes just before one is seen when it ends."""


def sleep(seconds: float) -> None:
    """Sleep: the given seconds on a host of speed 1, longer on a slower one.

    It is a task that stops when requested to, and whose next attempt sleeps for the rest.
    """
    speed = host_speed()
    done = kept(0.0)
    begun = time.monotonic()
    try:
        on_stop_request(lambda _: stop(keep=done + (time.monotonic() - begun) * speed))
        left = max(0.0, seconds - done) / speed
        ends = begun + left
        while left > 0:
            time.sleep(min(left, _PIECE_SECONDS))
            left = ends - time.monotonic()
    except Stopped:
        if _attempt is not None:
            _attempt.torn = False  # No sleep is half done.
        raise


class RunningAttempt:
    """One attempt of a task, for the code that runs it.

    until   returns the instant, as `time.monotonic()`, at which the attempt is killed; None
            while it has not been asked to stop
    kept    the pickle of the value that an earlier attempt kept, or None
    report  is called with the arguments of `progress`; an unknown total is nan
    memory  is called with the memory that its processes use, in bytes, if its code measures it
    peak    the greatest of these numbers; 0 without any

    After a call of `stop`, `stopped` is the exception that it raised. If a hook called it, the
    attempt is `torn`: its current operation, such as an import, may be half done.
    """

    def __init__(
        self,
        until: Callable[[], float | None],
        kept: bytes | None = None,
        report: Callable[[float, float], None] = lambda done, total: None,
        memory: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.until, self.report, self.memory = until, report, memory
        self.hooks: list[Hook] = []  # At most one. `pop` is atomic.
        self.stopped: Stopped | None = None
        self.torn = False
        self.peak = 0
        self.has_kept = kept is not None
        self._pickle = kept
        self._value: Any = None

    def kept(self) -> Any:
        """The kept value, which is unpickled once."""
        if self._pickle is not None:
            self._value, self._pickle = pickle.loads(self._pickle), None
        return self._value

    def on_signal(self) -> None:
        """Call the hook if a stop was requested. Raises Stopped if the hook does."""
        until = self.until()
        if until is None or not self.hooks:
            return
        hook = self.hooks.pop()
        try:
            hook(max(0.0, until - time.monotonic()))
        except Stopped:
            self.torn = True
            raise
        except BaseException:
            import traceback  # Rarely needed, and slow to import.

            trace = traceback.format_exc()
            text = f"slotwise: the stop hook of a task failed: {trace}"
            os.write(2, text.encode())  # Not by `print`, in which the task itself may be.


_attempt: RunningAttempt | None = None


def begin(
    until: Callable[[], float | None],
    kept: bytes | None = None,
    report: Callable[[float, float], None] = lambda done, total: None,
    memory: Callable[[int], None] = lambda size: None,
) -> RunningAttempt:
    """Create an attempt and make it the one that runs in this process; see RunningAttempt."""
    global _attempt
    _attempt = RunningAttempt(until, kept, report, memory)
    return _attempt


def end() -> None:
    """Mark that no attempt runs in this process: later stop requests have no effect."""
    global _attempt
    _attempt = None


def report_memory(size: int, *, is_over: bool = False) -> None:
    """Report how much memory the processes of the running attempt use together, in bytes.

    If it `is_over`, that is how much they have used at most. For the code that runs commands:
    without a report, the memory of this process counts.
    """
    if _attempt is not None:
        _attempt.peak = max(_attempt.peak, size)
        _attempt.memory(0 if is_over else size)
