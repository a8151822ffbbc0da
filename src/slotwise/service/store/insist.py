"""Changes of the store that must not be lost, such as results, when the disk is full."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from slotwise.service.store.schema import StoreError

T = TypeVar("T")

RETRY_SECONDS = 1.0
"""Seconds until a change that could not be stored is tried again."""

AGAIN = ("full", "locked")
"""The kinds of errors of the store that may pass."""

NOT_NEEDED = ("closed", "missing")
"""Those after which nobody waits for the change: the server ends, or the job is removed."""


def insist(
    change: Callable[[], Future[T]],
    then: Callable[[T], None],
    lost: Callable[[BaseException], None],
) -> None:
    """Store a change, as often as it takes, then pass on its result in a thread of the store.

    It is tried again after an error that may pass, until the store is closed. What the server
    was about to report is thus reported only when it is durable. `lost` gets an error after
    which it cannot be stored: the server must end, as the next one can do it again.
    """

    def done(stored: Future[T]) -> None:
        error = stored.exception()
        if error is None:
            then(stored.result())
        elif isinstance(error, StoreError) and error.kind in AGAIN:
            timer = threading.Timer(RETRY_SECONDS, insist, (change, then, lost))
            timer.daemon = True
            timer.start()
        elif not (isinstance(error, StoreError) and error.kind in NOT_NEEDED):
            lost(error)

    try:
        change().add_done_callback(done)
    except StoreError:  # It is closed.
        return
