"""A job as it arrives in a session: now, and with an id of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from slotwise.model.job import Job
from slotwise.sources import Described, Entry


def arriving(entry: Entry, now: float, unused: Callable[[str], str]) -> Entry:
    """The job as it arrives now, with an id from `unused`, which no job has had.

    Its deadline and steps are as long after its arrival as before.
    """
    if isinstance(entry, Job | Described):
        return cast(Entry, _moved(entry, now, unused))
    cast(Any, entry).job = _moved(entry.job, now, unused)
    return entry


class Names:
    """The ids of the jobs of a session."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}  # with the last number behind each
        self._lock = threading.Lock()

    def unused(self, name: str) -> str:
        """A name that no job of this session has had: the wanted one, or a number behind it."""
        base, _, number = name.rpartition("-")
        with self._lock:
            if number.isdecimal() and int(number) <= self._used.get(base, 0):
                name = base
            elif name not in self._used:
                self._used[name] = 1
                return name
            while True:
                self._used[name] += 1
                numbered = f"{name}-{self._used[name]}"
                if numbered not in self._used:
                    return numbered


def _moved(stated: Any, now: float, unused: Callable[[str], str]) -> Any:
    later = now - stated.arrival
    return replace(
        stated,
        id=unused(stated.id),
        arrival=now,
        deadline=None if stated.deadline is None else stated.deadline + later,
        steps=tuple((at + later, cost) for at, cost in stated.steps),
    )
