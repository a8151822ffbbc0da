"""A job whose tasks are calls of Python functions, added while it runs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from slotwise import task as running
from slotwise.model.errors import SlotwiseError
from slotwise.model.job import Job
from slotwise.runtime.local.worker import pickled, story

Call = tuple[bytes, ...]
"""The pickle of a function with its arguments, and the pickles of its inputs."""

LOSSES_MAX = 4
"""How often a call may lose its worker process before it fails."""


class Settled(Protocol):
    """What hears of the calls of a stream. All methods are called by the loop's thread."""

    def may_start(self, task: int) -> bool:
        """A call is about to start; False if it was cancelled."""
        ...

    def stopped(self, task: int) -> None:
        """A call was stopped before it was done; it will start again."""
        ...

    def done(self, task: int, result: CallResult) -> None:
        """A call is done."""
        ...


class CallResult:
    """What a call returned or raised, as a pickle."""

    __slots__ = ("is_value", "pickle")

    def __init__(self, is_value: bool, pickle_of_it: bytes) -> None:
        """`is_value` if it returned; otherwise it raised."""
        self.is_value, self.pickle = is_value, pickle_of_it

    def value(self) -> object:
        """What the call returned. Raises what unpickling raises."""
        assert self.is_value
        return pickle.loads(self.pickle)

    def error(self) -> BaseException:
        """What the call raised; its cause has the traceback in the worker process."""
        assert not self.is_value
        try:
            error, text = pickle.loads(self.pickle)
        except Exception as unreadable:
            return SlotwiseError(f"the exception of a call cannot be read: {unreadable}")
        assert isinstance(error, BaseException)
        error.__cause__ = RemoteTraceback(text)
        return error


class CallStream:
    """A job of one phase whose tasks are calls; `add` may be called from any thread.

    An exception that a call raises is its result, and the call is not repeated. A call that
    loses its worker process is repeated; after `LOSSES_MAX` times it fails, and the other calls
    continue.
    """

    runner_key = "slotwise call"

    def __init__(self, job: Job, settled: Settled) -> None:
        self.job = job
        self.runner: Callable[..., object] = run_call
        self._settled = settled
        self._calls: dict[int, Call] = {}
        self._losses: dict[int, int] = {}
        self.count = 0

    def add(self, call: Call) -> int:
        """Add a call; its task number. The caller holds a lock."""
        task = self.count
        self._calls[task] = call
        self.count += 1
        return task

    def open(self) -> None:
        """Do nothing: calls reserve no resources."""

    def skips(self, phase: str, task: int) -> bool:
        """Whether a call was cancelled, so that its task is done without a worker."""
        if self._settled.may_start(task):
            return False
        self._calls.pop(task, None)
        return True

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The pickles of the call and of its inputs."""
        return self._calls[task]

    def describe(self, phase: str, task: int) -> str:
        """The call and the job, for messages."""
        return f"call {task} of {self.job.id}"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Pass on the result of a call."""
        assert isinstance(result, tuple)
        self._end(task, CallResult(*result))

    def absorbs(self, phase: str, task: int, reason: str, is_lost: bool) -> bool:
        """Whether a failed attempt is the result of its call, and is not repeated."""
        if is_lost:
            self._losses[task] = losses = self._losses.get(task, 0) + 1
            if losses < LOSSES_MAX:
                return False
        error = LostCallError(reason) if is_lost else SlotwiseError(reason)
        self._end(task, CallResult(False, pickle.dumps((error, reason))))
        return True

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """The attempt was stopped or has failed; a call has no known files to remove."""
        if task in self._calls:
            self._settled.stopped(task)

    def close(self, succeeded: bool) -> None:
        """Do nothing: there is no output to commit."""

    def _end(self, task: int, result: CallResult) -> None:
        self._calls.pop(task, None)
        self._losses.pop(task, None)
        self._settled.done(task, result)


class LostCallError(SlotwiseError):
    """The worker process of a call ended abruptly, several times."""


class RemoteTraceback(Exception):
    """The traceback in the worker process; the cause of an exception that a call raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def pickled_call(
    fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[bytes, list[Any]]:
    """A call as it is sent to a worker process, and its inputs.

    Inputs are futures anywhere within the arguments. Raises what pickling raises.
    """
    _collected.inputs = []
    try:
        return pickled((fn, args, kwargs)), _collected.inputs
    finally:
        _collected.inputs = None


def number_of_input(future: object) -> int | None:
    """The number of an input of the call that is pickled in this thread; None without one."""
    inputs: list[object] | None = getattr(_collected, "inputs", None)
    if inputs is None:
        return None
    for number, other in enumerate(inputs):
        if other is future:
            return number
    inputs.append(future)
    return len(inputs) - 1


def input_of_call(number: int) -> object:
    """The value of an input, in the worker process in which the call is unpickled."""
    pickle_of_it = _collected.pickles[number]
    if number not in _collected.values:
        _collected.values[number] = pickle.loads(pickle_of_it)
    return _collected.values[number]


_collected = threading.local()


def run_call(pickle_of_call: bytes, *inputs: bytes) -> tuple[bool, bytes]:
    """Make a call in a worker process: (True, value) or (False, exception), as pickles."""
    try:
        _collected.pickles, _collected.values = inputs, {}
        fn, args, kwargs = pickle.loads(pickle_of_call)
        _collected.pickles = _collected.values = None
        return True, pickled(fn(*args, **kwargs))
    except running.Stopped:
        raise
    except BaseException as error:
        return False, failure(error)


def failure(error: BaseException) -> bytes:
    """The pickle of an exception and its traceback, as a `CallResult` holds it."""
    text = story(error)
    error.__traceback__ = None
    try:
        return pickled((error, text))
    except Exception:
        plain = SlotwiseError(f"{type(error).__name__}: {error}")
        return pickle.dumps((plain, text))
