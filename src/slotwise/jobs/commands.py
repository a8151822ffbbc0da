"""Commands as jobs: each task runs the same command, with its number in the environment."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from zlib import crc32

from slotwise import task as running
from slotwise.core.errors import (
    MAX_EXIT_CODE,
    MAX_NUMBER,
    InputChanged,
    InputError,
    NotRetriedError,
    OutputError,
    SlotwiseError,
    check_encodable,
    check_path,
    check_range,
    shown,
)
from slotwise.core.job import MAX_COMMANDS, Job, Phase, Sizes, Tasks
from slotwise.core.rates import COMMAND_MARK
from slotwise.core.resources import requested
from slotwise.jobs.command_process import ENDING_SECONDS, StartedProcesses, adopting, start
from slotwise.jobs.commit import Layout, OutputDirectory, check_output, place_of
from slotwise.jobs.devices import given_variables
from slotwise.jobs.endings import UNKNOWN_CODE, OomKills, signalled
from slotwise.jobs.execution import Execution
from slotwise.jobs.hosts.sockets import shares_files
from slotwise.jobs.memory import reset_peak, wait_for_end
from slotwise.jobs.work_folder import work_folder_name
from slotwise.task import SPEED_VARIABLE

PHASE = "command"
"""The name of the only phase of a job of commands."""

FILES = ("out", "err")
"""The output files of a task: task-00000.out has its stdout, task-00000.err its stderr."""

MAX_SHOWN = 500
"""The maximum number of characters of a command in a message."""

TAIL_BYTES, TAIL_LINES = 4000, 10
"""The maximum size of the end of stderr in the message about a failed command."""

SHELL_SIGNAL = 128
"""A shell exits with this code plus the number of the signal that has ended its command."""

KILLED = (-signal.SIGKILL, SHELL_SIGNAL + signal.SIGKILL)
"""The exit codes of a command that SIGKILL has ended, or of a shell that reports it."""

ONE_CORE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Default environment variables of tasks. A slot is one core; without these, numpy in each task
would start a thread per core."""

HASH_SEED = "PYTHONHASHSEED"
"""The variable that is set for workers and not for commands."""


TASK = re.compile(r"\{\{task\}\}|\{task\}")
"""The number of the task in a word of a command; {{task}} stands for the text {task}."""

IN_SHELL = re.compile(r"(?<![{$\\])\{task\}")
"""The number of the task where it is not replaced, except for the variable `${task}`."""


