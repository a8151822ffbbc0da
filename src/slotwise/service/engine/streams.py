"""The jobs of calls of a service: each is a stream of calls that a client sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future as Waiting
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from slotwise.backends.local.call_stream import CallResult
from slotwise.core.errors import SessionFailedError, SlotwiseError
from slotwise.core.job import Job
from slotwise.jobs.accounts import Account
from slotwise.jobs.execution import Execution
from slotwise.service.engine.begins import BEGINS_MAX, KILLS, CallBegins
from slotwise.service.engine.hub import Hub, of_client
from slotwise.service.engine.rights import plain_name
from slotwise.service.store.insist import insist
from slotwise.service.store.records import StoredCall, StoredJob
from slotwise.service.store.store import Store
from slotwise.service.wire import frame
from slotwise.sessions.calls import Binding, OpenCalls, submit_after
from slotwise.sessions.changes import JobChanges
from slotwise.sessions.futures import Future, PackedError
from slotwise.sessions.intake import SessionCore


class ServedFuture(Future[Any]):
    """A call in the session of the server, which notifies its client when it begins."""

    def __init__(self, core: SessionCore, notify: Callable[[str], None]) -> None:
        super().__init__(core)
        self._notify = notify

    def _start(self) -> bool:
        starts = super()._start()
        if starts:
            self._notify("running")
        return starts

    def _put_back(self) -> None:
        super()._put_back()
        self._notify("pending")


@dataclass(slots=True)
class ServedStream:
    """A job of calls that is not over.

    futures  the calls that are not done, by number; `numbers`: those of all calls
    raised   how many calls raised or failed; `cancelled`: how many were cancelled
    """

    key: str
    client: str
    record: StoredJob
    grows: bool
    job: Job
    calls: OpenCalls | None = None
    futures: dict[int, ServedFuture] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    done: int = 0
    raised: int = 0
    cancelled: int = 0
    waiting: int = 0  # calls that wait for the results of others
    is_closed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether no call is left and none can come."""
        return self.is_closed and not self.futures

    @property
    def accepts(self) -> bool:
        """Whether a call whose inputs are known can be added to its job of the session."""
        if self.calls is not None and self.calls.has_ended:
            return False
        return not (self.grows and self.is_closed and not self.waiting)

    @property
    def outcome(self) -> tuple[str, str]:
        """The state of a job that is over, and the reason."""
        if self.cancelled and not self.done:
            return "cancelled", ""
        if self.raised:
            count = self.done
            text = f"{self.raised} of {count} calls raised" if count > 1 else "the call raised"
            return "failed", text
        return "done", ""


