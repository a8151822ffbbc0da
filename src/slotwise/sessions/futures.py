"""Futures of a session: the results of its calls and jobs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent import futures
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

from slotwise.backends.local.call_stream import (
    CallResult,
    StoredResult,
    input_of_call,
    number_of_input,
)
from slotwise.backends.local.worker import pickled, summary
from slotwise.forecast.eta import Eta
from slotwise.insight.explanation import Explanation
from slotwise.insight.report.session_table import SessionJob, future_html
from slotwise.sessions.notebook import NotebookCells

T = TypeVar("T")
Shown = TypeVar("Shown")

PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
"""States of a `concurrent.futures.Future`."""

ETA_SECONDS = 10.0
"""How long a question waits for the first forecast of a job, unless it says otherwise."""

STATES = {
    PENDING: "waiting",
    RUNNING: "running",
    "CANCELLED": "cancelled",
    "CANCELLED_AND_NOTIFIED": "cancelled",
}
"""The displayed states of a future without a result."""


class Control(Protocol):
    """The interface of a session for futures."""

    cells: NotebookCells | None
    """The cells of a notebook, which record new futures."""

    def ask(self, question: Callable[[], Shown]) -> Shown:
        """Call a function in the thread of the loop: what it reads is of one instant."""
        ...

    def shown_job(self, job: str) -> SessionJob | None:
        """A job that is not over, with the numbers of its tasks."""
        ...

    def stop_cancelled(self, future: Future[Any]) -> None:
        """Stop the call or the job of a cancelled future."""
        ...

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds, and why."""
        ...

    def eta(self, job: str | Future[Any], timeout: float) -> Eta | None:
        """When a job starts and ends."""
        ...

    def progress(self, job: str, task: int) -> tuple[float, float | None] | None:
        """The progress that a running call has reported."""
        ...

    def call_back(self, calls: Callable[[], None]) -> None:
        """Run the callbacks of a done future, outside the thread of the loop."""
        ...

    def take_step(self, step: Callable[[], None]) -> None:
        """Continue a call whose inputs are done; callbacks of users do not delay it."""
        ...


class PackedError(Exception):
    """Represents in a future an exception that is not unpickled yet."""

    def __init__(self, result: CallResult) -> None:
        super().__init__()
        self._result = result
        self._error: BaseException | None = None

    def error(self) -> BaseException:
        """The exception of the call; it is unpickled once."""
        if self._error is None:
            self._error = self._result.error()
        return self._error


