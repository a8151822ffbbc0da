"""The jobs of a service: what the store keeps of them, and the session that runs them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future as Waiting
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slotwise.backends.local.call_stream import CallFiles
from slotwise.core.decisions import Decision, GiveUp, Launch
from slotwise.core.dependencies import (
    CANCELLED,
    check_dependencies,
    in_order,
    predecessor_failed,
)
from slotwise.core.errors import InputError, suggestion
from slotwise.core.events import Event, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Job
from slotwise.jobs.commands import Commands
from slotwise.jobs.execution import Execution
from slotwise.service.hosted import HostedExecution
from slotwise.service.hub import Hub, of_client, of_job
from slotwise.service.planning import Planner, Spec, Submitted
from slotwise.service.records import OPEN, StoredJob, StoredTask
from slotwise.service.settings import HELD, Settings
from slotwise.service.store import Store
from slotwise.service.streams import Stream, Streams
from slotwise.service.supervised import Supervision
from slotwise.service.wire import frame
from slotwise.sessions import changes
from slotwise.sessions.futures import Future
from slotwise.sessions.session import Session
from slotwise.workload.dates import seconds_until
from slotwise.workload.workload import PROPERTIES

OVER = ("done", "failed", "cancelled", "lost")
"""The states of jobs that are over."""

JOBS_MAX = 10_000
"""The most jobs of one submission."""


NO_OUTPUTS: Mapping[str, Sequence[str]] = {}


class MissingError(InputError):
    """There is no job with this id."""


class OverError(InputError):
    """A job that is over cannot be changed."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a client has sent to `POST /v1/jobs`.

    folder   where relative paths begin
    environ  the environment of the client
    key      sent again, it gives the jobs of the first time
    client   the client that wants to know the ends of the jobs
    pickle   the only job, if it is pickled
    """

    jobs: Sequence[Mapping[str, Any]]
    folder: str
    environ: Mapping[str, str]
    key: str | None = None
    user: str | None = None
    client: str | None = None
    pickle: bytes = b""


class Engine:
    """Accepts jobs, runs them in a session, and stores how they end.

    Its methods may be called from any thread; they block for a commit at most.
    """

    def __init__(self, store: Store, settings: Settings, run: int, hub: Hub) -> None:
        """Open the session. InputError or SlotwiseError as a session raises them."""
        self.store, self.settings, self.run, self.hub = store, settings, run, hub
        self.folder = store.path.parent
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
        self.supervision = Supervision.begin(self.folder, run, is_local=settings.dask is None)
        self.planner = Planner(lambda: core.state.cluster, self.session._limits, self._result)
        self.streams = Streams(core, store, hub, self._stream_over)
        self._live: dict[str, tuple[StoredJob, Future[Any], Execution]] = {}
        self._reasons: dict[str, str] = {}
        self._begun: set[str] = set()
        self._keys: dict[str, Waiting[list[StoredJob]]] = {}
        self._lock = threading.Lock()
        self.is_leaving = False
        self._epoch = time.time() - core.now

    # Submissions.

    def submit(self, given: Submission) -> list[StoredJob]:
        """Accept jobs: they are durable on return. All or none are accepted.

        InputError for a job that cannot be run; StoreError if it cannot be stored.
        """
        if not given.key:
            return self._submit(given)
        with self._lock:
            under_way = self._keys.get(given.key)
            if under_way is None:
                self._keys[given.key] = mine = Waiting[list[StoredJob]]()
        if under_way is not None:
            return under_way.result()
        try:
            ids = self.store.ids_of(given.key)
            mine.set_result(
                self._submit(given) if ids is None else list(self.store.jobs(ids=ids))
            )
        except BaseException as error:
            mine.set_exception(error)
        finally:
            with self._lock:
                del self._keys[given.key]
        return mine.result()

    def _submit(self, given: Submission) -> list[StoredJob]:
        if not 0 < len(given.jobs) <= JOBS_MAX:
            raise InputError(f"{len(given.jobs)} jobs; expected from 1 to {JOBS_MAX}")
        now, names = time.time(), dict[str, str]()
        entries = [Submitted.of(stated, now) for stated in given.jobs]
        numbered = [self.store.new_id(_stated_id(one.entry)) for one in entries]
        for (_, id), one in zip(numbered, entries, strict=True):
            names.setdefault(str(one.entry.get("id", id)), id)
        found: list[tuple[StoredJob, Execution | None]] = []
        try:
            for (number, id), one in zip(numbered, entries, strict=True):
                found.append(self._planned(given, one, number, id, names, now, found))
            jobs = self._checked(execution for _, execution in found)
        except BaseException:
            for _, execution in found:
                if execution is not None:
                    execution.close(succeeded=False)
            raise
        records = [record for record, _ in found]
        self.store.add(records, given.key, given.environ).result()
        by_id = {record.id: (record, execution) for record, execution in found}
        for record, execution in found:
            if execution is None:
                self._tell(record)
        for job in jobs:
            record, planned = by_id[job.id]
            if planned is not None:
                self._enter(record, planned)
        return records

    def _checked(self, executions: Iterable[Execution | None]) -> list[Job]:
        """The jobs of a submission, each after those that it waits for. InputError."""
        jobs = [one.job for one in executions if one is not None]
        by_id = {job.id: job for job in jobs}
        if any(job.predecessors for job in jobs):
            others = {name for job in jobs for name in job.predecessors if self.is_open(name)}
            check_dependencies(jobs, others)
        for job in jobs:
            self._check_pool(job.pool)
            self.core.check_job(job, by_id)
        return in_order(jobs)

    def _planned(
        self,
        given: Submission,
        one: Submitted,
        number: int,
        id: str,
        names: Mapping[str, str],
        now: float,
        planned: Sequence[tuple[StoredJob, Execution | None]],
    ) -> tuple[StoredJob, Execution | None]:
        """The record of a job, and its execution; None if a job before it has failed.

        `planned` are the jobs of the submission before it.
        """
        before, failed = self._predecessors(one, id, names)
        folder = Path(given.folder)
        record = StoredJob(
            number=number,
            id=id,
            kind=one.kind,
            name=one.name,
            spec=Spec(one, before).packed(),
            folder=given.folder,
            deadline=one.deadline,
            after=tuple(before.values()),
            submitted=now,
            restart=one.restart,
            client=given.client,
            user=given.user,
        )
        if failed:
            record = replace(record, state="cancelled", reason=predecessor_failed(failed))
            return replace(record, ended=now), None
        execution = self._execution(
            record,
            one,
            folder,
            given.environ,
            before,
            pickle=given.pickle,
            outputs={one.id: found.outputs for one, found in planned if found is not None},
        )
        job = execution.job
        return (
            replace(
                record,
                pool=job.pool,
                priority=job.priority,
                weight=job.weight,
                tasks=sum(phase.tasks.count for phase in job.phases),
                user=job.user or given.user,
            ),
            execution,
        )

    def _predecessors(
        self, one: Submitted, id: str, names: Mapping[str, str]
    ) -> tuple[dict[str, str], str]:
        """The jobs that it must wait for, by the names it states, and one that has failed."""
        stated = [one.entry.get(key) or () for key in ("after", "after_each")]
        listed = [[names] if isinstance(names, str) else list(names) for names in stated]
        wanted = [str(name) for group in listed for name in group]
        wanted += [job for job in one.words.values() if job not in wanted]
        found: dict[str, str] = {}
        for name in wanted:
            job = names.get(name)
            if job is not None and job != id:
                found[name] = job
                continue
            record = self.store.job(name)
            if record is None:
                raise InputError(f"job {id!r}: after names {name!r}, which is not a job")
            if record.state == OPEN:
                found[name] = name
            elif record.state != "done" and one.entry.get("after_failed") != "run":
                return found, name
        return found, ""

    def _execution(
        self,
        record: StoredJob,
        one: Submitted,
        folder: Path,
        environ: Mapping[str, str],
        before: Mapping[str, str],
        done: Sequence[int] = (),
        pickle: bytes = b"",
        outputs: Mapping[str, Sequence[str]] = NO_OUTPUTS,
    ) -> Execution:
        """The execution of a job, planned in a process of its own if it has user code."""
        pool = HELD if record.held else record.changes.get("pool")
        if one.kind in ("program", "object"):
            live = {job: one[2].outputs for job, one in list(self._live.items())}
            outputs = {**live, **outputs}
            return self._hosted(record, one, folder, environ, before, pool, pickle, outputs)
        described = self.planner.described(one, record.id, folder, before, pool)
        arrival = self.core.now
        execution = self.planner.execution(described, one, folder, environ, arrival, done)
        if isinstance(execution, Commands):
            return self.supervision.of(execution)
        return execution

    def _hosted(
        self,
        record: StoredJob,
        one: Submitted,
        folder: Path,
        environ: Mapping[str, str],
        before: Mapping[str, str],
        pool: str | None,
        pickle: bytes,
        outputs: Mapping[str, Sequence[str]],
    ) -> Execution:
        """The execution of a job with user code, which another process has."""
        entry = self.planner.entry(one, record.id, before, pool)
        about = {key: entry[key] for key in PROPERTIES if key in entry} if pickle else {}
        return HostedExecution.start(
            pickle or entry,
            folder,
            self.core.state.cluster,
            job=record.id,
            now=self.core.now,
            about=about,
            outputs=outputs,
            limits=self.session._limits,
            environ=environ,
            path=[str(folder)],
        )

    def _check_pool(self, pool: str) -> None:
        known = [one.name for one in self.settings.pools]
        if known and pool not in (*known, "default", HELD):
            raise InputError(f"pool {pool!r} is not a pool; {suggestion(pool, known)}")

    def _enter(self, record: StoredJob, execution: Execution) -> None:
        """Give a stored job to the session."""
        try:
            future = self.core.run(execution)
        except Exception as error:  # It changed since it was checked, as its input may.
            self._end(record, "failed", str(error))
            return
        self._live[record.id] = record, future, execution
        future._when_done(lambda: self._over(record, future))

    # Ends of jobs. In the threads of the session.

    def _on_turn(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Store what began and ended in a turn, and why jobs failed."""
        at = self._epoch + now
        for event in events:
            if isinstance(event, TaskFinished | TaskFailed | TaskKilled):
                self._task_over(event, at)
        for one in decisions:
            if isinstance(one, Launch):
                job = one.phase.job
                if job not in self._begun:
                    self._begun.add(job)
                    self.store.begin(job, at)
                    self.hub.publish(of_job(job), "begun")
            elif isinstance(one, GiveUp):
                self._reasons[one.job] = one.reason

    def _task_over(self, event: TaskFinished | TaskFailed | TaskKilled, at: float) -> None:
        """Store the end of an attempt of a command; those of calls are stored by themselves."""
        live = self._live.get(event.phase.job)
        if live is None:
            return
        job, state, reason = event.phase.job, "done", ""
        if isinstance(event, TaskFailed):
            state, reason = "lost" if event.lost else "failed", event.reason
        elif isinstance(event, TaskKilled):
            state = "stopped"
        attempt = getattr(event, "attempt", 1)
        self.store.end_task(
            StoredTask(job, event.task, state, attempt, ended=at, reason=reason)
        )
        self.hub.publish(of_job(job), "task")

    def _over(self, record: StoredJob, future: Future[Any]) -> None:
        """Store how a job ended."""
        if self.is_leaving:
            return
        why = self._reasons.pop(record.id, "")
        if future.cancelled() or why == CANCELLED:
            state, reason = "cancelled", "" if why == CANCELLED else why
        elif error := future._raised():
            is_after = any(why == predecessor_failed(name) for name in record.after)
            state, reason = "cancelled" if is_after else "failed", why or str(error)
        else:
            state, reason = "done", ""
        result = future.result() if state == "done" else None
        self._end(record, state, reason, None if result is None else str(result).encode())

    def _stream_over(self, stream: Stream) -> None:
        state, reason = stream.outcome
        self._end(stream.record, state, reason)

    def _end(
        self, record: StoredJob, state: str, reason: str, result: bytes | None = None
    ) -> None:
        code = self.supervision.code(record.id)
        ended = self.store.end(record.id, state, time.time(), reason, code, result)

        def tell(_: object) -> None:
            self._live.pop(record.id, None)
            self._begun.discard(record.id)
            self.supervision.forget(record.id)
            with suppress(Exception):  # It is told again when the client asks.
                self._tell(self.store.job(record.id))

        ended.add_done_callback(tell)

    def _tell(self, record: StoredJob | None) -> None:
        if record is None:
            return
        self.hub.publish(of_job(record.id), record.state)
        if record.client:
            self.hub.publish(of_client(record.client), job_frame(record))

    def _result(self, job: str) -> str:
        """The result of a job that is done, for a word of a command."""
        record = self.store.job(job)
        if record is None or record.result is None:
            raise InputError(f"job {job!r} has no output; give it one with `output`")
        return record.result.decode()

    # Changes.

    def found(self, job: str) -> StoredJob:
        """The record of a job. MissingError if there is none."""
        record = self.store.job(job)
        if record is None:
            raise MissingError(f"there is no job {job!r}; `slotwise list` shows the jobs")
        return record

    def open_job(self, job: str) -> StoredJob:
        """The record of a job that is not over. OverError if it is."""
        record = self.found(job)
        if record.state in OVER:
            raise OverError(f"job {job!r} is over: {record.state}")
        return record

    def cancel(self, job: str) -> None:
        """Cancel a job; no effect on one that is over."""
        record = self.found(job)
        if record.state in OVER:
            return
        if stream := self.streams.of_job(job):
            self.streams.cancel(stream)
        elif live := self._live.get(job):
            live[1].cancel()

    def hold(self, job: str) -> None:
        """Start no more tasks of a job until it is released; running tasks continue."""
        record = self.open_job(job)
        if not record.held:
            self.store.change(job, held=True).result()
            self._change(job, pool=HELD)

    def release(self, job: str) -> None:
        """The opposite of `hold`."""
        record = self.open_job(job)
        if record.held:
            self.store.change(job, held=False).result()
            self._change(job, pool=record.pool)

    def change(self, job: str, stated: Mapping[str, Any]) -> None:
        """Change priority, weight, pool or deadline of a job that is not over."""
        record = self.open_job(job)
        known = ("priority", "weight", "pool", "deadline")
        for name in stated:
            if name not in known:
                raise InputError(f"unknown property {name!r}; {suggestion(name, known)}")
        given = {name: stated[name] for name in known if stated.get(name) is not None}
        if "pool" in given:
            self._check_pool(given["pool"])
        in_session = dict(given)
        if record.held:
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
        self.supervision.remove(job)

    def _change(self, job: str, **properties: Any) -> None:
        future = self.future_of(job)
        if future is not None:
            stated = {name: properties.get(name) for name in ("priority", "weight", "pool")}
            changes.change_job(self.core, future, **stated, deadline=properties.get("deadline"))

    def is_open(self, job: str) -> bool:
        """Whether a job is in the session."""
        return job in self._live or self.streams.of_job(job) is not None

    def future_of(self, job: str) -> Future[Any] | None:
        """A future of a job in the session, by which it can be changed."""
        if live := self._live.get(job):
            return live[1]
        stream = self.streams.of_job(job)
        return None if stream is None else next(iter(stream.futures.values()), None)

    # The end of the server.

    def leave(self, seconds: float) -> None:
        """Close the session: calls may end within this time, commands stay as they are."""
        self.supervision.leave()
        with suppress(RuntimeError):  # The session has ended by an error.
            for host in self.session.hosts():
                self.session.remove_host(host.name, drain=True)
        until = time.monotonic() + seconds
        while self.streams.are_running and time.monotonic() < until:
            time.sleep(0.05)
        self.is_leaving = self.streams.is_leaving = True
        self.session.close(cancels=True)
        self.supervision.close()


def job_frame(record: StoredJob) -> bytes:
    """What a client is told at the end of a job."""
    news = {"job": record.id, "state": record.state, "reason": record.reason}
    if record.result is None or record.kind == "object":
        return frame(
            {**news, "result": None}, () if record.result is None else (record.result,)
        )
    return frame({**news, "result": record.result.decode()})


def _stated_id(entry: Mapping[str, Any]) -> str | None:
    stated = entry.get("id")
    if stated is not None and not isinstance(stated, str):
        raise InputError(f"id is {stated!r}; give a text")
    return stated or None


def _as_stated(name: str) -> str:
    return name
