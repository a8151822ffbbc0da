"""The signals that end a run from outside, and what they must not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals by which a run is ended from outside."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals wait: what is done here is done as a whole.

    To block them in this thread is not enough: another thread would take them, and this one
    would be interrupted all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals never interrupt it.
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
