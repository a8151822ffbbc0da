"""The records of supervisors: which commands run, and how they ended.

The folder of the service has for each task:

commands/JOB/TASK/record                 see `supervisor.py`
commands/JOB/TASK/RUN-ATTEMPT.out, .err  what attempts print

A record lasts while its attempt runs, or while its end may be unknown to the server. A new
server finds it and attaches to the attempt, once.

Where commands run as accounts of users, these folders belong to root, and nobody else may enter
the folder of the service: no link or pipe in them can be one that a user has made. A record is
written by a supervisor, whose memory only root may change, but it is data of a process of the
user all the same: its values are checked, and files are looked for in its folder only.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import unquote

from slotwise.backends.attempt_logs import file_name
from slotwise.jobs.endings import descendants, owner_of, send_to_own
from slotwise.service.supervision.supervisor import MARK, RECORD, boot, pidfd_of, uptime

COMMANDS = "commands"
"""The name of the folder with the folders of jobs."""

MEMORY_MAX = 1 << 60
"""No command has used as many bytes."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The codes of commands that could not be started, as a shell has them."""

KILL_SECONDS = 1.0
"""How long a supervisor may take to end when the processes of its command were killed."""


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """An attempt that was begun; see `supervisor.py`. `begun` is in Unix seconds.

    `uptime` counts from the start of the machine. Older records have no `adopted` or `uptime`.
    """

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
    adopted: int = 0
    uptime: float | None = None

    @classmethod
    def of(cls, plain: object) -> SupervisorRecord:
        """The record in a file. ValueError if it is not one."""
        if not isinstance(plain, dict):
            raise ValueError("it is not an object")
        try:
            found = cls(**{**plain, "devices": tuple(plain["devices"])})
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None
        numbers = (found.pid, found.task, found.run, found.attempt, found.adopted)
        texts = (found.start, found.job, found.out, found.err)
        if not (
            all(type(one) is int and one >= 0 for one in (*numbers, *found.devices))
            and all(type(one) is str for one in texts)
            and type(found.begun) is float
            and isfinite(found.begun)
            and (
                found.uptime is None or (type(found.uptime) is float and isfinite(found.uptime))
            )
        ):
            raise ValueError("a value has another type")
        return found

    @property
    def seconds(self) -> float:
        """Since it began; the clock may have been set meanwhile."""
        if self.uptime is not None and self.start.partition(" ")[0] == boot():
            return max(0.0, uptime() - self.uptime)
        return max(0.0, time.time() - self.begun)

    @property
    def is_alive(self) -> bool:
        """Whether its supervisor runs."""
        found = pidfd_of(self.pid, self.start)
        if found is not None:
            os.close(found)
        return found is not None


class Exit(NamedTuple):
    """How a command ended: its code, with the error because of which it did not start."""

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
                code = NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE
                return cls(code, 0, 0.0, stopped, error)
            if (
                type(code) is type(memory) is int
                and type(seconds) is float
                and 0 <= memory < MEMORY_MAX
                and 0 <= seconds < inf
            ):
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
        return 0.0 if self.record is None else self.record.seconds


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
    return sorted(map(unquote, folders(folder) - {file_name(job) for job in known_jobs}))


def folders(folder: str | Path) -> set[str]:
    """The names of the folders of jobs, as `file_name` makes them."""
    place = os.path.join(folder, COMMANDS)
    return set(os.listdir(place)) if os.path.isdir(place) else set()


def remove(folder: str | Path, job: str) -> None:
    """Remove the folder of a job, with what its attempts printed; end what of it still runs."""
    for found in records(folder, job):
        end(found, os.path.join(job_folder(folder, job), str(found.task)))
    shutil.rmtree(job_folder(folder, job), ignore_errors=True)


def remove_unused(place: str) -> None:
    """Remove the folder of a job, unless an attempt has begun, so that it has some."""
    with suppress(OSError):
        os.rmdir(place)


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
        record = _of_task(SupervisorRecord.of(json.loads(first)), folder, job, task)
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


def _of_task(record: SupervisorRecord, folder: str, job: str, task: int) -> SupervisorRecord:
    """The record, with the paths of files in this folder. ValueError for another task."""
    if (file_name(record.job), record.task) != (file_name(job), task):  # It may be cut.
        raise ValueError(f"it is of task {record.task} of job {record.job!r}")
    out, err = (os.path.join(folder, os.path.basename(one)) for one in (record.out, record.err))
    return replace(record, out=out, err=err)


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
        pids = descendants(record.pid)
        if (owner := owner_of(record.pid)) is not None:
            send_to_own(pids, signal.SIGKILL, owner or None)  # Those of root may be of others.
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
    while _kill_orphans(record) and time.monotonic() < until:
        time.sleep(0.001)


def _kill_orphans(record: SupervisorRecord) -> bool:
    """Kill the processes with the mark of a supervisor; whether there are any.

    They do not include those that have ended.
    """
    mark, is_any = f"{MARK}={record.pid} {record.start}".encode(), False
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            pidfd = os.pidfd_open(int(name))  # Another process may have its number later.
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    is_any = True
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)
    return is_any
