"""The jobs of a service: what the store keeps of them, and the session that runs them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from slotwise.backends.local.backend import HOST
from slotwise.backends.local.call_stream import CallFiles
from slotwise.core.decisions import BreakPromise, Decision, GiveUp, Launch
from slotwise.core.dependencies import CANCELLED, predecessor_failed
from slotwise.core.errors import InputError, SessionFailedError, suggestion
from slotwise.core.events import Event, TaskAdopted, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import PhaseId
from slotwise.jobs.accounts import Account
from slotwise.jobs.execution import Execution
from slotwise.running import account
from slotwise.service.engine.counts import ServiceCounts
from slotwise.service.engine.hub import Hub, of_client, of_job
from slotwise.service.engine.planning import Planner
from slotwise.service.engine.rights import JobQuota
from slotwise.service.engine.streams import ServedStream, Streams, note_before
from slotwise.service.planned.forker import FORKER
from slotwise.service.settings import HELD, Settings
from slotwise.service.store.insist import insist
from slotwise.service.store.records import StoredJob, StoredTask
from slotwise.service.store.schema import StoreError
from slotwise.service.store.store import Store
from slotwise.service.supervision.supervised import Spawner, SupervisedCommands, Supervision
from slotwise.service.users.access import User, own_user
from slotwise.service.wire import frame
from slotwise.sessions import changes
from slotwise.sessions.futures import Future
from slotwise.sessions.session import Session
from slotwise.workload.dates import seconds_until

IS_CANCELLED = "cancelled"
"""The change of a job that says that its user has cancelled it."""

IS_BROKEN = "promise_broken"
"""The change of a job that says that its promise was broken: the next server gives none."""

ENTER_SECONDS = 10.0
"""How long a change waits for a job that is stored, and not yet in the session."""

BURST_SECONDS = 0.005
"""Ends of jobs closer than that may wait for one commit: no client waits for one job after the
other as fast."""

OVER = ("done", "failed", "cancelled", "lost")
"""The states of jobs that are over."""


class MissingError(InputError):
    """There is no job with this id."""


class OverError(InputError):
    """A job that is over cannot be changed."""


class Engine:
    """Accepts jobs, runs them in a session, and stores how they end.

    Its methods may be called from any thread; they block for a commit at most.
    """

    def __init__(self, store: Store, settings: Settings, run: int, hub: Hub) -> None:
        """Open the session. InputError or SlotwiseError as a session raises them."""
        self.store, self.settings, self.run, self.hub = store, settings, run, hub
        self.folder = store.path.parent
        self.own = own_user(account() or str(os.geteuid()))
        self.quota = JobQuota(self.own, store.open_users())
        settings.check_run_as(self.folder)
        FORKER.is_shared = settings.run_as
        self.session = Session(
            settings.slots,
            settings.scheduler,
            dask=settings.dask,
            dask_slots=settings.dask_slots,
            resources=settings.resources,
            pools=settings.all_pools(),
            objective=settings.objective,
            preemption=settings.preemption,
            keep=self.folder / "runs" / f"{run:06}",
            progress=self._on_turn,
            **settings.options,
        )
        self.core = core = self.session._intake
        core.files, core.unused = CallFiles(is_local=False, stores=False), _as_stated
        self._spawner = None if settings.dask else Spawner(self.folder)
        self.supervision = (
            None
            if self._spawner is None
            else Supervision(str(self.folder), run, self._spawner, settings.output_max, HOST)
        )
        limits = self.session._limits
        self.planner = Planner(core, self.supervision, limits, self._result, self.account_of)
        self.streams = Streams(
            core, store, hub, self._stream_over, self.account_of, self._lose_store
        )
        self._live: dict[str, tuple[StoredJob, Future[Any], Execution]] = {}
        self._reasons: dict[str, str] = {}
        self._last: dict[str, float] = {}  # when the last attempt of a job ended
        self._ended = 0.0  # When the last job ended.
        self._begun: set[str] = set()
        self.counts = ServiceCounts()
        self.launched: dict[tuple[PhaseId, int], float] = {}  # When the running tasks began.
        self._is_draining = self.is_leaving = False
        self.hurries = False  # `leave` waits for no call any more.
        self.store_fault: BaseException | None = None  # The server must end because of it.
        self._changing = threading.Lock()  # Store and session change together.
        self.bring: Callable[[str], None] = _none_left  # Of jobs that are still restored.
        self._entering: set[str] = set()
        core.on_failure = self._leave_commands
        core.forecasts_kept = self.folder / "forecasts.json"
        self.forecasts = core.forecasts  # From the start: they learn from all jobs.

    def account_of(self, user: str | None) -> Account | None:
        """The account as which the work of a user runs. InputError if there is none."""
        return self.settings.account_of(user)

    # What is accepted.

    def user(self, name: str) -> User | None:
        """The user with this name, if the configuration has it, or the server's account."""
        own = self.own if name == self.own.name else None
        return self.settings.users.get(name, own)

    def owner(self, name: str | None, by: User) -> User:
        """The user whose job it is; `by` submits it. InputError for one that is not known.

        The server's account may name users that the configuration does not have.
        """
        if name is None or name == by.name:
            return by
        found = self.settings.users.get(name)
        if found is None and by is self.own:
            return replace(by, name=name)
        if found is None:
            raise InputError(f"user {name!r} is not a user of this server; name another one")
        return found

    def account_name(self, owner: User) -> str | None:
        """The name of the account of a user; None for that of the server."""
        found = self.settings.users.get(owner.name)
        return None if found is None else found.account

    def check_pool(self, pool: str) -> None:
        """InputError for a pool that the configuration does not have, if it has some."""
        if pool == HELD:
            raise InputError(f"pool {HELD!r} is that of jobs on hold; hold the job instead")
        known = [*(one.name for one in self.settings.pools), "default"]
        if self.settings.pools and pool not in known:
            raise InputError(f"pool {pool!r} is not a pool; {suggestion(pool, known)}")

    def enter(self, record: StoredJob, execution: Execution) -> None:
        """Give a stored job, whose execution is open, to the session."""
        if not record.restart:
            note_before(execution, lambda: self.store.begin(record.id, time.time()))
        future: Future[Any] = Future(self.core, record.id)
        self._live[record.id] = record, future, execution
        if self._is_draining:  # Only now: `leave` must see all that begin.
            del self._live[record.id]
            execution.close(succeeded=False)
            return
        try:
            self.core.run(execution, future, is_open=True)
        except Exception as error:  # It changed since it was checked, as its input may.
            if self.core.is_closed or self.core.is_ended:  # The next server runs it.
                return
            self.end(record, "failed", str(error))
            return
        if future.cancelled():  # Before the session had its job.
            self.core.stop_cancelled(future)
        future._when_done(lambda: self._over(record, future))

    @contextmanager
    def entering(self, jobs: Collection[str]) -> Iterator[None]:
        """Let these jobs enter the session together, in one turn; changes of them wait."""
        self._entering.update(jobs)
        try:
            with self.core.inbox.together():
                yield
        finally:
            self._entering.difference_update(jobs)

    # Ends of jobs. In the threads of the session.

    def _on_turn(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Store what began and ended in a turn, and why jobs failed."""
        if self.is_leaving:
            return
        at = time.time() - (self.core.now - now)  # The clock may have been set, or have slept.
        self.counts.turn(events, decisions)
        for event in events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                self._task_over(event, at)
            elif isinstance(event, TaskAdopted):
                self.launched[event.phase, event.task] = at - event.kept
        for one in decisions:
            if isinstance(one, Launch):
                self.launched[one.phase, one.task] = at
                if one.phase.job not in self._begun:
                    self._job_begins(one.phase.job, at)
            elif isinstance(one, GiveUp):
                self._reasons[one.job] = one.reason
                self._last[one.job] = at
            elif isinstance(one, BreakPromise):
                self.store.note_change(one.job, IS_BROKEN)

    def _job_begins(self, job: str, at: float) -> None:
        self._begun.add(job)
        self.store.begin(job, at, may_wait=True)
        self.hub.publish(of_job(job), "begun")
        if (record := self.record_of(job)) is not None and record.begun is None:
            self.counts.begins(record.pool, at - record.submitted)
        live = self._live.get(job)
        if live is not None and live[0].client:
            self.hub.publish(of_client(live[0].client), begun_frame(job), may_wait=True)

    def _task_over(self, event: TaskFinished | TaskFailed | TaskKilled, at: float) -> None:
        """Store the end of an attempt of a command; those of calls are stored by themselves."""
        (job, phase), state, reason = event.phase, "done", ""
        begun = self.launched.pop((event.phase, event.task), None)
        if self.streams.of_job(job) is not None:
            return
        self._last[job] = at
        if isinstance(event, TaskFailed):
            state, reason = "lost" if event.lost else "failed", event.reason
        elif isinstance(event, TaskKilled):
            state = "stopped"
        code = self._code(job, state, event.task)
        done = StoredTask(job, event.task, state, event.attempt, code, begun, at, reason, phase)
        record = self.record_of(job)
        # The end of the only task is followed by that of its job.
        is_only = record is not None and record.tasks == 1
        self.store.end_task(done, may_wait=is_only)
        self.hub.publish(of_job(job), "task")

    def _over(self, record: StoredJob, future: Future[Any]) -> None:
        """Store how a job of the session ended."""
        if self.is_leaving:
            return
        why = self._reasons.pop(record.id, "")
        if future.cancelled() or why == CANCELLED:
            state, reason = "cancelled", "" if why == CANCELLED else why
        elif error := future._raised():
            if isinstance(error, SessionFailedError):  # The next server runs it.
                return
            is_after = any(why == predecessor_failed(name) for name in record.after)
            state, reason = "cancelled" if is_after else "failed", why or str(error)
        else:
            state, reason = "done", ""
        result = packed_result(future.result()) if state == "done" else None
        self.end(record, state, reason, result)

    def _stream_over(self, stream: ServedStream) -> None:
        state, reason = stream.outcome
        if stream.grows:
            self.store.change(stream.record.id, tasks=len(stream.numbers))
        self.end(stream.record, state, reason)

    def end(
        self, record: StoredJob, state: str, reason: str, result: bytes | None = None
    ) -> None:
        """Store how a job ended, then notify who waits for it."""
        # Before it is stored: who reads that it is over may submit another one at once.
        self.quota.free(record.user, [record.id])
        code = self._code(record.id, state)
        self._reasons.pop(record.id, None)
        at = self._last.pop(record.id, None) or time.time()
        ended = replace(record, state=state, reason=reason, result=result)

        def notify(is_first: bool) -> None:
            self._live.pop(record.id, None)
            self._begun.discard(record.id)
            self.counts.jobs[record.pool, state] += 1
            with suppress(Exception):  # It is sent again when the client asks.
                self.notify(ended if is_first else self.store.job(record.id))

        before, self._ended = self._ended, time.monotonic()
        may_wait = self._ended - before < BURST_SECONDS
        end = partial(self.store.end, record.id, state, at, reason, code, result)
        insist(partial(end, may_wait=may_wait), notify, self._lose_store)

    def _lose_store(self, error: BaseException) -> None:
        """What has ended cannot be stored: the server must end, without a wait for calls."""
        self.store_fault, self.hurries = error, True

    def _code(self, job: str, state: str, task: int | None = None) -> int | None:
        """The exit code of a task of commands, or of the job: of the task that failed last."""
        live = self._live.get(job)
        if live is None or live[0].kind != "command":
            return None
        execution = live[2]
        if state == "done":
            return 0
        if not isinstance(execution, SupervisedCommands) or state != "failed":
            return None
        last = next(reversed(execution.codes.values()), None)
        return last if task is None else execution.codes.get(task)

    def notify(self, record: StoredJob | None) -> None:
        """Notify who waits for a job that it is over."""
        if record is None:
            return
        self.hub.publish(of_job(record.id), record.state)
        if record.client:
            self.hub.publish(of_client(record.client), job_frame(record))

    def _result(self, job: str) -> str:
        """The result of a job that is done, for a word of a command. InputError."""
        if live := self._live.get(job):  # Its end may not be stored yet.
            text = live[2].result
        else:
            record = self.store.job(job)
            text, _ = plain_result(None if record is None else record.result)
        if not isinstance(text, str):
            raise InputError(f"job {job!r} has no output; give it one with `output`")
        return text

    # Changes.

    def found(self, job: str) -> StoredJob:
        """The record of a job. MissingError if there is none."""
        record = self.store.job(job)
        if record is None:
            raise MissingError(f"there is no job {job!r}; `slotwise list` shows the jobs")
        return record

    def open_job(self, job: str) -> StoredJob:
        """The record of a job that is not over. OverError if it is."""
        self.bring(job)
        record = self.found(job)
        until = time.monotonic() + ENTER_SECONDS
        while record.state not in OVER and not (self._has_entered(job) or self._is_draining):
            if time.monotonic() > until:
                break
            time.sleep(0.002)  # It was just stored, and enters the session now.
            record = self.found(job)
        if record.state in OVER:
            raise OverError(f"job {job!r} is over: {record.state}")
        return record

    def cancel(self, job: str) -> None:
        """Cancel a job; no effect on one that is over.

        The next server cancels it if this one is killed before its tasks have stopped.
        """
        try:
            self.open_job(job)
        except OverError:
            return
        with suppress(StoreError):  # On a full disk it must be possible, too.
            self.store.note_change(job, IS_CANCELLED).result()
        if stream := self.streams.of_job(job):
            self.streams.cancel(stream)
        elif live := self._live.get(job):
            live[1].cancel()

    def hold(self, job: str) -> None:
        """Start no more tasks of a job until it is released; running tasks continue."""
        self.open_job(job)
        with self._changing:
            if not self.found(job).held:
                self._set_held(job, True, HELD)

    def release(self, job: str) -> None:
        """The opposite of `hold`."""
        self.open_job(job)
        with self._changing:
            record = self.found(job)
            if record.held:
                self._set_held(job, False, record.pool)

    def _set_held(self, job: str, held: bool, pool: str) -> None:
        """Store whether a job is held, and move it. InputError: it is as before."""
        self.store.change(job, held=held).result()
        try:
            self._change(job, pool=pool)
        except InputError:  # The pools have changed meanwhile, or it has a promise.
            self.store.change(job, held=not held).result()
            raise

    def change(self, job: str, stated: Mapping[str, Any]) -> None:
        """Change priority, weight, pool or deadline of a job that is not over."""
        self.open_job(job)
        known = ("priority", "weight", "pool", "deadline")
        for name in stated:
            if name not in known:
                raise InputError(f"unknown property {name!r}; {suggestion(name, known)}")
        given = {name: stated[name] for name in known if stated.get(name) is not None}
        if "pool" in given:
            self.check_pool(given["pool"])
        with self._changing:
            in_session = dict(given)
            if self.found(job).held:
                in_session.pop("pool", None)
            self._change(job, **in_session)
            if "deadline" in given:
                seconds = seconds_until("deadline", given["deadline"])
                given["deadline"] = None if seconds is None else time.time() + seconds
            self.store.change(job, **given).result()

    def forget(self, job: str) -> None:
        """Remove all that is kept of a job that is over."""
        if self.found(job).state not in OVER:
            raise InputError(f"job {job!r} is not over; cancel it first")
        self.store.forget(job).result()

    def _change(self, job: str, **properties: Any) -> None:
        future = self.future_of(job)
        if future is not None:
            stated = {name: properties.get(name) for name in ("priority", "weight", "pool")}
            due = properties.get("deadline")
            if stream := self.streams.of_job(job):
                given = changes.checked_changes(self.core, future, **stated, deadline=due)
                self.streams.change(stream, given)
            changes.change_job(self.core, future, **stated, deadline=due)

    def outputs(self, user: str | None) -> dict[str, tuple[str, ...]]:
        """The folders that the jobs of the session write to, by id.

        The code of a user sees only those of this user.
        """
        of_all = not self.settings.run_as
        live = list(self._live.items())
        return {job: one[2].outputs for job, one in live if of_all or one[0].user == user}

    def is_open(self, job: str) -> bool:
        """Whether a job is in the session."""
        return job in self._live or self.streams.of_job(job) is not None

    def _has_entered(self, job: str) -> bool:
        return self.is_open(job) and job not in self._entering

    def begun(self, client: str) -> bytes:
        """The frames of those calls and jobs of a client that have begun, and are not over."""
        found = self.streams.begun(client)
        for job in list(self._begun):
            live = self._live.get(job)
            if live is not None and live[0].client == client:
                found.append(begun_frame(job))
        return b"".join(found)

    def open_jobs(self) -> list[StoredJob]:
        """The jobs in the session, as they were when they came."""
        jobs = [record for record, *_ in list(self._live.values())]
        return [*jobs, *(stream.record for stream in self.streams.all())]

    def record_of(self, job: str) -> StoredJob | None:
        """The record of a job of the session, as it was when it entered; or None."""
        if live := self._live.get(job):
            return live[0]
        stream = self.streams.of_job(job)
        return None if stream is None else stream.record

    def future_of(self, job: str) -> Future[Any] | None:
        """A future of a job in the session, by which it can be changed."""
        if live := self._live.get(job):
            return live[1]
        # A call that waits for others names no job, so that a future of the job itself is made.
        return None if self.streams.of_job(job) is None else Future(self.core, job)

    # The end of the server.

    def leave(self, seconds: float) -> None:
        """Close the session: calls may end within this time, commands stay as they are."""
        self._is_draining = True
        self._leave_commands()
        if self._spawner is not None:  # The workers of Dask stay, as others use them.
            with suppress(RuntimeError, SessionFailedError):  # The session has ended.
                for host in self.session.hosts():
                    self.session.remove_host(host.name, drain=True)
        until, running = time.monotonic() + seconds, self.streams.running()
        while time.monotonic() < until and not self.hurries:
            if not any(one.running() for one in running):
                break
            time.sleep(0.05)
        self.is_leaving = True
        self.streams.leave()
        self.session.close(cancels=True)
        if self._spawner is not None:
            self._spawner.close()

    def _leave_commands(self) -> None:
        """Let commands run on when their jobs are closed: the next server adopts them."""
        for _, _, execution in list(self._live.values()):
            if isinstance(execution, SupervisedCommands):
                execution.leave()


def packed_result(value: object) -> bytes | None:
    """What the store keeps of the result of a job: plain values as JSON, bytes as they are."""
    if value is None:
        return None
    return b"p" + value if isinstance(value, bytes) else b"j" + json.dumps(value).encode()


def plain_result(packed: bytes | None) -> tuple[Any, bytes | None]:
    """A plain result, and one that is pickled; None if it has none."""
    if packed is None:
        return None, None
    return (None, packed[1:]) if packed[:1] == b"p" else (json.loads(packed[1:]), None)


def begun_frame(job: str) -> bytes:
    """What a client is sent when a job has begun."""
    return frame({"job": job, "state": "running"})


def job_frame(record: StoredJob) -> bytes:
    """What a client is sent at the end of a job."""
    plain, pickled = plain_result(record.result)
    news = {"job": record.id, "state": record.state, "reason": record.reason, "result": plain}
    return frame(news, () if pickled is None else (pickled,))


def _as_stated(name: str) -> str:
    return name


def _none_left(job: str) -> None:
    """No job of an earlier server is to be restored."""
