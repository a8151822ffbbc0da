"""A session: a scheduler that runs in this process and accepts jobs at any time."""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from slotwise.backends.signals import HeldInterrupts
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError, check_whole
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolsStated, pools_of
from slotwise.core.resources import NOTHING
from slotwise.core.units import seconds_of
from slotwise.insight.explanation import Explanation
from slotwise.insight.report.notebook import notebook_display
from slotwise.insight.report.session_table import SessionJobs
from slotwise.running import Options, RunOptions, RunSpec, warn_user
from slotwise.sessions import changes, hosts
from slotwise.sessions.calls import Binding, CallSubmitter, submit_after
from slotwise.sessions.command_inputs import CommandInputs
from slotwise.sessions.executor import AHEAD, SessionExecutor, map_lazily
from slotwise.sessions.futures import Future
from slotwise.sessions.hosts import (
    check_mapping,
    check_names,
    check_slots,
    checked_entry,
    refuse_shuffle,
)
from slotwise.sessions.intake import (
    ProgramHistory,
    SessionCore,
    arriving,
)
from slotwise.sessions.notebook import LiveDisplay
from slotwise.sources import Entry, Slots, Source
from slotwise.workload.dates import seconds_until
from slotwise.workload.workload import CommandJob, Workload
from slotwise.workload.workload import command as slotwise_command

REST_SECONDS = 0.05
"""The least seconds between allocations that arrivals and ends cause."""

P = ParamSpec("P")
T = TypeVar("T")


