"""The end of a session: by `close`, at the end of its block, or at the end of the program."""

from __future__ import annotations

import atexit
import sys
import time
import weakref
from functools import partial
from math import inf

from slotwise.runtime.signals import HeldInterrupts
from slotwise.sessions.intake import SessionCore

LOOK_SECONDS = 0.05
"""Seconds between two looks at whether an interrupt has come while `close` waits."""

LEAVE_SECONDS = 1.0
"""Seconds for which `close` still waits when it is interrupted after jobs were cancelled."""


def close(intake: SessionCore, *, cancels: bool) -> None:
    """Accept no more jobs, wait for those that were submitted, and end the workers.

    With `cancels`, or at an interrupt, the jobs that are not over are cancelled first.
    """
    with HeldInterrupts() as held:
        _close(intake, held, cancels=cancels)


def close_at_exit(intake: SessionCore) -> None:
    """Wait for a session if it is still open at the end of the program.

    If that ends by an interrupt, cancel its jobs.
    """
    _OPEN.add(intake)
    # Anew, so that it is called before what was registered since: the removal of their files.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def close_unused(intake: SessionCore) -> None:
    """Let a session to which the program refers no more end when its jobs are over.

    The garbage collector may call it, in any thread and within any operation, so the session is
    closed in another thread.
    """
    if intake.loop.is_local and not intake.is_closed:
        intake.loop.take_step(partial(_accept_no_more, intake))


def _accept_no_more(intake: SessionCore) -> None:
    with intake.lock:
        intake.is_closed = True
        intake.end_jobs()


_OPEN: weakref.WeakSet[SessionCore] = weakref.WeakSet()


def _close(intake: SessionCore, held: HeldInterrupts, *, cancels: bool) -> None:
    if not intake.loop.is_local:
        return  # A forked child owns nothing of it, and a thread may have held the lock.
    with intake.lock:
        intake.is_closed = True
    if cancels:
        intake.cancel_jobs()
    _accept_no_more(intake)
    is_cancelled, until = cancels, inf
    while not intake.loop.join(LOOK_SECONDS) and time.monotonic() < until:
        if held.count and not is_cancelled:
            is_cancelled = True
            intake.cancel_jobs()
        if held.count + cancels >= 2:
            until = min(until, time.monotonic() + LEAVE_SECONDS)
    intake.free()
    _OPEN.discard(intake)


def _close_all() -> None:
    try:
        _close_open(cancels=_ends_by_interrupt())
    except KeyboardInterrupt:  # It may have come before interrupts were held back.
        _close_open(cancels=True)
        raise


def _close_open(*, cancels: bool) -> None:
    with HeldInterrupts() as held:
        for intake in list(_OPEN):
            _close(intake, held, cancels=cancels or held.count > 0)


def _ends_by_interrupt() -> bool:
    """Whether a KeyboardInterrupt that nobody has caught ends the program."""
    is_interactive = hasattr(sys, "ps1")  # There, it has only ended a statement.
    return not is_interactive and getattr(sys, "last_type", None) is KeyboardInterrupt
