"""Runs calls in slots: pickles them, and lets worker processes run them."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import cloudpickle

from slotwise.backends.executing import Pickle
from slotwise.backends.local.processes import Answer
from slotwise.backends.local.worker import pickled, summary
from slotwise.core.errors import InputChanged
from slotwise.jobs.execution import LostAttemptError, LostInputError
from slotwise.jobs.pickling import sent_by_value


class Slots(Protocol):
    """Runs pickled tasks in slots, by processes of this machine or of several hosts."""

    def remove(self, slots: Iterable[int]) -> None:
        """Remove slots, and kill their workers with their tasks; `wait` reports nothing."""
        ...

    def learn(self, key: str, runner: bytes) -> None:
        """Register the pickled runner of a key, for tasks that are started later."""
        ...

    def start(
        self, slot: int, key: str, task: bytes, kept: Pickle = b"", *, sleeps: bool = False
    ) -> None:
        """Start a task in a free slot, without waiting for it to begin.

        UserCodeError for a task that cannot be sent.
        """
        ...

    def wait(self, timeout: float | None = None) -> list[Answer]:
        """Block until some tasks have ended or `wake` is called, at most `timeout` seconds."""
        ...

    def wake(self) -> None:
        """Make `wait` return soon. May be called from any thread; no effect after `close`."""
        ...

    def request_stop(self, slot: int, until: float) -> None:
        """Ask the task in a slot to stop before `until` (as `time.monotonic()`)."""
        ...

    def kill(self, slot: int) -> None:
        """Stop the task in a slot by SIGKILL; `wait` reports nothing. The slot is free then."""
        ...

    def forget(self, key: str) -> None:
        """Drop the runner of a key, whose job is over."""
        ...

    def is_stopped(self, slot: int) -> bool:
        """Whether another process stopped the worker of a slot, or its host is silent."""
        ...

    def progress(self, slot: int) -> tuple[float, float | None] | None:
        """The progress that the task in a slot has reported: the amount done and the total."""
        ...

    def close(self) -> None:
        """Kill all workers."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of the task in a slot. Times in seconds; `started` as `time.monotonic()`.

    `value` depends on `status`:

    done          the result: the bytes that a task returned, or if it `is_pickled` the pickle
                  of what it returned; reading that runs code of users
    error         the formatted traceback, or an error of `slotwise.jobs.execution`
    stopped       the pickle of the value that the task kept when it was asked to stop, or empty
    lost, exited  a sentence on the end of the worker process; the times are 0. A task has
                  exited if its process ended by itself
    """

    slot: int
    status: Literal["done", "error", "stopped", "lost", "exited"]
    value: object
    started: float = 0.0
    seconds: float = 0.0
    is_pickled: bool = False

    def opened(self) -> Reply:
        """The reply with an unpickled result, or with the error of the attempt to read it."""
        if not self.is_pickled:
            return self
        body: Any = self.value
        status: Literal["done", "error"] = "done"
        try:
            value = of_user(lambda: pickle.loads(body))
        except UserCodeError as error:
            status, value = "error", f"the result of the task cannot be read: {error}"
        return Reply(self.slot, status, value, self.started, self.seconds)


class Workers:
    """Runs calls in slots, one in each at a time. `close` also closes the slots."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.wake, self.request_stop, self.close = slots.wake, slots.request_stop, slots.close
        self.is_stopped, self.progress = slots.is_stopped, slots.progress
        self._paths: dict[str, list[str]] = {}  # the sys.path with each runner that was sent
        self._early: list[Reply] = []

    def remove(self, slots: Iterable[int]) -> None:
        """Remove slots, and kill their workers; `wait` reports nothing."""
        removed = set(slots)
        self._early = [reply for reply in self._early if reply.slot not in removed]
        self.slots.remove(removed)

    def start(
        self,
        slot: int,
        key: str,
        runner: Callable[..., object],
        arguments: tuple[object, ...],
        kept: Pickle = b"",
        *,
        sleeps: bool = False,
    ) -> None:
        """Start `runner(*arguments)` in a free slot, without waiting for it to begin.

        The runner is pickled once for each key and sent once to each worker, and again when the
        sys.path of this process has changed; otherwise a later runner for the same key is
        ignored. `kept` is the pickle of the value that an earlier attempt kept. Errors are
        reported by `wait`. A task that `sleeps` adapts to the speed of its slot itself, and is
        not slowed.
        """
        try:
            if self._paths.get(key) != sys.path:
                self.forget(key)
                sent, path = of_user(lambda: sent_by_value(runner)), list(sys.path)
                # With the path, the worker can import the same modules as this process.
                self.slots.learn(key, pickle.dumps((path, key, sent)))
                self._paths[key] = path
            task = of_user(lambda: pickled_task((key, arguments)))
            self.slots.start(slot, key, task, kept, sleeps=sleeps)
        except UserCodeError as error:
            text = f"the task cannot be sent to a worker process: {error}"
            self._early.append(Reply(slot, "error", text))

    def wait(self, timeout: float | None = None) -> list[Reply]:
        """Block until some tasks have ended or `wake` is called, at most `timeout` seconds.

        None means forever. A call costs one system call, and one for each task that has ended.
        """
        early, self._early = self._early, []
        answers = self.slots.wait(0.0 if early else timeout)
        return early + [_reply(answer) for answer in answers]

    def kill(self, slot: int) -> None:
        """Stop the task in a slot by SIGKILL to all its processes; `wait` reports nothing.

        The slot is free on return: a task can be started before the new worker is ready.
        """
        self._early = [reply for reply in self._early if reply.slot != slot]
        self.slots.kill(slot)

    def forget(self, key: str) -> None:
        """Drop the runner of a key, whose job is over, here and in all workers."""
        if self._paths.pop(key, None) is not None:
            self.slots.forget(key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _reply(answer: Answer) -> Reply:
    """The reply for an answer. No result is unpickled."""
    slot, status, body, started, seconds = answer
    if status == "lost" or status == "exited" or status == "stopped":
        return Reply(slot, status, body, started, seconds)
    if status == "unreadable":
        return Reply(slot, "error", body, started, seconds)
    assert not isinstance(body, str)
    if status == "bytes":
        return Reply(slot, "done", bytes(body), started, seconds)
    if status == "error":
        return Reply(slot, "error", _error(body), started, seconds)
    return Reply(slot, status, body, started, seconds, is_pickled=True)


def _error(body: Pickle) -> object:
    """The error of a task, or its text; see `worker.error_body`."""
    try:
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


def of_user(call: Callable[[], T]) -> T:
    """The result of a call that runs user code, such as pickling.

    UserCodeError for any exception of that code, even SystemExit. A KeyboardInterrupt is
    attributed to a signal and raised, unless a second call raises it again.
    """
    try:
        return call()
    except KeyboardInterrupt as first:
        try:
            call()
        except KeyboardInterrupt as second:
            raise UserCodeError(summary(second)) from None
        except BaseException:
            raise first from None
        raise
    except BaseException as error:
        raise UserCodeError(summary(error)) from None


def pickled_task(value: tuple[str, tuple[object, ...]]) -> bytes:
    """Pickle a key and arguments; registered modules are pickled by value."""
    if PLAIN.issuperset(map(type, value[1])):  # Bytes may be a pickle that names `__main__`.
        return pickle.dumps(value, protocol=5)
    if cloudpickle.list_registry_pickle_by_value():
        return sent_by_value(value)
    return pickled(value)
