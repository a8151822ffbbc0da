"""Runs calls in slots: pickles them, and lets worker processes run them."""

from __future__ import annotations

import json
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import cloudpickle

from slotwise.backends.attempt_logs import Printing
from slotwise.backends.executing import Pickle
from slotwise.backends.local.memory_watch import Allotment
from slotwise.backends.local.worker import pickled, summary
from slotwise.core.errors import InputChanged, NotRetriedError
from slotwise.jobs.accounts import Account
from slotwise.jobs.execution import LostAttemptError, LostInputError
from slotwise.jobs.pickling import sent_by_value

Status = Literal[
    "done", "bytes", "error", "stopped", "unreadable", "lost", "exited", "exceeded", "short"
]
"""How a task in a slot has ended, as its worker process or its agent reports it."""

TEXTS = frozenset({"unreadable", "lost", "exited", "exceeded", "short"})
"""What is reported with a sentence; all else comes with bytes."""


class Reply(NamedTuple):
    """The outcome of the task in a slot. Times in seconds; `started` as `time.monotonic()`.

    `peak` is the greatest memory of its processes in bytes, or 0 if it was not measured.

    `value` depends on `status`; nothing of it is unpickled before `opened`:

    done          the pickle of what a task returned; reading that runs code of users
    bytes         what a task returned, if it is bytes
    error         the JSON of an error, see `worker.error_body`
    stopped       the pickle of the value that the task kept when it was asked to stop, or empty
    unreadable    a sentence on why the reply cannot be received
    lost, exited  a sentence on the end of the worker process; the times are 0. A task has
                  exited if its process ended by itself
    exceeded      why it was stopped: it has used more memory than its limit,
    short         or more than it got while its machine was short of memory
    """

    slot: int
    status: Status
    value: object
    started: float = 0.0
    seconds: float = 0.0
    peak: int = 0

    def opened(self, *, unpickles: bool = True) -> Reply:
        """The reply with a result if it is done, and the text or the exception of an error.

        If it `unpickles`, a result is unpickled, or replaced by the error of the attempt.
        """
        body: Any = self.value
        status: Status = self.status
        if status == "bytes":
            status, body = "done", bytes(body)
        elif status == "unreadable":
            status = "error"
        elif status == "error":
            body = _error(body)
        elif status == "done" and unpickles:
            try:
                body = of_user(pickle.loads, self.value)
            except UserCodeError as error:
                status, body = "error", f"the result of the task cannot be read: {error}"
        else:
            return self
        return Reply(self.slot, status, body, self.started, self.seconds, self.peak)


class Conditions(NamedTuple):
    """The conditions under which a task runs.

    kept     the pickle of the value that an earlier attempt kept
    sleeps   whether the task adapts to the speed of its slot itself, and is not slowed
    output   gets what the task prints, all of it before `wait` returns its reply
    devices  the GPUs of its host that variables name to it; then it has a worker process of
             its own
    memory   what it got; it may be stopped, see `MemoryWatch`
    account  the account of its worker process, which runs no task of another one
    """

    kept: Pickle = b""
    sleeps: bool = False
    output: Printing | None = None
    devices: tuple[int, ...] = ()
    memory: Allotment | None = None
    account: Account | None = None


USUAL = Conditions()
"""Those of a task that continues nothing, prints to nobody and has got nothing."""