class Future(futures.Future[T], Generic[T]):
    """The result of a call or a job in a session.

    It is a `concurrent.futures.Future`, and can be awaited in asyncio. In addition, `cancel`
    also stops a running call. Each call of `result` unpickles the value again. The methods
    from `_start` on are for the session; their names keep them out of completion in notebooks.

    job   the id of the job in the log; empty while the call waits for the results of others
    task  the number of the task in the job; None for a whole job
    """

    _origin: tuple[str, int] | None = None
    """The key and the number of a call that was sent to a server."""

    def __init__(self, control: Control, job: str = "", task: int | None = None) -> None:
        super().__init__()
        self.job, self.task, self._control = job, task, control
        self._steps: list[Callable[[], None]] = []
        if control.cells is not None:
            control.cells.add(self)

    def cancel(self) -> bool:
        """Cancel the call or job, also if it runs; return False if it is done."""
        with self._condition:
            if self.cancelled():
                return True
            if self._state == FINISHED:
                return False
            self._state = "CANCELLED"
            self._condition.notify_all()
            self.set_running_or_notify_cancel()
        self._invoke_callbacks()
        self._control.stop_cancelled(self)
        return True

    def result(self, timeout: float | None = None) -> T:
        """Return the result of the call; wait for it at most `timeout` seconds.

        Raises the exception of the call, with the traceback in the worker process as its cause;
        CancelledError if it was cancelled; TimeoutError.
        """
        try:
            found = super().result(timeout)
        except PackedError as packed:
            error = packed.error()
        else:
            return cast(T, found.value()) if isinstance(found, CallResult) else found
        raise error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the call, or None; wait like `result`."""
        found = super().exception(timeout)
        if isinstance(found, PackedError):
            return found.error()
        if found is None:
            try:
                self.result()
            except BaseException as unreadable:
                return unreadable
        return found

    def explain(self) -> Explanation:
        """Its job now: the tasks of each phase by state, the slots of the job, and why.

        If the job is over: how it ended, and how long and why it waited, as `status`.
        """
        return self._control.explain(self)

    def eta(self, timeout: float = ETA_SECONDS) -> Eta | None:
        """When its job starts and ends, as ranges in Unix seconds; see `Session.eta`.

        A call of an executor or of `map` has the ranges of all its calls together.
        """
        return self._control.eta(self, timeout)

    def progress(self) -> tuple[float, float | None] | None:
        """The progress of a running call: the amount done and the total, or None.

        It is what the call has reported by `slotwise.task.progress`. The total is None if it is
        unknown. None if the call does not run or has not reported.
        """
        if self.task is None or not self.running():
            return None
        return self._control.progress(self.job, self.task)

    def __repr__(self) -> str:
        # Called with locks held, so that it must not wait for the loop.
        state, problem = self._status()
        text = f"{state}: {problem}" if problem else state
        return f"<Future of {self._name()}: {text}>"

    def _repr_html_(self) -> str:
        def read() -> tuple[str, SessionJob | None]:
            is_shown = self._state in STATES and self.job
            job = self._control.shown_job(self.job) if is_shown else None
            if job is not None and self.task is None:
                return job.state, job
            return STATES.get(self._state, ""), job

        state, job = ("", None) if self.done() else self._control.ask(read)
        if job is None:  # It is over, or has not arrived yet.
            return future_html(self._name(), *self._status())
        return future_html(self._name(), state, job=job)

    def _name(self) -> str:
        if not self.job:
            return "a call"
        return f"job {self.job}" + ("" if self.task is None else f", task {self.task}")

    def _status(self) -> tuple[str, str]:
        """The displayed state, and why there is no result."""
        if self._state == PENDING and not self.job and self.task is None:
            return "waiting", "for the results of other calls"
        if self._state != FINISHED:
            return STATES[self._state], ""
        error = self._exception
        if isinstance(error, PackedError):
            error = error.error()
        return ("done", "") if error is None else ("failed", summary(error))

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    # For the session.

    def _start(self) -> bool:
        """Mark it as running; return False if it was cancelled."""
        with self._condition:  # `cancel` has already notified the waiters.
            if self._state == PENDING:
                self._state = RUNNING
            return bool(self._state == RUNNING)

    def _put_back(self) -> None:
        """Mark it as pending again after its task was stopped."""
        with self._condition:
            if self._state == RUNNING:
                self._state = PENDING

    def _settle(self, result: CallResult) -> None:
        """Set the result of its call, unless it was cancelled."""
        with suppress(futures.InvalidStateError):
            if result.is_value:
                self.set_result(cast(T, result))
            else:
                self.set_exception(PackedError(result))

    def _finish(self, value: T) -> None:
        """Set the result of its job, unless it is done or was cancelled."""
        with suppress(futures.InvalidStateError):
            self.set_result(value)

    def _fail(self, error: BaseException) -> None:
        """Set an exception, unless it is done or was cancelled."""
        with suppress(futures.InvalidStateError):
            self.set_exception(error)

    def _packed(self) -> bytes | StoredResult:
        """The pickled result of a done future, for another call."""
        found: object = super().result(0)
        return found.packed if isinstance(found, CallResult) else pickled(found)

    def _raised(self) -> BaseException | None:
        """The exception of a done future, not unpickled, or None."""
        return super().exception(0)

    def _is_of(self, control: object) -> bool:
        """Whether it is a future of the session `control`."""
        return self._control is control

    def _when_done(self, step: Callable[[], None]) -> None:
        """Call `step` when it is done, at once if it is."""
        with self._condition:
            if not self.done():
                self._steps.append(step)
                return
        self._control.take_step(step)

    def _invoke_callbacks(self) -> None:
        steps, self._steps = self._steps, []
        for step in steps:
            self._control.take_step(step)
        # Callbacks may be slow or wait for another future, so not in the thread of the loop.
        if self._done_callbacks:  # type: ignore[attr-defined]
            self._control.call_back(super()._invoke_callbacks)  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it, as an argument of a call of the session, as a reference to its result."""
        number = number_of_input(self)
        if number is None:
            raise TypeError(
                "a future of a session can be sent to another process only as an argument of a"
                " call of that session; elsewhere send its result"
            )
        return input_of_call, (number,)
