"""The process of one job of user code: it loads and plans the job, and keeps its results.

The server never runs or unpickles code or data of users. It asks this process by frames (see
`wire.py`): the name of what to do, then JSON and pickles, which it only passes on. The process
has about 70 MB. It ends when its job is closed, and the kernel kills it with the server.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from slotwise.backends.executing import sentence
from slotwise.backends.local.worker import die_with_manager, pickled
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_cluster, dumped, encode_job
from slotwise.core.errors import InputError
from slotwise.core.history import read_history
from slotwise.core.rates import Rates, estimate_rates
from slotwise.jobs.calls import Calls
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.execution import Execution
from slotwise.jobs.pickling import sent_by_value
from slotwise.jobs.staged import StagedExecution
from slotwise.jobs.transfer import SHARED_MEMORY
from slotwise.jobs.work_folder import temporary_folder
from slotwise.running import existing
from slotwise.service.wire import frame, frames
from slotwise.sessions.hosts import checked_entry
from slotwise.sessions.intake import arriving
from slotwise.sources import Entry, Source
from slotwise.workload.workload import Workload

Plain = dict[str, Any]


class Answer(NamedTuple):
    """What the process answers: a JSON value, and pickles."""

    value: object = None
    parts: tuple[bytes, ...] = ()


def main(channel: int, lifeline: int) -> None:
    """Answer until the server closes the channel; the numbers are file descriptors."""
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)
    die_with_manager(lifeline)
    hosted = HostedJob()
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

    def __init__(self) -> None:
        self._execution: Execution | None = None
        self._sent: object = None  # The runner that the server has.
        self.is_closed = False

    def answer(self, name: str, stated: Any, parts: Sequence[bytes]) -> Answer:
        """Do what the server asks."""
        if name == "load":
            return self._load(stated, parts)
        execution = self._execution
        assert execution is not None
        if name == "plan":
            return self._plan(execution)
        if name == "arguments":
            return self._arguments(execution, stated)
        if name == "finished":
            result = pickle.loads(parts[0]) if execution.unpickles else parts[0]
            return Answer(execution.finished(*stated, result))
        if name == "lose":
            return Answer(list(execution.lose(*stated)))
        if name == "absorbs":
            phase, task, reason, is_lost, is_own = stated
            return Answer(
                execution.absorbs(phase, task, reason, is_lost=is_lost, is_own=is_own)
            )
        if name == "close":
            return self._close(execution, *stated)
        return Answer(getattr(execution, name)(*stated))

    def _load(self, stated: Plain, parts: Sequence[bytes]) -> Answer:
        """Load and plan the job as a session does, see `Session.run`."""
        sys.path += [folder for folder in stated["path"] if folder not in sys.path]
        with suppress(OSError):  # For paths that user code opens.
            os.chdir(stated["folder"])
        cluster = decode_cluster(**stated["cluster"])
        try:
            self._execution = planned(stated, parts, cluster)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            kind, where = type(error).__name__, f"job {stated['job']!r}"
            raise InputError(f"{where} cannot be planned: {kind}: {error}") from error
        return self._described(self._execution)

    def _plan(self, execution: Execution) -> Answer:
        """Plan a job that has waited for others."""
        assert isinstance(execution, DeferredExecution)
        found = execution.planned()
        if found is execution:
            found.arguments("", 0, 0)  # Raises the reason.
        self._execution = found
        return self._described(found)

    def _described(self, execution: Execution) -> Answer:
        """What the server knows of the job, and the pickle of its runner."""
        names = "sleeps", "waits", "is_shown", "ending_seconds", "done_before", "unpickles"
        names += "output", "outputs", "folder", "folders", "program", "sizes"
        is_deferred = isinstance(execution, DeferredExecution)
        described = {name: getattr(execution, name) for name in names} | {
            "done_before": dict(execution.done_before),
            "sizes": dict(execution.sizes),
            "job": encode_job(execution.job),
            "known_as": {name: execution.known_as(name) for name in execution.job.by_name},
            "is_deferred": is_deferred,
            "own": [name for name in ASKED if _is_own(execution, name)],
            "path": sys.path,
            "roots": _roots(execution),
        }
        if is_deferred:
            return Answer(described)
        return Answer(described, (self._runner(execution),))

    def _runner(self, execution: Execution) -> bytes:
        self._sent = execution.runner
        try:
            return sent_by_value(execution.runner)
        except Exception as error:
            raise InputError(
                f"job {execution.job.id!r} cannot be sent to a worker process:"
                f" {type(error).__name__}: {error}"
            ) from error

    def _arguments(self, execution: Execution, stated: Any) -> Answer:
        """The arguments of an attempt, and the runner if it is another one now."""
        found = execution.arguments(*stated)
        by_value = cloudpickle.list_registry_pickle_by_value()
        body = sent_by_value(found) if by_value else pickled(found)
        if execution.runner is self._sent:
            return Answer(None, (body,))
        return Answer(None, (body, self._runner(execution)))

    def _close(self, execution: Execution, succeeded: bool) -> Answer:
        """Close the job. If it has succeeded, return its result: JSON, or a pickle."""
        execution.close(succeeded)
        answer = Answer()
        if succeeded:
            result = execution.result
            if isinstance(execution, Calls):
                result = {name: dict(of) for name, of in execution.results.items()}
                answer = Answer(None, (sent_by_value(result),))
                execution.close(succeeded=False)  # Its files have been read.
            else:
                answer = _json_or_pickle(result)
        self.is_closed = True
        return answer


ASKED = (
    *("open", "begins_at", "output_files", "describe", "printed", "waited", "absorbs"),
    *("lose", "discard"),
)
"""The methods that the server calls only if the execution has its own."""


def planned(stated: Plain, parts: Sequence[bytes], cluster: Cluster) -> Execution:
    """The execution of the entry, which is a mapping or a pickle. Raises InputError."""
    given = pickle.loads(parts[0]) if parts else stated["entry"]
    folder, name = Path(stated["folder"]), stated["job"]
    slots = sum(cluster.capacity.values())
    entry = checked_entry(given, folder, slots)
    about = {key: _property(key, value) for key, value in stated["about"].items()}
    if about:
        entry = _with(entry, about)
    entry = arriving(entry, stated["now"], lambda own: name or own)
    rates = Rates()
    if earlier := existing(stated["history"]):
        rates = estimate_rates(read_history(earlier))
    source = Source(Workload((entry,), folder=folder), rates)
    source = source.with_options(**stated["limits"])
    (execution,) = source.executions(cluster, stated["outputs"])
    return execution


def _with(entry: Any, about: Plain) -> Entry:
    """The entry with these properties of its job."""
    if isinstance(entry, Execution):
        entry.job = replace(entry.job, **about)
        return entry
    changed: Entry = replace(entry, **about)
    return changed


def _property(key: str, value: object) -> object:
    return frozenset(value) if key in ("after", "after_each") else value  # type: ignore[call-overload]


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


def _json_or_pickle(result: object) -> Answer:
    """A result of text as JSON, and any other as a pickle."""
    texts = result.values() if isinstance(result, Mapping) else [result]
    if result is None or all(type(one) is str for one in texts):
        return Answer(dict(result) if isinstance(result, Mapping) else result)
    return Answer(None, (sent_by_value(result),))


def _kind(error: BaseException) -> str:
    """The name of the class by which the server raises an error."""
    return "InputError" if isinstance(error, InputError) else type(error).__name__
