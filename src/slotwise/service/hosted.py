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
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from io import BufferedReader
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

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


class Answer(NamedTuple):
    """What the process of a job answers: a JSON value, and pickles."""

    value: Any = None
    parts: Sequence[bytes] = ()


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
        self._job, self.limit, self._lost = job, limit, ""
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
        stream = ours.makefile("rb")
        self._channel, self._log, self._answers = ours, log, frames(stream)
        self.pid = self._process.pid
        self._kill = weakref.finalize(self, _kill, self._process, (stream, ours), own_end)

    def ask(
        self, name: str, *stated: object, parts: Sequence[bytes] = (), limit: float = 0
    ) -> Answer:
        """The answer to a question. Raises what the process raises.

        It may take `limit` seconds, by default the usual limit. While a thread waits for an
        answer, others get a LostHostingError.
        """
        if not self._lock.acquire(blocking=False):
            raise LostHostingError(f"the process of job {self._job!r} is busy")
        try:
            if self._lost:
                raise LostHostingError(self._lost)
            return self._asked(name, stated, parts, limit or self.limit)
        finally:
            self._lock.release()

    def end(self, seconds: float = 0.0) -> None:
        """End the process, which gets these seconds to exit by itself."""
        self._lost = self._lost or f"job {self._job!r} is closed"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._kill()

    def _asked(self, name: str, stated: object, parts: Sequence[bytes], limit: float) -> Answer:
        why = ""
        try:
            self._channel.settimeout(None if limit == inf else limit)
            self._channel.sendall(frame({"do": name}, (dumped(stated).encode(), *parts)))
            header, (body, *found) = next(self._answers)
            value = json.loads(body)
        except TimeoutError:
            why = f"has not answered for {limit:g} s"
        except (OSError, StopIteration, SlotwiseError, ValueError):
            why = "has sent what cannot be read"  # User code may have written to the channel.
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1)
                why = signalled(-code) if code < 0 else f"exited with code {code}"
        if why:
            what = f"the process in which job {self._job!r} is planned and its results are kept"
            self._lost = f"{what} {why}" + (f"; see {self._log}" if self._log else "")
            self._kill()
            raise LostHostingError(self._lost)
        if "error" in header:
            raise KINDS.get(str(header["error"]), SlotwiseError)(str(header.get("text")))
        return Answer(value, found)


def _stated(name: str, what: str) -> Any:
    """A property that the process has stated."""
    return property(lambda self: self._plain[name], doc=what)


