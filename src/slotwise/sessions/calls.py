"""The calls of a session: their submission, and the futures of calls that are not done."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from slotwise.backends.inbox import Inbox, StopTask
from slotwise.backends.local.call_stream import (
    Call,
    CallFiles,
    CallResult,
    CallStream,
    SharedInput,
    StoredResult,
    pickled_call,
)
from slotwise.core.errors import (
    InputError,
    SlotwiseError,
    check_number,
    check_text,
    check_whole,
)
from slotwise.core.events import JobCancelled, PhaseClosed
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.resources import NOTHING, requested
from slotwise.sessions.futures import Control, Future

MAX_CALLS = 100_000
"""The most calls of one job of an executor; further calls go to a new job, to free memory."""

PHASE = "call"
"""The name of the phase of a job of calls."""

T = TypeVar("T")


class CallHost(Control, Protocol):
    """The interface for calls of a session, or of a client of a server."""

    lock: threading.RLock
    files: CallFiles

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        ...

    def stream(self, job: Job) -> OpenStream:
        """Begin a job of calls; the caller holds the lock."""
        ...

    def check_job(self, job: Job) -> None:
        """InputError for a job that the present pools or objective do not allow."""
        ...

    def unused(self, name: str) -> str:
        """A name that no job has had, derived from `name`."""
        ...

    def check_open(self, *, had_waited: bool) -> None:
        """RuntimeError if no more calls are accepted; calls that have waited still are."""
        ...

    def waits(self, more: int) -> None:
        """Add to the number of calls that wait for the results of others."""
        ...


class LoopHost(CallHost, Protocol):
    """The interface of a session for the jobs of calls that its loop runs."""

    inbox: Inbox
    attempts_max: int

    def begin(self, calls: OpenCalls) -> None:
        """Begin a job of calls; the caller holds the lock."""
        ...

    def settle(self, future: Future[Any], result: CallResult) -> None:
        """Set the result of a future at the end of the turn."""
        ...


class OpenStream(Protocol):
    """A job of calls, with the futures of those that are not done by task."""

    count: int
    of_task: dict[int, Future[Any]]

    def add(self, future: Future[Any], call: Call) -> None:
        """Submit a call; the caller holds the lock."""
        ...

    def end(self) -> None:
        """Accept no more calls; the caller holds the lock. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """The properties of the job of an executor; `deadline` in seconds from its first call."""

    name: str = "call"
    pool: str = "default"
    weight: float = 1.0
    deadline: float | None = None
    priority: str = "normal"
    slots: int = 1
    slots_max: int | None = None
    attempts: int | None = None
    retry_delay: float | None = None
    time_limit: float | None = None
    time_requested: float | None = None
    resources: Mapping[str, Any] | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        for what in ("name", "pool", "priority"):
            check_text(what, getattr(self, what))
        check_number("weight", self.weight)
        if self.deadline is not None:
            check_number("deadline", self.deadline)
        check_whole("slots", self.slots)
        if self.slots_max is not None:
            check_whole("slots_max", self.slots_max)
        object.__setattr__(self, "resources", requested("resources", self.resources))

    def job(self, *, grows: bool) -> Job:
        """A job of one call, to which more can be added if it `grows`."""
        phase = Phase(
            PHASE,
            Tasks(1),
            slots=self.slots,
            slots_max=self.slots_max,
            grows=grows,
            resources=self.resources or NOTHING,
        )
        return Job(
            self.name,
            (phase,),
            0.0,
            self.pool,
            self.weight,
            self.deadline,
            priority=self.priority,
            attempts=self.attempts,
            retry_delay=self.retry_delay,
            time_limit=self.time_limit,
            time_requested=self.time_requested,
            user=self.user,
        )


