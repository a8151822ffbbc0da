"""What the code of a task may ask and say while it runs: to be stopped without losing work.

Where a scheduler takes slots back, a running task is first told to stop; it is killed only if
it still runs when its grace period is over. `docs/howto/survive-preemption.md` says what a
task can do in between. All of this means the task that runs in this process; outside of any,
nobody is told, nothing is kept, and hooks are never called.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from typing import Any, NoReturn

SPEED_VARIABLE = "SLOTWISE_HOST_SPEED"
"""The variable of its environment by which a worker process knows the speed of its host."""

Hook = Callable[[float], object]
"""Called with the seconds that a task has left when it is told to stop."""


class Stopped(BaseException):
    """Ends a task that was told to stop; see `stop`. No Exception: user code lets it pass."""

    def __init__(self, value: object) -> None:
        super().__init__("the task ends before it is done, for it was told to stop")
        self.value = value


def stop_requested() -> bool:
    """Whether the task has been told to stop. Costs less than a microsecond: ask often."""
    return _attempt is not None and _attempt.until() is not None


def seconds_left() -> float:
    """The seconds until the task is killed; infinity if nobody has told it to stop."""
    until = None if _attempt is None else _attempt.until()
    return float("inf") if until is None else max(0.0, until - time.monotonic())


def on_stop_request(hook: Hook | None) -> None:
    """Have `hook(seconds_left)` called when the task is told to stop; at once if it was told.

    It is called once, in the task's own thread, between any two steps of it, like the handler
    of a signal. It may call `stop`. What else it raises is shown on stderr, and the task goes
    on. A later hook takes the place of an earlier one; None takes it away.
    """
    if _attempt is not None:
        _attempt.hooks[:] = [] if hook is None else [hook]
        _attempt.hear()


def stop(keep: object = None) -> NoReturn:
    """End the task now, before it is done, and keep a value for its next attempt.

    The next attempt, in whatever process, gets the value from `kept`. Without a value, what an
    earlier attempt kept stays. To be called in the task's own thread. Raises Stopped, which is
    not an Exception: however the task then ends, unless it returns, it has been stopped.
    RuntimeError if nobody has told it to.
    """
    if _attempt is None or _attempt.until() is None:
        raise RuntimeError(
            "nobody has told this task to stop; ask slotwise.task.stop_requested() first"
        )
    _attempt.stopped = Stopped(keep)
    raise _attempt.stopped


def kept(default: Any = None) -> Any:
    """What the last earlier attempt that kept something has kept, or the default.

    Raises whatever its unpickling raises.
    """
    if _attempt is None or not _attempt.has_kept:
        return default
    return _attempt.kept()


def host_speed() -> float:
    """The speed of the host that this task runs on: 1, unless a slower one is played here.

    A host that is played runs its tasks a part of the time. What a task only waits for, a
    sleep or an answer over a network, is not slowed by that; who wants it to be can ask here.
    """
    return float(os.environ.get(SPEED_VARIABLE, "1"))


def sleep(seconds: float) -> None:
    """A task that only sleeps: so many seconds on a host of speed 1, longer on a slower one.

    Told to stop, it stops; its next attempt sleeps the rest.
    """
    speed = host_speed()
    done = kept(0.0)
    begun = time.monotonic()
    try:
        on_stop_request(lambda _: stop(keep=done + (time.monotonic() - begun) * speed))
        time.sleep(max(0.0, seconds - done) / speed)
    except Stopped:
        if _attempt is not None:
            _attempt.torn = False  # No sleep is half done.
        raise


class Attempt:
    """One attempt of a task, as whoever runs it knows it.

    until  asked for the instant, on the clock of `time.monotonic`, at which it is killed;
           None while it has not been told to stop
    kept   the pickle of what an earlier attempt has kept, if one did

    Once `stop` was called, `stopped` is what it raised. If a hook called it, the attempt was
    `torn`: what it was doing, an import perhaps, may be half done.
    """

    def __init__(self, until: Callable[[], float | None], kept: bytes | None = None) -> None:
        self.until = until
        self.hooks: list[Hook] = []  # At most one; nothing cuts a `pop` in two.
        self.stopped: Stopped | None = None
        self.torn = False
        self.has_kept = kept is not None
        self._pickle = kept
        self._value: Any = None

    def kept(self) -> Any:
        """The kept value; it is unpickled once."""
        if self._pickle is not None:
            self._value, self._pickle = pickle.loads(self._pickle), None
        return self._value

    def hear(self) -> None:
        """Call the hook if the attempt was told to stop. Raises Stopped if the hook does."""
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
            import traceback  # Hardly ever needed, and not small.

            trace = traceback.format_exc()
            text = f"slotwise: the hook of a task told to stop failed: {trace}"
            os.write(2, text.encode())  # The task may be in the midst of a print of its own.


_attempt: Attempt | None = None


def begin(until: Callable[[], float | None], kept: bytes | None = None) -> Attempt:
    """An attempt, which from now on is the one that runs in this process; see Attempt."""
    global _attempt
    _attempt = Attempt(until, kept)
    return _attempt


def end() -> None:
    """No attempt runs any more: being told changes nothing from here on."""
    global _attempt
    _attempt = None
