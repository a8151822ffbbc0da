"""Jobs of commands that outlive the server: each attempt runs under a supervisor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slotwise.backends.attempt_logs import STREAMS
from slotwise.core.errors import NotRetriedError, SlotwiseError
from slotwise.jobs.accounts import Account
from slotwise.jobs.commands import PHASE, CommandRunner, Commands
from slotwise.jobs.execution import TaskPlace
from slotwise.service.planned.hosted import HostedExecution
from slotwise.service.supervision import supervisor
from slotwise.service.supervision.supervised_runner import (
    SupervisedRunner,
    make_task_folder,
)
from slotwise.service.supervision.supervisor import RECORD
from slotwise.service.supervision.supervisor_records import (
    SupervisedTask,
    end,
    job_folder,
    records,
    remove_unused,
    task_in,
)

SPAWNER = "spawner"
"""The name of the socket of the spawner in the folder of the service."""

ADOPTED_MAX = 10
"""The attempts of a task that may be under way when their server ends. If the last one fails,
too, none follows: each server counts attempts from 1 again, so that a command that kills its
server and then fails would begin without end."""

KILLS = (
    "{} attempts of it have failed after the end of their servers, so that no further one"
    " begins; see what it does to the processes of the server, then submit it again"
)
"""Why no further attempt begins."""


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
        try:
            with supervisor.listening(self.path) as listener:
                passed = listener.fileno(), theirs
                # -P: a module in the current folder must not hide one of Python.
                words = ["-P", "-m", supervisor.__name__, self.path, *map(str, passed)]
                self._process = subprocess.Popen(
                    [sys.executable, *words],
                    pass_fds=passed,
                    start_new_session=True,  # Ctrl-C is for the server only.
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                )
        except OSError as error:
            raise SlotwiseError(
                f"the process that starts commands cannot be started at {self.path}:"
                f" {error.strerror}"
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
            with suppress(FileNotFoundError):
                os.unlink(self.path)


@dataclass(frozen=True, slots=True)
class Supervision:
    """What all supervised jobs of a run of the server share.

    run   the number of the run, different for each start of the server
    output_max  the most bytes of stdout and of stderr of a task that are kept
    host  the name of the host where commands run
    """

    folder: str
    run: int
    spawner: Spawner
    output_max: int
    host: str = "localhost"


class SupervisedCommands(Commands):
    """A planned job of commands whose attempts run under supervisors.

    Attempts of an earlier run of the server that run, or have ended since, are attached to.
    Output is copied to its staging folder at the end only, so that a new server finds it.

    If commands run as an account, the server opens no path that its user has named. A process
    of the account has the same job, with its inputs and its output, and does all with these.
    """

    def __init__(
        self,
        planned: Commands,
        supervision: Supervision,
        *,
        is_new: bool,
        owner: Account | None = None,
        hosted: HostedExecution | None = None,
    ) -> None:
        """`planned` is not open yet, and not used any more. A new job has no attempts.

        For the account `owner`, `planned` has neither inputs nor an output: `hosted` has them,
        and is None if there are none. The folder of the job exists then.
        """
        vars(self).update(vars(planned))
        self._by, self._owner, self._hosted = supervision, owner, hosted
        self.account = None  # Its workers are of root: they run nothing of a user.
        self._leaves = False
        self.codes: dict[int, int] = {}  # Those other than 0 of the last attempts, by task.
        self._folder = job_folder(supervision.folder, self.job.id)
        # The attempt of each task that may run, and the run and the attempt in its record.
        self._begun: dict[int, tuple[int, tuple[int, int]]] = {}
        self._paths: dict[tuple[int, int], tuple[str, str]] = {}  # Of attempts found.
        self._before: dict[int, float] = {}
        self._found: dict[int, SupervisedTask] = {}
        self._adopted: dict[int, int] = {}  # The attempts of a task that servers found.
        done = set(self.done_before.get(PHASE, ()))
        for found in () if is_new else records(supervision.folder, self.job.id):
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
            by = self._by
            self.runner = SupervisedRunner(
                self.runner, by.spawner.path, by.run, by.output_max, self._owner
            )

    @property
    def output(self) -> str:
        """The directory of the output; empty if nothing is kept."""
        return super().output if self._hosted is None else self._hosted.output

    def open(self) -> None:
        """Reserve the output. Raises InputError as `Commands` does.

        As an account, that its folder and its program exist is seen at its start only.
        """
        if self._owner is None:
            super().open()
        elif self._hosted is not None:
            self._hosted.open()

    def leave(self) -> None:
        """From now on the supervisors are left alone: the server ends, and they run on."""
        self._leaves = True

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return those of `SupervisedRunner`; an attempt that was found is attached to once."""
        found, adopted = self._found.get(task), self._adopted.get(task, 0)
        if found is None and adopted >= ADOPTED_MAX:
            raise NotRetriedError(KILLS.format(adopted))
        if self._hosted is not None:
            self._hosted.ready_to_run(phase, task, attempt, is_new=found is None)
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
            with suppress(OSError):  # Its worker waits until the disk has space.
                make_task_folder(folder, self._owner)
        elif (record := found.record) is None:
            trouble = found.trouble
        else:
            self._begun[task] = attempt, (record.run, record.attempt)
            self._adopted[task] = record.adopted + 1
            self._paths[task, attempt] = record.out, record.err
            if record.is_alive:  # One that has ended meets no limit any more.
                self._before[task] = found.seconds
        self._found.pop(task, None)
        files = self.output_files(phase, task, attempt)
        return task, attempt, folder, files, record, trouble, adopted

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
        if self._hosted is not None:
            if succeeded:
                for task, attempt in self._winners.items():
                    self._hosted.collect(task, self.output_files(PHASE, task, attempt))
            self._hosted.close(succeeded)
            if not (succeeded or self._leaves):
                remove_unused(self._folder)
        super().close(succeeded)

    def _end(self, task: int, name: tuple[int, int] | None) -> None:
        """End the attempt in the record of a task, if it has this run and number, or any."""
        folder = os.path.join(self._folder, str(task))
        found = task_in(folder, self.job.id, task)
        if found is None:
            return
        if found.ended is not None and found.ended.code:
            self.codes.pop(task, None)  # The latest is at the end.
            self.codes[task] = found.ended.code
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
