"""The core of a client: its calls and jobs in a server, and the futures of those not over."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from slotwise.backends.local.call_stream import CallFiles, CallResult
from slotwise.core.errors import InputError, SlotwiseError, check_name
from slotwise.core.job import Job
from slotwise.forecast.eta import Eta
from slotwise.insight.explanation import Explanation
from slotwise.insight.report.session_table import (
    MAX_ROWS,
    SessionJob,
    SessionJobs,
    session_html,
)
from slotwise.jobs.commands import ResultOf
from slotwise.service.clients.outbox import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Outbox, Sent
from slotwise.service.clients.remote_calls import RemoteCalls
from slotwise.service.clients.shown import LEFT, LEFT_MAX, OVER, shown_job, shown_jobs
from slotwise.service.clients.transport import (
    MissingJobError,
    ServerClosedError,
    ServerRefusedError,
    Transport,
    job_path,
)
from slotwise.sessions.futures import Future
from slotwise.sessions.loop_thread import CallThread
from slotwise.sessions.notebook import cells_of_notebook

FRESH_SECONDS = 1.0
"""The age up to which the known number of slots is not asked for again."""

T = TypeVar("T")

Received = Callable[[dict[str, Any], list[bytes]], None]
"""Takes the header and the parts of a frame."""


class RemoteCore:
    """Sends calls and jobs to a server, and settles their futures.

    It is the interface of a client for calls and futures (`CallHost`).
    """

    cells = None

    def __init__(self, transport: Transport, seconds: float) -> None:
        """`seconds` is for how long it waits for a server that has ended."""
        self.transport, self._seconds = transport, seconds
        self.id = uuid.uuid4().hex
        self._numbers, self._pid = count(), os.getpid()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.files = CallFiles(is_local=False)
        self._calls: dict[str, RemoteCalls] = {}  # by key
        self.jobs: dict[str, Future[Any]] = {}
        self.attached: set[Future[Any]] = set()  # of jobs that others have submitted
        self.folders: list[str] = []  # for the output of commands that state none
        self._early: dict[str, tuple[Mapping[str, Any], list[bytes]]] = {}
        self.waiting = 0  # calls that wait for the results of others
        self.submitting = 0  # jobs whose ids are not known yet
        self._listens = 0  # how often the server has begun to listen to what ends
        self.is_closed = self.is_ended = False
        self._server: tuple[float, dict[str, Any]] = (-FRESH_SECONDS, {})
        self.server()
        self.cells = cells_of_notebook()
        self._steps, self._callbacks = (
            CallThread("slotwise client steps"),
            CallThread("slotwise client callbacks"),
        )
        for thread in (self._steps, self._callbacks):
            thread.start()
        self.outbox = Outbox(transport, seconds, self._accepted, self._refused)
        self._receiver = self.receives(
            self._wanted,
            self._received,
            lambda: self.is_ended,
        )

    # What it knows of the server.

    def server(self) -> dict[str, Any]:
        """What `GET /v1` answers, at most `FRESH_SECONDS` old."""
        at, known = self._server
        if time.monotonic() - at >= FRESH_SECONDS:
            known = self.transport.get("/v1")
            self._server = time.monotonic(), known
        return known

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        return int(self.server()["slots"])

    @property
    def now(self) -> float:
        """0: deadlines are sent in seconds from the submission."""
        return 0.0

    # For calls (`CallHost`).

    def new_key(self) -> str:
        """A name for a job of calls that no other client uses."""
        return f"{self.id}-{next(self._numbers)}"

    def stream(self, job: Job) -> RemoteCalls:
        """Begin a job of calls; the caller holds the lock."""
        calls = RemoteCalls(self, job)
        self._calls[calls.key] = calls
        return calls

    def check_job(self, job: Job) -> None:
        """The server checks it; what it refuses is the error of the futures."""

    def unused(self, name: str) -> str:
        """The name; the server appends a number to one that was used."""
        return name

    def check_open(self, *, had_waited: bool) -> None:
        """RuntimeError if no more calls are accepted; calls that have waited still are."""
        if not self.is_local:
            raise SlotwiseError(
                "a process that was forked cannot use the client of its parent; open another"
                " one there"
            )
        if self.is_ended or (self.is_closed and not had_waited):
            raise RuntimeError(
                "cannot schedule new futures after shutdown: the client is closed; open another"
            )

    def waits(self, more: int) -> None:
        """Add to the number of calls that wait for the results of others."""
        with self.changed:
            self.waiting += more
            self.end_calls()
            self.changed.notify_all()

    def end_calls(self) -> None:
        """Let the server know if no more calls can come; the caller holds the lock."""
        if self.is_closed and not self.waiting:
            for calls in list(self._calls.values()):
                calls.end()

    def forget_if_over(self, calls: RemoteCalls) -> None:
        """Forget a job of calls that is over; the caller holds the lock."""
        if calls.is_over:
            self._calls.pop(calls.key, None)
        if self.is_closed:
            self.changed.notify_all()

    # For futures (`Control`).

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function."""
        return question()

    def call_back(self, calls: Callable[[], None]) -> None:
        """Run callbacks of users, in a separate thread."""
        self._callbacks.call(calls)

    def take_step(self, step: Callable[[], None]) -> None:
        """Continue a call that has waited, in a thread that runs no user code."""
        self._steps.call(step)

    def stop_cancelled(self, future: Future[Any]) -> None:
        """Stop the call or the job of a future that was cancelled."""
        if not self.is_local:
            return
        with self.lock:
            if future._origin is not None:
                key, number = future._origin
                if calls := self._calls.get(key):
                    calls.cancelled(number)
            elif self.jobs.get(future.job) is future or future in self.attached:
                self.jobs.pop(future.job, None)
                self.attached.discard(future)
                self.outbox.put(lambda: self.cancel(future.job))
                self.changed.notify_all()

    def cancel(self, job: str) -> None:
        """Cancel a job; no effect on one that is over."""
        try:
            self.transport.post(job_path(job, "cancel"))
        except ServerRefusedError as error:
            if error.kind != "over":
                raise

    def _id_for(self, job: str | Future[Any], method: str) -> str:
        """The id of a job; of a call that waits for others empty, as it has no job yet."""
        if isinstance(job, Future):
            if not job._is_of(self):
                raise InputError(f"this future is of another session; call its own `{method}`")
            return self.id_of(job)
        check_name("job", job)
        return job

    def eta(self, job: str | Future[Any], timeout: float) -> Eta | None:
        """When a job starts and ends; None if it is over. InputError if it does not exist."""
        if not (name := self._id_for(job, "eta")):
            return None
        found = self.transport.get(job_path(name, "eta"), timeout=timeout)["eta"]
        return None if found is None else Eta.of_plain(found)

    def etas(self) -> dict[str, Eta]:
        """The last forecasts of the jobs of the server, of all its users."""
        jobs = self.transport.get("/v1/jobs", state=",".join(LEFT), limit=LEFT_MAX)["jobs"]
        return {job["id"]: Eta.of_plain(job["eta"]) for job in jobs if job.get("eta")}

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds, and why. InputError for a job that does not exist."""
        if not (name := self._id_for(job, "explain")):
            status = "waits for the results of other calls"
            return Explanation("", 0.0, "", str(self.server()["scheduler"]), status)
        return Explanation.of_plain(self.transport.get(job_path(name, "explain")))

    def id_of(self, future: Future[Any]) -> str:
        """The id of the job of a future, once the server has accepted it; else empty."""
        if not future.job and future._origin is not None:
            self.outbox.flush()
        return future.job

    def progress(self, job: str, task: int) -> tuple[float, float | None] | None:
        """None: a server does not pass on what calls report."""
        return None

    def shown_job(self, job: str) -> SessionJob | None:
        """A job with the numbers of its tasks; None if it is over or not known."""
        try:
            found = self.transport.get(job_path(job))
        except MissingJobError:
            return None
        return None if found["state"] in OVER else shown_job(found, self.server()["started"])

    def shown(self, most: int | None = None) -> SessionJobs:
        """The jobs of the server, of all its users: all, or the first ones for a display."""
        return shown_jobs(self.transport, self.server(), most, self.waiting)

    def html(self) -> str:
        """The jobs of the server as a table."""
        return session_html(self.shown(MAX_ROWS))

    def result_word(self, future: Future[Any]) -> str | ResultOf:
        """The word of a command for the result of a job, which the server reads."""
        return ResultOf(lambda: "", future.job)

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            "a Client cannot be used inside a call, nor can its executors, because it belongs"
            " to the process that opened it; pass the futures as arguments of other calls, or"
            " open a Client there"
        )

    # Jobs.

    def submit(
        self, post: Callable[[], Mapping[str, Any]], waited: Future[Any] | None
    ) -> Future[Any]:
        """Submit a job, and return its future when the server has accepted it.

        `waited` is this future if it has waited for the results of calls.
        """
        self.check_open(had_waited=waited is not None)
        with self.lock:
            self.submitting += 1
            listens = self._listens
        early = None
        try:
            job = self.outbox.repeated(post)["jobs"][0]["id"]
            future = Future[Any](self) if waited is None else waited
            with self.lock:
                future.job = job
                self.jobs[job] = future
                early = self._early.pop(job, None)
                if early is not None and early[0]["state"] in OVER:
                    del self.jobs[job]
        finally:
            with self.lock:
                self.submitting -= 1
                if not self.submitting:
                    self._early.clear()
        if early is not None:
            self.settle_job(future, *early)
        if future.cancelled():
            self.stop_cancelled(future)
        elif listens != self._listens:  # It may have ended before the server listened.
            self.outbox.put(lambda: self._take_ended({}, [job], self._received))
        return future

    def settle_job(
        self, future: Future[Any], header: Mapping[str, Any], parts: list[bytes]
    ) -> None:
        """Set the result of a job that is over, unless it is set."""
        state, reason = header["state"], header.get("reason") or ""
        if state == "running":
            future._start()
        elif state == "done":
            if parts:
                future._settle(CallResult(True, parts[0]))
            else:
                future._finish(header.get("result"))
        elif state == "cancelled" and not reason:
            future.cancel()
        elif state in OVER:
            what = "was lost" if state == "lost" else "failed"
            future._fail(SlotwiseError(f"job {header['job']!r} {what}: {reason}"))

    # What the server answers and sends.

    def receives(
        self,
        body: Callable[[], Mapping[str, Any]],
        received: Received,
        is_over: Callable[[], bool],
    ) -> threading.Thread:
        """Start a thread that takes results until it `is_over`, across restarts."""

        def run() -> None:
            down_since, pause = None, PAUSE_SECONDS
            while not is_over() and not self.is_ended:
                try:
                    stated, is_new = body(), True
                    for header, parts in self.transport.stream("/v1/results", stated):
                        down_since, pause = None, PAUSE_SECONDS
                        if is_new:
                            self._listens += 1
                            self._take_unstated(stated, body(), received)
                            is_new = False
                        received(header, parts)
                        if is_over():
                            return
                except (SlotwiseError, OSError) as error:
                    down_since = down_since if self._expects() else None
                    down_since = time.monotonic() if down_since is None else down_since
                    if time.monotonic() - down_since >= self._seconds:
                        self._lose(f"{error}; it did not return within {self._seconds:g} s")
                        down_since = None
                self.outbox.stopped.wait(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

        thread = threading.Thread(target=run, name="slotwise client receives", daemon=True)
        thread.start()
        return thread

    def _take_unstated(
        self, stated: Mapping[str, Any], now: Mapping[str, Any], received: Received
    ) -> None:
        """Take what has ended of what was submitted since a request was stated.

        The server reports what ends from the first frame of its answer on.
        """
        calls = dict[str, list[int]]()
        for key, numbers in now["calls"].items():
            known = set(stated["calls"].get(key, ()))
            if new := [one for one in numbers if one not in known]:
                calls[key] = new
        jobs = sorted(set(now["jobs"]) - set(stated["jobs"]))
        if calls or jobs:
            self._take_ended(calls, jobs, received)

    def _take_ended(
        self, calls: Mapping[str, Sequence[int]], jobs: Sequence[str], received: Received
    ) -> None:
        """Take those of these calls and jobs that have ended by now."""
        asked = {"client": self.id, "calls": calls, "jobs": jobs, "once": True}
        for header, parts in self.transport.stream("/v1/results", asked):
            received(header, parts)

    def _wanted(self) -> dict[str, Any]:
        """The calls, by stream, and the jobs whose results are missing."""
        with self.lock:
            calls = {key: list(one.of_task) for key, one in self._calls.items() if one.of_task}
            of_calls = [self._calls[key].job for key in calls if self._calls[key].job]
            return {"client": self.id, "calls": calls, "jobs": [*self.jobs, *of_calls]}

    def _expects(self) -> bool:
        """Whether a result is missing."""
        return bool(self.open_futures() or self.attached)

    def open_futures(self) -> list[Future[Any]]:
        """The futures of what was submitted and is not over."""
        with self.lock:
            of_calls = [one for calls in self._calls.values() for one in calls.of_task.values()]
            return [*of_calls, *self.jobs.values()]

    def is_idle(self) -> bool:
        """Whether nothing is left that was submitted; the caller holds the lock."""
        calls = any(one.of_task for one in self._calls.values())
        return not (calls or self.jobs or self.waiting)

    def _received(self, header: Mapping[str, Any], parts: list[bytes]) -> None:
        """Settle the future of a call or job that has ended."""
        if "job" in header:
            with self.changed:
                future = self.jobs.get(header["job"])
                if future is None and self.submitting:
                    self._early[header["job"]] = header, parts
                if header["state"] in OVER:
                    self.jobs.pop(header["job"], None)
                    self.changed.notify_all()
            if future is not None:
                self.settle_job(future, header, parts)
            elif header["state"] in ("failed", "lost"):
                self._calls_lost(header)
        elif "stream" in header:
            with self.changed:
                calls = self._calls.get(header["stream"])
                if calls is not None:
                    # The answer to the submission, which has the id, may come later.
                    self._note_job(calls, header.get("of_job", ""))
                    self._call_received(calls, header, parts)

    def _note_job(self, calls: RemoteCalls, job: str) -> None:
        """Note the id of a job of calls; the caller holds the lock."""
        if not calls.job:
            calls.job = job
            for future in calls.of_task.values():
                future.job = job

    def _calls_lost(self, header: Mapping[str, Any]) -> None:
        """Fail the calls of a job that is over without them, as after a failed restart."""
        with self.lock:
            calls = [one for one in self._calls.values() if one.job == header["job"]]
            futures = [future for one in calls for future in one.of_task.values()]
            for one in calls:
                one.of_task.clear()
                self.forget_if_over(one)
        for future in futures:
            self.settle_job(future, header, [])

    def _call_received(
        self, calls: RemoteCalls, header: Mapping[str, Any], parts: list[bytes]
    ) -> None:
        state, number = header["state"], header["number"]
        future = calls.of_task.get(number)
        if future is None:
            return
        if state == "running":
            future._start()
            return
        if state == "pending":
            future._put_back()
            return
        del calls.of_task[number]
        if state == "cancelled":
            future.cancel()
        elif state == "failed":
            future._fail(SlotwiseError(str(header.get("reason") or "the call failed")))
        else:
            printed = str(header.get("printed") or "")
            future._settle(CallResult(state == "value", parts[0], printed))
        self.forget_if_over(calls)

    def _accepted(self, answer: Mapping[str, Any]) -> None:
        """Note the ids of jobs of calls, and fail what was refused."""
        with self.changed:
            for key, job in answer.get("jobs", {}).items():
                if calls := self._calls.get(key):
                    self._note_job(calls, job)
        for key, reason in answer.get("refused", {}).items():
            self._drop(key, InputError(reason))

    def _refused(self, frames: Sequence[Sent], error: Exception) -> None:
        """Fail the calls that the server has not accepted."""
        if isinstance(error, ServerClosedError):
            self._lose(str(error))
        for key in {one.owner.key for one in frames}:
            self._drop(key, error)

    def _drop(self, key: str, error: Exception) -> None:
        with self.changed:
            calls = self._calls.pop(key, None)
            if calls is None:
                return
            futures = list(calls.of_task.values())
            calls.renew()
            if not calls.is_over:
                self._calls[calls.key] = calls
            self.changed.notify_all()
        for future in futures:
            future._fail(error)

    def _lose(self, reason: str) -> None:
        """Fail all futures, because the server does not answer any more."""
        with self.changed:
            lost, old = [*self.open_futures(), *self.attached], list(self._calls.values())
            self._calls, self.jobs, self.attached = {}, {}, set()
            for calls in old:
                calls.renew()
                if not calls.is_over:  # More calls may come.
                    self._calls[calls.key] = calls
            self.changed.notify_all()
        for future in lost:
            future._fail(ServerClosedError(reason))

    # The end.

    @property
    def is_local(self) -> bool:
        """Whether it belongs to this process. A fork does not copy threads."""
        return os.getpid() == self._pid

    def stop(self) -> None:
        """End the threads; what is not over continues in the server. Idempotent."""
        with self.changed:
            self.is_closed = self.is_ended = True
            left = [*self.open_futures(), *self.attached]
            self.changed.notify_all()
        for future in left:
            future._fail(ServerClosedError("the client was closed before its job was over"))
        self.outbox.stop()
        self.transport.end_streams()
        self._steps.end()
        for thread in (self._receiver, self._steps):
            if thread is not threading.current_thread():
                thread.join(1.0)
        self._callbacks.end()
        if self._callbacks is not threading.current_thread():
            self._callbacks.join(1.0)
        self.transport.close()
        self.files.close()
        if self.cells is not None:
            self.cells.close()
