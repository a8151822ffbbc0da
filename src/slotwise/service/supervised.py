"""Jobs of commands that outlive the server: each attempt runs under a supervisor.

The worker of a slot asks for the supervisor and waits for its end; it may be killed with the
server. The folder of the service has for each task:

commands/JOB/TASK/record                 see `supervisor.py`
commands/JOB/TASK/RUN-ATTEMPT.out, .err  what attempts print

A record lasts while its attempt runs, or while its end may be unknown to the server. A new
server finds it and attaches to the attempt, once.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple
from urllib.parse import unquote

from slotwise import task as running
from slotwise.backends.attempt_logs import STREAMS, file_name
from slotwise.core.errors import OutputError, SlotwiseError
from slotwise.jobs.command_process import send
from slotwise.jobs.commands import (
    PHASE,
    CommandRunner,
    Commands,
    end_of,
    not_started,
)
from slotwise.jobs.devices import DEVICES
from slotwise.jobs.endings import OomKills, descendants
from slotwise.jobs.execution import LostAttemptError, TaskPlace
from slotwise.jobs.memory import watch
from slotwise.service import supervisor
from slotwise.service.supervisor import ANSWER_SECONDS, MARK, RECORD, line, pidfd_of

SPAWNER = "spawner"
"""The name of the socket of the spawner in the folder of the service."""

COMMANDS = "commands"
"""The name of the folder with the folders of jobs."""

FULL_SECONDS = 1.0
"""The pause until a command is started again for which the disk had no space."""

KILL_SECONDS = 1.0
"""How long a supervisor may take to end when the processes of its command were killed."""


class Spawner:
    """The process from which supervisors are forked. It ends with this one, or by `close`.

    SlotwiseError if it cannot be started.
    """

    def __init__(self, folder: str | Path) -> None:
        """`folder` is that of the service, which no other server uses."""
        self.path = os.path.join(os.path.abspath(folder), SPAWNER)
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self.ensure()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def ensure(self) -> None:
        """Start it again if it has ended. Costs a system call if it has not."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        theirs, self._lifeline = os.pipe()
        # -P: a module in the current folder must not hide one of Python.
        command = [sys.executable, "-P", "-m", supervisor.__name__, self.path, str(theirs)]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C is for the server only.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise SlotwiseError(
                f"the process that starts commands cannot be started: {error.strerror}"
            ) from error
        finally:
            os.close(theirs)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            code = self._process.wait()
            raise SlotwiseError(
                f"the process that starts commands has exited with code {code} before it was"
                f" ready at {self.path}; see its message on stderr"
            )

    def close(self) -> None:
        """End it; what it has started runs on. Idempotent."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._process is not None:
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@dataclass(frozen=True, slots=True)
class Supervision:
    """What all supervised jobs of a run of the server share.

    run   the number of the run, different for each start of the server
    host  the name of the host where commands run
    """

    folder: str
    run: int
    spawner: Spawner
    host: str = "localhost"


# Records.


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """An attempt that was begun; see `supervisor.py`. `begun` is in Unix seconds."""

    pid: int
    start: str
    begun: float
    job: str
    task: int
    run: int
    attempt: int
    out: str
    err: str
    devices: tuple[int, ...] = ()

    @classmethod
    def of(cls, plain: object) -> SupervisorRecord:
        """The record in a file. ValueError if it is not one."""
        if not isinstance(plain, dict):
            raise ValueError("it is not an object")
        try:
            found = cls(**{**plain, "devices": tuple(plain["devices"])})
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None
        numbers = (found.pid, found.task, found.run, found.attempt, *found.devices)
        texts = (found.start, found.job, found.out, found.err)
        if not (
            all(type(one) is int and one >= 0 for one in numbers)
            and all(type(one) is str for one in texts)
            and type(found.begun) is float
        ):
            raise ValueError("a value has another type")
        return found

    @property
    def is_alive(self) -> bool:
        """Whether its supervisor runs."""
        found = pidfd_of(self.pid, self.start)
        if found is not None:
            os.close(found)
        return found is not None


class Exit(NamedTuple):
    """How a command ended: its code, or the error because of which it did not start."""

    code: int
    memory: int
    seconds: float
    stopped: bool
    error: OSError | None = None

    @classmethod
    def of(cls, plain: object) -> Exit:
        """The end in a file. ValueError if it is not one."""
        if isinstance(plain, dict):
            number, code, memory = (plain.get(name) for name in ("error", "code", "memory"))
            stopped, seconds = bool(plain.get("stopped")), plain.get("seconds")
            if type(number) is int:
                error = OSError(number, os.strerror(number), plain.get("place"))
                return cls(0, 0, 0.0, stopped, error)
            if type(code) is type(memory) is int and type(seconds) is float:
                return cls(code, memory, seconds, stopped)
        raise ValueError("it is not the end of a command")


class SupervisedTask(NamedTuple):
    """A task of which there is a record.

    It is lost if the record is damaged, or its supervisor has ended without recording the end;
    `trouble` says why, and there is no record if that is damaged.
    """

    job: str
    task: int
    record: SupervisorRecord | None
    state: Literal["alive", "ended", "lost"]
    ended: Exit | None = None
    trouble: str = ""

    @property
    def seconds(self) -> float:
        """How long it has run."""
        if self.ended is not None:
            return self.ended.seconds
        return 0.0 if self.record is None else max(0.0, time.time() - self.record.begun)


def job_folder(folder: str | Path, job: str) -> str:
    """The folder of a job in the folder of the service."""
    return os.path.join(folder, COMMANDS, file_name(job))


def records(folder: str | Path, job: str) -> list[SupervisedTask]:
    """The tasks of a job whose attempts run, or have ended as no server may know yet."""
    return list(_records(job_folder(folder, job), job))


def left_over(folder: str | Path, known_jobs: Collection[str]) -> list[SupervisedTask]:
    """Such tasks of other jobs than these. Their processes continue."""
    return [found for job in unknown(folder, known_jobs) for found in records(folder, job)]


def unknown(folder: str | Path, known_jobs: Collection[str]) -> list[str]:
    """The other jobs than these that have a folder."""
    known, place = {file_name(job) for job in known_jobs}, os.path.join(folder, COMMANDS)
    names = set(os.listdir(place)) - known if os.path.isdir(place) else ()
    return sorted(map(unquote, names))


def remove(folder: str | Path, job: str) -> None:
    """Remove the folder of a job, with what its attempts printed; end what of it still runs."""
    for found in records(folder, job):
        end(found, os.path.join(job_folder(folder, job), str(found.task)))
    shutil.rmtree(job_folder(folder, job), ignore_errors=True)


def _records(place: str, job: str) -> Iterator[SupervisedTask]:
    names = os.listdir(place) if os.path.isdir(place) else ()
    for task in sorted(int(name) for name in names if name.isdecimal()):
        if (found := task_in(os.path.join(place, str(task)), job, task)) is not None:
            yield found


def task_in(folder: str, job: str, task: int) -> SupervisedTask | None:
    """The task of this folder; None if no attempt of it runs or has ended unknown."""
    place = os.path.join(folder, RECORD)
    record = None
    try:
        text = Path(place).read_bytes()
        if not text:
            return None  # Nothing began.
        first, _, second = text.partition(b"\n")
        record = SupervisorRecord.of(json.loads(first))
        if not second and record.is_alive:
            return SupervisedTask(record.job, task, record, "alive")
        if not second:  # It may have ended meanwhile.
            second = Path(place).read_bytes().partition(b"\n")[2]
        if second:
            return SupervisedTask(
                record.job, task, record, "ended", Exit.of(json.loads(second))
            )
    except FileNotFoundError:
        return None
    except ValueError as error:
        why = f"the record of its attempt ({place}) is damaged: {error}"
        if record is None:
            why += "; if its command still runs, end it by hand"
        return SupervisedTask(job, task, record, "lost", trouble=why)
    why = (
        f"the supervisor of its command (process {record.pid}) has ended without recording how"
        f" that ended ({place}): it was killed, or the machine was restarted"
    )
    return SupervisedTask(record.job, task, record, "lost", trouble=why)


def end(found: SupervisedTask, folder: str) -> None:
    """Kill all processes of an attempt. Returns when its end is recorded.

    That takes some milliseconds; a supervisor that takes longer than `KILL_SECONDS` is killed.
    Its worker has been killed, or waits for it, so it begins nothing else meanwhile.
    """
    record, until = found.record, time.monotonic() + KILL_SECONDS
    if record is None:
        return
    now: SupervisedTask | None = found
    while now is not None and now.state == "alive":  # It may be about to start the command.
        send(descendants(record.pid), signal.SIGKILL)
        if time.monotonic() > until:
            pidfd = pidfd_of(record.pid, record.start)
            if pidfd is not None:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
            break
        time.sleep(0.001)
        now = task_in(folder, found.job, found.task)
    if now is None or now.state != "ended":
        end_orphans(record)


def end_orphans(record: SupervisorRecord) -> None:
    """Kill the processes of an attempt whose supervisor was killed. O(all processes).

    Returns when they have ended, or after `KILL_SECONDS`.
    """
    until = time.monotonic() + KILL_SECONDS
    while (orphans := list(_orphans(record))) and time.monotonic() < until:
        send(orphans, signal.SIGKILL)
        time.sleep(0.001)


def _orphans(record: SupervisorRecord) -> Iterator[int]:
    """The processes with the mark of a supervisor; none of those that have ended."""
    mark = f"{MARK}={record.pid} {record.start}".encode()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    yield int(name)


# In a worker.


@dataclass(frozen=True, slots=True)
class SupervisedRunner:
    """Runs a command under a supervisor, or waits for one that runs, in a worker process.

    It reports memory, passes a stop request on and ends as `CommandRunner` does.
    """

    command: CommandRunner
    spawner: str
    run: int

    def __call__(
        self,
        task: int,
        attempt: int,
        folder: str,
        files: tuple[str, str],
        found: SupervisorRecord | None,
        trouble: str,
    ) -> None:
        """Wait for the end of the attempt `found`, or else of a new one.

        While the disk of the service is full, the attempt waits: nothing has begun yet.
        LostAttemptError if there is `trouble`, or the supervisor does not start, or is killed.
        """
        running.report_memory(0)  # From now on, this process itself does not count.
        kills = OomKills()
        if trouble:
            raise LostAttemptError(trouble)
        while True:
            record = found or self._begin(task, attempt, folder, files)
            self._await(record, None if found else SupervisorLink.of(self.spawner))
            now = task_in(folder, self.command.job, task)
            if now is None or now.ended is None:
                why = now.trouble if now else f"its record in {folder} is missing"
                raise LostAttemptError(why)
            if not (now.ended.error and _waits_for_space(now.ended.error, files)):
                break
            found = None
        self._check(now.ended, files, kills)

    def _await(self, record: SupervisorRecord, link: SupervisorLink | None) -> None:
        """Wait for the end of a command, by the link of this worker to its supervisor.

        Without one, the worker of the supervisor has gone: that ends with its command.
        """
        pidfd = pidfd_of(record.pid, record.start)
        if pidfd is None:
            if link is not None:
                link.end()
            return
        memory = lambda: descendants(record.pid), running.report_memory
        try:
            running.on_stop_request(lambda _: _ask_to_stop(pidfd))
            if link is not None:
                watch(link.fileno(), *memory)
            if link is None or not link.end():
                watch(pidfd, *memory)
        finally:
            running.on_stop_request(None)
            os.close(pidfd)

    def _check(self, ended: Exit, files: tuple[str, str], kills: OomKills) -> None:
        """End the task as its command has ended."""
        running.report_memory(ended.memory, is_over=True)
        if ended.error is not None:
            place = ended.error.filename
            if place in files:
                raise OutputError.of(place, ended.error)
            raise not_started(ended.error)
        if ended.code and ended.stopped and not running.stop_requested():
            raise LostAttemptError("its supervisor was asked to stop, not by this run")
        said = ""
        if ended.code:
            with suppress(OSError), open(files[1], "rb") as err:
                said = end_of(err)
        self.command.check(ended.code, said, kills)

    def _begin(
        self, task: int, attempt: int, folder: str, files: tuple[str, str]
    ) -> SupervisorRecord:
        """Have a supervisor start the command."""
        command, cwd, environment = self.command.parts(task, attempt)
        devices = environment.get(DEVICES, "")
        request: dict[str, Any] = {
            "folder": folder,
            "job": self.command.job,
            "task": task,
            "run": self.run,
            "attempt": attempt,
            **dict(zip(STREAMS, files, strict=True)),
            "devices": [int(number) for number in devices.split(",") if number],
            "command": command,
            "cwd": cwd,
            "environment": environment,
        }
        while True:
            try:
                plain = SupervisorLink.of(self.spawner).begin(request)
            except (OSError, ValueError) as error:
                raise LostAttemptError(
                    f"its supervisor did not start ({self.spawner}): {error}"
                ) from error
            if "error" not in plain:
                return SupervisorRecord.of(plain)
            why = OSError(plain["error"], os.strerror(plain["error"]), plain["place"])
            if not _waits_for_space(why, (why.filename,)):
                raise OutputError.of(str(plain["place"]), why)


def _waits_for_space(error: OSError, files: Collection[str]) -> bool:
    """Whether a command did not start because one of these files had no space on its disk.

    Then this waits for some time, so that it is tried again without using up an attempt.
    """
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename in files
    if is_full and not running.stop_requested():
        time.sleep(FULL_SECONDS)
        return True
    return False


class SupervisorLink:
    """The connection of a worker to its supervisor, made again when that was lost."""

    _only: SupervisorLink | None = None

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel: socket.socket | None = None
        self._answers: BinaryIO | None = None

    @classmethod
    def of(cls, path: str) -> SupervisorLink:
        """The link of this process. A forked child makes one of its own."""
        if cls._only is None or cls._only._path != path:
            if cls._only is not None:
                cls._only.close()
            cls._only = cls(path)
            os.register_at_fork(after_in_child=cls._only.close)
        return cls._only

    def fileno(self) -> int:
        """The descriptor that can be read when the command has ended."""
        return -1 if self._channel is None else self._channel.fileno()

    def begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request, whose command has begun unless that is an error.

        Raises OSError or ValueError; then it has not begun.
        """
        text = line(request)
        with suppress(OSError, ValueError):  # It was killed since the last command.
            if self._channel is not None:
                return self._ask(text)
        self.close()
        folder, name = os.path.split(self._path)
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._channel = socket.socket(socket.AF_UNIX)
        try:
            # The whole path may be too long for a socket.
            self._channel.connect(f"/proc/self/fd/{place}/{name}")
            self._answers = self._channel.makefile("rb")
            return self._ask(text)
        except (OSError, ValueError):
            self.close()
            raise
        finally:
            os.close(place)

    def _ask(self, request: bytes) -> dict[str, Any]:
        assert self._channel is not None
        assert self._answers is not None
        self._channel.settimeout(ANSWER_SECONDS)
        self._channel.sendall(request)
        answer = self._answers.readline()
        if not answer.endswith(b"\n"):
            raise ValueError("the connection was closed")
        self._channel.sendall(b"\n")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            self.end()
        return found

    def end(self) -> bool:
        """Take the line after the end of a command; if it does not come, drop the link."""
        with suppress(OSError):
            if self._answers is not None and self._answers.readline():
                return True
        self.close()
        return False

    def close(self) -> None:
        """End the connection. Idempotent."""
        for one in (self._answers, self._channel):
            if one is not None:
                one.close()
        self._channel = self._answers = None


