"""The runner of supervised commands: a worker asks for a supervisor, and waits for its end.

The worker may be killed with the server; the supervisor and the command continue.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from slotwise import task as running
from slotwise.backends.attempt_logs import STREAMS
from slotwise.core.errors import NotRetriedError, OutputError, SlotwiseError
from slotwise.core.units import size_text
from slotwise.jobs.accounts import Account
from slotwise.jobs.commands import CommandRunner, end_of, not_started
from slotwise.jobs.devices import DEVICES
from slotwise.jobs.endings import OomKills, descendants
from slotwise.jobs.execution import LostAttemptError
from slotwise.jobs.memory import watch
from slotwise.service.supervision.supervisor import ANSWER_SECONDS, RECORD, line, pidfd_of
from slotwise.service.supervision.supervisor_records import Exit, SupervisorRecord, task_in

FULL_SECONDS = 1.0
"""The pause until a command is started again for which the disk had no space."""

NEVER_STARTS = (errno.ENOENT, errno.EACCES, errno.ENOEXEC)
"""The errors of programs that no further attempt can start on the same host."""

DROPPED = "\nslotwise: the task has printed more than {}; the rest was dropped (output_max)\n"
"""The end of a file of output that has reached its limit."""


@dataclass(frozen=True, slots=True)
class SupervisedRunner:
    """Runs a command under a supervisor, or waits for one that runs, in a worker process.

    It reports memory, passes a stop request on and ends as `CommandRunner` does. The command
    runs as the `account`, if there is one; its output belongs to that, in a folder of root.
    Of stdout and of stderr it keeps the first `output_max` bytes, as soon as it looks at them.
    """

    command: CommandRunner
    spawner: str
    run: int
    output_max: int
    account: Account | None = None
    is_plain: ClassVar[bool] = True

    def __call__(
        self,
        task: int,
        attempt: int,
        folder: str,
        files: tuple[str, str],
        found: SupervisorRecord | None,
        trouble: str,
        adopted: int,
    ) -> None:
        """Wait for the end of the attempt `found`, or else of a new one, after `adopted` ones.

        While the disk of the service is full, the attempt waits: nothing has begun yet.
        LostAttemptError if there is `trouble`, or the supervisor does not start, or had ended
        before. One that is killed meanwhile is a failure: its own command can do that.
        """
        running.report_memory(0)  # From now on, this process itself does not count.
        kills = OomKills()
        if trouble:
            raise LostAttemptError(trouble)
        record = found or self._begin(task, attempt, folder, files, adopted)
        has_run = self._await(record, None if found else self._link(), files)
        _limit(files, self.output_max, is_over=True)
        now = task_in(folder, self.command.job, task)
        if now is None or now.ended is None:
            why = now.trouble if now else f"its record in {folder} is missing"
            raise SlotwiseError(why) if has_run else LostAttemptError(why)
        self._check(now.ended, files, kills)

    def _await(
        self, record: SupervisorRecord, link: SupervisorLink | None, files: Sequence[str]
    ) -> bool:
        """Wait for the end of a command, by the link of this worker to its supervisor.

        Whether the supervisor ran when this began.

        Without one, the worker of the supervisor has gone: that ends with its command.
        """
        pidfd = pidfd_of(record.pid, record.start)
        if pidfd is None:
            if link is not None:
                link.end()
            return link is not None

        def report(memory: int) -> None:
            running.report_memory(memory)
            _limit(files, self.output_max)

        memory = lambda: descendants(record.pid), report
        try:
            running.on_stop_request(lambda _: _ask_to_stop(pidfd))
            if link is not None:
                watch(link.fileno(), *memory)
            if link is None or not link.end():
                watch(pidfd, *memory)
        finally:
            running.on_stop_request(None)
            os.close(pidfd)
        return True

    def _check(self, ended: Exit, files: tuple[str, str], kills: OomKills) -> None:
        """End the task as its command has ended."""
        running.report_memory(ended.memory, is_over=True)
        if ended.error is not None:
            error = not_started(ended.error)
            is_program = ended.error.filename != self.command.cwd
            if is_program and ended.error.errno in NEVER_STARTS:
                raise NotRetriedError(str(error))
            raise error
        if ended.code and ended.stopped and not running.stop_requested():
            raise LostAttemptError("its supervisor was asked to stop, not by this run")
        said = ""
        if ended.code:
            with suppress(OSError), open(files[1], "rb") as err:
                said = end_of(err)
        self.command.check(ended.code, said, kills)

    def _link(self) -> SupervisorLink:
        return SupervisorLink.of(self.spawner, self.account)

    def _begin(
        self, task: int, attempt: int, folder: str, files: tuple[str, str], adopted: int
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
            "adopted": adopted,
            "command": command,
            "cwd": cwd,
            "environment": environment,
            "account": self.account,
        }
        places = (os.path.join(folder, RECORD), *files)
        while True:
            with ExitStack() as opened:
                try:
                    make_task_folder(folder, self.account)
                    given = [self._opened(place, opened) for place in places]
                    plain = self._answer(request, given)
                    if "error" not in plain:
                        return SupervisorRecord.of(plain)
                    why = OSError(plain["error"], os.strerror(plain["error"]), plain["place"])
                except OSError as error:
                    why = error
            if not _waits_for_space(why, (*places, folder, *Path(folder).parents)):
                raise OutputError.of(str(why.filename), why)

    def _answer(self, request: Mapping[str, Any], files: Sequence[int]) -> dict[str, Any]:
        """The answer of a supervisor. LostAttemptError if there is none."""
        try:
            return self._link().begin(request, files)
        except (OSError, ValueError) as error:
            raise LostAttemptError(
                f"its supervisor did not start ({self.spawner}): {error}"
            ) from error

    def _opened(self, place: str, opened: ExitStack) -> int:
        """Empty or create a file for the supervisor. Raises OSError.

        A command may open its stdout and stderr by name, as /dev/stderr, so it owns them.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        is_record = os.path.basename(place) == RECORD
        if not is_record:
            flags |= os.O_APPEND  # Else a file that was cut would get its size again.
        is_private = is_record or self.account is not None
        file = os.open(place, flags, 0o600 if is_private else 0o666)
        opened.callback(os.close, file)
        if self.account is not None and not is_record:
            os.fchmod(file, 0o600)  # Its name among the logs may have made it.
            os.fchown(file, self.account.uid, self.account.gid)
        return file


