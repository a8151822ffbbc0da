"""Detects unresponsive hosts and stuck workers: processes that another process stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

CHECK_SECONDS = 0.5
"""The interval of checks of all workers; a shorter stop may not be noticed."""

SOON_SECONDS = 0.05
"""The interval while a host is unresponsive.

It is short so that outdated tasks are killed soon after the host continues, and so that the
length of the stop is measured accurately.
"""


class ResponseChange(Enum):
    """A change of the state of a host."""

    LOST = "it became unresponsive"
    OVERDUE = "it has been unresponsive for longer than its grace"
    JOINED = "it is responsive again"


@dataclass(slots=True)
class _Unresponsive:
    """An unresponsive host; `due` is the instant at which its grace ends, inf once reported."""

    since: float
    due: float


class ResponseMonitor:
    """Checks the workers of all hosts periodically.

    With several hosts, a host is unresponsive once all of its workers are stopped; a running
    worker shows that the host is alive. It is responsive again once no worker is stopped, since
    workers may be continued one by one. A single host is never unresponsive if the manager runs
    on it.

    A worker that has been stopped for longer than the grace while its host is responsive is
    stuck: its task may have stopped itself.

    unresponsive     the unresponsive hosts
    next_check       the instant of the next necessary `check`
    seconds_stopped  for how long the worker of a slot was seen stopped, until it is taken out
    """

    def __init__(
        self,
        slots: Mapping[str, Sequence[int]],
        grace: float,
        is_stopped: Callable[[int], bool],
        *,
        is_local: bool = True,
    ) -> None:
        """`slots` gives the slots of each host; `is_stopped` takes a slot, checks its worker.

        `is_local` says whether the manager runs on the same machine as the hosts.
        """
        self._is_local = is_local
        self.next_check = CHECK_SECONDS
        self._slots = {host: list(of_host) for host, of_host in slots.items() if of_host}
        self._grace = grace
        self._is_stopped = is_stopped
        self.unresponsive: dict[str, _Unresponsive] = {}
        self._stopped_at: dict[int, float] = {}
        self._since: dict[int, float] = {}  # when stopped workers were first seen stopped
        self.seconds_stopped: dict[int, float] = {}

    def add(self, host: str, slots: Sequence[int]) -> None:
        """Add a host whose workers are to be checked."""
        if slots:
            self._slots[host] = list(slots)

    def remove(self, host: str) -> None:
        """Remove a host, also from the unresponsive ones."""
        self.unresponsive.pop(host, None)
        for slot in self._slots.pop(host, ()):
            for known in (self._stopped_at, self._since, self.seconds_stopped):
                known.pop(slot, None)

    def check(self, now: float) -> list[tuple[str, ResponseChange]]:
        """The changes since the last check. Costs about 20 microseconds for each worker."""
        changes = [
            (host, change)
            for host in self._slots
            for change in self._changes(host, self._count_stopped(host, now), now)
        ]
        self.next_check = now + (SOON_SECONDS if self.unresponsive else CHECK_SECONDS)
        for unresponsive in self.unresponsive.values():
            self.next_check = min(self.next_check, unresponsive.due)
        return changes

    def seconds(self, host: str, now: float) -> float:
        """The seconds for which a host has been unresponsive."""
        return now - self.unresponsive[host].since

    def stuck(self, now: float) -> dict[int, float]:
        """The slots of the workers that were stuck at the last check, with their seconds.

        Their workers are replaced, so each is returned once.
        """
        found = {
            slot: now - since
            for host, slots in self._slots.items()
            if host not in self.unresponsive
            for slot in slots
            if (since := self._since.get(slot, inf)) + self._grace <= now
        }
        for slot in found:
            del self._since[slot]
        return found

    def _count_stopped(self, host: str, now: float) -> int:
        """The number of stopped workers of a host; updates the times for which they are."""
        count = 0
        for slot in self._slots[host]:
            before = self._stopped_at.pop(slot, None)
            if self._is_stopped(slot):
                count += 1
                self._stopped_at[slot] = now
                self._since.setdefault(slot, now)
                if before is not None:
                    seconds = self.seconds_stopped.get(slot, 0.0) + now - before
                    self.seconds_stopped[slot] = seconds
            else:
                self._since.pop(slot, None)
        return count

    def _changes(self, host: str, stopped: int, now: float) -> list[ResponseChange]:
        unresponsive = self.unresponsive.get(host)
        changes = []
        is_alone = len(self._slots) == 1 and self._is_local
        if unresponsive is None and stopped == len(self._slots[host]) and not is_alone:
            unresponsive = self.unresponsive[host] = _Unresponsive(now, now + self._grace)
            changes.append(ResponseChange.LOST)
        if unresponsive is not None and not stopped:
            del self.unresponsive[host]
            changes.append(ResponseChange.JOINED)
        elif unresponsive is not None and unresponsive.due <= now:
            unresponsive.due = inf
            changes.append(ResponseChange.OVERDUE)
        return changes


PENDING = b"\nShdPnd:\t"
"""Start of the line in /proc with the signals pending for a process, 16 hexadecimal digits."""

STOP_BIT = 1 << (signal.SIGSTOP - 1)


def is_stopped(pid: int, by_us: bool) -> bool:
    """Whether another process stopped a process by SIGSTOP; `by_us` if we stopped it too.

    A second SIGSTOP to a stopped process stays pending until SIGCONT discards it, and /proc
    shows pending signals. This distinguishes our own stops from others. If both arrive at the
    same instant, the kernel keeps only one, which counts as ours. False for a process that has
    ended or cannot be inspected. Costs three system calls, about 20 microseconds.
    """
    try:
        status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        text = os.read(status, 4096)
    except OSError:
        return False
    finally:
        os.close(status)
    if b"\nState:\tT" not in text:
        return False
    if not by_us:
        return True
    at = text.index(PENDING) + len(PENDING)
    return bool(int(text[at : at + 16], 16) & STOP_BIT)
