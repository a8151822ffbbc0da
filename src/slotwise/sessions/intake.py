"""The core of a session: its open calls and jobs, and what it learns and shows of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from slotwise.backends.local.call_stream import CallFiles, CallResult
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Decision, GiveUp
from slotwise.core.dependencies import check_dependencies
from slotwise.core.errors import (
    InputError,
    SessionFailedError,
    SlotwiseError,
    check_name,
    suggestion,
)
from slotwise.core.events import (
    Event,
    JobCancelled,
    JobsClosed,
    PhaseClosed,
    TaskFinished,
    launches,
)
from slotwise.core.history import HistoryWriter, read_history
from slotwise.core.job import Job, PhaseId
from slotwise.core.log import Header
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolTree
from slotwise.core.rates import Rates, estimate_rates
from slotwise.forecast.eta import Eta
from slotwise.insight.explanation import Explanation
from slotwise.insight.reasons import Reason, WhyWaiting
from slotwise.insight.report.session_table import (
    MAX_ROWS,
    SessionJob,
    SessionJobs,
    session_html,
)
from slotwise.insight.waiting import explain_now
from slotwise.jobs.commands import ResultOf
from slotwise.jobs.execution import Execution
from slotwise.run_folder import OpenRun
from slotwise.running import RunOptions, check_jobs, existing, warn_user
from slotwise.sessions.calls import PHASE, OpenCalls
from slotwise.sessions.forecasting import Forecasts
from slotwise.sessions.futures import Future
from slotwise.sessions.hosts import SessionPlace
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sessions.notebook import LiveDisplay, cells_of_notebook
from slotwise.sessions.promising import promise_jobs
from slotwise.sessions.views import SessionViews
from slotwise.sources import Described, Entry

T = TypeVar("T")

NO_JOBS: Mapping[str, Job] = {}


class SessionPage(Protocol):
    """The page that shows a session, which a higher layer serves."""

    def show(self, opens: bool) -> str:
        """A link to it, which the browser of this machine opens if it is asked to."""
        ...

    def close(self) -> None:
        """End it. Idempotent."""
        ...

    def join(self) -> None:
        """Wait for its end."""
        ...


class SessionCore:
    """Accepts calls and jobs, passes them to the loop, and settles their futures.

    It is the interface of a session for calls and futures (`CallHost`, `LoopHost`).
    """

    def __init__(
        self,
        header: Header,
        learning: ProgramHistory,
        place: SessionPlace,
        options: RunOptions,
    ) -> None:
        """InputError for a log that cannot be written; SlotwiseError if no workers start."""
        self.pools, self.objective = PoolTree(header.pools), Objective(**header.objective)
        self.learning, self.presence = learning, place.presence
        self._calls: dict[str, OpenCalls] = {}  # by job
        self.jobs: dict[str, tuple[Future[Any], Execution]] = {}
        self._settled: list[tuple[Future[Any], CallResult]] = []
        names = Names()
        self.unused, self.give_back = names.unused, names.give_back
        self.attempts_max = header.attempts_max
        self.lock = threading.RLock()
        self.promising = threading.RLock()  # Held while promises are asked for and begin.
        self.waiting = 0  # calls that wait for the results of others
        self.turns = 0  # of the loop
        self.is_closed = self.is_ended = self._has_ended_jobs = False
        self.display: LiveDisplay | None = None
        self.page: SessionPage | None = None
        self._forecasts: Forecasts | None = None
        self.forecasts_kept: Path | None = None  # The file for what they learn.
        self._error: BaseException | None = None
        self._warned_of: set[str] = set()
        self.opened = opened = OpenRun(options.keep, header, options.log)
        records = [*filter(None, (learning.record, options.progress)), self._on_turn]
        self.files = CallFiles(is_local=place.presence is not None)  # Else, on other hosts.
        self.loop = LoopThread(
            header, lambda: place.backend(opened.logs), opened, records, options.log
        )
        self.state, self.inbox = self.loop.state, self.loop.backend.inbox
        self.views = SessionViews(self.loop)
        self.cells = cells_of_notebook()
        self.on_failure: Callable[[], None] = _nothing  # Before its jobs are closed.
        self.loop.start(self._ended, lambda: self.on_failure())

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        return self.loop.backend.now

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        return sum(self.state.cluster.capacity.values())

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            "a Session cannot be used inside a call, nor can its executors, because it belongs"
            " to the process that opened it; pass the futures as arguments of other calls, or"
            " submit from the calling program"
        )

    def run(
        self, execution: Execution, waited: Future[Any] | None = None, *, is_open: bool = False
    ) -> Future[Any]:
        """Submit a job; the result of the future is that of the job.

        `waited` is its future if it has waited for the results of calls. It may be open before.
        """
        self.check_job(execution.job)
        if not is_open:
            execution.open()
        future: Future[Any] = Future(self, execution.job.id) if waited is None else waited
        future.job = execution.job.id
        try:
            with self.promising if execution.job.promise is not None else nullcontext():
                promise_jobs(self, [execution])
                self._enter(execution, future, had_waited=waited is not None)
        except BaseException:
            execution.close(succeeded=False)
            raise
        return future

    def _enter(self, execution: Execution, future: Future[Any], *, had_waited: bool) -> None:
        job = execution.job
        with self.lock:
            self.check_open(had_waited=had_waited)
            self.check_job(job)  # The pools may have changed.
            self.jobs[job.id] = (future, execution)
            self.learning.begin(execution)
            self.inbox.put(execution)

    def warn_of_pool(self, pool: str) -> None:
        """Warn, once for each name, of a pool that the session does not have."""
        known = self.pools
        if not known or pool in known or pool == "default" or pool in self._warned_of:
            return
        self._warned_of.add(pool)
        names = list(dict.fromkeys([*(n for n in known if n not in known.inner), "default"]))
        hint = suggestion(pool, names, "it is created with weight 1")
        warn_user(
            f"pool {pool!r} is not among the pools of the session ({', '.join(names)}); {hint}"
        )

    def end_jobs(self) -> None:
        """Close the inbox of the loop if no more jobs can come; the caller holds the lock."""
        if self.is_closed and not self.waiting and not self._has_ended_jobs:
            self._has_ended_jobs = True
            for calls in list(self._calls.values()):
                calls.end()
            self.inbox.put(JobsClosed(self.now))

    def cancel_jobs(self) -> None:
        """Cancel the jobs that are not over."""
        for future in self._pending():
            future.cancel()
        with self.lock:  # A cancelled call may never be launched, and thus never end its job.
            for job in list(self._calls):  # The loop removes those that are over.
                self.inbox.put(JobCancelled(self.now, job))

    def cancel_job(self, job: str) -> None:
        """Cancel a job by its id; no effect on one that is over."""
        with self.lock:
            calls, found = self._calls.get(job), self.jobs.get(job)
            futures = [
                *(calls.of_task.values() if calls else ()),
                *(found[:1] if found else ()),
            ]
        for future in futures:
            future.cancel()
        with self.lock:  # A cancelled call may never be launched, and thus never end its job.
            if job in self._calls:
                self.inbox.put(JobCancelled(self.now, job))

    def fail_jobs(self, reason: str) -> None:
        """Fail the futures that are not done, and cancel the jobs that are not over."""
        for future in self._pending():
            future._fail(SlotwiseError(reason))
        with self.lock:
            for job in [*self._calls, *self.jobs]:
                self.inbox.put(JobCancelled(self.now, job))

    def _pending(self) -> list[Future[Any]]:
        with self.lock:
            jobs = [*self._calls.values()]
            of_calls = [future for calls in jobs for future in list(calls.of_task.values())]
            return [*of_calls, *(future for future, _ in list(self.jobs.values()))]

    # For calls (`CallHost`, `LoopHost`).

    def stream(self, job: Job) -> OpenCalls:
        """Begin a job of calls; the caller holds the lock."""
        return OpenCalls(self, job)

    def begin(self, calls: OpenCalls) -> None:
        """Begin a job of calls; the caller holds the lock."""
        self._calls[calls.job.id] = calls

    def check_job(self, job: Job, also: Mapping[str, Job] = NO_JOBS) -> None:
        """InputError for a job that the present pools or objective do not allow.

        `also` are jobs that it may wait for and that have not been submitted yet.
        """
        self.pools.check_holds_jobs(job.pool)
        self.warn_of_pool(job.pool)
        known = {}
        if job.predecessors:
            found = ((name, also.get(name) or self._job_of(name)) for name in job.predecessors)
            known = {name: one for name, one in found if one is not None}
            over = {name for name in job.predecessors if self.state.is_over(name)}
            if job.predecessors - known.keys() - over:  # For the message, all names.
                check_dependencies([job], [*self._calls, *self.jobs])
        check_jobs([job], self.state.cluster, self.objective, self.pools, known=known)

    def _job_of(self, name: str) -> Job | None:
        """A job that is not over, by its id."""
        if calls := self._calls.get(name):
            return calls.job
        entry = self.jobs.get(name)
        return None if entry is None else entry[1].job

    def check_open(self, *, had_waited: bool) -> None:
        """RuntimeError if no more calls are accepted; calls that have waited still are."""
        self.loop.check_process()
        if self._error is not None:
            raise SessionFailedError(f"the session has failed: {self._error}") from self._error
        if self.is_ended or (self.is_closed and not had_waited):
            raise RuntimeError(
                "cannot schedule new futures after shutdown: the session is closed;"
                " open another"
            )

    def settle(self, future: Future[Any], result: CallResult) -> None:
        """Set the result of a future at the end of the turn."""
        self._settled.append((future, result))

    def waits(self, more: int) -> None:
        """Add to the number of calls that wait for the results of others."""
        with self.lock:
            self.waiting += more
            self.end_jobs()

    # For futures (`Control`).

    def stop_cancelled(self, future: Future[Any]) -> None:
        """Stop the call or the job of a future that was cancelled."""
        with self.lock:
            calls = self._calls.get(future.job)
            if calls is not None and calls.grows and future.task is not None:
                calls.cancelled(future.task)
            elif calls is not None or future.job in self.jobs:
                self.inbox.put(JobCancelled(self.now, future.job))

    def unused_now(self, name: str) -> str:
        """A name that no job has that is not over; it is not counted as used."""
        return name if self._job_of(name) is None else f"{name}-new"

    def _id_of(self, job: str | Future[Any], method: str) -> str:
        """The id of a job; of a call that waits for others empty, as it has no job yet."""
        if isinstance(job, Future):
            if not job._is_of(self):
                raise InputError(f"this future is of another session; call its own `{method}`")
            return job.job
        check_name("job", job)
        return job

    def eta(self, job: str | Future[Any], timeout: float) -> Eta | None:
        """When a job starts and ends, in Unix seconds; None if it is over or not known."""
        name = self._id_of(job, "eta")
        if self.is_ended or self._job_of(name) is None:
            return None
        found = self.forecasts.eta(name, timeout)
        return None if found is None else found.moved(time.time() - self.now)

    def etas(self, jobs: Iterable[str] | None = None) -> dict[str, Eta]:
        """The last forecasts of all jobs, or of some, in Unix seconds. It never waits."""
        found = {} if self.is_ended else self.forecasts.etas()
        wanted = found if jobs is None else [job for job in jobs if job in found]
        epoch = time.time() - self.now
        return {job: found[job].moved(epoch) for job in wanted}

    @property
    def forecasts(self) -> Forecasts:
        """The forecasts, which begin when they are first asked for."""
        self.loop.check_process()
        with self.lock:
            if self._forecasts is None:
                self._forecasts = Forecasts(self.loop, self.forecasts_kept)
            return self._forecasts

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds, and why. InputError for a job that is not active."""
        name = self._id_of(job, "explain")

        def explain() -> Explanation:
            state, scheduler = self.state, self.loop.scheduler_name
            if phases := state.phases_of(name):
                pool = phases[0].job.pool
                return explain_now(state, name, pool, scheduler, self.objective, self.now)
            found = self.views.explained(name)
            if not isinstance(job, Future) and not (name in self._calls or name in self.jobs):
                raise InputError(
                    f"job {name!r} is not active; jobs() of the session lists the active jobs"
                )
            is_waiting = isinstance(job, Future) and not name and not job.done()
            if is_waiting:
                status = "waits for the results of other calls"
                remedy = "the end of the calls whose results it needs"
                why = WhyWaiting(name, Reason.CALLS_BEFORE, f"it {status}", remedy)
                return replace(found, status=status, waiting=why)
            if name in self._calls or name in self.jobs:
                status = "has not arrived yet"
                why = WhyWaiting(name, Reason.NOT_ARRIVED, f"it {status}")
                return replace(found, status=status, waiting=why)
            pool, status = self.views.ending(name)
            return replace(found, pool=pool, status=status)

        found = self.loop.ask(explain)
        eta = self._forecasts.etas().get(name) if self._forecasts is not None else None
        if found.waiting is None or eta is None or eta.start is None:
            return found
        start = eta.start.low, eta.start.median, eta.start.high
        return replace(found, waiting=replace(found.waiting, start=start))

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function in the thread of the loop: what it reads is of one instant."""
        return self.loop.ask(question)

    def shown_job(self, job: str) -> SessionJob | None:
        """A job with the numbers of its tasks; None if it is over or has not arrived."""
        return self.loop.ask(
            lambda: self.views.job(job, self.now) if self.state.phases_of(job) else None
        )

    def shown(self, most: int | None = None) -> SessionJobs:
        """The jobs at one instant: all, or the first ones for a display."""

        def shown() -> SessionJobs:
            now = self.state.now if self.is_ended else self.now
            left = self.jobs_left()
            return self.views.jobs(left, now, not self.is_closed, self.waiting, most)

        return self.loop.ask(shown)

    def html(self) -> str:
        """The session as a table of its jobs."""
        return session_html(self.shown(MAX_ROWS))

    def progress(self, job: str, task: int) -> tuple[float, float | None] | None:
        """The progress that a running call has reported, or None."""
        phase = PhaseId(job, PHASE)
        return self.loop.ask(lambda: self.loop.backend.progress(phase, task))

    def call_back(self, calls: Callable[[], None]) -> None:
        """Run callbacks outside the thread of the loop."""
        self.loop.call_back(calls)

    def take_step(self, step: Callable[[], None]) -> None:
        """Continue a call whose inputs are done."""
        self.loop.take_step(step)

    # In the thread of the loop.

    def jobs_left(self) -> list[Job]:
        """The jobs that are not over, also those that have not arrived yet."""
        jobs = [calls.job for calls in self._calls.values()]
        jobs += [execution.job for _, execution in self.jobs.values()]
        arrived = [phases[0].job for phases in self.state.jobs_left()]
        arrived += [self.state.phases_of(job)[0].job for job in self.state.not_admitted]
        return [*arrived, *(job for job in jobs if not self.state.phases_of(job.id))]

    def result_word(self, future: Future[Any]) -> str | ResultOf:
        """The word of a command for the result of a job."""
        job = self.jobs.get(future.job)
        if job is None:
            return str(future.result())
        # The future of a job gets its result after jobs that wait for it may have begun.
        return ResultOf(lambda: job[1].result)

    def free(self) -> None:
        """Remove the files and the entry of the session. Idempotent."""
        self.files.close()
        if self.presence is not None:
            self.presence.close()
        if self.cells is not None:
            self.cells.close()
        if self.page is not None:
            self.page.close()
        if self._forecasts is not None:
            self._forecasts.close()
        if self.display is not None and self.is_ended:  # Draw the final state.
            self.display.close()

    def _ended(self, error: BaseException | None) -> None:
        """Fail the remaining futures after the end of the loop, by `close` or an error."""
        with self.lock:
            self._error, self.is_ended = error, True
        for future in self._pending():
            future._fail(SessionFailedError(f"the session has failed: {error}"))
        self.free()

    def _on_turn(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Settle the futures of what ended in a turn, after new tasks were started."""
        self.turns += 1
        settled, self._settled = self._settled, []
        for future, result in settled:
            if not result.is_value:
                self.views.raised(future.job)
        self.views.on_turn(now, events, decisions)
        for future, result in settled:
            future._settle(result)
        for launch in launches(events, decisions):
            if launch.phase.job in self.jobs:
                self.jobs[launch.phase.job][0]._start()
        for decision in decisions:
            if isinstance(decision, GiveUp):  # Another task of it may have ended in this turn.
                self._fail(decision.job, decision.reason)
        for event in events:
            if isinstance(event, TaskFinished | PhaseClosed):
                job = event.phase.job
                if job in self.jobs or job in self._calls:
                    self._end_if_over(job)

    def _end_if_over(self, job: str) -> None:
        if self.state.phases_of(job):
            return
        self._calls.pop(job, None)
        if job in self.jobs:
            future, execution = self.jobs.pop(job)
            self.learning.end(job)
            future._finish(execution.result)

    def _fail(self, job: str, reason: str) -> None:
        if calls := self._calls.pop(job, None):
            calls.fail(reason)
        if job in self.jobs:
            future, _ = self.jobs.pop(job)
            self.learning.end(job)
            future._fail(SlotwiseError(f"job {job!r} failed: {reason}"))