class Streams:
    """The streams of calls: their calls run in the session, and their ends are stored."""

    def __init__(
        self,
        core: SessionCore,
        store: Store,
        hub: Hub,
        ended: Callable[[ServedStream], None],
        account_of: Callable[[str | None], Account | None],
        lost: Callable[[BaseException], None],
    ) -> None:
        """`ended` is called with each stream that is over; calls run as the user's account.

        `lost` is that of `insist`.
        """
        self._core, self._store, self._hub, self._ended = core, store, hub, ended
        self._account_of, self._begins = account_of, CallBegins(store)
        self._lost = lost
        self._by_key: dict[str, ServedStream] = {}
        self._by_job: dict[str, ServedStream] = {}
        self.is_leaving = False

    def get(self, key: str) -> ServedStream | None:
        """The stream with this key, unless it is over."""
        return self._by_key.get(key)

    def of_job(self, job: str) -> ServedStream | None:
        """The stream of a job, unless it is over."""
        return self._by_job.get(job)

    def of(self, client: str) -> list[ServedStream]:
        """The streams of a client that are not over."""
        return [one for one in list(self._by_key.values()) if one.client == client]

    def all(self) -> list[ServedStream]:
        """The streams that are not over."""
        return list(self._by_key.values())

    def clients(self) -> set[str]:
        """The clients of the streams that are not over."""
        return {one.client for one in list(self._by_key.values())}

    def running(self) -> list[ServedFuture]:
        """The calls that run."""
        streams = list(self._by_key.values())
        return [f for one in streams for f in list(one.futures.values()) if f.running()]

    def begun(self, client: str) -> list[bytes]:
        """The frames of those calls of a client that run."""
        return [
            frame({**_place(stream, number), "state": "running"})
            for stream in self.of(client)
            for number, future in list(stream.futures.items())
            if future.running()
        ]

    def open(
        self, record: StoredJob, binding: Binding, program: str, *, grows: bool
    ) -> ServedStream:
        """Begin a job of calls, which arrives with its first one."""
        job = binding.job(grows=grows)
        arrival = self._core.now
        due = None if record.deadline is None else arrival + record.deadline - time.time()
        job = job.with_identity(record.id, arrival, due, program)
        key = record.stream or record.id
        stream = ServedStream(key, record.client or "", record, grows, job)
        self._by_key[key] = self._by_job[record.id] = stream
        return stream

    def expect(self, stream: ServedStream, number: int) -> ServedFuture:
        """Know a call before it is added, so that it can be an input of others."""
        future = ServedFuture(self._core, lambda state: self._notify(stream, number, state))
        stream.futures[number] = future
        stream.numbers.add(number)
        return future

    def add(self, stream: ServedStream, number: int, record: StoredCall) -> None:
        """Run a call when its inputs are done."""
        self._submit(stream, self._watched(stream, number), record)

    def restore(self, stream: ServedStream, number: int, record: StoredCall) -> None:
        """Run a call of an earlier server, unless it has killed too many of them."""
        future = self._watched(stream, number)
        if record.begins >= BEGINS_MAX:
            future._fail(SlotwiseError(KILLS.format(record.begins)))
            return
        turn: Future[Any] = Future(self._core)
        self._submit(stream, future, record, turn)
        place = stream.record.id, number
        self._begins.restore(place, record.begins, lambda: turn._finish(None))

    def _watched(self, stream: ServedStream, number: int) -> ServedFuture:
        """The future of a call, whose end will be stored."""
        future = stream.futures.get(number) or self.expect(stream, number)
        stream.is_closed |= not stream.grows
        future._when_done(lambda: self._over(stream, number, future))
        return future

    def _submit(
        self,
        stream: ServedStream,
        future: ServedFuture,
        record: StoredCall,
        *turn: Future[Any],
    ) -> None:
        inputs: list[Any] = [
            self._input(*reference) if part is None else part
            for part, reference in zip(record.parts, record.inputs, strict=True)
        ]
        open_inputs = [*turn, *(one for one in inputs if isinstance(one, Future))]

        def submit() -> None:
            parts = [one._packed() if isinstance(one, Future) else one for one in inputs]
            with self._core.lock:
                is_over = not stream.accepts
                if not is_over:
                    self._calls(stream).add(future, tuple(parts))
            if is_over:  # Its job was cancelled meanwhile.
                future.cancel()

        if not open_inputs:
            submit()
            return

        def over() -> None:
            stream.waiting -= 1
            self._end_calls(stream)

        stream.waiting += 1
        submit_after(self._core, future, open_inputs, submit, over)

    def _end_calls(self, stream: ServedStream) -> None:
        """Let the job of the session accept no more calls, unless calls wait for others."""
        with self._core.lock:
            if stream.is_closed and not stream.waiting and stream.calls is not None:
                stream.calls.end()

    def _calls(self, stream: ServedStream) -> OpenCalls:
        """The job of the session; the caller holds its lock."""
        if stream.calls is None:
            self._core.check_job(stream.job)
            account = self._account_of(stream.record.user)
            stream.calls = OpenCalls(self._core, stream.job)
            stream.calls.runs_as(account)
            if not stream.record.restart:
                job = stream.record.id
                note_before(stream.calls, lambda: self._store.begin(job, time.time()))
        return stream.calls

    def _input(self, key: str, number: int) -> Future[Any]:
        """The future of a call, which may be over."""
        stream = self._by_key.get(key)
        if stream is not None and (open_one := stream.futures.get(number)):
            return open_one
        done: Future[Any] = Future(self._core)
        record = self._store.stream(key) if stream is None else stream.record
        call = None if record is None else self._store.call(record.id, number)
        if call is not None and call.state == "done":
            done._settle(CallResult(bool(call.is_value), call.value or b""))
        elif call is not None and call.state == "failed":
            done._fail(SlotwiseError(call.reason))
        else:
            done.cancel()
        return done

    def close(self, stream: ServedStream) -> None:
        """Accept no more calls."""
        stream.is_closed = True
        self._end_calls(stream)
        if stream.is_over:
            self._finish(stream)

    def cancel(self, stream: ServedStream, numbers: Sequence[int] | None = None) -> None:
        """Cancel calls; by default all, and the job accepts no more."""
        if numbers is None:
            stream.is_closed = True
        wanted = list(stream.futures) if numbers is None else numbers
        for number in reversed(wanted):  # So that none of them starts meanwhile.
            if future := stream.futures.get(number):
                future.cancel()
        if numbers is None:
            self.close(stream)

    def change(self, stream: ServedStream, given: JobChanges) -> None:
        """Change the job of a stream that has not arrived in the session."""
        with self._core.lock:
            stated: dict[str, Any] = {
                "priority": given.priority,
                "weight": given.weight,
                "pool": given.pool,
            }
            if given.due is not None:
                stated["deadline"] = self._core.now + given.due
            known = {name: one for name, one in stated.items() if one is not None}
            if stream.calls is None:
                stream.job = replace(stream.job, **known)

    def leave(self) -> None:
        """Let all calls end, of which nothing is stored: the next server runs them.

        Also those that wait for each other in a circle, for which a session would wait.
        """
        self.is_leaving = True
        self._begins.stop()
        for stream in list(self._by_key.values()):
            for future in reversed(list(stream.futures.values())):
                future.cancel()

    def _over(self, stream: ServedStream, number: int, future: ServedFuture) -> None:
        """Store the end of a call, then notify its client."""
        if self.is_leaving or _has_no_end(future):
            return
        self._begins.over((stream.record.id, number))
        state, packed, reason, printed = _ending(future)
        stream.done += state != "cancelled"
        stream.raised += state in ("raised", "failed")
        stream.cancelled += state == "cancelled"
        has_result = state in ("value", "raised")
        end = partial(
            self._store.end_call,
            stream.record.id,
            number,
            state == "value" if has_result else None,
            packed,
            printed,
            time.time(),
            state="done" if has_result else state,
            reason=reason,
        )
        news = {**_place(stream, number), "state": state, "reason": reason}
        message = frame({**news, "printed": printed}, () if packed is None else (packed,))

        def notify(_: bool) -> None:
            self._hub.publish(of_client(stream.client), message)
            stream.futures.pop(number, None)  # Only now: its result can be read.
            if stream.is_over:
                self._finish(stream)

        insist(end, notify, self._lost)

    def _finish(self, stream: ServedStream) -> None:
        if self._by_key.pop(stream.key, None) is not None:
            self._by_job.pop(stream.record.id, None)
            self._ended(stream)

    def _notify(self, stream: ServedStream, number: int, state: str) -> None:
        if state == "running":
            self._begins.begin((stream.record.id, number))
        news = {**_place(stream, number), "state": state}
        self._hub.publish(of_client(stream.client), frame(news), may_wait=True)


