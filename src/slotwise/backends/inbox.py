"""The inbox of a live backend: jobs known at the start, and entries that threads add later."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from slotwise.backends.local.call_stream import CallStream
from slotwise.core.events import HostChange, JobsClosed, Request, TasksAdded
from slotwise.core.job import PhaseId
from slotwise.jobs.execution import Execution

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StopTask:
    """Stop the attempt of a task, if one runs. The task becomes pending again."""

    phase: PhaseId
    task: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Call a function in the thread of the loop."""

    function: Callable[[], None]


Entry = Execution | Request | HostChange | StopTask | Ask
"""An entry of the inbox: a job, an event, or an action.

A `CallStream` may be put many times: it stands for the calls added since it was last taken.
"""


class Inbox:
    """The entries of a backend in order: jobs at their arrival, requests when they are put.

    Unless it `is_open`, `JobsClosed` follows the last job. `put` may be called from any thread;
    all else belongs to the thread of the loop, which `wake` wakes.
    """

    def __init__(
        self, executions: Iterable[Execution], wake: Callable[[], None], *, is_open: bool
    ) -> None:
        self._given = deque(sorted(executions, key=lambda execution: execution.job.arrival))
        self._is_open, self._wake = is_open, wake
        self._has_closed = False
        self._put: deque[Entry] = deque()
        self._expected: deque[Request] = deque()
        self._own = threading.local()  # `batch`: what this thread puts together.

    @property
    def next_at(self) -> float:
        """The instant of the next known arrival or request; -inf if an entry was put."""
        if self._put or not (self._given or self._is_open or self._has_closed):
            return -inf
        arrival = self._given[0].job.arrival if self._given else inf
        return min(arrival, self._expected[0].at) if self._expected else arrival

    def expect(self, requests: Iterable[Request]) -> None:
        """Take these requests, in order of time, at their instants until the run ends."""
        self._expected.extend(requests)

    def put(self, entry: Entry) -> None:
        """Append a job that arrives now, whose `open` was called, or another entry."""
        assert self._is_open or isinstance(entry, Ask), "jobs arrive later only if it is open"
        batch: list[Entry] | None = getattr(self._own, "batch", None)
        if batch is not None and not isinstance(entry, Ask):  # It is waited for.
            batch.append(entry)
            return
        self._put.append(entry)
        self._wake()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let the entries that this thread puts meanwhile arrive in one turn, at the end."""
        self._own.batch = batch = list[Entry]()
        try:
            yield
        finally:
            self._own.batch = None
            self._put.extend(batch)
            self._wake()

    def put_back(self, entry: Entry) -> None:
        """Put back an entry that was taken, as the next one."""
        self._put.appendleft(entry)

    def take(self, now: float) -> Iterator[Entry]:
        """The entries that have arrived by now and were not taken before."""
        while self._given and self._given[0].job.arrival <= now:
            yield self._given.popleft()
        if not (self._given or self._is_open or self._has_closed):
            self._has_closed = True
            yield JobsClosed(now)
        while self._expected and self._expected[0].at <= now:
            yield replace(self._expected.popleft(), at=now)
        put = self._put
        while put:
            entry = put.popleft()
            if isinstance(entry, CallStream):
                yield from _new_calls(entry, now)
            else:
                yield entry


def _new_calls(stream: CallStream, now: float) -> Iterator[Entry]:
    """The entries that add the new calls of a stream; the job arrives with the first call."""
    is_new, count = not stream.taken, stream.take_new()
    if is_new and count:
        yield stream
        count -= 1
    if count:
        yield TasksAdded(now, stream.phase, count)


class Wakeup:
    """Ends a poll from another thread: `channel` is readable from `ring` until `reset`."""

    def __init__(self) -> None:
        self.channel = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._has_rung = False

    def ring(self) -> None:
        """Make the channel readable, from any thread; no effect after `close`."""
        if not self._has_rung:
            self._has_rung = True
            with self._lock:
                if self.channel >= 0:
                    os.eventfd_write(self.channel, 1)

    def reset(self) -> None:
        """Reset after `ring`, before handling the event."""
        os.eventfd_read(self.channel)
        # Only now: a `ring` between the two would be read, and no later one would be written.
        self._has_rung = False

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        with self._lock:
            if self.channel >= 0:
                os.close(self.channel)
                self.channel = -1


class Questions:
    """What other threads ask of a loop with an inbox: its thread answers between its turns."""

    def __init__(self, inbox: Inbox, answer_all: Callable[[], None]) -> None:
        """`answer_all` calls the functions that are left in the inbox."""
        self._inbox, self._answer_all = inbox, answer_all
        self._lock = threading.RLock()  # A function of `ask` may call `ask`.
        self.is_over = False

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the loop, or directly after the end of the loop."""
        answer: futures.Future[T] = futures.Future()

        def call() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        with self._lock:
            if self.is_over:
                call()
            else:
                self._inbox.put(Ask(call))
        return answer.result()

    def end(self) -> None:
        """The loop has ended: answer what was asked, and answer directly from now on."""
        with self._lock:
            self.is_over = True
            self._answer_all()