class HostedExecution(Execution):
    """A job whose execution is in a process of its own; see `Execution` for the methods.

    A job whose process is lost fails, and what the process has left on the disk is removed.
    The result of a job that has succeeded is that of the execution if this is a string, or
    strings by name, as of programs. Otherwise it is its pickle.
    """

    output = _stated("output", "The folder that it writes to.")
    program = _stated("program", "The name of the program in other runs.")
    sleeps = _stated("sleeps", "Whether its tasks only sleep.")
    waits = _stated("waits", "Whether its attempts wait.")
    is_shown = _stated("is_shown", "Whether the terminal shows what tasks print.")
    ending_seconds = _stated("ending_seconds", "Seconds for the end of an attempt.")
    result: object = None
    closes_in_thread = True

    def __init__(self, process: HostingProcess, answer: Answer) -> None:
        """`answer` is the description of the job. ValueError if it cannot be read."""
        self.process, self._plain = process, answer.value
        try:
            self.job = decode_job(self._plain["job"])
            self.done_before = _tuples(self._plain["done_before"])
            self._sizes: Mapping[str, Sizes] = _tuples(self._plain["sizes"])
            self._take_runner(answer.parts[0])
        except Exception as error:  # User code may have written to the channel.
            raise ValueError(f"the description of a job cannot be read: {error}") from error
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
            answer = process.ask("load", asked, parts=parts)
            if answer.parts:
                return HostedExecution(process, answer)
            return DeferredHosted(process, answer.value)
        except BaseException as error:
            process.end()
            if isinstance(error, InputError) or not isinstance(error, Exception):
                raise
            raise InputError(f"job {job!r} cannot be planned: {error}") from None

    @property
    def outputs(self) -> tuple[str, ...]:
        """All folders that it writes to."""
        return tuple(self._plain["outputs"])

    @property
    def folders(self) -> tuple[str, ...]:
        """The names of its folders on each host with its own."""
        return tuple(self._plain["folders"])

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of its tasks, where known."""
        return self._sizes

    def known_as(self, phase: str) -> tuple[str, str]:
        """The names by which histories know a phase."""
        program, name = self._plain["known_as"][phase]
        return program, name

    def open(self) -> None:
        """Reserve the output. InputError also if the process is lost."""
        try:
            self.process.ask("open")
        except LostHostingError as error:
            raise InputError(str(error)) from None
        self._is_open = True

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        """Ask the process."""
        return bool(self._answered(True, "begins_at", phase, task, attempt, address))

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The pickle of the arguments. InputChanged if the process is lost."""
        body, *runner = self._asked("arguments", phase, task, attempt).parts
        if runner:
            self._take_runner(runner[0])
        return (body,)

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Ask the process."""
        return tuple(self._answered((), "output_files", phase, task, attempt))

    def describe(self, phase: str, task: int) -> str:
        """The description by the process, or else a plain one."""
        return str(self._answered(super().describe(phase, task), "describe", phase, task))

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Pass the result on. InputChanged if the process is lost."""
        assert isinstance(result, bytes)
        self._asked("finished", phase, task, attempt, parts=(result,))

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """Ask the process."""
        return float(self._answered(0.0, "waited", phase, task, attempt))

    def absorbs(
        self, phase: str, task: int, reason: str, *, is_lost: bool, is_own: bool
    ) -> bool:
        """Ask the process; a lost one absorbs nothing."""
        return bool(self._answered(False, "absorbs", phase, task, reason, is_lost, is_own))

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget lost output; none if the process is lost. Raises WorkFolderError."""
        try:
            return list(self.process.ask("lose", phase, sorted(tasks)).value)
        except LostHostingError:
            return ()
        except Exception as error:
            raise WorkFolderError(str(error)) from None

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Notify the process."""
        self._answered(None, "discard", phase, task, attempt)

    def close(self, succeeded: bool) -> None:
        """Commit the output, which may take any time, or remove everything; end the process."""
        if self._is_closed:
            return
        if succeeded:
            self._asked("read_results")
            value, parts = self._asked("close", True, limit=inf)
            self.result = parts[0] if parts else value
            self.process.end(END_SECONDS)
        else:
            try:
                self.process.ask("close", False)
                self.process.end(END_SECONDS)
            except Exception:
                self.process.end()
                self._remove_left()
        self._is_closed = True

    def _take_runner(self, body: bytes) -> None:
        packs = self._plain["unpickles"]
        self.runner = PickledRunner(body, self._plain["path"], packs=packs)

    def _asked(
        self, name: str, *stated: object, parts: Sequence[bytes] = (), limit: float = 0
    ) -> Answer:
        """What the process answers. InputChanged if it is lost: no attempt can succeed."""
        try:
            return self.process.ask(name, *stated, parts=parts, limit=limit)
        except LostHostingError as error:
            raise InputChanged(str(error)) from None

    def _answered(self, default: object, name: str, *stated: object) -> Any:
        """What the process answers; the default if it has nothing to do, is lost or fails."""
        if name in self._plain["own"]:
            with suppress(Exception):
                return self.process.ask(name, *stated).value
        return default

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
        self.process = process
        self._found: HostedExecution | InputError | None = None
        self._thread: threading.Thread | None = None

    def is_ready(self, wake: Callable[[], None]) -> bool:
        """Whether it is planned; this begins with the first call."""

        def plan() -> None:
            try:
                self._found = HostedExecution(self.process, self.process.ask("plan"))
            except Exception as error:
                self._found = InputError(str(error))
            wake()

        if self._thread is None:
            name = f"plan of {self.job.id}"
            self._thread = threading.Thread(target=plan, name=name, daemon=True)
            self._thread.start()
        return self._found is not None

    def close(self, succeeded: bool) -> None:
        """End the process of a job that was not planned."""
        self.process.end()

    def _take(self) -> Execution:
        assert self._found is not None
        if isinstance(self._found, InputError):
            raise self._found
        return self._found


def _tuples(stated: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(n) if isinstance(n, list) else n for name, n in stated.items()}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _kill(
    process: subprocess.Popen[bytes],
    channel: tuple[BufferedReader, socket.socket],
    lifeline: int,
) -> None:
    """Kill the process and its group, and reap it."""
    for one in channel:
        one.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    os.close(lifeline)
    process.wait()