def _place(stream: ServedStream, number: int) -> dict[str, Any]:
    """The call that news are about, and its job: the client may not know its id yet."""
    return {"stream": plain_name(stream.key), "number": number, "of_job": stream.record.id}


def _has_no_end(future: Future[Any]) -> bool:
    """Whether its session has failed: the next server runs the call."""
    return not future.cancelled() and isinstance(future._raised(), SessionFailedError)


def _ending(future: Future[Any]) -> tuple[str, bytes | None, str, str]:
    """The state of a call that is over, its pickled value or error, the reason, and its output.

    The output is the path of a file, for errors only.
    """
    if future.cancelled():
        return "cancelled", None, "", ""
    error = future._raised()
    if error is None:
        return "value", _bytes(future._packed()), "", ""
    if isinstance(error, PackedError):
        return "raised", _bytes(error._result.packed), "", error._result.printed
    return "failed", None, str(error), ""


def _bytes(packed: object) -> bytes:
    assert isinstance(packed, bytes)  # The server has no files for large results.
    return packed


def binding_of(stated: Mapping[str, Any]) -> Binding:
    """The binding that a client has sent. InputError for what no job can have."""
    known = {name: stated[name] for name in Binding.__dataclass_fields__ if name in stated}
    return Binding(**known)


def note_before(execution: Execution, note: Callable[[], Waiting[Any]]) -> None:
    """Let the first attempt of a job begin only when it is stored that it has begun.

    Otherwise a job that must not run again could, if the server is killed in between.
    """
    arguments_of, is_noted = execution.arguments, False

    def arguments(phase: str, task: int, attempt: int) -> tuple[object, ...]:
        nonlocal is_noted
        if not is_noted:
            note().result()  # If this raises, the attempt fails, and says why.
            is_noted = True
        return arguments_of(phase, task, attempt)

    execution.arguments = arguments  # type: ignore[method-assign]
