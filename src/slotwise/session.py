"""A session: a scheduler that runs in this process and accepts jobs at any time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from slotwise.model.decision import Decision, GiveUp, Launch
from slotwise.model.errors import SlotwiseError
from slotwise.model.event import Event, TaskFinished
from slotwise.model.job import Job, Phase, Tasks
from slotwise.model.pool import Pool
from slotwise.objective.objective import Objective
from slotwise.record.log import LogFile
from slotwise.running import Options, RunSpec
from slotwise.runtime.local.backend import LocalBackend
from slotwise.runtime.local.call import Call, CallError
from slotwise.runtime.loop import Record
from slotwise.runtime.loop import run as run_loop
from slotwise.runtime.state import State
from slotwise.scheduler import make_scheduler
from slotwise.sources import Slots, Source, processors
from slotwise.workload.workload import Workload

REST_SECONDS = 0.05
"""Seconds between allocations that arrivals and ends cause."""

P = ParamSpec("P")
T = TypeVar("T")


class Future(futures.Future[T]):
    """The result of a call that was submitted to a session.

    `cancel` also stops a call that runs. `job` is the id of its job in the log.
    """

    def __init__(self, session: Session, job: str) -> None:
        super().__init__()
        self.job = job
        self._session = session

    def cancel(self) -> bool:
        """Cancel the call, also if it runs. False if it is done."""
        with self._condition:
            if self._state == futures._base.RUNNING:
                self._state = futures._base.PENDING
        if not super().cancel():
            return False
        self._session._cancel(self)
        return True


@dataclass(frozen=True, slots=True)
class Binding:
    """What all calls of an executor have in common."""

    pool: str = "default"
    weight: float = 1.0
    deadline: float | None = None
    priority: str = "normal"


class Session:
    """Runs calls in worker processes of this machine, and shares its slots between them.

    Each call of `submit` is a job of one task. Use it as a context: at the end of the block it
    waits for all jobs. Methods may be called from any thread.

    slots      the number of worker processes; the number of processors by default
    scheduler  the name of the scheduler; see `slotwise.scheduler.SCHEDULERS`
    pools      the pools with their shares; jobs may also name others

    InputError for options that do not fit; SlotwiseError if the workers cannot be started.
    """

    def __init__(
        self,
        slots: Slots | None = None,
        scheduler: str = "flex",
        *,
        pools: Iterable[Pool] = (),
        **options: Unpack[Options],
    ) -> None:
        cluster = LocalBackend.cluster(processors() if slots is None else slots)
        source = Source(Workload((), pools=tuple(pools)), ())
        spec = RunSpec(scheduler, "live", (), cluster, source, options, {})
        self._calls: dict[str, tuple[Future[Any], Call]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._is_closed = False
        self._error: BaseException | None = None
        header = spec.header(rest_seconds=REST_SECONDS, is_open=True)
        self._scheduler = make_scheduler(
            **header.scheduler, objective=Objective(**header.objective)
        )
        self._state = State(cluster, header.pools, attempts_max=header.attempts_max)
        with ExitStack() as stack:
            self._records: list[Record] = [self._resolve]
            if path := options.get("log"):
                self._records.append(stack.enter_context(LogFile(path, header)))
            self._backend = stack.enter_context(LocalBackend((), cluster, is_open=True))
            self._held = stack.pop_all()
        self._thread = threading.Thread(target=self._run, name="slotwise session", daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process; returns at once."""
        return self._submit(Binding(), fn, args, kwargs)

    def executor(
        self,
        *,
        pool: str = "default",
        weight: float = 1.0,
        deadline: float | None = None,
        priority: str = "normal",
    ) -> SessionExecutor:
        """An executor (`concurrent.futures.Executor`) whose calls have these properties."""
        return SessionExecutor(self, Binding(pool, weight, deadline, priority))

    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, wait for those that were submitted, and end the workers.

        With `cancels`, jobs that are not over are cancelled first.
        """
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if cancels:
            for future, _ in list(self._calls.values()):
                future.cancel()
        if not was_closed and self._thread.is_alive():
            self._backend.close_jobs()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancels=kind is not None)

    def _submit(
        self,
        binding: Binding,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Future[T]:
        call_id = f"call-{next(self._numbers)}"
        future: Future[T] = Future(self, call_id)
        now = self._backend.now
        job = Job(
            call_id,
            (Phase("call", Tasks(1)),),
            arrival=now,
            pool=binding.pool,
            weight=binding.weight,
            deadline=None if binding.deadline is None else now + binding.deadline,
            priority=binding.priority,
        )
        try:
            call = Call(job, fn, args, kwargs)
        except CallError as error:
            future.set_exception(error.cause)
            return future
        with self._lock:
            if self._error is not None:
                raise SlotwiseError(f"the session has failed: {self._error}") from self._error
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls[call_id] = (future, call)
            self._backend.submit(call)
        return future

    def _cancel(self, future: Future[Any]) -> None:
        with self._lock:
            if future.job in self._calls and self._thread.is_alive():
                self._backend.cancel(future.job)

    def _run(self) -> None:
        try:
            with self._held:
                run_loop(self._scheduler, self._backend, self._state, self._record)
        except BaseException as error:
            with self._lock:
                self._error = error
            for future, _ in list(self._calls.values()):
                _settle(future, error=SlotwiseError(f"the session has failed: {error}"))
            self._calls.clear()

    def _record(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        for record in self._records:
            record(now, events, decisions)

    def _resolve(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Tell the futures of what began and ended in a turn, after new tasks were started."""
        for decision in decisions:
            if isinstance(decision, Launch):
                future, _ = self._calls[decision.phase.job]
                if future._state == futures._base.PENDING:
                    future.set_running_or_notify_cancel()
            elif isinstance(decision, GiveUp):
                future, _ = self._calls.pop(decision.job)
                _settle(future, error=SlotwiseError(decision.reason))
        for event in events:
            if isinstance(event, TaskFinished) and event.phase.job in self._calls:
                future, call = self._calls.pop(event.phase.job)
                try:
                    value = call.value()
                except BaseException as error:
                    _settle(future, error=error)
                else:
                    _settle(future, value)


class SessionExecutor(futures.Executor):
    """An executor of a session; `shutdown` ends the executor, not the session."""

    def __init__(self, session: Session, binding: Binding) -> None:
        self._session, self._binding = session, binding
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process; returns at once."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future = self._session._submit(self._binding, fn, args, kwargs)
            self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; wait for those that were submitted, or cancel pending ones."""
        with self._lock:
            self._is_shut_down = True
        if cancel_futures:
            for future in list(self._open):
                if not future.running():
                    future.cancel()
        if wait:
            futures.wait(list(self._open))


def _settle(
    future: Future[Any], value: object = None, error: BaseException | None = None
) -> None:
    """Give a future its result, unless it was cancelled."""
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
    except futures.InvalidStateError:
        pass
