"""The process of one job of user code: it loads and plans the job, and keeps its results.

The server never runs or unpickles code or data of users. It asks this process by frames (see
`wire.py`): the name of what to do, then JSON and pickles, which it only passes on. The process
ends when its job is closed, and the kernel kills it with the server. It has about 12 MB of its
own, beside 70 MB of the forker that all share, and starts in 50 ms.

Where the server runs work as accounts of users, the forker is of root, and each process becomes
one of its account before it reads anything from the server.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from slotwise.backends.executing import sentence
from slotwise.backends.local.worker import die_with_manager, leave_keyring, pickled
from slotwise.core.codec import decode_cluster, dumped, encode_job
from slotwise.core.errors import InputChanged, InputError, SlotwiseError
from slotwise.core.history import read_history
from slotwise.core.rates import Rates, estimate_rates
from slotwise.jobs.accounts import Account
from slotwise.jobs.calls import Calls
from slotwise.jobs.commands import PHASE
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.execution import Execution
from slotwise.jobs.pickling import sent_by_value
from slotwise.jobs.staged import StagedExecution
from slotwise.jobs.transfer import SHARED_MEMORY
from slotwise.jobs.work_folder import temporary_folder
from slotwise.running import existing
from slotwise.service.planned.forker import Answer
from slotwise.service.planned.hosted import remove_left
from slotwise.service.wire import frame, frames
from slotwise.sessions.hosts import checked_entry
from slotwise.sessions.intake import arriving
from slotwise.sources import Source, replacing_own
from slotwise.workload.workload import Workload

Plain = dict[str, Any]


def serve(channel: int, lifeline: int) -> None:
    """Fork a process for each job, until the server ends; the numbers are file descriptors.

    A request with three descriptors, for `main` and for output, gets the id of a new process.
    Another one asks how a process has ended; it is killed if it has not after some seconds.
    """
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    for module in LOADED:
        import_module(f"slotwise.jobs.{module}")
    gc.freeze()  # Else collections would copy the pages that all processes share.
    with socket.socket(fileno=channel) as connection:
        while True:
            request, passed, *_ = socket.recv_fds(connection, 1000, 3)
            if not request:
                return
            if passed:
                answer: int | None = os.fork()
                if not answer:
                    connection.close()
                    os.close(lifeline)
                    asked = json.loads(request)
                    _begin(passed, Account.of(asked["account"]), asked["kept"])
                for one in passed:
                    os.close(one)
            else:
                answer = _ended(**json.loads(request))
            connection.send(json.dumps(answer).encode())


LOADED = ("commit", "dataflow.planning", "mapreduce.planning", "phased")
"""The modules that plan jobs, which are imported once for all of them."""


def _begin(passed: Sequence[int], account: Account | None, kept: str) -> NoReturn:
    """Become the process of a job, with a group to kill."""
    try:
        channel, lifeline, output = passed
        os.setsid()
        for standard in (1, 2):
            os.dup2(output, standard)
        os.close(output)
        try:
            folder = os.open(kept, os.O_PATH | os.O_DIRECTORY) if kept else -1
            if account is not None:
                account.become()
                leave_keyring()
        except OSError as error:  # It is the answer to the first question.
            failed = {"error": _kind(error), "text": f"its process cannot start: {error}"}
            os.write(channel, frame(failed, (b"null",)))
        else:
            main(channel, lifeline, folder)
    finally:
        os._exit(1)


def _ended(wait: int, seconds: float) -> int | None:
    """The exit code of a child; None if it had to be killed, or is not a child.

    Its group is killed before its id can be used again.
    """
    until, code, flags = time.monotonic() + seconds, None, os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):
        while not (is_over := os.waitid(os.P_PID, wait, flags)) and time.monotonic() < until:
            time.sleep(0.002)
        with suppress(ProcessLookupError):
            os.killpg(wait, signal.SIGKILL)
        os.kill(wait, signal.SIGKILL)  # It may have no group yet.
        _, status = os.waitpid(wait, 0)
        code = os.waitstatus_to_exitcode(status) if is_over else None
    return code


def main(channel: int, lifeline: int, kept: int = -1) -> None:
    """Answer until the server closes the channel; the numbers are file descriptors.

    `kept` is the folder with what commands of the job print.
    """
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    hosted = HostedJob(kept)
    with socket.socket(fileno=channel) as connection, connection.makefile("rb") as stream:
        for header, (stated, *parts) in frames(stream):
            answer, failed = Answer(), {}
            try:
                answer = hosted.answer(header["do"], json.loads(stated), parts)
            except BaseException as error:  # Those of user code may be of any kind.
                failed = {"error": _kind(error), "text": sentence(error)}
            body = dumped(answer.value).encode()
            connection.sendall(frame(failed, (body, *answer.parts)))
            if hosted.is_closed:
                for output in (sys.stdout, sys.stderr):
                    with suppress(AttributeError, OSError, ValueError):
                        output.flush()
                os._exit(0)  # User code may have left threads.


class HostedJob:
    """The execution of the job. Nothing else is in this process."""

    _execution: Execution

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._sent: object = None  # The runner that the server has.
        self._unread: list[tuple[str, int, int, bytes]] = []  # Results of calls.
        self.is_closed = False

    def answer(self, name: str, stated: Any, parts: Sequence[bytes]) -> Answer:
        """Do what the server asks: what has a method here, or one of the execution."""
        if own := getattr(self, f"_{name}", None):
            answer: Answer = own(*stated, *parts)
            return answer
        return Answer(getattr(self._execution, name)(*stated))

    def _load(self, stated: Plain, *parts: bytes) -> Answer:
        """Load and plan the job as a session does, see `Session.run`."""
        os.environ.clear()
        os.environ.update(stated["environ"])
        path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *stated["path"]]
        sys.path += [folder for folder in path if folder and folder not in sys.path]
        with suppress(OSError):  # For paths that user code opens.
            os.chdir(stated["folder"])
        try:
            self._execution = planned(stated, parts)
        except SlotwiseError as error:
            raise InputError(str(error)) from error
        except (Exception, SystemExit) as error:
            kind, where = type(error).__name__, f"job {stated['job']!r}"
            raise InputError(f"{where} cannot be planned: {kind}: {error}") from error
        return self._described()

    def _plan(self) -> Answer:
        """Plan a job that has waited for others."""
        assert isinstance(self._execution, DeferredExecution)
        found = self._execution.planned()
        if found is self._execution:
            found.arguments("", 0, 0)  # Raises the reason.
        self._execution = found
        return self._described()

    def _described(self) -> Answer:
        """What the server knows of the job, and its runner unless it is planned later."""
        execution = self._execution
        described = {name: getattr(execution, name) for name in SENT} | {
            "done_before": dict(execution.done_before),
            "sizes": dict(execution.sizes),
            "job": encode_job(execution.job),
            "known_as": {name: execution.known_as(name) for name in execution.job.by_name},
            "own": [name for name in ASKED if _is_own(execution, name)],
            "path": sys.path,
            "roots": _roots(execution),
        }
        is_deferred = isinstance(execution, DeferredExecution)
        return Answer(described, [] if is_deferred else [self._runner()])

    def _runner(self) -> bytes:
        self._sent = runner = self._execution.runner
        try:
            return sent_by_value(runner)
        except Exception as error:
            where, why = f"job {self._execution.job.id!r}", f"{type(error).__name__}: {error}"
            raise InputError(f"{where} cannot be sent to a worker process: {why}") from error

    def _arguments(self, phase: str, task: int, attempt: int) -> Answer:
        """The arguments of an attempt, and the runner if it is another one now."""
        found = self._execution.arguments(phase, task, attempt)
        by_value = cloudpickle.list_registry_pickle_by_value()
        body = sent_by_value(found) if by_value else pickled(found)
        is_same = self._execution.runner is self._sent
        return Answer(None, [body] if is_same else [body, self._runner()])

    def _finished(self, phase: str, task: int, attempt: int, body: bytes) -> Answer:
        """Take a result; the answer is what `waited` returns.

        Results of calls are read at the end, because the loop of the server waits for this.
        """
        execution = self._execution
        if isinstance(execution, Calls) and type(execution.results[phase]) is dict:
            self._unread.append((phase, task, attempt, body))
            return Answer(0.0)
        result = pickle.loads(body) if execution.unpickles else body
        execution.finished(phase, task, attempt, result)
        return Answer(execution.waited(phase, task, attempt))

    def _read_results(self) -> Answer:
        """Unpickle the results of calls. InputChanged for one that cannot be."""
        for phase, task, attempt, body in self._unread:
            try:
                result = pickle.loads(body)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                what = f"the result of {phase} task {task} cannot be read"
                raise InputChanged(f"{what}: {why}") from error
            self._execution.finished(phase, task, attempt, result)
        self._unread.clear()
        return Answer()

    def _lose(self, phase: str, tasks: list[int]) -> Answer:
        return Answer(list(self._execution.lose(phase, tasks)))

    def _absorbs(
        self, phase: str, task: int, reason: str, is_lost: bool, is_own: bool
    ) -> Answer:
        absorbs = self._execution.absorbs
        return Answer(absorbs(phase, task, reason, is_lost=is_lost, is_own=is_own))

    def _collect(self, task: int, files: list[str]) -> Answer:
        """Copy what a task of a command has printed to the files that are committed, if any."""
        self._execution.finished(PHASE, task, 0, None)
        staged = self._execution.output_files(PHASE, task, 0)
        for source, to in zip(files if staged else (), staged, strict=True):
            with suppress(FileNotFoundError):
                os.unlink(to)
            try:
                os.link(source, to, src_dir_fd=self._kept)
            except OSError:
                opener = partial(os.open, dir_fd=self._kept)
                with open(source, "rb", opener=opener) as file, open(to, "xb") as target:
                    shutil.copyfileobj(file, target)
        return Answer()

    def _remove_left(self, *what: Any) -> Answer:
        remove_left(*what)
        return Answer()

    def _close(self, succeeded: bool) -> Answer:
        """Close the job. If it has succeeded, return its result: strings or a pickle."""
        execution = self._execution
        execution.close(succeeded)
        result: object = None
        if succeeded and isinstance(execution, Calls):
            result = {name: dict(of) for name, of in execution.results.items()}
            execution.close(succeeded=False)  # Its files have been read.
        elif succeeded:
            result = execution.result
        self.is_closed = True
        values = result.values() if isinstance(result, dict) else [result or ""]
        is_plain = all(type(one) is str for one in values)
        return Answer(result) if is_plain else Answer(None, [sent_by_value(result)])


SENT = (
    *("sleeps", "waits", "is_shown", "ending_seconds", "unpickles"),
    *("output", "outputs", "folders", "program"),
)
"""The attributes that the server gets as they are."""

ASKED = ("begins_at", "output_files", "describe", "absorbs", "discard")
"""The methods that the server calls only if the execution has its own."""


def planned(stated: Plain, parts: Sequence[bytes]) -> Execution:
    """The execution of the entry, which is a mapping or a pickle. Raises InputError."""
    cluster = decode_cluster(**stated["cluster"])
    given = pickle.loads(parts[0]) if parts else stated["entry"]
    folder, name = Path(stated["folder"]), stated["job"]
    slots = sum(cluster.capacity.values())
    entry: Any = checked_entry(given, folder, slots)
    if about := stated["about"]:
        sets = {key: frozenset(about[key]) for key in ("after", "after_each") if key in about}
        entry = _with(entry, about | sets)
    entry = arriving(entry, stated["now"], lambda own: name or own)
    if stated["since"] is not None:
        entry = replacing_own(entry, name, folder, stated["since"])
    rates = Rates()
    if earlier := existing(stated["history"]):
        rates = estimate_rates(read_history(earlier))
    source = Source(Workload((entry,), folder=folder), rates)
    source = source.with_options(**stated["limits"])
    (execution,) = source.executions(cluster, stated["outputs"])
    return execution


def _with(entry: Any, about: Plain) -> Any:
    """The entry with these properties of its job."""
    if isinstance(entry, Execution):
        entry.job = replace(entry.job, **about)
        return entry
    return replace(entry, **about)


def _is_own(execution: Execution, name: str) -> bool:
    """Whether the class of an execution has another method than its base."""
    found: Callable[..., object] = getattr(type(execution), name)
    return found is not getattr(Execution, name)


def _roots(execution: Execution) -> list[str]:
    """The folders in which the execution makes folders for intermediate files."""
    own = (
        [os.path.dirname(execution.work_dir)] if isinstance(execution, StagedExecution) else []
    )
    return [SHARED_MEMORY, temporary_folder(), *own]


def _kind(error: BaseException) -> str:
    """The name of the class by which the server raises an error."""
    return "InputError" if isinstance(error, InputError) else type(error).__name__
