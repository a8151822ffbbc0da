"""A session: a scheduler that runs in this process and accepts jobs at any time."""

from __future__ import annotations

import atexit
import importlib
import sys
import time
import weakref
from collections.abc import Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Unpack

from slotwise.backends.signals import HeldInterrupts
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError, MissingExtraError, SlotwiseError
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolsStated, pools_of
from slotwise.core.resources import NOTHING
from slotwise.forecast.eta import WhatIf
from slotwise.insight.report.notebook import notebook_display
from slotwise.jobs.execution import Execution
from slotwise.running import Options, RunOptions, RunSpec, warn_user
from slotwise.sessions import changes, hosts
from slotwise.sessions.calls import Binding, CallSubmitter
from slotwise.sessions.forecasting import Forecasts
from slotwise.sessions.futures import Future
from slotwise.sessions.hosts import check_slots, checked_entry, refuse_shuffle
from slotwise.sessions.intake import ProgramHistory, SessionCore, arriving
from slotwise.sessions.methods import SessionMethods
from slotwise.sessions.notebook import LiveDisplay
from slotwise.sessions.promising import check_promises
from slotwise.sessions.what_if import Asked, change_of
from slotwise.sources import Described, Entry, Slots, Source
from slotwise.workload.workload import Workload

REST_SECONDS = 0.05
"""The least seconds between allocations that arrivals and ends cause."""


class Session(SessionMethods):
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
    scheduler       the name of the scheduler; see `slotwise.policy.scheduler`: one of
                    `ALLOCATORS`, or of `BACKFILLINGS`
    pools           the pools with their shares, as a list, or as weights or keys by name. If
                    some are given, jobs may still name others, with a warning. With one, too,
                    `resources_max` may name a resource that no host has yet
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
        changes.check_session_scheduler(scheduler)
        check_slots(slots)
        workload = Workload((), pools=pools_of(pools), preemption=given.preemption)
        place = hosts.place_for(slots, dask, dask_slots, resources)
        try:
            known = changes.known_resources(place.cluster.hosts)
            changes.warn_of_resources(workload.pools, known)
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

    _intake: SessionCore

    def _new_folder(self) -> str:
        hosts.check_on_this_machine(self._intake.state.cluster)
        return self._intake.files.new_folder()

    def _change(self, future: Future[Any], given: changes.JobChanges) -> None:
        changes.apply_changes(self._intake, future, given)

    def _run(
        self, entry: Entry, folder: str | Path, waited: Future[Any] | None = None
    ) -> Future[Any]:
        intake = self._intake
        if any(execution is entry for _, execution in list(intake.jobs.values())):
            raise InputError(
                "this job is already running; create another object to run it again"
            )
        given: Any = arriving(entry, intake.now, intake.unused)
        job = given if isinstance(given, Job | Described) else given.job
        try:
            return intake.run(self._planned(given, folder), waited)
        except SlotwiseError:
            intake.give_back(job.id)  # It is refused: the next one has its id.
            raise

    def _planned(self, entry: Any, folder: str | Path) -> Execution:
        """The execution of a job, which is not open yet."""
        intake = self._intake
        source = Source(Workload((entry,), folder=Path(folder)), intake.learning.rates)
        source = source.with_options(**self._limits)
        cluster = intake.state.cluster
        if len(cluster.hosts) > 1 and (wrong := source.unknown_hosts(cluster)):
            warn_user(f"{wrong}: no task is near that input")
        outputs = {name: one.outputs for name, (_, one) in list(intake.jobs.items())}
        (execution,) = source.executions(cluster, outputs)
        return execution

    def _what_if(
        self, job: Entry | Mapping[str, Any] | None, folder: str | Path, asked: Asked
    ) -> WhatIf:
        intake, jobs = self._intake, list[Job]()
        if job is not None:
            given: Any = checked_entry(job, folder, self.slots)
            if not isinstance(given, Job | Described):
                given = given.job  # It is planned; the object itself must not change.
            made = arriving(given, intake.now, intake.unused_now)
            if isinstance(made, Job):
                jobs.append(made)
            else:
                execution = self._planned(made, folder)
                jobs.append(execution.job)
                execution.close(succeeded=False)
            intake.check_job(jobs[0])
            check_promises(intake, jobs)
        found = self.forecasts.what_if(change_of(intake, jobs, asked))
        return found.moved(time.time() - intake.now)

    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, wait for submitted jobs, and end the workers. Idempotent.

        With `cancels`, jobs that are not over are cancelled first. Ctrl-C also cancels them; a
        second Ctrl-C ends the wait. Then KeyboardInterrupt is raised. If no host is left, the
        jobs that are not over fail.
        """
        close(self._intake, cancels=cancels)

    # Changes

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

        Slots that jobs hold are not taken back. InputError for an unknown name, and where the
        old or the new scheduler backfills.
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
    def folder(self) -> Path | None:
        """The folder with the log and what tasks printed; None with `keep=False`."""
        opened = self._intake.opened.folder
        return None if opened is None else opened.path

    def hosts(self) -> list[Host]:
        """The present hosts; a drained host is present until its last task has ended."""
        return self._intake.loop.ask(lambda: list(self._intake.state.cluster.hosts))

    @property
    def forecasts(self) -> Forecasts:
        """The forecasts of this session, on the clock of `now`; `eta` has them in Unix seconds.

        They are made from the first use to the end of the session, by a thread that takes at
        most 2 % of a processor. RuntimeError if the session is closed.
        """
        self._intake.check_open(had_waited=False)
        return self._intake.forecasts

    def page(self, *, port: int = 0, opens: bool = False) -> str:
        """Serve a page of this session, as of a service, and return a link to it.

        port   the port, on this machine only; 0 finds a free one. Later calls keep the first
        opens  whether the browser of this machine opens the link

        The link works once, within five minutes, because it logs a browser in; call it again
        for another browser. The page ends with the session. MissingExtraError without the extra
        `serve`; InputError for a port that cannot be used.
        """
        intake = self._intake
        intake.check_open(had_waited=False)
        try:  # It is above sessions, which do not depend on it.
            served = importlib.import_module("slotwise.service.page.session_page")
        except ModuleNotFoundError as error:
            if error.name not in ("uvicorn", "starlette", "anyio"):
                raise
            raise MissingExtraError("the page of a session", "serve") from error
        with intake.lock:
            if intake.page is None:
                intake.page = served.open_session_page(intake, port)
        return intake.page.show(opens)

    def __repr__(self) -> str:
        state = "closed" if self._intake.is_closed else "open"
        scheduler = self._intake.loop.scheduler_name
        return f"<Session of {self.slots} slots under {scheduler}: {state}>"

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
    if intake.page is not None:
        intake.page.join()
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
