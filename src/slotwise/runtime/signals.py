"""The signals that end a run, and how to delay them during an operation."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals that end a run from outside."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay these signals until the end of the block, so that it is not interrupted.

    Blocking them in this thread is not enough: another thread would receive them, and Python
    would still run the handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signal handlers run only in the main thread.
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number in ENDING if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in heard:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
        for late in came:
            signal.raise_signal(late)
