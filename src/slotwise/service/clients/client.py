"""A client of a server: the methods of a session, for jobs that the server keeps."""

from __future__ import annotations

import atexit
import os
import shutil
import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from slotwise.backends.signals import HeldInterrupts
from slotwise.core.errors import InputError, check_name
from slotwise.core.job import Job
from slotwise.forecast.eta import WhatIf
from slotwise.jobs.pickling import sent_by_value
from slotwise.jobs.transfer import on_path
from slotwise.service.clients.attached import attach
from slotwise.service.clients.entries import (
    check_command,
    entry_of_command,
    entry_of_mapping,
    entry_of_object,
    plain,
)
from slotwise.service.clients.remote import RemoteCore
from slotwise.service.clients.remote_calls import RemoteSubmitter, own_folders
from slotwise.service.clients.shown import OVER
from slotwise.service.clients.transport import ServerRefusedError, Transport, job_path
from slotwise.service.wire import ServerPlace, frame
from slotwise.sessions.calls import Binding
from slotwise.sessions.changes import JobChanges
from slotwise.sessions.executor import SessionExecutor
from slotwise.sessions.futures import Future
from slotwise.sessions.hosts import checked_entry
from slotwise.sessions.methods import SessionMethods
from slotwise.sessions.what_if import Asked, hosts_of
from slotwise.sources import Entry
from slotwise.workload.workload import CommandJob
from slotwise.workload.writer import host_entry, job_entry

RECONNECT_SECONDS = 60.0
"""Seconds for which a client waits for a server that has ended, before its futures fail."""

WAIT_SECONDS = 30.0
"""Seconds after which a request that waits for the end of a job is made again."""

POLL_SECONDS = 0.05
"""Seconds between two checks for an interrupt while `close` waits."""

LEAVE_SECONDS = 1.0
"""Seconds for which `close` still waits after an interrupt when jobs were cancelled."""


