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
        self._last: dict[str, int] = {}  # the last number behind each name
        self._lock = threading.Lock()

    def unused(self, name: str) -> str:
        """A name that no job of this session has had: the wanted one, or a number behind it."""
        base, _, number = name.rpartition("-")
        if not (base and number.isdecimal()):
            base, number = name, "1"
        with self._lock:
            last, wanted = self._last.get(base, 0), int(number)
            self._last[base] = max(last + 1, wanted)
        return name if wanted > last else f"{base}-{last + 1}"


def _moved(stated: Any, now: float, unused: Callable[[str], str]) -> Any:
    later = now - stated.arrival
    return replace(
        stated,
        id=unused(stated.id),
        arrival=now,
        deadline=None if stated.deadline is None else stated.deadline + later,
        steps=tuple((at + later, cost) for at, cost in stated.steps),
    )
