"""The end of a session: by `close`, at the end of its block, or at the end of the program."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from math import inf
from types import TracebackType
from typing import Any, Self

from slotwise.model.event import JobCancelled
from slotwise.programs.execution import Execution
from slotwise.runtime.local.call_files import CallFiles
from slotwise.runtime.signals import HeldInterrupts
from slotwise.sessions.accepting import AcceptsCalls
from slotwise.sessions.claims_of_cores import ClaimOfCores
from slotwise.sessions.futures import Future
from slotwise.sessions.notebook import LiveDisplay, NotebookCells

LOOK_SECONDS = 0.05
"""Seconds between two looks at whether an interrupt has come while `close` waits."""

LEAVE_SECONDS = 1.0
"""Seconds for which `close` still waits when it is interrupted after jobs were cancelled."""


class ClosesItself(AcceptsCalls):
    """The part of a session that ends it."""

    files: CallFiles
    cells: NotebookCells | None
    _claim: ClaimOfCores
    _display: LiveDisplay | None
    _jobs: dict[str, tuple[Future[Any], Execution]]

    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, wait for those that were submitted, and end the workers.

        With `cancels`, jobs that are not over are cancelled first. Ctrl-C cancels them, too; a
        further one ends the wait. Then KeyboardInterrupt is raised. Idempotent.
        """
        with HeldInterrupts() as held:
            self._close(held, cancels=cancels)

    def _close(self, held: HeldInterrupts, *, cancels: bool) -> None:
        with self.lock:
            self._is_closed = True
        if cancels:
            self._cancel_jobs()
        with self.lock:
            self._end_jobs()
        is_cancelled, until = cancels, inf
        while not self._loop.join(LOOK_SECONDS) and time.monotonic() < until:
            if held.count and not is_cancelled:
                is_cancelled = True
                self._cancel_jobs()
            if held.count + cancels >= 2:
                until = min(until, time.monotonic() + LEAVE_SECONDS)
        self._free()

    def _cancel_jobs(self) -> None:
        """Cancel the jobs that are not over."""
        for future in self._pending():
            future.cancel()
        with self.lock:  # Also where no host could run, and so end, a cancelled call.
            for job in list(self._calls):  # The loop removes those that are over.
                self.put(JobCancelled(self._loop.backend.now, job))

    def _free(self) -> None:
        """Remove what the session has put elsewhere."""
        self.files.close()
        if os.getpid() == self._pid:  # A forked child does not own it.
            self._claim.close()
        if self.cells is not None:
            self.cells.close()
        if self._display is not None and self._is_ended:  # Otherwise, nobody would draw it.
            self._display.close()
        _OPEN.discard(self)

    def _pending(self) -> list[Future[Any]]:
        with self.lock:
            jobs = [*self._calls.values()]
            of_calls = [future for calls in jobs for future in list(calls.of_task.values())]
            return [*of_calls, *(future for future, _ in list(self._jobs.values()))]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancels=kind is not None)


def close_at_exit(session: ClosesItself) -> None:
    """Wait for a session if it is still open at the end of the program.

    If that ends by an interrupt, cancel its jobs.
    """
    _OPEN.add(session)
    # Anew, so that it is called before what was registered since: the removal of their files.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


_OPEN: weakref.WeakSet[ClosesItself] = weakref.WeakSet()


def _close_all() -> None:
    try:
        _close_open(cancels=_ends_by_interrupt())
    except KeyboardInterrupt:  # It may have come before interrupts were held back.
        _close_open(cancels=True)
        raise


def _close_open(*, cancels: bool) -> None:
    with HeldInterrupts() as held:
        for session in list(_OPEN):
            session._close(held, cancels=cancels or held.count > 0)


def _ends_by_interrupt() -> bool:
    """Whether a KeyboardInterrupt that nobody has caught ends the program."""
    is_interactive = hasattr(sys, "ps1")  # There, it has only ended a statement.
    return not is_interactive and getattr(sys, "last_type", None) is KeyboardInterrupt
