"""The thread in which the scheduling loop of a session runs."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from slotwise.backends.inbox import Questions
from slotwise.backends.live import LiveBackend
from slotwise.core.decisions import AcceptPromise, Decision, RefusePromise
from slotwise.core.errors import SlotwiseError
from slotwise.core.events import HostChange, Request
from slotwise.core.job import Job
from slotwise.core.log import Header, LogFile
from slotwise.core.loop import Decider, Record, all_of, initial_state, run
from slotwise.core.objective import Objective
from slotwise.core.snapshot import Snapshot
from slotwise.policy.promises import PromisedJob
from slotwise.policy.scheduler import make_scheduler, promise
from slotwise.run_folder import OpenRun

T = TypeVar("T")


class MeasuredDecider:
    """A scheduler of which is known how often it was asked, and how long it took."""

    def __init__(self, scheduler: Decider) -> None:
        self.scheduler = scheduler
        self.measured = 0, 0.0

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The decisions of the scheduler."""
        began = time.perf_counter()
        decisions = self.scheduler.decide(snapshot)
        count, seconds = self.measured
        self.measured = count + 1, seconds + time.perf_counter() - began
        return decisions


class LoopThread:
    """Runs the loop on a backend, and the callbacks of futures in another thread.

    The state belongs to the thread of the loop; other threads read it by `ask`.
    """

    def __init__(
        self,
        header: Header,
        make_backend: Callable[[], LiveBackend],
        opened: OpenRun,
        records: Iterable[Record],
        log: str | Path | None,
    ) -> None:
        """`opened` and `records` are called for each turn.

        InputError for a log that cannot be written.
        """
        self.state = initial_state(header)
        self.scheduler_name: str = header.scheduler["name"]
        self.penalty: str = header.objective["penalty"]
        self._scheduler = MeasuredDecider(
            make_scheduler(**header.scheduler, objective=Objective(**header.objective))
        )
        given: list[Record]
        given, self._opened = [opened, *records], opened
        self._callbacks = CallThread("slotwise callbacks")
        self._steps = CallThread("slotwise steps")
        self._pid = os.getpid()
        with ExitStack() as stack:
            for record in given:
                if isinstance(record, AbstractContextManager):
                    stack.enter_context(record)
            if log is not None:
                given.append(stack.enter_context(LogFile(log, header)))
            self._records, self._record = given, all_of(given)
            self.backend = stack.enter_context(make_backend())
            self._questions = Questions(self.backend.inbox, self.backend.answer_all)
            self._held = stack.pop_all()

    def start(
        self,
        ended: Callable[[BaseException | None], None],
        failing: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the threads. `ended` is called after the loop, with its error or None.

        `failing` is called after an error, before the backend is closed.
        """
        self._thread = threading.Thread(
            target=self._run, args=(ended, failing), name="slotwise loop", daemon=True
        )
        for thread in (self._thread, self._steps, self._callbacks):
            thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the end of the loop and all callbacks; return whether they have ended."""
        until = time.monotonic() + timeout
        for thread in (self._thread, self._steps, self._callbacks):
            if threading.current_thread() is not thread:
                thread.join(max(0.0, until - time.monotonic()))
                if thread.is_alive():
                    return False
        return True

    def promise(
        self, job: Job, earlier: Sequence[PromisedJob], now: float
    ) -> AcceptPromise | RefusePromise:
        """Whether a job that arrives now gets its promise; in the thread of the loop."""
        return promise(self._scheduler.scheduler, self.state, job, earlier, now)

    @property
    def now(self) -> float:
        """Seconds since the session began; the state is of the last turn."""
        return self.backend.now

    @property
    def decided(self) -> tuple[int, float]:
        """How often the scheduler was asked, and how many seconds it took in all."""
        return self._scheduler.measured

    @property
    def is_local(self) -> bool:
        """Whether the loop belongs to this process. A fork does not copy threads."""
        return os.getpid() == self._pid

    def check_process(self) -> None:
        """SlotwiseError in a process that was forked from that of the loop."""
        if not self.is_local:
            raise SlotwiseError(
                "a process that was forked cannot use the session of its parent; open another"
                " one there, or start it without fork"
            )

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the loop, and return its result.

        It is called directly if this is that thread, or after the end of the loop.
        SlotwiseError in a forked process.
        """
        self.check_process()
        if threading.current_thread() is self._thread:
            return question()
        return self._questions.ask(question)

    def observe(self, record: Record) -> None:
        """Call a record for each turn from now on, too."""
        self.ask(lambda: self._records.append(record))

    def on_event(self, event: Request | HostChange) -> None:
        """Apply an event, in a function that `ask` calls; no effect after the end."""
        if not self._questions.is_over:
            self.backend.on_event(event)

    def call_back(self, calls: Callable[[], None]) -> None:
        """Run callbacks of users, in a separate thread."""
        self._callbacks.call(calls)

    def take_step(self, step: Callable[[], None]) -> None:
        """Continue a call that has waited, in a thread that runs no user code."""
        self._steps.call(step)

    def _run(
        self, ended: Callable[[BaseException | None], None], failing: Callable[[], None]
    ) -> None:
        error: BaseException | None = None
        try:
            with self._held:
                try:
                    run(self._scheduler, self.backend, self.state, self._record, self._opened)
                except BaseException:
                    failing()
                    raise
        except BaseException as failed:
            error = failed
        self._questions.end()
        try:
            ended(error)
        finally:  # It also calls code of notebooks.
            self._steps.end()
            self._steps.join()  # The last steps may make callbacks.
            self._callbacks.end()


class CallThread(threading.Thread):
    """Runs calls one after another. After its end, `call` runs them directly."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.RLock()  # The garbage collector may call `call` within it.
        self._is_over = False

    def call(self, call: Callable[[], None]) -> None:
        """Run a call, in this thread before its end. May be called from any thread."""
        with self._lock:
            if not self._is_over:
                self._queue.put(call)
                return
        call()

    def end(self) -> None:
        """Let the thread end when no calls are left, including those that the last ones add."""
        self._queue.put(None)

    def run(self) -> None:
        """Run calls until the end."""
        is_ending = False
        while not (is_ending and self._is_empty()):
            call = self._queue.get()
            if call is None:
                is_ending = True
                continue
            try:
                call()
            except BaseException:  # Of a user's callback, even SystemExit: others continue.
                traceback.print_exc()
            del call  # What it refers to may be large.

    def _is_empty(self) -> bool:
        """Whether no call is left; if so, no more are accepted."""
        with self._lock:
            self._is_over = self._queue.empty()
            return self._is_over
