"""Run several functions at the same time: one in this process, the others in forked children.

The children are in the process group of this worker process, so they die with it at any moment.
All of them have ended when `run_together` returns or raises.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NamedTuple, NoReturn

from slotwise import task
from slotwise.core.errors import InputChanged, SlotwiseError
from slotwise.core.tracebacks import format_traceback
from slotwise.jobs.channels.carriers import BrokenChannelError
from slotwise.jobs.endings import descendants, signalled
from slotwise.jobs.execution import LostAttemptError, LostInputError

CAUSE_SECONDS = 2.0
"""How long to wait, after a channel broke, for the process that broke it to end."""

Body = Callable[[], object]


def run_together(bodies: Mapping[str, Body]) -> list[object]:
    """Call the first function in this process and the others in children; return their results.

    Results must be picklable. If a function fails or its process ends without a result, the
    others are killed and the first cause is raised: unchanged if raised in this process or a
    LostInputError, as a LostAttemptError if a process ended, as an InputChanged, otherwise as a
    SlotwiseError; or as a BrokenChannelError if the cause is outside of the functions. In
    children, functions of `slotwise.task` have no effect.
    """
    (_, first), *others = bodies.items()
    children = _Children()
    before = signal.signal(signal.SIGCHLD, children.on_signal)
    try:
        for name, body in others:
            children.fork(name, body)
        try:
            children.is_interrupting = True
            children.on_signal(signal.SIGCHLD, None)  # For children that have already ended.
            value = first()
            return [value, *children.results()]
        finally:
            children.is_interrupting = False
    except task.Stopped:
        raise
    except BaseException as error:
        is_cause = not isinstance(error, BrokenChannelError)
        raise children.cause(Failure(is_cause, time.monotonic(), error)) from None
    finally:
        children.is_interrupting = False
        children.kill()
        signal.signal(signal.SIGCHLD, before)


class Failure(NamedTuple):
    """A failure of a function; it is not the cause if another process broke a channel."""

    is_cause: bool
    at: float
    error: BaseException


@dataclass(slots=True)
class _Child:
    """A forked process. `file`, in memory, gets the result or failure of its function."""

    name: str
    pid: int
    pidfd: int
    file: int
    has_ended: bool = False
    failure: Failure | None = None
    value: object = None


class _Children:
    """The children of one call. If `is_interrupting`, a failed one interrupts this process."""

    def __init__(self) -> None:
        self._all: list[_Child] = []
        self.is_interrupting = False

    def fork(self, name: str, body: Body) -> None:
        """Call a function in a new child."""
        file = os.memfd_create("slotwise", os.MFD_CLOEXEC)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # Otherwise the child would write the buffer, too.
        pid = os.fork()
        if not pid:
            _serve(body, file)
        self._all.append(_Child(name, pid, os.pidfd_open(pid), file))

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGCHLD: raise BrokenChannelError if a child has failed."""
        if self.is_interrupting:
            failed = [one.failure for one in self._all if _poll(one) and one.failure]
            if failed:
                raise BrokenChannelError(str(failed[0].error))

    def results(self) -> list[object]:
        """Wait for all results. Raises BrokenChannelError if a function fails."""
        self.is_interrupting = False
        while True:
            if failed := [one.failure for one in self._all if _poll(one) and one.failure]:
                raise BrokenChannelError(str(failed[0].error))
            if not self._wait(None):
                return [one.value for one in self._all]

    def cause(self, own: Failure) -> BaseException:
        """Return the first cause of the failures, including that of this process."""
        until = time.monotonic() + CAUSE_SECONDS
        while True:
            seen = [one.failure for one in self._all if _poll(one) and one.failure]
            failures = sorted([own, *seen], key=lambda one: (not one.is_cause, one.at))
            left = until - time.monotonic()
            if failures[0].is_cause or left <= 0 or not self._wait(left):
                break
        found = failures[0]
        return found.error if found.is_cause else BrokenChannelError(str(found.error))

    def kill(self) -> None:
        """Kill all children and their descendants, and wait until the children have ended."""
        for child in self._all:
            if not _poll(child):
                _kill((*descendants(child.pid), child.pid))
        for child in self._all:
            if not child.has_ended:
                with suppress(ChildProcessError):
                    os.waitpid(child.pid, 0)
            os.close(child.pidfd)
            os.close(child.file)
        self._all = []

    def _wait(self, timeout: float | None) -> bool:
        """Wait until a child ends; return False if all have ended."""
        poll = select.poll()
        running = [child for child in self._all if not child.has_ended]
        for child in running:
            poll.register(child.pidfd, select.POLLIN)
        if running:
            poll.poll(None if timeout is None else timeout * 1000)
        return bool(running)


def _poll(child: _Child) -> bool:
    """Return whether a child has ended; if so, read its result or failure."""
    if child.has_ended:
        return True
    try:
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG)
        if ended is None:
            return False
        is_exit = ended.si_code == os.CLD_EXITED
        how = f"exited with code {ended.si_status}" if is_exit else signalled(ended.si_status)
    except ChildProcessError:  # User code has waited for all children.
        how = "has ended"
    child.has_ended = True
    data = os.pread(child.file, os.fstat(child.file).st_size, 0)
    try:
        outcome = pickle.loads(data)
    except Exception:  # The data is incomplete: the process was killed.
        reason = f"{child.name}: its process {child.pid} {how} before its function returned"
        outcome = Failure(True, time.monotonic(), LostAttemptError(reason))
    if isinstance(outcome, Failure):
        child.failure = outcome
    else:
        (child.value,) = outcome
    return True


def _serve(body: Body, file: int) -> NoReturn:
    """Call a function in a child, write its outcome to a file, and exit."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        task.end()
        outcome = _outcome(body)
        code = int(isinstance(outcome, Failure))
        data = memoryview(pickle.dumps(outcome, protocol=5))
        while data:
            data = data[os.write(file, data) :]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        try:
            _kill(descendants(os.getpid()))  # Later they have another parent.
        finally:
            os._exit(code)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _outcome(body: Body) -> Failure | tuple[object]:
    try:
        return (body(),)
    except LostInputError as error:
        # Without its cause, which tblib would pickle, and which the parent may not unpickle.
        return Failure(True, time.monotonic(), LostInputError(*error.args))
    except BrokenChannelError as error:
        return Failure(False, time.monotonic(), SlotwiseError(error.reason))
    except BaseException as error:
        at = time.monotonic()
        kind = InputChanged if type(error) is InputChanged else SlotwiseError
        return Failure(True, at, kind(format_traceback(error)))