def make_task_folder(folder: str, account: Account | None) -> None:
    """Make the folder of a task. Raises OSError. `collect` opens files below it by name."""
    os.makedirs(folder, 0o700, exist_ok=True)
    if account is not None:
        os.chmod(folder, 0o711)


def _waits_for_space(error: OSError, files: Iterable[str | Path]) -> bool:
    """Whether a command did not start because one of these files had no space on its disk.

    Then this waits for some time, so that it is tried again without using up an attempt.
    """
    is_of_place = str(error.filename) in map(str, files)
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and is_of_place
    if is_full and not running.stop_requested():
        time.sleep(FULL_SECONDS)
        return True
    return False


def _limit(files: Sequence[str], most: int, *, is_over: bool = False) -> None:
    """Drop what is beyond the limit in files of output; at the end, a line says so."""
    for path in files:
        with suppress(OSError):  # Their owner may hold a lease, or the disk be full.
            if os.stat(path).st_size < most:
                continue
            file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                os.ftruncate(file, most)
                if is_over:
                    os.pwrite(file, DROPPED.format(size_text(most)).encode(), most)
            finally:
                os.close(file)


class SupervisorLink:
    """The connection of a worker to its supervisor, made again when that was lost."""

    _only: SupervisorLink | None = None

    def __init__(self, path: str, account: Account | None) -> None:
        self._of = path, account
        self._channel: socket.socket | None = None
        self._answers: BinaryIO | None = None

    @classmethod
    def of(cls, path: str, account: Account | None = None) -> SupervisorLink:
        """The link of this process, for this account. A forked child makes one of its own."""
        if cls._only is None or cls._only._of != (path, account):
            if cls._only is not None:
                cls._only.close()
            cls._only = cls(path, account)
            os.register_at_fork(after_in_child=cls._only.close)
        return cls._only

    def fileno(self) -> int:
        """The descriptor that can be read when the command has ended."""
        return -1 if self._channel is None else self._channel.fileno()

    def begin(self, request: Mapping[str, Any], files: Sequence[int]) -> dict[str, Any]:
        """The answer to a request, whose command has begun unless that is an error.

        Raises OSError or ValueError; then it has not begun.
        """
        text = line(request)
        with suppress(OSError, ValueError):  # It was killed since the last command.
            if self._channel is not None:
                return self._ask(text, files)
        self.close()
        os.truncate(files[0], 0)  # The supervisor that was killed may have begun a record.
        folder, name = os.path.split(self._of[0])
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._channel = socket.socket(socket.AF_UNIX)
        try:
            # The whole path may be too long for a socket.
            self._channel.connect(f"/proc/self/fd/{place}/{name}")
            self._answers = self._channel.makefile("rb")
            return self._ask(text, files)
        except (OSError, ValueError):
            self.close()
            raise
        finally:
            os.close(place)

    def _ask(self, request: bytes, files: Sequence[int]) -> dict[str, Any]:
        assert self._channel is not None
        assert self._answers is not None
        self._channel.settimeout(ANSWER_SECONDS)
        sent = socket.send_fds(self._channel, [request], files)
        self._channel.sendall(request[sent:])
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