class Workers(ABC):
    """Runs calls in slots, one in each at a time, by processes of this machine or of others."""

    def __init__(self) -> None:
        self._runners: dict[str, bytes] = {}
        self._paths: dict[str, list[str]] = {}  # the sys.path with each runner

    def start(
        self,
        slot: int,
        key: str,
        runner: Callable[..., object],
        arguments: tuple[object, ...],
        conditions: Conditions = USUAL,
    ) -> None:
        """Start `runner(*arguments)` in a free slot, without waiting for it to begin.

        The runner is pickled once for each key and sent once to each worker, and again when the
        sys.path of this process has changed; otherwise a later runner for the same key is
        ignored. UserCodeError for a task that cannot be sent; then the slot is still free.
        """
        try:
            if self._paths.get(key) != sys.path:
                self.forget(key)
                sent, path = of_user(sent_by_value, runner), list(sys.path)
                # With the path, the worker can import the same modules as this process.
                self.learn(key, pickle.dumps((path, key, sent)))
                self._paths[key] = path
            # Bytes count as plain, which may be a pickle that names `__main__`.
            if PLAIN.issuperset(map(type, arguments)):
                task = pickle.dumps((key, arguments), protocol=5)
            else:
                task = of_user(pickled_task, (key, arguments))
            self.start_pickled(slot, key, task, conditions)
        except UserCodeError as error:
            text = f"the task cannot be sent to a worker process: {error}"
            raise UserCodeError(text) from None

    def learn(self, key: str, runner: bytes) -> None:
        """Register the pickled runner of a key, for tasks that are started later."""
        self._runners[key] = runner

    @abstractmethod
    def start_pickled(
        self, slot: int, key: str, task: bytes, conditions: Conditions = USUAL
    ) -> None:
        """Start a task in a free slot; its runner is sent once to each worker."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> list[Reply]:
        """Block until some tasks have ended or `wake` is called, at most `timeout` seconds.

        None means forever. A call costs one system call, and one for each task that has ended.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make `wait` return soon. May be called from any thread; no effect after `close`."""

    @abstractmethod
    def request_stop(self, slot: int, until: float) -> None:
        """Ask the task in a slot to stop before `until` (as `time.monotonic()`).

        It does not kill the task; use `kill`. It affects neither a task that has just ended nor
        the next one. A further call gives the task the new instant.
        """

    @abstractmethod
    def kill(self, slot: int) -> None:
        """Stop the task in a slot by SIGKILL to all its processes; `wait` reports nothing.

        The slot is free on return: a task can be started before the new worker is ready.
        """

    @abstractmethod
    def remove(self, slots: Iterable[int]) -> None:
        """Remove slots, and kill their workers with their tasks; `wait` reports nothing."""

    def forget(self, key: str) -> None:
        """Drop the runner of a key, whose job is over, here and in all workers."""
        self._paths.pop(key, None)
        if self._runners.pop(key, None) is not None:
            self._forget(key)

    @abstractmethod
    def _forget(self, key: str) -> None: ...

    @abstractmethod
    def is_stopped(self, slot: int) -> bool:
        """Whether another process stopped the worker of a slot, or its host is silent."""

    @abstractmethod
    def progress(self, slot: int) -> tuple[float, float | None] | None:
        """The progress that the task in a slot has reported: the amount done and the total."""

    @abstractmethod
    def close(self) -> None:
        """Kill all workers and the processes that user code started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


ERROR_BYTES_MAX = 16 << 20
"""The longest error of a task, which user code may have sent: as objects it takes much more."""


def _error(body: Pickle) -> object:
    """The error of a task, or its text; see `worker.error_body`."""
    try:
        if len(body) > ERROR_BYTES_MAX:
            raise ValueError("it is too long")
        kind, *arguments = json.loads(body)
        if kind == "LostInputError":
            phase, outputs, place, why = arguments
            pairs = tuple((int(task), int(attempt)) for task, attempt in outputs)
            return LostInputError(str(phase), pairs, str(place), str(why))
        (text,) = arguments
        kinds: dict[str, Callable[[str], object]] = {
            "": str,
            "LostAttemptError": LostAttemptError,
            "InputChanged": InputChanged,
            "NotRetriedError": NotRetriedError,
        }
        return kinds[kind](str(text))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        return f"the error of the task cannot be read: {error}"


# User code that runs in the manager: pickling, and unpickling of results.

PLAIN = frozenset((type(None), bool, int, float, str, bytes))
"""Types of values whose pickles need no code."""

T = TypeVar("T")


class UserCodeError(Exception):
    """User code in the manager has failed; the message is the type and message of its error."""


def of_user(function: Callable[..., T], argument: object) -> T:
    """The result of a function that runs user code, such as pickling.

    UserCodeError for any exception of that code, even SystemExit. A KeyboardInterrupt is
    attributed to a signal and raised, unless a second call raises it again.
    """
    try:
        return function(argument)
    except KeyboardInterrupt as first:
        try:
            function(argument)
        except KeyboardInterrupt as second:
            raise UserCodeError(summary(second)) from None
        except BaseException:
            raise first from None
        raise
    except BaseException as error:
        raise UserCodeError(summary(error)) from None


def pickled_task(value: tuple[str, tuple[object, ...]]) -> bytes:
    """Pickle a key and arguments; registered modules are pickled by value."""
    if cloudpickle.list_registry_pickle_by_value():
        return sent_by_value(value)
    return pickled(value)
