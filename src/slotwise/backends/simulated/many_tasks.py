"""The memory check and the time estimate for simulations of many tasks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from slotwise.core.decisions import Decision
from slotwise.core.errors import InputError, option_name
from slotwise.core.events import Event, TaskFinished

TASKS_MANY = 1_000_000
"""Simulations of fewer tasks take minutes at most, and are neither checked nor estimated."""

TASK_BYTES, LOGGED_TASK_BYTES = 300, 50
"""The least memory for each task of a simulation, without and with a log file."""

ESTIMATE_SECONDS = 5.0
"""The time after which the duration is estimated."""

PRINTED_SECONDS = 60.0
"""A shorter duration is not printed."""


def check_memory(tasks: int, *, has_log: bool) -> None:
    """InputError for more tasks than fit into the free memory."""
    each, free = LOGGED_TASK_BYTES if has_log else TASK_BYTES, free_memory()
    if tasks < TASKS_MANY or free is None or tasks * each <= free:
        return
    remedy = "give fewer and longer tasks"
    if not has_log and tasks * LOGGED_TASK_BYTES <= free:
        remedy = f"write a log ({option_name('log')}), with which it needs less, or {remedy}"
    raise InputError(
        f"a simulation of {tasks:,} tasks needs at least {tasks * each / 1e9:.3g} GB of memory,"
        f" and {free / 1e9:.3g} GB are free; {remedy}"
    )


class Duration:
    """A record for the loop that prints on stderr how long a simulation of many tasks takes."""

    def __init__(self, tasks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks, self._clock = tasks, clock
        self._done, self._begun = 0, inf
        self._is_over = False

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Count the finished tasks of a turn, and print the estimate once it is due."""
        if self._is_over:
            return
        if self._begun == inf:  # The first turn takes longest, and is not measured.
            self._begun = self._clock()
            return
        self._done += sum(isinstance(event, TaskFinished) for event in events)
        passed = self._clock() - self._begun
        if passed < ESTIMATE_SECONDS or not self._done:
            return
        self._is_over = True
        seconds = passed * self._tasks / self._done
        if seconds >= PRINTED_SECONDS:
            print(
                f"slotwise: simulating {self._tasks:,} tasks takes {_in_words(seconds)} at the"
                f" rate of the first {passed:.0f} s, {self._done / passed:,.0f} tasks a second",
                file=sys.stderr,
            )


def _in_words(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"about {seconds / unit:.0f} {name}"
    return f"about {seconds:.0f} seconds"


def free_memory() -> int | None:
    """The bytes of memory available without swapping; None if the system has no such number."""
    with suppress(OSError, StopIteration, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as lines:
            line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) << 10
    return None