class Client(SessionMethods):
    """Submits calls and jobs to the server of `slotwise serve`, with the methods of `Session`.

    The server keeps what is submitted, and runs it even if this program ends or the server is
    restarted. A call that is running when the server ends runs again. Calls whose arguments are
    futures of other calls are sent at once, too.

    Use it as a context manager: at the end of the block it waits for all jobs that it has
    submitted; if the block raises, it cancels them first. A client that is open at the end of
    the program waits until everything submitted is durable. A client that dies leaves its jobs
    to the server. The id of a call, `Future.job`, is empty until the server has accepted it.

    url                the socket of the server, `unix:/path/to/socket`, or its address on a
                       network, `https://host:port`; by default that of the variable
                       SLOTWISE_SERVER, or of this user's server
    reconnect_seconds  how long it waits for a server that has ended and may be restarted;
                       after that, futures fail

    SlotwiseError if no server is found; InputError for another URL.
    """

    _intake: RemoteCore
    _submitter = RemoteSubmitter

    def __init__(
        self, url: str | None = None, *, reconnect_seconds: float = RECONNECT_SECONDS
    ) -> None:
        transport = Transport(url)
        self._limits: dict[str, Any] = {}  # Those of the server apply.
        self._intake = core = RemoteCore(transport, reconnect_seconds)
        self._single = RemoteSubmitter(core, Binding(), grows=False)
        _OPEN.add(core)
        self._drops = weakref.finalize(self, _close_unused, core)
        self._drops.atexit = False
        if core.cells is not None:
            core.cells.watch(self)

    def executor(self, *, restart: bool = True, **options: Any) -> SessionExecutor:
        """An executor as that of a `Session`, whose options it takes.

        restart  whether its calls run again if the server ends while one of them runs; if not,
                 they are lost then, and their futures have an error
        """
        executor = super().executor(**options)
        assert isinstance(executor._calls, RemoteSubmitter)
        executor._calls.restart = restart
        return executor

    def run(self, entry: Entry | Mapping[str, Any], *, folder: str | Path = ".") -> Future[Any]:
        """Run a job of any kind, as `Session.run`; it returns when the job is durable.

        A mapping may also state `restart: false`: if the server ends while the job runs, it is
        then reported as lost and does not run again. Commands continue even then.
        """
        if not isinstance(entry, Mapping):
            return super().run(entry, folder=folder)
        stated = {name: value for name, value in entry.items() if name != "restart"}
        described = checked_entry(stated, folder, max(1, self.slots))
        return self._submit_entry(entry_of_mapping(entry, described), folder, None)

    def _run(
        self, entry: Entry, folder: str | Path, waited: Future[Any] | None = None
    ) -> Future[Any]:
        if isinstance(entry, CommandJob):
            check_command(entry, self.slots)
            return self._submit_entry(entry_of_command(entry), folder, waited)
        transport = self._intake.transport
        packed = on_path(own_folders(), sent_by_value(entry))
        header = {**_about(transport.place, folder), "client": self._intake.id}
        body = frame({**header, "entry": entry_of_object(entry)}, [packed])
        return self._intake.submit(lambda: transport.post_frames("/v1/objects", body), waited)

    def _submit_entry(
        self, entry: Mapping[str, Any], folder: str | Path, waited: Future[Any] | None
    ) -> Future[Any]:
        transport = self._intake.transport
        about = _about(transport.place, folder)
        body = {**about, "jobs": [entry], "client": self._intake.id, "user": None}
        return self._intake.submit(lambda: transport.post("/v1/jobs", body), waited)

    def _what_if(
        self, job: Entry | Mapping[str, Any] | None, folder: str | Path, asked: Asked
    ) -> WhatIf:
        body: dict[str, Any] = dict(_about(self._intake.transport.place, folder))
        if isinstance(job, Mapping):
            stated = {name: value for name, value in job.items() if name != "restart"}
            described = checked_entry(stated, folder, max(1, self.slots))
            body["jobs"] = [entry_of_mapping(stated, described)]
        elif isinstance(job, CommandJob):
            check_command(job, self.slots)
            body["jobs"] = [entry_of_command(job)]
        elif isinstance(job, Job):
            body["jobs"] = [job_entry(job)]
        elif job is not None:
            raise InputError(
                "a server forecasts commands, mappings and Job objects; describe the job as one"
            )
        change = asked._asdict() | {"hosts": [host_entry(one) for one in hosts_of(asked.hosts)]}
        body |= plain({key: value for key, value in change.items() if value})
        return WhatIf.of_plain(self._intake.transport.post("/v1/what-if", body))

    def _new_folder(self) -> str:
        if self._intake.transport.place.is_network:
            raise InputError("output is missing; name a folder on the host of the server")
        folder = Path(self._intake.server()["folder"], "outputs", uuid.uuid4().hex)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._intake.folders.append(str(folder))
        return str(folder)

    # Jobs of the server, also those that other programs have submitted.

    def job(self, id: str) -> Future[Any]:
        """The future of a job of the server, even if the job is over.

        Its result is that of the call, a list with the results of several calls, or the result
        of a job of another kind. MissingJobError, an InputError, if the server has no such job.
        """
        check_name("job", id)
        core = self._intake
        core.check_open(had_waited=False)
        job = core.outbox.repeated(lambda: core.transport.get(job_path(id)))
        future: Future[Any] = Future(core, id)
        core.attached.add(future)
        attach(core, future, job)
        return future

    def wait(self, job: str | Future[Any], timeout: float | None = None) -> str:
        """Wait until a job is over: "done", "failed", "cancelled" or "lost". TimeoutError."""
        path = job_path(self._id(job), "wait")
        until = inf if timeout is None else time.monotonic() + timeout
        core = self._intake
        while True:
            left = max(0.0, min(WAIT_SECONDS, until - time.monotonic()))
            found = core.outbox.repeated(lambda: core.transport.get(path, timeout=left))  # noqa: B023
            if found["state"] in OVER:
                return str(found["state"])
            if time.monotonic() >= until:
                raise TimeoutError(f"job {found['id']!r} is not over: {found['state']}")

    def cancel(self, job: str | Future[Any]) -> None:
        """Cancel a job, even if it runs; no effect on one that is over."""
        self._intake.cancel(self._id(job))

    def hold(self, job: str | Future[Any]) -> None:
        """Start no more tasks of a job until it is released; running tasks continue."""
        self._intake.transport.post(job_path(self._id(job), "hold"))

    def release(self, job: str | Future[Any]) -> None:
        """Let the tasks of a job that was held start again."""
        self._intake.transport.post(job_path(self._id(job), "release"))

    def flush(self) -> None:
        """Wait until everything that was submitted is durable in the server.

        This includes calls that wait in this program for the result of a job.
        """
        core = self._intake
        core.check_open(had_waited=True)
        with core.changed:
            core.changed.wait_for(lambda: not core.waiting or core.is_ended)
        core.outbox.flush()

    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, and wait for those that this client has submitted. Idempotent.

        With `cancels`, jobs that are not over are cancelled first. Ctrl-C also cancels them; a
        second Ctrl-C ends the wait. Then KeyboardInterrupt is raised.
        """
        with HeldInterrupts() as held:
            _close(self._intake, held, cancels=cancels)

    def _change(self, future: Future[Any], given: JobChanges) -> None:
        if not (job := self._intake.id_of(future)):
            return
        named = {"priority": given.priority, "weight": given.weight, "pool": given.pool}
        stated = {name: one for name, one in named.items() if one is not None}
        if given.due is not None:
            stated["deadline"] = given.due
        try:
            self._intake.transport.post(job_path(job, "change"), stated)
        except ServerRefusedError as error:
            if error.kind != "over":
                raise

    def _id(self, job: str | Future[Any]) -> str:
        if isinstance(job, Future):
            if not job._is_of(self._intake):
                raise InputError(f"{job!r} is not a future of this client")
            return self._intake.id_of(job)
        check_name("job", job)
        return job

    def __repr__(self) -> str:
        core = self._intake
        return f"<Client of {core.transport.place}: {'closed' if core.is_closed else 'open'}>"


def _about(place: ServerPlace, folder: str | Path) -> dict[str, Any]:
    """What belongs to a submission beside its jobs.

    On another host, relative paths begin at the home of the user there.
    """
    key = {"key": uuid.uuid4().hex}
    if place.is_network:
        return {**key, "folder": str(folder)} if os.path.isabs(folder) else key
    return {**key, "folder": os.path.abspath(folder), "environ": dict(os.environ)}


# The end of a client: by `close`, at the end of its block, or at the end of the program.

_OPEN: weakref.WeakSet[RemoteCore] = weakref.WeakSet()


def _close(core: RemoteCore, held: HeldInterrupts, *, cancels: bool) -> None:
    if not core.is_local or core.is_ended:
        return  # A forked child does not own it, and the lock may be held forever.
    with core.lock:
        core.is_closed = True
        open_now = core.open_futures() if cancels else []
    _cancel(open_now)
    with core.lock:
        core.end_calls()
    is_cancelled, is_idle, until = cancels, False, inf
    while not is_idle and time.monotonic() < until:
        with core.changed:
            is_idle = core.changed.wait_for(core.is_idle, POLL_SECONDS)
        is_idle = is_idle and core.outbox.flush(POLL_SECONDS)
        if held.count and not is_cancelled:
            is_cancelled = True
            _cancel(core.open_futures())
        if held.count + cancels >= 2:
            until = min(until, time.monotonic() + LEAVE_SECONDS)
    core.stop()
    for folder in core.folders if is_idle else ():
        shutil.rmtree(folder, ignore_errors=True)
    _OPEN.discard(core)


def _cancel(open_now: list[Future[Any]]) -> None:
    for future in reversed(open_now):  # So that none of them starts meanwhile.
        future.cancel()


def _close_unused(core: RemoteCore) -> None:
    """Let a client that is no longer referenced end when its jobs are over.

    The garbage collector may call it in any thread and within any operation.
    """
    if core.is_local and not core.is_ended:
        close = partial(_close, core, HeldInterrupts(), cancels=False)
        core.take_step(threading.Thread(target=close, daemon=True).start)


def _leave_all() -> None:
    """At the end of the program, wait until everything submitted is durable."""
    for core in list(_OPEN):
        if core.is_local:
            with core.lock:
                core.is_closed = True
                core.end_calls()
            core.outbox.flush()


atexit.register(_leave_all)