def _nothing() -> None:
    """What is done at a failure of a session by default."""


def arriving(entry: Entry, now: float, unused: Callable[[str], str]) -> Entry:
    """The job with arrival `now`, and an id from `unused` that no other job has had.

    Its deadline and steps keep their distance from the arrival.
    """
    if isinstance(entry, Job | Described):
        return cast(Entry, _moved(entry, now, unused))
    cast(Any, entry).job = _moved(entry.job, now, unused)
    return entry


class Names:
    """The ids of the jobs of a session, or of a store.

    `last` has the last number appended to each name.
    """

    def __init__(self, last: Mapping[str, int] | None = None) -> None:
        self._last = dict(last or {})
        self._lock = threading.Lock()

    def unused(self, name: str) -> str:
        """A name that no job of this session has had: `name`, or with a number appended."""
        base, wanted = _numbered(name)
        with self._lock:
            last = self._last.get(base, 0)
            self._last[base] = max(last + 1, wanted)
        return name if wanted > last else f"{base}-{last + 1}"

    def give_back(self, name: str) -> None:
        """Let the last name of `unused` be used again, since no job got it."""
        base, number = _numbered(name)
        with self._lock:
            if self._last.get(base) == number:
                self._last[base] = number - 1

    def last(self, name: str) -> tuple[str, int]:
        """A name without its number, and the last number appended to that; 0 if unused."""
        base, _ = _numbered(name)
        return base, self._last.get(base, 0)


