"""A session: a scheduler that runs in this process and accepts jobs at any time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Decision, GiveUp
from slotwise.model.errors import InputError, SlotwiseError
from slotwise.model.event import (
    Event,
    JobCancelled,
    PhaseClosed,
    TaskFinished,
)
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.objective.objective import Objective
from slotwise.programs.execution import Execution
from slotwise.running import Options, RunSpec, refuse_log, refuse_unknown
from slotwise.runtime.local.backend import LocalBackend
from slotwise.runtime.local.call_files import CallFiles
from slotwise.runtime.local.call_stream import CallResult
from slotwise.scheduler import ALLOCATORS, QUEUEINGS
from slotwise.sessions.arriving import Names, arriving
from slotwise.sessions.calls import Binding, CallSubmitter, OpenCalls
from slotwise.sessions.changes import ChangesJobs
from slotwise.sessions.checking import (
    check_mapping,
    check_names,
    check_options,
    check_pools,
    check_slots,
    check_whole,
    checked_entry,
)
from slotwise.sessions.closing import ClosesItself, close_at_exit
from slotwise.sessions.executor import SessionExecutor
from slotwise.sessions.futures import Future
from slotwise.sessions.hosts import ChangesHosts, claimed_cluster
from slotwise.sessions.lazy_map import AHEAD, map_lazily
from slotwise.sessions.learning import Learning
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sessions.notebook import cells_of_notebook
from slotwise.sessions.shows import ShowsJobs
from slotwise.sources import Entry, Slots, Source
from slotwise.workload.workload import Workload
from slotwise.workload.workload import command as slotwise_command

REST_SECONDS = 0.05
"""Seconds between allocations that arrivals and ends cause."""

P = ParamSpec("P")
T = TypeVar("T")


class Session(ClosesItself, ChangesJobs, ChangesHosts, ShowsJobs):
    """Runs calls and jobs in worker processes of this machine, at any time, from any thread.

    Use it as a context: at the end of the block it waits for all jobs; if the block raises, it
    cancels them first. A session that is still open at the end of the program waits, too.

    slots      the number of worker processes, or their number by kind; by default, the number
               of processors that other sessions of the same user leave, with a warning if there
               are any. Or a `Cluster`, whose hosts are emulated on this machine
    scheduler  the name of the scheduler; see `slotwise.scheduler.ALLOCATORS`
    pools      the pools with their shares; jobs may also name others, with a warning if some
               are given here
    history    a database of earlier runs, created if it is missing: it gives the estimated work
               of programs, and each task of a program that ends is added to it

    The options are those of `slotwise.run`. InputError for options that do not fit;
    SlotwiseError if the workers cannot be started.
    """

    def __init__(
        self,
        slots: Slots | Cluster | None = None,
        scheduler: str = "flex",
        *,
        pools: Iterable[Pool] = (),
        history: str | Path | None = None,
        **options: Unpack[Options],
    ) -> None:
        refuse_unknown(options)
        refuse_log(history, options)
        if scheduler in QUEUEINGS:
            raise InputError(
                f"{scheduler} plans whole tasks of known work, and that of calls is unknown;"
                f" take one of {', '.join(ALLOCATORS)} for a session"
            )
        check_slots(slots)
        check_options(options, history)
        given = check_pools(pools)
        cluster, self._claim = claimed_cluster(slots)
        try:
            self._learning = Learning(history, cluster)
            self._open(cluster, scheduler, given, options)
        except BaseException:
            self._claim.close()
            raise

    def _open(
        self, cluster: Cluster, scheduler: str, pools: tuple[Pool, ...], options: Options
    ) -> None:
        self._claimed = cluster
        source = Source(Workload((), pools=pools), ()).with_options(
            preemption=options.get("preemption")
        )
        spec = RunSpec(scheduler, "live", (), cluster, source, options, {})
        header = spec.header(rest_seconds=REST_SECONDS, is_open=True)
        self._pools, self._objective = source.pools(), Objective(**header.objective)
        self._scheduler_name: str = header.scheduler["name"]
        self._calls: dict[str, OpenCalls] = {}  # by job
        self._jobs: dict[str, tuple[Future[Any], Execution]] = {}
        self._settled: list[tuple[Future[Any], CallResult]] = []
        self.unused = Names().unused
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._single = CallSubmitter(self, Binding(), grows=False)
        self._waiting = 0  # calls that wait for the results of others
        self._is_closed = self._is_ended = self._has_ended_jobs = False
        self._error: BaseException | None = None
        others = (self._learning.record, options.get("progress"))
        records = [*filter(None, others), self._hear]
        self._turns = self._over = 0
        self._warned_of: set[str] = set()
        self.files = CallFiles()
        self._loop = LoopThread(
            header, lambda: LocalBackend((), cluster, is_open=True), records, options.get("log")
        )
        self._state = self._loop.state
        self.cells = cells_of_notebook()
        self._loop.start(self._ended)
        close_at_exit(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process, as a job; returns at once.

        Futures of this session anywhere within the arguments are replaced by their results, and
        the call waits for these. They pass from worker to worker without being unpickled here.
        For many small calls an `executor` takes less time: they are tasks of one job there.
        """
        return self._single.submit(fn, args, kwargs)

    def executor(
        self,
        *,
        name: str = "executor",
        pool: str = "default",
        weight: float = 1.0,
        deadline: float | None = None,
        priority: str = "normal",
        slots: int = 1,
        slots_max: int | None = None,
        ahead: int | None = None,
    ) -> SessionExecutor:
        """An executor (`concurrent.futures.Executor`) whose calls are the tasks of one job.

        deadline   seconds after the first call
        slots      the slots of one host that each call occupies; it has as many processors
        slots_max  the most slots that its calls hold at once
        ahead      how many calls Dask submits before the first of them ends; by default the
                   number of slots, with which the scheduler does not see how large a job is

        InputError for values that no job can have, and for more slots than a host or the pool
        has.
        """
        binding = Binding(name, pool, weight, deadline, priority, slots, slots_max)
        job = binding.job(grows=True)
        self.check_job(job)
        if ahead is not None:
            check_whole("ahead", ahead)
        most = self.slots if slots_max is None else min(slots_max, self.slots)
        calls = CallSubmitter(self, binding, grows=True)
        return SessionExecutor(calls, ahead or max(1, most // slots))

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        ahead: int | None = None,
        **binding: Any,
    ) -> Iterator[T]:
        """The results of `fn` for the items of the iterables, in order, as one job.

        Items are read as results are asked for: `ahead` tasks are submitted before that (by
        default four for each slot), so that memory is bounded also for endless iterables. A
        task makes `chunksize` calls; by default, as many as take about 10 ms. The other options
        are those of `executor`. If the iterator is closed, the remaining calls are cancelled.
        """
        check_mapping(fn, iterables, chunksize, ahead)
        check_names("Session.map", binding, Binding.__dataclass_fields__)
        executor = self.executor(**{"name": getattr(fn, "__name__", "map"), **binding})
        most = AHEAD * self.slots if ahead is None else ahead
        return map_lazily(executor, fn, iterables, chunksize, max(1, most))

    def command(
        self,
        command: str | Sequence[str],
        *,
        output: str | Path | None = None,
        id: str = "command",
        **options: Any,
    ) -> Future[str]:
        """Run a command in each task of a job: a list of words, or a text for /bin/sh.

        output  the folder for what the tasks print, `task-00000.out` and `task-00000.err` and
                so on. By default a temporary folder, which is removed when the session closes

        The result of the future is this folder. The other options are those of
        `slotwise.command`: `tasks`, `env`, `cwd`, `pool` and so on. InputError as for `run`.
        """
        if output is None:
            output = self.files.new_folder()
        return self.run(slotwise_command(command, output, id=id, **options))

    def run(self, entry: Entry | Mapping[str, Any], *, folder: str | Path = ".") -> Future[Any]:
        """Run a job of any kind: a program, commands, `Calls`, or a `Job`, which sleeps.

        It may also be a mapping, like an entry of `jobs` in a workload file. It arrives now,
        and its deadline and steps move with it. If its id was used before, it gets a number
        behind it. The result of the future is that of the job: the results of `Calls`, the
        output of a program or of commands, or None. Relative paths begin at `folder`.
        InputError for a job that cannot be run; the future of a job that fails has a
        SlotwiseError with the reason.
        """
        entry = checked_entry(entry, folder, self.slots)
        if any(execution is entry for _, execution in list(self._jobs.values())):
            raise InputError("this job runs already; make another object to run it again")
        entry = arriving(entry, self.now, self.unused)
        workload = Workload((), folder=Path(folder))
        source = Source(workload, (entry,), self._learning.rates)
        cluster = self._state.cluster
        (execution,) = source.executions(cluster)
        self.check_job(execution.job)
        execution.open()
        future: Future[Any] = Future(self, execution.job.id)
        try:
            with self.lock:
                self.check_open(had_waited=False)
                self.check_job(execution.job)  # The pools may have changed.
                self._jobs[execution.job.id] = (future, execution)
                self._learning.begin(execution)
                self.put(execution)
        except BaseException:
            execution.close(succeeded=False)
            raise
        return future

    # For futures (`Control`).

    def stop_cancelled(self, future: Future[Any]) -> None:
        """Stop the call or the job of a future that was cancelled."""
        with self.lock:
            calls = self._calls.get(future.job)
            if calls is not None and calls.grows and future.task is not None:
                calls.cancelled(future.task)
            elif calls is not None or future.job in self._jobs:
                self.put(JobCancelled(self.now, future.job))

    # In the thread of the loop.

    def _jobs_left(self) -> list[Job]:
        """The jobs that are not over, also those that have not arrived yet."""
        jobs = [calls.stream.job for calls in self._calls.values()]
        jobs += [execution.job for _, execution in self._jobs.values()]
        arrived = [phases[0].job for phases in self._state.jobs_left()]
        return [*arrived, *(job for job in jobs if not self._state.phases_of(job.id))]

    def _ended(self, error: BaseException | None) -> None:
        """The loop has ended: after `close`, or by an error."""
        self._claim.close()
        with self.lock:
            self._error, self._is_ended = error, True
        for future in self._pending():
            future.fail(SlotwiseError(f"the session has failed: {error}"))

    def _hear(self, now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        """Tell futures what ended in a turn, after new tasks were started."""
        self._turns += 1
        if self._state.cluster is not self._claimed:
            self._claimed = self._state.cluster
            self._claim.update(self.slots)
        settled, self._settled = self._settled, []
        for future, result in settled:
            future.settle(result)
        for event in events:
            if isinstance(event, TaskFinished | PhaseClosed):
                job = event.phase.job
                if job in self._jobs or job in self._calls:
                    self._end_if_over(job)
        for decision in decisions:
            if isinstance(decision, GiveUp):
                self._fail(decision.job, decision.reason)

    def _end_if_over(self, job: str) -> None:
        if self._state.phases_of(job):
            return
        self._over += 1
        self._calls.pop(job, None)
        if job in self._jobs:
            future, execution = self._jobs.pop(job)
            self._learning.end(job)
            found: Any = execution
            if future.start():
                future.set_result(getattr(found, "results", getattr(found, "output", None)))

    def _fail(self, job: str, reason: str) -> None:
        self._over += 1
        if calls := self._calls.pop(job, None):
            calls.fail(reason)
        if job in self._jobs:
            future, _ = self._jobs.pop(job)
            self._learning.end(job)
            future.fail(SlotwiseError(f"job {job!r} failed: {reason}"))
