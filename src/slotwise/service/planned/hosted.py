"""Jobs of user code in the server: stand-ins for executions in processes of their own.

A server must not run or unpickle code or data of users. The execution of a MapReduce program,
a dataflow, a job of several phases or a pickled job is therefore in a process of its own (see
`hosting.py`), which is started with the job and ends with it. Here is what the scheduler knows
of it. Runners, arguments and results pass through the server as bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_job, encode_cluster
from slotwise.core.errors import (
    MAX_TIME,
    InputChanged,
    InputError,
    SlotwiseError,
    WorkFolderError,
)
from slotwise.core.job import Sizes
from slotwise.jobs.accounts import Account
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.execution import Execution
from slotwise.jobs.pickling import PickledRunner
from slotwise.service.planned.forker import (
    ANSWER_SECONDS,
    Answer,
    HostingProcess,
    LostHostingError,
)

END_SECONDS = 5.0
"""How long the process may take to exit after its job was closed; then it is killed."""


def _stated(name: str, what: str) -> Any:
    """A property that the process has stated."""
    return property(lambda self: self._plain[name], doc=what)


TASKS_MAX = 10_000_000
"""The most tasks of a user in jobs that are not over: each takes memory of the server."""


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
        self.account = process.account
        try:
            self.job = decode_job(self._plain["job"])
            self.done_before = _tuples(self._plain["done_before"])
            self._sizes: Mapping[str, Sizes] = _tuples(self._plain["sizes"])
            if self.account is not None:
                self._check_plain()
            self._take_runner(answer.parts[0])
        except Exception as error:  # User code may have written to the channel.
            raise ValueError(f"the description of a job cannot be read: {error}") from error
        process.is_in_loop = True
        self._is_open = self._is_closed = False
        self._waited = 0.0

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
        since: float | None = None,
        account: Account | None = None,
        kept: str = "",
    ) -> HostedExecution | DeferredHosted:
        """Start the process of a job, and load and plan the job in it, as `Session.run` does.

        It may take long, so call it in a thread.

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
        since    when it was submitted, if it may have run; it replaces its own output
        account  the account as which the process and all tasks run
        kept     the folder of root in which files of this account are, for `collect`

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
            **{
                "job": job,
                "now": now,
                "about": dict(about or {}),
                "path": list(path),
                "since": since,
            },
            "outputs": {name: list(folders) for name, folders in (outputs or {}).items()},
            **{"limits": dict(limits or {}), "history": history and str(history)},
            "environ": dict(os.environ if environ is None else environ),
        }
        process = HostingProcess(job, log, limit, account, kept)
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

    def _check_plain(self) -> None:
        """ValueError for a description that only code of a user can have made."""
        if self.job.id != self.process.job:
            raise ValueError(f"it is of job {self.job.id!r}")
        plain, counts = self._plain, {one.name: one.tasks.count for one in self.job.phases}
        if sum(counts.values()) > TASKS_MAX:
            raise ValueError(f"it has more than {TASKS_MAX} tasks")
        lists = (plain[name] for name in ("outputs", "folders", "own", "path", "roots"))
        texts = [plain["output"], plain["program"], *(one for many in lists for one in many)]
        for phase, count in counts.items():
            texts += plain["known_as"][phase]
            done, sizes = self.done_before.get(phase, ()), self._sizes.get(phase, 0)
            numbers = sizes if isinstance(sizes, tuple) else (sizes,) * count
            is_right = all(type(one) is int and 0 <= one < count for one in done)
            is_right &= all(isinstance(one, int | float) and one >= 0 for one in numbers)
            if not is_right or len(numbers) != count:
                raise ValueError(f"phase {phase!r} has no such tasks")
        if not {*self.done_before, *self._sizes} <= counts.keys():
            raise ValueError("it has no such phase")
        if not all(type(one) is str for one in texts):
            raise ValueError("a value has another type")
        if not 0 <= plain["ending_seconds"] <= MAX_TIME:
            raise ValueError("an attempt cannot end in this time")

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
            self.process.ask("open", limit=self.process.limit)
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

    def ready_to_run(self, phase: str, task: int, attempt: int, *, is_new: bool) -> None:
        """Reserve the output, and check the inputs of an attempt that is new."""
        if is_new:
            self._asked("arguments", phase, task, attempt)
        else:
            self._asked("_open")

    def collect(self, task: int, files: Sequence[str]) -> None:
        """Give a task of a command what it has printed, in a folder of the task in `kept`."""
        if not self._is_closed:
            names = ["/".join(Path(one).parts[-2:]) for one in files]
            self._asked("collect", task, names, limit=inf)

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Ask the process; none of an account, because this process is root and opens them."""
        if self.account is not None:
            return ()
        return tuple(self._answered((), "output_files", phase, task, attempt))

    def describe(self, phase: str, task: int) -> str:
        """The description by the process, or else a plain one."""
        return str(self._answered(super().describe(phase, task), "describe", phase, task))

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Pass the result on. InputChanged if the process is lost."""
        assert isinstance(result, bytes)
        waited = self._asked("finished", phase, task, attempt, parts=(result,)).value
        is_number = isinstance(waited, int | float) and 0 <= waited <= MAX_TIME
        self._waited = float(waited) if is_number else 0.0

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """What came with the answer to `finished`, which was called last."""
        return self._waited

    def absorbs(
        self, phase: str, task: int, reason: str, *, is_lost: bool, is_own: bool
    ) -> bool:
        """Ask the process; a lost one absorbs nothing."""
        return bool(self._answered(False, "absorbs", phase, task, reason, is_lost, is_own))

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget lost output; none if the process is lost. Raises WorkFolderError."""
        try:
            lost = list(self.process.ask("lose", phase, sorted(tasks)).value)
            return [task for task in tasks if task in lost]
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
            self._asked("read_results", limit=self.process.limit)
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
        outputs = self.outputs if self._is_open else ()
        what = self._plain["roots"], outputs, self.job.id
        if self.account is None:
            remove_left(*what)
            return
        with suppress(SlotwiseError):  # The paths are those of a user, so that one removes it.
            process = HostingProcess(self.job.id, account=self.account)
            try:
                process.ask("remove_left", *what)
            finally:
                process.end()


def remove_left(roots: Sequence[str], outputs: Sequence[str], job: str) -> None:
    """Remove what the process of a job has left in folders for files, and for outputs."""
    from slotwise.jobs.commit import Layout, OutputDirectory
    from slotwise.jobs.work_folder import sweep, work_folder_name

    for root in roots:
        with suppress(OSError):
            sweep(str(root))
    for output in outputs:
        layout = Layout(work_folder_name(), output, is_shared=True)
        left = OutputDirectory(layout, True, job, ())
        with suppress(OSError, InputError):
            left.open()
            left.abort()


class DeferredHosted(DeferredExecution):
    """A job that is planned in its process, in a thread, when the jobs before it are over."""

    def __init__(self, process: HostingProcess, described: Any) -> None:
        """`described` is what the process has answered."""
        outputs = tuple(map(str, described["outputs"]))
        super().__init__(decode_job(described["job"]), outputs, self._take)
        if self.job.id != process.job:
            raise ValueError(f"the description is of job {self.job.id!r}")
        self.process, self.account = process, process.account
        self._pool = self.job.pool  # This one is checked.
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
        if self.account is not None and self._found.job.pool != self._pool:
            raise InputError(f"job {self.job.id!r} has another pool when it is planned")
        return self._found


def _tuples(stated: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(n) if isinstance(n, list) else n for name, n in stated.items()}
