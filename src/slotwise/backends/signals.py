"""Delays the signals that end a run during an operation."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals that end a run from outside."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay the signals `ENDING` until the end of the block, so that it is not interrupted.

    Blocking them in this thread is not enough: another thread would receive them, and Python
    would still run the handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signal handlers run only in the main thread.
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    handled = [number for number in ENDING if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in handled:
            signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
        for late in received:
            signal.raise_signal(late)


class HeldInterrupts:
    """Delays KeyboardInterrupts until the end of the block, which raises one if any occurred.

    An exception that a signal handler raises within a lock or within `Thread.join` would leave
    these in a wrong state. The handler of the user is called at once; only the
    KeyboardInterrupt that it raises is delayed. No effect outside of the main thread.

    count  the number of delayed KeyboardInterrupts
    """

    def __init__(self) -> None:
        self.count = 0
        self._handler = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        self._holds = is_main and callable(self._handler)

    def __enter__(self) -> Self:
        if self._holds:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._holds:
            signal.signal(signal.SIGINT, self._handler)
        if self.count:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        assert callable(self._handler)
        try:
            self._handler(number, frame)
        except KeyboardInterrupt:
            self.count += 1
