"""One call as a job: how it travels to a worker process, and its result back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping

from slotwise import task as running
from slotwise.model.errors import SlotwiseError
from slotwise.model.job import Job
from slotwise.runtime.local.worker import pickled, story


class CallError(Exception):
    """A call cannot be sent to a worker process; `cause` is the error of pickling it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Call:
    """A job of one call, `fn(*args, **kwargs)`, whose exception is a result like any other.

    CallError if it cannot be pickled.
    """

    def __init__(
        self,
        job: Job,
        fn: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        self.job = job
        self.runner: Callable[..., object] = run_call
        self.runner_key = "slotwise call"
        self._name = getattr(fn, "__qualname__", repr(fn))
        try:
            self._pickle = pickled((fn, args, dict(kwargs)))
        except Exception as error:
            raise CallError(error) from error
        self._result: tuple[bool, bytes] | None = None

    def open(self) -> None:
        """Do nothing: a call reserves no resources."""

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The pickle of the call."""
        return (self._pickle,)

    def describe(self, phase: str, task: int) -> str:
        """The function and the job, for messages."""
        return f"{self._name} ({self.job.id})"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Keep the pickle of the value or of the exception."""
        assert isinstance(result, tuple)
        self._result = result

    def value(self) -> object:
        """What the call returned; raises what it raised."""
        assert self._result is not None
        is_value, pickle_of_it = self._result
        value = pickle.loads(pickle_of_it)
        if is_value:
            return value
        error, trace = value
        error.__cause__ = RemoteTraceback(trace)
        raise error

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Do nothing: a call has no known files to remove."""

    def close(self, succeeded: bool) -> None:
        """Do nothing: there is no output to commit."""


class RemoteTraceback(Exception):
    """The traceback in the worker process; the cause of an exception that a call raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def run_call(pickle_of_call: bytes) -> tuple[bool, bytes]:
    """Make a call in a worker process: (True, value) or (False, exception), as pickles."""
    try:
        fn, args, kwargs = pickle.loads(pickle_of_call)
        return True, pickled(fn(*args, **kwargs))
    except running.Stopped:
        raise
    except BaseException as error:
        text = story(error)
        try:
            return False, pickled((error, text))
        except Exception:
            return False, pickle.dumps(
                (SlotwiseError(f"{type(error).__name__}: {error}"), text)
            )
