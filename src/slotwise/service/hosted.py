"""Jobs of user code in the server: stand-ins for executions in processes of their own.

A server must not run or unpickle code or data of users. The execution of a MapReduce program,
a dataflow, a job of several phases or a pickled job is therefore in a process of its own (see
`hosting.py`), which is started with the job and ends with it. Here is what the scheduler knows
of it. Runners, arguments and results pass through the server as bytes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from slotwise.backends.local.process import OWN_OPTIONS
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_job, dumped, encode_cluster
from slotwise.core.errors import InputChanged, InputError, SlotwiseError, WorkFolderError
from slotwise.core.job import Sizes
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.endings import signalled
from slotwise.jobs.execution import Execution, FailedAttemptError
from slotwise.jobs.pickling import PickledRunner
from slotwise.service.wire import frame, frames

ANSWER_SECONDS = 60.0
"""How long planning, and any other answer of the process of a job but a commit, may take."""

END_SECONDS = 5.0
"""How long the process may take to exit after its job was closed; then it is killed."""

COMMAND = """
import sys
path = sys.argv[3:]
sys.path += [folder for folder in path if folder not in sys.path]
from slotwise.service.hosting import main
main(*map(int, sys.argv[1:3]))
"""

KINDS: dict[str, Callable[[str], Exception]] = {
    one.__name__: one
    for one in (InputError, InputChanged, FailedAttemptError, WorkFolderError, ValueError)
}
"""The errors that the process sends by name; others are SlotwiseErrors."""


class LostHostingError(SlotwiseError):
    """The process of a job has died, or does not answer."""


class HostingProcess:
    """The process of one job. It is killed when this object is collected, or with the server.

    If it dies, or does not answer in time, this and all later questions raise LostHostingError.
    """

    def __init__(
        self, job: str, environ: Mapping[str, str] | None, log: str | Path | None, limit: float
    ) -> None:
        """`log` gets what user code prints in it. SlotwiseError if it cannot be started."""
        self._job, self._limit, self._lost = job, limit, ""
        self._lock = threading.Lock()
        environ = os.environ if environ is None else environ
        with ExitStack() as theirs:
            ours, channel = socket.socketpair()
            theirs.enter_context(channel)
            lifeline, own_end = os.pipe()
            theirs.callback(os.close, lifeline)
            try:
                place = os.devnull if log is None else log
                output = theirs.enter_context(open(place, "ab", opener=_private))
                passed = channel.fileno(), lifeline
                self._process = subprocess.Popen(
                    [sys.executable, *OWN_OPTIONS, "-c", COMMAND, *map(str, passed), *sys.path],
                    env=dict(environ),
                    pass_fds=passed,
                    start_new_session=True,  # A group to kill.
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            except OSError as error:
                ours.close()
                os.close(own_end)
                why = error.strerror or error
                raise SlotwiseError(f"job {job!r}: its process cannot start: {why}") from error
        self._channel = _Channel(ours)
        self._answers = frames(self._channel)
        self.pid = self._process.pid
        self._end = weakref.finalize(self, _end, self._process, ours, own_end)

    def ask(
        self, name: str, *stated: object, parts: Sequence[bytes] = (), limit: float | None = 0
    ) -> tuple[Any, list[bytes]]:
        """The answer to a question, and its pickles. Raises what the process raises.

        It may take `limit` seconds: 0 stands for the usual limit, None for any time. While a
        thread waits for an answer, others get a LostHostingError.
        """
        if not self._lock.acquire(blocking=False):
            raise LostHostingError(f"the process of job {self._job!r} is busy")
        try:
            if self._lost:
                raise LostHostingError(self._lost)
            return self._asked(name, stated, parts, self._limit if limit == 0 else limit)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process, which has closed its job, or kill it."""
        self._lost = self._lost or f"job {self._job!r} is closed"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._end()

    def kill(self) -> None:
        """Kill the process."""
        self._lost = self._lost or f"job {self._job!r} was given up"
        self._end()

    def _asked(
        self, name: str, stated: object, parts: Sequence[bytes], limit: float | None
    ) -> tuple[Any, list[bytes]]:
        try:
            self._channel.until = None if limit is None else time.monotonic() + limit
            self._channel.send(frame({"do": name}, (dumped(stated).encode(), *parts)))
            header, (body, *found) = next(self._answers)
            value = json.loads(body)
        except TimeoutError:
            self._lose(f"has not answered for {limit:g} s")
        except (OSError, StopIteration, SlotwiseError, ValueError):
            # It has died, or user code has written to its channel.
            self._lose("")
        if "error" in header:
            raise KINDS.get(str(header["error"]), SlotwiseError)(str(header.get("text")))
        return value, found

    def _lose(self, why: str) -> None:
        if not why:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1)
                why = signalled(-code) if code < 0 else f"exited with code {code}"
        what = f"the process in which job {self._job!r} is planned and its results are kept"
        self._lost = f"{what} {why or 'has sent what cannot be read'}"
        self._end()
        raise LostHostingError(self._lost)