@dataclass(frozen=True, slots=True)
class ResultOf:
    """A word of a command that is known when the jobs before it are done.

    job  the id of the job whose result it is, where a server reads it
    """

    read: Callable[[], object]
    job: str = ""


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs a command in a worker process: a list without a shell, a string with /bin/sh -c.

    In the words of a list, {task} is replaced by the number of the task.

    The command is in the process group of its worker, which is killed with the slot and with
    the manager. It starts with default signal handlers and no signal blocked; only a SIGHUP
    that `slotwise` was started to ignore stays ignored.

    environ  the environment of this machine; on another host, the command gets the environment
             of the agent
    env      additional variables
    no_retry the exit codes after which no further attempt is made
    first    what the first task has as its number; the others follow
    """

    job: str
    command: str | tuple[str | ResultOf, ...]
    tasks: int
    cwd: str
    environ: Mapping[str, str]
    env: Mapping[str, str]
    no_retry: frozenset[int] = frozenset()
    first: int = 0
    is_plain: ClassVar[bool] = True  # Its pickle needs no code that a worker has not.

    def __call__(self, task: int, attempt: int, files: tuple[str, str] | None) -> None:
        """Run the command to its end. Raises SlotwiseError unless it exits with 0.

        After an exit code of `no_retry` that is a NotRetriedError.

        `files` are the paths for stdout and stderr. Without them the command writes to those of
        the worker.
        If the task is asked to stop, all processes of the command get SIGTERM, and the task
        ends when they have ended. Otherwise, processes that outlive the command are killed.
        """
        running.report_memory(0)  # From now on, this process itself does not count.
        kills = OomKills()
        with adopting(running.stop_requested) as started, ExitStack() as stack:
            opened = [stack.enter_context(opened_for_output(path)) for path in files or ()]
            code = self._run(task, attempt, opened, started)
            said = end_of(opened[1]) if code and opened else ""
        self.check(code, said, kills)

    def check(self, code: int, said: str, kills: OomKills) -> None:
        """End the task after its command. Raises SlotwiseError unless that exited with 0.

        `said` are the last lines of its stderr, or empty; `kills` was made before it began.
        """
        if code and running.stop_requested():
            running.stop()
        if code:
            kind = NotRetriedError if code in self.no_retry else SlotwiseError
            hint = kills.hint() if code in KILLED else ""
            raise kind(f"{said}the command {_ended(code)}{hint}")

    def parts(self, task: int, attempt: int) -> tuple[str | list[str], str, dict[str, str]]:
        """The command, its folder and its environment for an attempt, in this worker."""
        number = task + self.first
        numbers = {"JOB": self.job, "TASK": number, "TASKS": self.tasks, "ATTEMPT": attempt}
        stated = {f"SLOTWISE_{name}": str(value) for name, value in numbers.items()}
        command = self.command if isinstance(self.command, str) else self._words(number)
        return command, self.cwd, {**self._environment(), **self.env, **stated}

    def _run(
        self,
        task: int,
        attempt: int,
        opened: Sequence[BinaryIO],
        started: StartedProcesses,
    ) -> int:
        reset_peak()
        try:
            process = start(*self.parts(task, attempt), opened)
        except OSError as error:
            raise not_started(error) from error
        running.on_stop_request(lambda _: started.ask_to_stop())
        try:
            status, largest = wait_for_end(process.pid, started.pids, running.report_memory)
        except ChildProcessError as error:  # Popen would report exit code 0.
            raise SlotwiseError(
                f"the command ended, but its exit code is unknown: {UNKNOWN_CODE}"
            ) from error
        running.report_memory(largest, is_over=True)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode

    def _words(self, task: int) -> list[str]:
        number = {"{task}": str(task), "{{task}}": "{task}"}
        words = [word for word in self.command if isinstance(word, str)]
        return [TASK.sub(lambda found: number[found[0]], word) for word in words]

    def with_results(self) -> CommandRunner:
        """The same runner, with the results of other jobs as words."""
        if isinstance(self.command, str):
            return self
        words = [str(one.read()) if isinstance(one, ResultOf) else one for one in self.command]
        return replace(self, command=tuple(words))

    def _environment(self) -> dict[str, str]:
        """Return the environment of `slotwise`, without changes by workers or earlier calls."""
        if shares_files():
            speed = {SPEED_VARIABLE: os.environ.get(SPEED_VARIABLE, "1")}
            return {**ONE_CORE, **self.environ, **speed, **given_variables(os.environ)}
        seed = {HASH_SEED: self.environ[HASH_SEED]} if HASH_SEED in self.environ else {}
        return {n: value for n, value in os.environ.items() if n != HASH_SEED} | seed


class Commands(Execution):
    """The execution of a command; created by `plan_commands`.

    The files of stdout and stderr appear in the output only if all tasks succeed. They come
    from the attempts that succeeded. Without an output the job itself has no files.
    """

    is_shown = False
    ending_seconds = ENDING_SECONDS

    def __init__(
        self,
        job: Job,
        runner: CommandRunner,
        output: str | None,
        *,
        overwrite: bool = False,
        done: Sequence[int] = (),
        inputs: Callable[[], object] | None = None,
        waits: bool = False,
    ) -> None:
        """`inputs` raises InputError if some are missing; others write them if it `waits`."""
        self.job = job
        self._find_inputs, self._waits = inputs, waits
        self.done_before = {PHASE: tuple(done)} if done else {}
        self.runner: Callable[..., object] = runner
        self._command = runner
        self._lacks_results = any(isinstance(word, ResultOf) for word in runner.command)
        self._layout = self._output = None
        if output is not None:
            self._layout = Layout(work_folder_name(), output, is_shared=True)
            names = [_name(task, file) for task in range(runner.tasks) for file in FILES]
            self._output = OutputDirectory(self._layout, overwrite, job.id, names)
        self._winners: dict[int, int] = {}
        self._is_open = self._is_closed = False

    @property
    def output(self) -> str:
        """The directory of the output; empty if nothing is kept."""
        return "" if self._layout is None else self._layout.output

    @property
    def program(self) -> str:
        """The name of the command in other runs: its words, without job and variables."""
        command = self._command.command
        if isinstance(command, str):
            text = command
        else:
            text = shlex.join(word if isinstance(word, str) else "..." for word in command)
        if len(text) > MAX_SHOWN:
            text = f"{text[:MAX_SHOWN]}... ({crc32(text.encode()):08x})"
        return f"{COMMAND_MARK}{text}"

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """1 for each task: what is learned is the time of a task."""
        return {PHASE: 1}

    def take_words(self, words: Mapping[int, ResultOf]) -> None:
        """Replace words of the command, by number, that are not known yet."""
        command = self._command.command
        if words and not isinstance(command, str):
            given = tuple(words.get(number, word) for number, word in enumerate(command))
            self.runner = self._command = replace(self._command, command=given)
        self._lacks_results = bool(words)

    def open(self) -> None:
        """Lock the output. Raises InputError if it is in use or the command cannot start.

        Inputs that a job before it may write are examined when the first task begins.
        """
        runner = self._command
        if not os.path.isdir(runner.cwd):
            raise InputError(
                f"job {self.job.id!r}: cwd {runner.cwd!r} is not a folder; name a folder"
            )
        if not isinstance(runner.command, str) and not _is_found(runner):
            program, why = str(runner.command[0]), "not found; check its name and the PATH"
            if "/" in program and os.path.isfile(os.path.join(runner.cwd, program)):
                why = "is not executable; `chmod +x` it, or name its interpreter first"
            raise InputError(f"job {self.job.id!r}: program {program!r} {why}")
        if not self._waits:
            self._check_inputs()
        with suppress(OSError):  # It is retried when the first task begins.
            self._open()

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return task, attempt, and the paths for stdout and stderr, or None."""
        self._open()
        try:
            self._check_inputs()
        except InputError as error:
            raise InputChanged(str(error)) from None
        self._read_results()
        return (task, attempt, self.output_files(phase, task, attempt) or None)

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Return the files that become part of the output if the attempt succeeds."""
        return self._staged(task, attempt)

    def describe(self, phase: str, task: int) -> str:
        """Return the task and its command, for messages."""
        command = self._command.command
        if not isinstance(command, str):
            command = " ".join(word if isinstance(word, str) else "..." for word in command)
        text = command
        if len(text) > MAX_SHOWN:
            text = f"{text[:MAX_SHOWN]} ..."
        return f"task {task} of job {self.job.id} ({text})"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Keep the files of the first attempt that finishes."""
        if self._winners.setdefault(task, attempt) != attempt:
            self.discard(phase, task, attempt)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of an attempt, unless it won and the job is still open."""
        if self._output is None:
            return
        if self._is_open and (self._is_closed or self._winners.get(task) != attempt):
            for path in self._staged(task, attempt):
                self._output.discard(path)

    def close(self, succeeded: bool) -> None:
        """Move the files into place, or remove everything that the job created."""
        if self._is_closed or not self._is_open or self._output is None:
            return
        if succeeded:
            self._output.commit(
                {
                    _name(task, file): path
                    for task, attempt in self._winners.items()
                    for file, path in zip(FILES, self._staged(task, attempt), strict=True)
                }
            )
        self._is_closed = True
        if not succeeded:
            self._output.abort()

    def _check_inputs(self) -> None:
        """Raise InputError unless files match the inputs; if they do, only once."""
        if self._find_inputs is not None:
            try:
                self._find_inputs()
            except InputError as error:
                raise InputError(f"job {self.job.id!r}: {error}") from None
            self._find_inputs = None

    def _read_results(self) -> None:
        """Replace the words of the command that are results of other jobs; only once.

        InputChanged for a job without a result.
        """
        if self._lacks_results:
            try:
                self.runner = self._command.with_results()
            except InputError as error:
                raise InputChanged(f"job {self.job.id!r}: {error}") from None
            self._lacks_results = False

    def _open(self) -> None:
        if self._is_open or self._output is None:
            return
        try:
            self._output.open()
        except InputError as error:
            raise InputError(f"job {self.job.id!r}: {error}") from None
        self._is_open = True

    def _staged(self, task: int, attempt: int) -> tuple[str, ...]:
        """The paths of stdout and stderr of an attempt; none without an output."""
        if self._layout is None:
            return ()
        out, err = (f"{self._layout.staging}/{attempt}-{_name(task, file)}" for file in FILES)
        return out, err


def plan_commands(
    job_id: str,
    command: str | Sequence[str | ResultOf],
    output: str | Path | None = None,
    *,
    tasks: int = 1,
    inputs: str | Sequence[str] = (),
    waits: bool = False,
    env: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    work: float | None = None,
    overwrite: bool = False,
    resources: Mapping[str, Any] | None = None,
    slots: int = 1,
    slots_min: int = 0,
    slots_max: int | None = None,
    hosts: Iterable[str] = (),
    no_retry: Sequence[int] = (),
    first_task: int = 0,
    done: Sequence[int] = (),
    base_dir: str | Path | None = None,
    **about: Any,
) -> Commands:
    """Check a job of commands and prepare it to run. Nothing is written yet.

    Without an output, what the commands print is only kept in the folder of the run. A file
    must match each of `inputs`: before the run, or when the job begins if it waits for other
    jobs, or `waits` for other phases. The tasks in `done` do not run.
    Each task takes this number of `slots` of one host.
    `environ` is the environment without `env`, by default that of this process.
    `work` is the estimated work of all tasks together, in seconds. Relative paths, including
    `cwd`, are relative to `base_dir`, which is also the default of `cwd`. `about` holds the
    other fields of the `Job`. Raises InputError for invalid arguments.
    """
    words = command if isinstance(command, str) else tuple(command)
    if not words or not all(isinstance(word, str | ResultOf) for word in words):
        raise InputError(
            f"job {job_id!r}: command is {command!r}; expected a string or a list of strings"
        )
    for word in (words,) if isinstance(words, str) else words:
        if isinstance(word, str):
            if "\0" in word:
                raise InputError(f"job {job_id!r}: the command has a null character; remove it")
            check_encodable(f"job {job_id!r}: the command", word)
    remedy = f"give a whole number >= 1, at most {MAX_COMMANDS}"
    check_range(f"job {job_id!r}: tasks", tasks, 1, MAX_COMMANDS, remedy, whole=True)
    remedy = f"give a whole number >= 0, at most {MAX_NUMBER:g}"
    check_range(f"job {job_id!r}: first_task", first_task, 0, MAX_NUMBER, remedy, whole=True)
    if tasks > 1 and isinstance(words, str) and IN_SHELL.search(words):
        raise InputError(
            f"job {job_id!r}: {{task}} is the number of the task only in a list of words; in a"
            " string, write $SLOTWISE_TASK"
        )
    if work is not None:
        remedy = f"give seconds, a number from 0 to {MAX_NUMBER:g}"
        check_range(f"job {job_id!r}: work", work, 0, MAX_NUMBER, remedy)
    check_path(f"job {job_id!r}: cwd", cwd)
    _check_env(job_id, {} if env is None else env)
    _check_codes(job_id, no_retry)
    place = None
    if output is not None:
        if not str(output) or "://" in str(output):
            raise InputError(
                f"job {job_id!r}: output is {str(output)!r}; name a folder of this machine"
            )
        place = place_of(output, base_dir)
        check_output(place, overwrite)
    each = None if work is None else work / tasks
    phase = Phase(
        PHASE,
        Tasks(tasks, each),
        slots=slots,
        slots_min=slots_min,
        slots_max=slots_max,
        hosts=frozenset(hosts),
        resources=requested(f"job {job_id!r}: resources", resources),
    )
    folder = os.path.abspath(os.path.join(base_dir or ".", cwd or "."))
    runner = CommandRunner(
        job_id,
        words,
        tasks,
        folder,
        dict(os.environ if environ is None else environ),
        dict(env or {}),
        frozenset(no_retry),
        first_task,
    )
    job = Job(job_id, (phase,), **about)
    read = [inputs] if isinstance(inputs, str) else inputs
    if job.after_each:
        read = ()  # Their tasks may write it while this job runs.
    waits = waits or bool(job.predecessors)
    find = None
    if read:
        from slotwise.jobs.formats.files import find_inputs  # Slow to load.

        find = partial(find_inputs, read, base_dir)
    return Commands(
        job, runner, place, overwrite=overwrite, done=done, inputs=find, waits=waits
    )


def _check_env(job_id: str, env: object) -> None:
    """Raise InputError unless `env` is a mapping of strings that an environment can hold."""
    if not isinstance(env, Mapping):
        raise InputError(
            f"job {job_id!r}: env is {shown(env)}; give a mapping of names to strings, such as"
            " {'DEPTH': '8'}"
        )
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InputError(
                f"job {job_id!r}: env has the name {name!r}; expected a non-empty string"
                " without '=' and null characters"
            )
        if not isinstance(value, str) or "\0" in value:
            raise InputError(
                f"job {job_id!r}: env: {name} is {shown(value)}; expected a string without null"
                " characters"
            )
        check_encodable(f"job {job_id!r}: env", f"{name}={value}")


def _check_codes(job_id: str, codes: object) -> None:
    """Raise InputError unless they are exit codes."""
    if not isinstance(codes, list | tuple | set | frozenset | range):
        raise InputError(
            f"job {job_id!r}: no_retry is {shown(codes)}; give a list of exit codes, as in [2]"
        )
    for code in codes:
        remedy = f"give whole numbers from 0 to {MAX_EXIT_CODE}"
        check_range(f"job {job_id!r}: no_retry", code, 0, MAX_EXIT_CODE, remedy, whole=True)


def _name(task: int, file: str) -> str:
    return f"task-{task:05}.{file}"


def _is_found(runner: CommandRunner) -> bool:
    """Return whether the program exists. A path is relative to the folder of the command."""
    program = runner.command[0]
    if isinstance(program, ResultOf):
        return True
    if "/" in program:
        return os.access(os.path.join(runner.cwd, program), os.X_OK)
    path = runner.env.get("PATH", runner.environ.get("PATH"))
    return shutil.which(program, path=path) is not None


def not_started(error: OSError) -> SlotwiseError:
    """The error of an attempt whose command could not be started."""
    return SlotwiseError(
        f"the command cannot be started: {error.strerror} ({error.filename}); check the command"
        " and its cwd"
    )


def _ended(code: int) -> str:
    if code < 0:
        return signalled(-code)
    with suppress(ValueError):
        name = signal.Signals(code - SHELL_SIGNAL).name
        return f"exited with code {code}, as a shell does after {name}"
    return f"exited with code {code}"


def opened_for_output(path: str) -> BinaryIO:
    """The file at a path."""
    try:
        return open(path, "w+b")
    except OSError as error:
        raise OutputError.of(path, error) from error


def end_of(stderr: BinaryIO) -> str:
    """Return the last lines of a file with the stderr of a command, for a message."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - TAIL_BYTES))
    return last_lines(stderr.read())


def last_lines(end: bytes) -> str:
    """Return the last lines of stderr with a heading; empty if there are none."""
    lines = end.decode("utf-8", "replace").rstrip().splitlines()[-TAIL_LINES:]
    return "\n".join(["the last lines of its stderr:", *lines, ""]) if lines else ""
