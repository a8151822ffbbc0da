"""The processes of one command: their start, and the end of all of them.

For the worker that runs a command, and for its supervisor in the service. This module imports
little: the process from which supervisors are forked has only this.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from slotwise.jobs.endings import children, descendants

ENDING_SECONDS = 5.0
"""How long a task waits for processes that it has killed to end, and how long a command may
take to end after the SIGTERM at its time limit."""

CLEANUP_SECONDS = 1.0
"""How long what a stopped command starts to clean up is not asked to stop."""

SET_CHILD_SUBREAPER = 36
"""The prctl operation that makes a process adopt its orphaned descendants."""

_prctl = ctypes.CDLL(None).prctl


class StartedProcesses:
    """The processes that were started within `adopting`."""

    def __init__(self) -> None:
        self._before = frozenset(children(os.getpid()))
        self._asked: dict[int, str] = {}
        self._seen: dict[int, float] = {}  # When others were seen first.

    def pids(self) -> list[int]:
        """Their numbers, also of those that left the process group or lost their parents."""
        mine = [pid for pid in children(os.getpid()) if pid not in self._before]
        return [*mine, *(pid for one in mine for pid in descendants(one))]

    def ask_to_stop(self) -> None:
        """Send SIGTERM to all, and at later calls again to those that began a program since.

        A process that has just been forked by a shell may lose it when it begins its program.
        Those that are seen later get it only after `CLEANUP_SECONDS`: they may clean up after
        the first one, or have been forked just before it.
        """
        is_first, now = not self._asked, time.monotonic()
        for pid in self.pids():
            is_new = not is_first and pid not in self._asked
            if is_new and now < self._seen.setdefault(pid, now) + CLEANUP_SECONDS:
                continue
            program = ""
            with suppress(OSError):
                program = os.readlink(f"/proc/{pid}/exe")
            if self._asked.get(pid) != program:
                self._asked[pid] = program
                send([pid], signal.SIGTERM)


@contextmanager
def adopting(stops: Callable[[], bool]) -> Iterator[StartedProcesses]:
    """Within it, descendants that lose their parents become children of this process.

    It gives the processes that were started within it. At the end it waits for them; it kills
    them unless `stops` says that they were asked to stop. Meanwhile no signal is blocked, and
    the exit codes of children are known.
    """
    started = StartedProcesses()
    handles = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # An earlier call may ignore it.
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    try:
        yield started
    finally:
        _end_rest(started, stops)
        _prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGCHLD, handles)


def start(
    command: str | Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    files: Sequence[BinaryIO | int],
) -> subprocess.Popen[bytes]:
    """Start a command: a list without a shell, a string with /bin/sh -c. Raises OSError.

    `files` take its stdout and stderr; without any, it writes to those of this process.
    """
    out, err = files or (None, None)
    return subprocess.Popen(
        command,
        shell=isinstance(command, str),
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
    )


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _end_rest(started: StartedProcesses, stops: Callable[[], bool]) -> None:
    """Wait for processes that outlive the command; kill them unless a stop was requested."""
    until, pause = time.monotonic() + ENDING_SECONDS, 0.001
    while rest := started.pids():
        if stops():
            started.ask_to_stop()
        else:
            send(rest, signal.SIGKILL)
            if time.monotonic() > until:
                return
        for pid in rest:
            with suppress(ChildProcessError):  # This process has not adopted it yet.
                os.waitpid(pid, os.WNOHANG)
        time.sleep(pause)
        pause = min(0.05, 1.1 * pause)
