"""Which hosts are silent, and which workers are stuck: processes that somebody has stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

LOOK_SECONDS = 0.5
"""How often we look at all workers; a shorter silence may not be noticed."""

SOON_SECONDS = 0.05
"""The same while a host is silent: what it still believes it has to do is to be stopped soon
after it goes on, and for how long it stood still is to be known."""


class Turn(Enum):
    """What can happen to a host."""

    LOST = "it fell silent"
    OVERDUE = "it has been silent for longer than its grace"
    JOINED = "it is back"


@dataclass(slots=True)
class _Unresponsive:
    """A host that is silent; `due` is the instant at which its grace ends, inf once told."""

    since: float
    due: float


class ResponseMonitor:
    """Looks at the workers of all hosts now and then.

    One of several hosts is silent once all of its workers are stopped: one that runs shows that
    the host lives. It is back once none of them is stopped: who continues them one by one is
    not done after the first. A single host is never silent, for the manager runs on it, too.

    A worker that has been stopped for longer than the grace while its host is not silent is
    stuck: its task may have stopped itself.

    silent     the hosts that are
    next_look  the instant from which on `look` has something to do
    """

    def __init__(
        self,
        slots: Mapping[str, Sequence[int]],
        grace: float,
        is_stopped: Callable[[int], bool],
    ) -> None:
        """`slots` has those of each host, `is_stopped` says so of the worker of a slot."""
        self.next_look = LOOK_SECONDS
        self._slots = {host: list(of_host) for host, of_host in slots.items() if of_host}
        self._grace = grace
        self._is_stopped = is_stopped
        self.unresponsive: dict[str, _Unresponsive] = {}
        self._stopped_at: dict[int, float] = {}
        self._since: dict[int, float] = {}  # when stopped workers were first seen so
        self._seconds: dict[int, float] = {}

    def look(self, now: float) -> list[tuple[str, Turn]]:
        """What has happened since the last look; some 20 microseconds for each worker."""
        turns = [
            (host, turn)
            for host in self._slots
            for turn in self._turns(host, self._look_at(host, now), now)
        ]
        self.next_look = now + (SOON_SECONDS if self.unresponsive else LOOK_SECONDS)
        for unresponsive in self.unresponsive.values():
            self.next_look = min(self.next_look, unresponsive.due)
        return turns

    def seconds(self, host: str, now: float) -> float:
        """For how long a silent host has been so."""
        return now - self.unresponsive[host].since

    def stuck(self, now: float) -> dict[int, float]:
        """The slots whose workers are stuck, by the last look, and for how many seconds."""
        return {
            slot: now - since
            for host, slots in self._slots.items()
            if host not in self.unresponsive
            for slot in slots
            if (since := self._since.get(slot, inf)) + self._grace <= now
        }

    def take_stopped(self, slot: int) -> float:
        """For how many seconds the worker of a slot was seen stopped since this was asked."""
        return self._seconds.pop(slot, 0.0)

    def _look_at(self, host: str, now: float) -> int:
        """How many workers of a host are stopped; notes for how long they have been."""
        count = 0
        for slot in self._slots[host]:
            before = self._stopped_at.pop(slot, None)
            if self._is_stopped(slot):
                count += 1
                self._stopped_at[slot] = now
                self._since.setdefault(slot, now)
                if before is not None:
                    self._seconds[slot] = self._seconds.get(slot, 0.0) + now - before
            else:
                self._since.pop(slot, None)
        return count

    def _turns(self, host: str, stopped: int, now: float) -> list[Turn]:
        unresponsive = self.unresponsive.get(host)
        turns = []
        is_alone = len(self._slots) == 1
        if unresponsive is None and stopped == len(self._slots[host]) and not is_alone:
            unresponsive = self.unresponsive[host] = _Unresponsive(now, now + self._grace)
            turns.append(Turn.LOST)
        if unresponsive is not None and not stopped:
            del self.unresponsive[host]
            turns.append(Turn.JOINED)
        elif unresponsive is not None and unresponsive.due <= now:
            unresponsive.due = inf
            turns.append(Turn.OVERDUE)
        return turns
