"""When hosts were silent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slotwise.model.event import HostJoined, HostLost
from slotwise.record.log import Turn


@dataclass(frozen=True, slots=True)
class UnresponsiveSpan:
    """A host was silent from `start` to `end`, in seconds; `end` is None if to the last."""

    host: str
    start: float
    end: float | None


def unresponsive_spans(turns: Iterable[Turn]) -> tuple[UnresponsiveSpan, ...]:
    """All silences of a run, in order of their start. O(entries)."""
    unresponsive: list[UnresponsiveSpan] = []
    open_at: dict[str, int] = {}
    for turn in turns:
        for event in turn.events:
            if isinstance(event, HostLost):
                open_at[event.host] = len(unresponsive)
                unresponsive.append(UnresponsiveSpan(event.host, event.at, None))
            elif isinstance(event, HostJoined):
                place = open_at.pop(event.host)
                unresponsive[place] = UnresponsiveSpan(
                    event.host, unresponsive[place].start, event.at
                )
    return tuple(unresponsive)
