"""When hosts were silent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slotwise.model.event import HostJoined, HostLost
from slotwise.record.log import Turn


@dataclass(frozen=True, slots=True)
class Silence:
    """A host was silent from `start` to `end`, in seconds; `end` is None if to the last."""

    host: str
    start: float
    end: float | None


def silences_of(turns: Iterable[Turn]) -> tuple[Silence, ...]:
    """All silences of a run, in order of their start. O(entries)."""
    silences: list[Silence] = []
    open_at: dict[str, int] = {}
    for turn in turns:
        for event in turn.events:
            if isinstance(event, HostLost):
                open_at[event.host] = len(silences)
                silences.append(Silence(event.host, event.at, None))
            elif isinstance(event, HostJoined):
                place = open_at.pop(event.host)
                silences[place] = Silence(event.host, silences[place].start, event.at)
    return tuple(silences)