class OpenCalls(CallStream):
    """A job of calls, with the futures of those that are not done by task."""

    def __init__(self, host: LoopHost, job: Job) -> None:
        super().__init__(job, host.files, host.attempts_max)
        self._host = host
        self.grows = self._is_open = job.phases[0].grows
        self.of_task: dict[int, Future[Any]] = {}
        self._cancelled: set[int] = set()  # the tasks of `of_task` whose calls were cancelled
        host.begin(self)

    def add(self, future: Future[Any], call: Call) -> None:
        """Submit a call; the caller holds the lock."""
        future.job, future.task = self.job.id, self.count
        self.of_task[self.count] = future
        if self.append(call):
            self._host.inbox.put(self)

    @property
    def has_ended(self) -> bool:
        """Whether it accepts no more calls; the caller holds the lock."""
        return not self._is_open and self.count > 0

    def end(self) -> None:
        """Accept no more calls; the caller holds the lock. Idempotent."""
        if self._is_open and self.count:
            self._is_open = False
            # Put again, since an interrupt may have prevented this for the last call.
            self._host.inbox.put(self)
            self._host.inbox.put(PhaseClosed(self._host.now, self.phase))
            self._end_if_cancelled()

    def cancelled(self, task: int) -> None:
        """Stop a call that was cancelled; the caller holds the lock."""
        self._host.inbox.put(StopTask(self.phase, task))
        self._cancelled.add(task)
        self._end_if_cancelled()

    def _end_if_cancelled(self) -> None:
        """Cancel the job if it accepts no more calls and all remaining ones were cancelled.

        Otherwise it would wait until they can be launched, which may never happen.
        """
        left = self.of_task
        if self._is_open or not 0 < len(left) <= len(self._cancelled):
            return
        if self._cancelled.issuperset(list(left)):  # One of these may have ended meanwhile.
            self._host.inbox.put(JobCancelled(self._host.now, self.job.id))

    def may_start(self, task: int) -> bool:
        """Mark a call as running; False if it was cancelled."""
        future = self.of_task.get(task)
        if future is not None and future._start():
            return True
        self._forget(task)
        return False

    def stopped(self, task: int) -> None:
        """Mark a call as pending again after it was stopped before its end."""
        if future := self.of_task.get(task):
            future._put_back()

    def done(self, task: int, result: CallResult) -> None:
        """Pass on the result of a call."""
        if future := self._forget(task):
            self._host.settle(future, result)

    def fail(self, reason: str) -> None:
        """Fail all calls of a job that has failed."""
        for future in list(self.of_task.values()):
            future._fail(SlotwiseError(f"job {self.job.id!r} failed: {reason}"))

    def _forget(self, task: int) -> Future[Any] | None:
        self._cancelled.discard(task)
        return self.of_task.pop(task, None)


