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


def insist(change: Callable[[], Future[T]], then: Callable[[T], None]) -> None:
    """Store a change, as often as it takes, then pass on its result in a thread of the store.

    It is tried again after a `StoreError`, until the store is closed. What the server was about
    to report is thus reported only when it is durable.
    """

    def done(stored: Future[T]) -> None:
        error = stored.exception()
        if error is None:
            then(stored.result())
        elif isinstance(error, StoreError) and error.kind in AGAIN:
            timer = threading.Timer(RETRY_SECONDS, insist, (change, then))
            timer.daemon = True
            timer.start()

    try:
        change().add_done_callback(done)
    except StoreError:  # It is closed.
        return