def _numbered(name: str) -> tuple[str, int]:
    """A name without the number appended to it, and that number."""
    base, _, number = name.rpartition("-")
    return (base, int(number)) if base and number.isdecimal() else (name, 1)


def _moved(stated: Any, now: float, unused: Callable[[str], str]) -> Any:
    later = now - stated.arrival
    return replace(
        stated,
        id=unused(stated.id),
        arrival=now,
        deadline=None if stated.deadline is None else stated.deadline + later,
        promise=None if stated.promise is None else stated.promise + later,
        steps=tuple((at + later, cost) for at, cost in stated.steps),
    )


class ProgramHistory:
    """Estimates from a history, and the record that adds finished tasks of programs to it.

    rates   the estimates; empty without a history
    record  the record for the loop; None without a history
    """

    def __init__(self, history: str | Path | None, cluster: Cluster) -> None:
        """InputError for a history that cannot be read."""
        self._running: dict[str, Execution] = {}
        self.rates = Rates()
        self.record: HistoryWriter | None = None
        if earlier := existing(history):
            self.rates = estimate_rates(read_history(earlier))
        if history is not None:
            self.record = HistoryWriter(history, self._running, cluster)

    def begin(self, execution: Execution) -> None:
        """Record the finished tasks of a job that is about to arrive."""
        if self.record is not None:
            self._running[execution.job.id] = execution

    def end(self, job: str) -> None:
        """Forget a job that is over."""
        self._running.pop(job, None)