class CallSubmitter:
    """Submits calls with a common binding: each as a job, or all as one growing job."""

    def __init__(self, host: CallHost, binding: Binding, *, grows: bool) -> None:
        self._host, self._grows = host, grows
        self._job = binding.job(grows=grows)
        self._streams: list[OpenStream] = []  # New calls are added to the last one.
        self._waiting: dict[int, Future[Any]] = {}  # of calls that wait for inputs, by id()
        self._is_closed = False

    def submit(
        self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Future[T]:
        """Submit a call. If futures are among its arguments, it waits for their results.

        RuntimeError after `close`, or if the session is closed.
        """
        self._check_open(had_waited=False)
        future: Future[T] = Future(self._host)
        program = getattr(fn, "__qualname__", "")
        try:
            _check_keywords(fn, kwargs)
            call, inputs = pickled_call(fn, args, kwargs, self._host.files)
        except Exception as error:
            future._fail(error)
            return future
        if not all(one._is_of(self._host) for one in inputs):
            raise InputError(
                "a future of another session is among the arguments; pass its result instead"
            )
        if any(isinstance(one, Future) for one in inputs):
            self._wait(future, program, call, inputs)
        else:
            packed = (one._packed() for one in inputs)
            self._add(future, program, (call, *packed), had_waited=False)
        return future

    def shared(self, fn: Callable[..., T]) -> Callable[..., T]:
        """A substitute for a function in the chunks of a map, so that it is pickled once.

        If pickling fails, the function itself, so that the future of each chunk has the error.
        """
        try:
            return cast(Callable[..., T], SharedInput(fn, self._host.files))
        except Exception:
            return fn

    def close(self) -> None:
        """Accept no more calls; calls that wait for results of others are still submitted."""
        with self._host.lock:
            self._is_closed = True
            if not self._waiting:
                for stream in self._streams:
                    stream.end()

    def futures(self) -> list[Future[Any]]:
        """The futures that are not done."""
        with self._host.lock:
            added = [f for one in self._streams for f in list(one.of_task.values())]
            return [*added, *self._waiting.values()]

    def _add(self, future: Future[Any], program: str, call: Call, *, had_waited: bool) -> None:
        with self._host.lock:
            self._check_open(had_waited=had_waited)
            self._stream(program).add(future, call)

    def _check_open(self, *, had_waited: bool) -> None:
        """RuntimeError if no more calls are accepted; calls that have waited still are."""
        if self._is_closed and not had_waited:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._host.check_open(had_waited=had_waited)

    def _stream(self, program: str) -> OpenStream:
        """The job for the next call; a new job has the given program."""
        streams = self._streams
        if streams and streams[-1].count < MAX_CALLS:
            return streams[-1]
        host, job, now = self._host, self._job, self._host.now
        host.check_job(job)
        deadline = None if job.deadline is None else now + job.deadline
        again = job.with_identity(host.unused(job.id), now, deadline, program)
        stream = host.stream(again)
        if self._grows:
            for full in streams:
                full.end()
            self._streams = [*(one for one in streams if one.of_task), stream]
        return stream

    def _wait(
        self,
        future: Future[Any],
        program: str,
        call: bytes | StoredResult,
        inputs: Sequence[Future[Any] | SharedInput],
    ) -> None:
        """Submit a call when its inputs are done."""
        with self._host.lock:
            self._check_open(had_waited=False)
            self._waiting[id(future)] = future

        def add() -> None:
            packed = (one._packed() for one in inputs)
            self._add(future, program, (call, *packed), had_waited=True)

        def over() -> None:
            with self._host.lock:
                del self._waiting[id(future)]
                if self._is_closed:
                    self.close()

        submit_after(self._host, future, inputs, add, over)


def submit_after(
    host: CallHost,
    future: Future[Any],
    inputs: Sequence[Future[Any] | SharedInput],
    submit: Callable[[], object],
    over: Callable[[], None] = lambda: None,
    *,
    needs_all: bool = True,
) -> None:
    """Call `submit`, which submits the work of a future, when its inputs are done.

    If it `needs_all` inputs and one was cancelled or has failed, the future is cancelled or
    fails. `over` is called at the end in any case.
    """
    host.waits(1)
    left = len(inputs)

    def one_is_done() -> None:
        nonlocal left
        with host.lock:
            left -= 1
            is_last = left == 0
        if is_last:
            try:
                _submit(future, inputs if needs_all else (), submit)
            finally:
                over()
                host.waits(-1)

    for one in inputs:
        one._when_done(one_is_done)


def _submit(
    future: Future[Any],
    inputs: Sequence[Future[Any] | SharedInput],
    submit: Callable[[], object],
) -> None:
    if any(one.cancelled() for one in inputs):
        future.cancel()
    elif error := next(filter(None, (one._raised() for one in inputs)), None):
        future._fail(error)
    elif not future.cancelled():
        try:
            submit()
        except Exception as refused:
            future._fail(refused)


def _check_keywords(fn: Callable[..., object], kwargs: Mapping[str, object]) -> None:
    """TypeError for an option of an executor that is given to a function without it."""
    names = [name for name in kwargs if name in Binding.__dataclass_fields__]
    if not names:
        return  # Usually: it costs nothing.
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # A function in native code may have none.
        return
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name in names if not takes_any else ():
        if name not in parameters:
            raise TypeError(
                f"{getattr(fn, '__name__', fn)}() got an unexpected keyword argument {name!r};"
                f" if it is for the scheduler, use session.executor({name}=...)"
            )