class Session:
    """Runs calls and jobs in worker processes, at any time, from any thread.

    The processes are on this machine, or on the hosts of a Dask cluster.

    Use it as a context manager: at the end of the block it waits for all jobs; if the block
    raises, it cancels them first. A session that is open at the end of the program also waits
    for its jobs. A session that is no longer referenced, by the program, an executor or an
    iterator of `map`, ends when its jobs are over.

    slots           the number of worker processes, or their number by kind; by default, the
                    number of processors. With a warning if other runs or sessions of the same
                    user are here, too, and all have more slots than there are processors. Or a
                    `Cluster`, whose hosts are emulated on this machine
    dask            a Dask cluster whose slots are used instead of this machine's: a
                    `distributed.Client`, or the address of a scheduler. Each thread of a worker
                    is a slot, and an agent beside the worker runs the tasks
    dask_slots      the most slots of each Dask worker; its other threads run tasks of Dask. By
                    default all threads are slots, and tasks of Dask wait until the session ends
    resources       what this machine has beside slots, in place of what is found, by name. GPUs
                    are looked for unless `gpu` is stated:
                    `{"memory": "6 GiB", "license": 2}`
    scheduler       the name of the scheduler; see `slotwise.policy.scheduler.ALLOCATORS`
    pools           the pools with their shares, as a list, or as weights or keys by name. If
                    some are given, jobs may still name others, with a warning
    history         a database of earlier runs, created if it is missing. It gives the estimated
                    work of programs, and finished tasks of programs are added to it
    objective       what to minimize: an `Objective`, or the name of a penalty
    preemption      a `Preemption`: when pools take slots back, unless they state it themselves
    assigner        "greedy", "delay" or "flow"
    waits           of delay and flow, two waits in seconds: for the rack, for any slot
    levels          of delay and flow, "persist" or "restart": whether the level of a launch
                    away from its input persists
    core_cost       of flow, the cost of a byte from another rack, relative to one from another
                    host of the same rack
    move_within     of flow, seconds for which a task may move to a free slot beside its input
    epoch_seconds   seconds between decisions on the allocation
    budget_seconds  the approximate time for which flex may search at each decision; None: flex
                    decides
    attempts_max    how often a task may fail before its job does
    retry_delay     seconds before the second attempt of a task that has failed
    time_limit      seconds for which an attempt may run, also of a call
    log             file to write the log to
    keep            whether to keep the log and what tasks print, for `slotwise logs`, as by
                    default; or the path of the folder for them
    progress        called for every turn of the loop, with the instant, events and decisions

    From `objective` on, these are options of `slotwise.run`. InputError for invalid options;
    SlotwiseError if the workers cannot be started.
    """

    def __init__(
        self,
        slots: Slots | Cluster | None = None,
        scheduler: str = "flex",
        *,
        dask: Any = None,
        dask_slots: int | None = None,
        resources: Mapping[str, Any] | None = None,
        pools: PoolsStated = (),
        history: str | Path | None = None,
        **options: Unpack[Options],
    ) -> None:
        given = RunOptions.of(options, Session)
        refuse_shuffle(given)
        given.check_files(history)
        changes.check_allocator(scheduler)
        check_slots(slots)
        workload = Workload((), pools=pools_of(pools), preemption=given.preemption)
        place = hosts.place_for(slots, dask, dask_slots, resources)
        try:
            learning = ProgramHistory(history, place.cluster)
            spec = RunSpec(scheduler, "live", (), place.cluster, Source(workload), given, {})
            header = spec.header(rest_seconds=REST_SECONDS, is_open=True)
            self._intake = SessionCore(header, learning, place, given)
        except BaseException:
            place.discard()
            raise
        self._limits: dict[str, Any] = {
            "retry_delay": given.retry_delay,
            "time_limit": given.time_limit,
        }
        binding = Binding(**self._limits)
        self._single = CallSubmitter(self._intake, binding, grows=False)
        close_at_exit(self._intake)
        self._drops = weakref.finalize(self, close_unused, self._intake)
        self._drops.atexit = False
        if self._intake.cells is not None:
            self._intake.cells.watch(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process, as a job; return at once.

        Futures of this session anywhere within the arguments are replaced by their results, and
        the call waits for these. Results are not unpickled in this process. For many small
        calls an `executor` takes less time, because its calls are tasks of one job.
        """
        return self._single.submit(fn, args, kwargs)

    def executor(
        self,
        *,
        name: str = "executor",
        pool: str = "default",
        weight: float = 1.0,
        deadline: float | str | None = None,
        priority: str = "normal",
        slots: int = 1,
        slots_max: int | None = None,
        resources: Mapping[str, Any] | None = None,
        attempts: int | None = None,
        retry_delay: float | str | None = None,
        time_limit: float | str | None = None,
        user: str | None = None,
        ahead: int | None = None,
    ) -> SessionExecutor:
        """An executor (`concurrent.futures.Executor`) whose calls are the tasks of one job.

        deadline   seconds after the first call, or a duration such as "5m"
        slots      the slots of one host that each call occupies, with as many processors
        slots_max  the most slots that its calls hold at once
        resources  what each call requests of its host beside slots, by name: `memory` in bytes
                   or as a size, `gpu`, and others; `{"memory": "4 GiB", "gpu": 0.5}`
        attempts   how often a call may be tried. By default an exception is its result at once,
                   and only a call that loses its worker process is repeated
        retry_delay  seconds before the second attempt; they double before each further one
        time_limit   seconds for which an attempt may run; then its worker process is killed
        user         whose job it is, for limits of users; by default, the account
        ahead      how many calls Dask submits before the first of them ends; by default the
                   number of slots, with which the scheduler does not know the size of the job

        InputError for values that no job can have, and for more slots or resources than a host
        or the pool has.
        """
        self._intake.check_open(had_waited=False)
        due = seconds_of("deadline", deadline)
        stated = {
            "retry_delay": seconds_of("retry_delay", retry_delay),
            "time_limit": seconds_of("time_limit", time_limit),
            "user": user,
        }
        limits = self._limits | {key: one for key, one in stated.items() if one is not None}
        binding = Binding(
            *(name, pool, weight, due, priority, slots, slots_max, attempts),
            **limits,
            resources=resources,
        )
        job = binding.job(grows=True)
        self._intake.check_job(job)
        if ahead is not None:
            check_whole("ahead", ahead)
        most = self.slots if slots_max is None else min(slots_max, self.slots)
        calls = CallSubmitter(self._intake, binding, grows=True)
        return SessionExecutor(calls, ahead or max(1, most // slots), self)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        ahead: int | None = None,
        **binding: Any,
    ) -> Iterator[T]:
        """The results of `fn` for the items of the iterables, in order, as one job.

        Items are read as results are taken. `ahead` tasks are submitted before that, by default
        four for each slot, so that memory is bounded also for endless iterables. A task makes
        `chunksize` calls; by default, as many as take about 10 ms. The other options are those
        of `executor`. If the iterator is closed, the remaining calls are cancelled.
        """
        check_mapping(fn, iterables, chunksize, ahead)
        check_names("Session.map", binding, Binding.__dataclass_fields__)
        executor = self.executor(**{"name": getattr(fn, "__name__", "map"), **binding})
        most = AHEAD * self.slots if ahead is None else ahead
        return map_lazily(executor, fn, iterables, chunksize, max(1, most))

    def command(
        self,
        command: str | Sequence[str | Future[Any]],
        output: str | Path | None = None,
        *,
        id: str = "command",
        after: str | Future[Any] | Iterable[str | Future[Any]] = (),
        **options: Any,
    ) -> Future[str]:
        """Run a command in each task of a job: a list of words, or a string for /bin/sh.

        A future of this session as a word stands for its result, such as the folder of another
        command; the command waits for it.

        after   the jobs, by id or future, and the calls that must be done before it begins
        output  the folder for the output of tasks: `task-00000.out`, `task-00000.err` and so
                on. By default a temporary folder, which is removed when the session closes.
                Hosts on other machines need a folder that all of them see

        The result of the future is this folder. The other options are those of
        `slotwise.command`: `tasks`, `env`, `cwd`, `pool` and so on. The deadline may be a date
        and time, or a time of day, "17:00". InputError as for `run`.
        """
        intake, inputs = self._intake, CommandInputs.of(self._intake, command, after)
        if "deadline" in options:
            options["deadline"] = seconds_until(f"job {id!r}: deadline", options["deadline"])

        def described() -> CommandJob:
            return slotwise_command(inputs.words(), output, id=id, after=inputs.jobs, **options)

        entry = described()  # Refuses what is wrong before a folder is made.
        if output is None:
            hosts.check_on_this_machine(intake.state.cluster)
            output = intake.files.new_folder()
        if not inputs.calls:
            return self.run(described())
        future: Future[Any] = Future(intake)

        def run() -> None:
            self._run(described(), Path(), future)

        needs_all = entry.after_failed == "cancel"
        submit_after(intake, future, inputs.calls, run, needs_all=needs_all)
        return future

    def run(self, entry: Entry | Mapping[str, Any], *, folder: str | Path = ".") -> Future[Any]:
        """Run a job of any kind: a program, commands, `Calls`, or a `Job`, which sleeps.

        It may also be a mapping, like an entry of `jobs` in a workload file. It arrives now,
        and its deadline and steps move with it. A number is appended to an id that was used
        before. The result of the future is that of the job: the results of `Calls`, the output
        of a program or of commands, or None. Relative paths begin at `folder`. InputError for a
        job that cannot be run; the future of a job that fails has a SlotwiseError with the
        reason.
        """
        return self._run(checked_entry(entry, folder, self.slots), folder)

    def _run(
        self, entry: Entry, folder: str | Path, waited: Future[Any] | None = None
    ) -> Future[Any]:
        """Run a job; `waited` is its future if it has waited for the results of calls."""
        intake = self._intake
        if any(execution is entry for _, execution in list(intake.jobs.values())):
            raise InputError(
                "this job is already running; create another object to run it again"
            )
        jobs: Any = (arriving(entry, intake.now, intake.unused),)
        source = Source(Workload(jobs, folder=Path(folder)), intake.learning.rates)
        source = source.with_options(**self._limits)
        cluster = intake.state.cluster
        if len(cluster.hosts) > 1 and (wrong := source.unknown_hosts(cluster)):
            warn_user(f"{wrong}: no task is near that input")
        outputs = {name: one.outputs for name, (_, one) in list(intake.jobs.items())}
        (execution,) = source.executions(cluster, outputs)
        return intake.run(execution, waited)

    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, wait for submitted jobs, and end the workers. Idempotent.

        With `cancels`, jobs that are not over are cancelled first. Ctrl-C also cancels them; a
        second Ctrl-C ends the wait. Then KeyboardInterrupt is raised. If no host is left, the
        jobs that are not over fail.
        """
        close(self._intake, cancels=cancels)

    # Changes

    def change(
        self,
        future: Future[Any],
        *,
        priority: str | None = None,
        weight: float | None = None,
        pool: str | None = None,
        deadline: float | str | None = None,
    ) -> None:
        """Change the given properties of a job while it runs.

        `deadline` is in seconds from now, a duration, a date or a time. Running tasks continue.
        No effect on a job that is over. InputError for a value that no job can have.
        """
        changes.change_job(self._intake, future, priority, weight, pool, deadline)

    def set_pools(self, pools: PoolsStated) -> None:
        """Replace the pools, with their weights and shares; jobs keep their pools by name.

        InputError for inconsistent pools, for a pool with jobs that gets pools below it, or for
        a max share that is smaller than a task of a job.
        """
        self._intake.check_open(had_waited=False)
        changes.set_pools(self._intake, pools)

    def set_objective(self, objective: Objective | str) -> None:
        """Replace the objective.

        InputError for an unknown penalty, or if a job lacks the deadline that it needs.
        """
        self._intake.check_open(had_waited=False)
        changes.set_objective(self._intake, objective)

    def set_scheduler(self, name: str) -> None:
        """Replace the scheduler, by the name of an allocator; its options stay.

        Slots that jobs hold are not taken back. InputError for an unknown name.
        """
        self._intake.check_open(had_waited=False)
        changes.set_scheduler(self._intake, name)

    def add_host(
        self,
        name: str,
        slots: Slots,
        speed: float = 1.0,
        rack: str = "rack",
        resources: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Add a host with its own worker processes, on which tasks can now start.

        slots      the number of its worker processes, or their number by kind
        speed      the part of the time for which they run while they have tasks, at most 1
        resources  what it has beside slots, such as {"memory": "4 GiB"}; see `Host`

        InputError for a name in use, or for slots, a speed or resources that it cannot have;
        SlotwiseError if the workers cannot be started.
        """
        self._intake.check_open(had_waited=False)
        hosts.add_host(self._intake.loop, name, slots, speed, rack, resources)

    def remove_host(self, name: str, drain: bool = True) -> None:
        """Start no more tasks on a host; with `drain` its running tasks continue to their ends.

        Without `drain`, its worker processes are killed at once, and its tasks are restarted
        elsewhere. Returns without waiting for tasks. Without any host, jobs wait for the next
        one. Draining a host again has no effect. InputError for an unknown name.
        """
        self._intake.check_open(had_waited=False)
        hosts.remove_host(self._intake.loop, name, drain=drain)

    # Views

    @property
    def now(self) -> float:
        """Seconds since the session began."""
        return self._intake.now

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        return self._intake.slots

    @property
    def folder(self) -> Path | None:
        """The folder with the log and what tasks printed; None with `keep=False`."""
        opened = self._intake.opened.folder
        return None if opened is None else opened.path

    def hosts(self) -> list[Host]:
        """The present hosts; a drained host is present until its last task has ended."""
        return self._intake.loop.ask(lambda: list(self._intake.state.cluster.hosts))

    def jobs(self) -> SessionJobs:
        """The jobs now: those that are not over, in order of arrival, then the last that ended.

        It prints as a table, is a sequence of `SessionJob`, and is of one instant. Of a closed
        session it is the last state. At most `slotwise.sessions.views.ENDED_MAX` jobs that
        ended are listed; to wait for the others, read its `left`.
        """
        return self._intake.shown()

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds now, and why; the job is given by id or by a future.

        InputError for the id of a job that is not active.
        """
        return self._intake.explain(job)

    def __repr__(self) -> str:
        state = "closed" if self._intake.is_closed else "open"
        scheduler = self._intake.loop.scheduler_name
        return f"<Session of {self.slots} slots under {scheduler}: {state}>"

    def _repr_html_(self) -> str:
        return self._intake.html()

    def _ipython_display_(self) -> None:
        show = notebook_display()
        if show is None:  # IPython in a terminal then shows the `repr`.
            raise NotImplementedError
        intake = self._intake
        if intake.display is not None:
            intake.display.close()
        intake.display = LiveDisplay(show, intake.html, lambda: intake.turns)
        if intake.is_closed:
            intake.display.close()

    def __enter__(self) -> Self:
        self._intake.check_open(had_waited=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancels=kind is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._intake.__reduce__()  # Raises InputError.


# The end of a session: by `close`, at the end of its block, or at the end of the program.

POLL_SECONDS = 0.05
"""Seconds between two checks for an interrupt while `close` waits."""

LEAVE_SECONDS = 1.0
"""Seconds for which `close` still waits after an interrupt when jobs were cancelled."""


def close(intake: SessionCore, *, cancels: bool) -> None:
    """Accept no more jobs, wait for submitted jobs, and end the workers.

    With `cancels`, or at an interrupt, the jobs that are not over are cancelled first.
    """
    with HeldInterrupts() as held:
        _close(intake, held, cancels=cancels)


def close_at_exit(intake: SessionCore) -> None:
    """Wait for a session if it is still open at the end of the program.

    Its jobs are cancelled if the program ends by an interrupt.
    """
    _OPEN.add(intake)
    # Register again, to run before later registrations, which remove the files of sessions.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def close_unused(intake: SessionCore) -> None:
    """Let a session that is no longer referenced end when its jobs are over.

    The garbage collector may call it in any thread and within any operation, so the session is
    closed in another thread.
    """
    if intake.loop.is_local and not intake.is_closed:
        intake.loop.take_step(partial(_accept_no_more, intake))


def _accept_no_more(intake: SessionCore) -> None:
    with intake.lock:
        intake.is_closed = True
        intake.end_jobs()


_OPEN: weakref.WeakSet[SessionCore] = weakref.WeakSet()


def _close(intake: SessionCore, held: HeldInterrupts, *, cancels: bool) -> None:
    if not intake.loop.is_local:
        return  # A forked child does not own it, and the lock may be held forever.
    with intake.lock:
        intake.is_closed = True
    if cancels:
        intake.cancel_jobs()
    _accept_no_more(intake)
    is_cancelled, is_stranded, until = cancels, False, inf
    while not intake.loop.join(POLL_SECONDS) and time.monotonic() < until:
        if not is_stranded and not intake.state.cluster.hosts:
            is_stranded = True
            _give_up(intake)
        if held.count and not is_cancelled:
            is_cancelled = True
            intake.cancel_jobs()
        if held.count + cancels >= 2:
            until = min(until, time.monotonic() + LEAVE_SECONDS)
    intake.free()
    _OPEN.discard(intake)


def _give_up(intake: SessionCore) -> None:
    """Fail the jobs of a session without hosts, unless a worker of Dask may still join."""
    if intake.loop.backend.is_local:
        intake.fail_jobs("the session was closed, and no host is left that could run it")
    else:
        warn_user("the session waits for a worker of the Dask cluster, because jobs are left")


def _close_all() -> None:
    try:
        _close_open(cancels=_ends_by_interrupt())
    except KeyboardInterrupt:  # It may come before interrupts are delayed.
        _close_open(cancels=True)
        raise


def _close_open(*, cancels: bool) -> None:
    with HeldInterrupts() as held:
        for intake in list(_OPEN):
            _close(intake, held, cancels=cancels or held.count > 0)


def _ends_by_interrupt() -> bool:
    """Whether an uncaught KeyboardInterrupt ends the program."""
    is_interactive = hasattr(sys, "ps1")  # It has then only ended a statement.
    return not is_interactive and getattr(sys, "last_type", None) is KeyboardInterrupt