def _ask_to_stop(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)


# In the server.


class SupervisedCommands(Commands):
    """A planned job of commands whose attempts run under supervisors.

    Attempts of an earlier run of the server that run, or have ended since, are attached to.
    Output is copied to its staging folder at the end only, so that a new server finds it.
    """

    def __init__(self, planned: Commands, supervision: Supervision) -> None:
        """`planned` is not open yet, and not used any more."""
        vars(self).update(vars(planned))
        self._by = supervision
        self._leaves = False
        self._code: int | None = None
        self._folder = job_folder(supervision.folder, self.job.id)
        # The attempt of each task that may run, and the run and the attempt in its record.
        self._begun: dict[int, tuple[int, tuple[int, int]]] = {}
        self._paths: dict[tuple[int, int], tuple[str, str]] = {}  # Of attempts found.
        self._before: dict[int, float] = {}
        self._found: dict[int, SupervisedTask] = {}
        done = set(self.done_before.get(PHASE, ()))
        for found in records(supervision.folder, self.job.id):
            record, task = found.record, found.task
            if task not in done and task < self._command.tasks:
                self._found[task] = found
            elif record is not None:
                self._winners[task], self._paths[task, 0] = 0, (record.out, record.err)
        alive_first = sorted(self._found.values(), key=lambda one: one.state != "alive")
        places = {
            one.task: TaskPlace(supervision.host, one.record.devices, one.seconds)
            for one in alive_first
            if one.record is not None and one.state != "lost"
        }
        self.adopted = {PHASE: places} if places else {}
        self._supervise()

    def _supervise(self) -> None:
        if isinstance(self.runner, CommandRunner):
            self.runner = SupervisedRunner(self.runner, self._by.spawner.path, self._by.run)

    @property
    def code(self) -> int | None:
        """The exit code of the attempt that failed last; None if none has."""
        return self._code

    def leave(self) -> None:
        """From now on the supervisors are left alone: the server ends, and they run on."""
        self._leaves = True

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return those of `SupervisedRunner`; an attempt that was found is attached to once."""
        found = self._found.get(task)
        if found is None:
            super().arguments(phase, task, attempt)  # It has what it needs.
            self._by.spawner.ensure()
        else:
            self._open()
            self._read_results()
        self._supervise()
        folder = os.path.join(self._folder, str(task))
        record, trouble, self._before[task] = None, "", 0.0
        self._begun[task] = attempt, (self._by.run, attempt)
        if found is None:
            os.makedirs(folder, 0o700, exist_ok=True)
        elif (record := found.record) is None:
            trouble = found.trouble
        else:
            self._begun[task] = attempt, (record.run, record.attempt)
            self._paths[task, attempt] = record.out, record.err
            if record.is_alive:  # One that has ended meets no limit any more.
                self._before[task] = found.seconds
        self._found.pop(task, None)
        return task, attempt, folder, self.output_files(phase, task, attempt), record, trouble

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Return the files of an attempt in the folder of the service."""
        known = self._paths.get((task, attempt))
        name = os.path.join(self._folder, str(task), f"{self._by.run}-{attempt}")
        return known or tuple(f"{name}.{stream}" for stream in STREAMS)

    def seconds_before(self, phase: str, task: int) -> float:
        """Return those of an attempt that was found and that runs."""
        return self._before.get(task, 0.0)

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Keep the files of the first attempt that finishes."""
        self._begun.pop(task, None)
        super().finished(phase, task, attempt, result)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """End what of an attempt still runs, and forget its record; its output stays."""
        if not self._leaves and self._begun.get(task, (0,))[0] == attempt:
            self._end(task, self._begun.pop(task)[1])

    def close(self, succeeded: bool) -> None:
        """Commit the output, or end what still runs."""
        if succeeded and not self._is_closed and self._is_open:
            for task, attempt in self._winners.items():
                staged = self._staged(task, attempt)
                for source, to in zip(
                    self.output_files(PHASE, task, attempt), staged, strict=True
                ):
                    _copy(source, to)
        elif not succeeded and not self._leaves:
            for task, (_, name) in self._begun.items():
                self._end(task, name)
            for task in self._found:
                self._end(task, None)
            self._begun, self._found = {}, {}
        super().close(succeeded)

    def _end(self, task: int, name: tuple[int, int] | None) -> None:
        """End the attempt in the record of a task, if it has this run and number, or any."""
        folder = os.path.join(self._folder, str(task))
        found = task_in(folder, self.job.id, task)
        if found is None:
            return
        if found.ended is not None and found.ended.code:
            self._code = found.ended.code
        if (record := found.record) is not None:
            if name is not None and (record.run, record.attempt) != name:
                return
            end(found, folder)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, RECORD))


def _copy(source: str, to: str) -> None:
    """Give a file another name, or copy it where that is not possible. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(to)
    try:
        os.link(source, to)
    except OSError:
        shutil.copyfile(source, to)