class HostedExecution(Execution):
    """A job whose execution is in a process of its own; see `Execution` for the methods.

    A job whose process is lost fails, and what the process has left on the disk is removed.
    The result of a job that has succeeded is that of the execution, if it is text or texts by
    name, as of programs; otherwise it is its pickle.
    """

    unpickles = False

    def __init__(self, process: HostingProcess, described: Any, parts: list[bytes]) -> None:
        """`described` and `parts` are what the process has answered. ValueError if invalid."""
        self._process, self._plain = process, described
        try:
            self.job = decode_job(described["job"])
            self._packs = bool(described["unpickles"])
            self.sleeps, self.waits = bool(described["sleeps"]), bool(described["waits"])
            self.is_shown = bool(described["is_shown"])
            self.ending_seconds = float(described["ending_seconds"])
            self.done_before = _tuples(described["done_before"])
            self._sizes = _tuples(described["sizes"])
            self._own = frozenset(described["own"])
            self._path = tuple(map(str, described["path"]))
            (runner,) = parts
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"the description of a job cannot be read: {error}") from error
        self.runner = PickledRunner(runner, self._path, packs=self._packs)
        self._result: object = None
        self._is_open = self._is_closed = False

    @staticmethod
    def start(
        entry: Mapping[str, Any] | bytes,
        folder: str | Path,
        cluster: Cluster,
        *,
        job: str,
        now: float = 0.0,
        about: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Sequence[str]] | None = None,
        limits: Mapping[str, float | None] | None = None,
        history: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        path: Sequence[str] = (),
        log: str | Path | None = None,
        limit: float = ANSWER_SECONDS,
    ) -> HostedExecution | DeferredHosted:
        """Start the process of a job, and load and plan the job in it, as `Session.run` does.

        It takes a second or more, so call it in a thread.

        entry    a mapping like an entry of `jobs` in a workload file, or the pickle of a job
        folder   where relative paths begin
        cluster  the cluster on which it will run
        job      its id, in place of the stated one
        now      its arrival; its deadline and steps move with it
        about    properties of a `Job` in place of those of the entry, such as {"pool": "a"}
        outputs  the folders of other jobs that are under way, by id
        limits   `retry_delay` and `time_limit` of a job that does not state them
        history  a database of earlier runs, for estimates of its work
        environ  the environment of the process, by default that of this one
        path     folders in which it and the tasks look for modules, too
        log      the file that gets what user code prints while it is loaded and planned
        limit    the seconds that any answer of the process may take, except a commit

        InputError for a job that cannot be planned, also if its code ends the process, or is
        not done after `limit` seconds.
        """
        asked = {
            "entry": None if isinstance(entry, bytes) else dict(entry),
            "folder": str(Path(folder).absolute()),
            "cluster": {
                "plain": encode_cluster(cluster),
                "heartbeat": cluster.heartbeat,
                "grace": cluster.grace,
                "kinds": sorted(cluster.kinds),
            },
            **{"job": job, "now": now, "about": dict(about or {}), "path": list(path)},
            "outputs": {name: list(folders) for name, folders in (outputs or {}).items()},
            **{"limits": dict(limits or {}), "history": history and str(history)},
        }
        process = HostingProcess(job, environ, log, limit)
        parts = [entry] if isinstance(entry, bytes) else []
        try:
            described, found = process.ask("load", asked, parts=parts)
            if described["is_deferred"]:
                return DeferredHosted(process, described)
            return HostedExecution(process, described, found)
        except BaseException as error:
            process.kill()
            if isinstance(error, LostHostingError | ValueError):
                raise InputError(f"job {job!r} cannot be planned: {error}") from None
            raise

    @property
    def output(self) -> str:
        return str(self._plain["output"])

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(map(str, self._plain["outputs"]))

    @property
    def closes_in_thread(self) -> bool:
        return True

    @property
    def result(self) -> object:
        return self._result

    @property
    def folder(self) -> str:
        return str(self._plain["folder"])

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(map(str, self._plain["folders"]))

    @property
    def program(self) -> str:
        return str(self._plain["program"])

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        return self._sizes

    def known_as(self, phase: str) -> tuple[str, str]:
        program, name = self._plain["known_as"][phase]
        return str(program), str(name)

    def open(self) -> None:
        if "open" in self._own:
            try:
                self._process.ask("open")
            except LostHostingError as error:
                raise InputError(str(error)) from None
        self._is_open = True

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        found = self._told("begins_at", phase, task, attempt, address)
        return True if found is None else bool(found)

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        _, parts = self._asked("arguments", phase, task, attempt)
        if len(parts) > 1:
            self.runner = PickledRunner(parts[1], self._path, packs=self._packs)
        return (parts[0],)

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        return tuple(map(str, self._told("output_files", phase, task, attempt) or ()))

    def describe(self, phase: str, task: int) -> str:
        return str(self._told("describe", phase, task) or super().describe(phase, task))

    def printed(self, phase: str, task: int, path: str) -> None:
        self._told("printed", phase, task, path)

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        assert isinstance(result, bytes)
        self._asked("finished", phase, task, attempt, parts=(result,))

    def waited(self, phase: str, task: int, attempt: int) -> float:
        return float(self._told("waited", phase, task, attempt) or 0.0)

    def absorbs(
        self, phase: str, task: int, reason: str, *, is_lost: bool, is_own: bool
    ) -> bool:
        return bool(self._told("absorbs", phase, task, reason, is_lost, is_own))

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget lost output. If the process is lost, nothing is lost that is not with it."""
        found = self._told("lose", phase, sorted(tasks), fails=WorkFolderError)
        return [int(task) for task in found or ()]

    def discard(self, phase: str, task: int, attempt: int) -> None:
        self._told("discard", phase, task, attempt)

    def close(self, succeeded: bool) -> None:
        """Commit the output, which may take any time, or remove everything; end the process."""
        if self._is_closed:
            return
        if succeeded:
            result, parts = self._asked("close", True, limit=None)
            self._result = parts[0] if parts else result
            self._process.close()
        else:
            try:
                self._process.ask("close", False)
                self._process.close()
            except Exception:
                self._process.kill()
                self._remove_left()
        self._is_closed = True

    def _asked(
        self, name: str, *stated: object, parts: Sequence[bytes] = (), limit: float | None = 0
    ) -> tuple[Any, list[bytes]]:
        """What the process answers. InputChanged if it is lost: no attempt can succeed."""
        try:
            return self._process.ask(name, *stated, parts=parts, limit=limit)
        except LostHostingError as error:
            raise InputChanged(str(error)) from None

    def _told(
        self, name: str, *stated: object, fails: Callable[[str], Exception] | None = None
    ) -> Any:
        """What the process answers; None if it is lost, and if it has nothing to do.

        None also for other errors, unless they are raised as what `fails` makes of their text.
        """
        if name not in self._own:
            return None
        try:
            return self._process.ask(name, *stated)[0]
        except LostHostingError:
            return None
        except Exception as error:
            if fails is not None:
                raise fails(str(error)) from None
            return None

    def _remove_left(self) -> None:
        """Remove the intermediate files and the staged output of a process that was killed."""
        from slotwise.jobs.commit import Layout, OutputDirectory
        from slotwise.jobs.work_folder import sweep, work_folder_name

        for root in self._plain["roots"]:
            with suppress(OSError):
                sweep(str(root))
        for output in self.outputs if self._is_open else ():
            layout = Layout(work_folder_name(), output, is_shared=True)
            left = OutputDirectory(layout, True, self.job.id, ())
            with suppress(OSError, InputError):
                left.open()
                left.abort()


class DeferredHosted(DeferredExecution):
    """A job that is planned in its process, in a thread, when the jobs before it are over."""

    def __init__(self, process: HostingProcess, described: Any) -> None:
        """`described` is what the process has answered."""
        outputs = tuple(map(str, described["outputs"]))
        super().__init__(decode_job(described["job"]), outputs, self._take)
        self._process = process
        self._found: HostedExecution | InputError | None = None
        self._thread: threading.Thread | None = None

    def is_ready(self, wake: Callable[[], None]) -> bool:
        """Whether it is planned; this begins with the first call."""

        def plan() -> None:
            try:
                self._found = HostedExecution(self._process, *self._process.ask("plan"))
            except Exception as error:
                self._found = InputError(str(error))
            wake()

        if self._thread is None:
            self._thread = threading.Thread(target=plan, name=f"plan of {self.job.id}")
            self._thread.start()
        return self._found is not None

    def close(self, succeeded: bool) -> None:
        """End the process of a job that was not planned."""
        self._process.kill()

    def _take(self) -> Execution:
        assert self._found is not None
        if isinstance(self._found, InputError):
            raise self._found
        return self._found


class _Channel:
    """The connection to a process, each use of which may last up to the instant `until`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until: float | None = None

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end. TimeoutError."""
        self._wait_until()
        return self._connection.recv(min(size, 1 << 20))

    def send(self, data: bytes) -> None:
        """Send all of it. TimeoutError."""
        self._wait_until()
        self._connection.sendall(data)

    def _wait_until(self) -> None:
        left = None if self.until is None else self.until - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


def _tuples(stated: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(n) if isinstance(n, list) else n for name, n in stated.items()}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _end(process: subprocess.Popen[bytes], channel: socket.socket, lifeline: int) -> None:
    """Kill the process and its group, and reap it."""
    channel.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    os.close(lifeline)
    process.wait()
