"""The times in which hosts were unresponsive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slotwise.model.event import HostJoined, HostLost, HostRemoved
from slotwise.record.log import Turn


@dataclass(frozen=True, slots=True)
class UnresponsiveSpan:
    """A host was unresponsive from `start` to `end` (seconds); None: to the end of the run."""

    host: str
    start: float
    end: float | None


def unresponsive_spans(turns: Iterable[Turn]) -> tuple[UnresponsiveSpan, ...]:
    """All times in which hosts were unresponsive, in order of start. O(entries).

    They end when the host is back or removed.
    """
    unresponsive: list[UnresponsiveSpan] = []
    open_at: dict[str, int] = {}
    for turn in turns:
        for event in turn.events:
            if isinstance(event, HostLost):
                open_at[event.host] = len(unresponsive)
                unresponsive.append(UnresponsiveSpan(event.host, event.at, None))
            elif isinstance(event, HostJoined | HostRemoved) and event.host in open_at:
                place = open_at.pop(event.host)
                unresponsive[place] = UnresponsiveSpan(
                    event.host, unresponsive[place].start, event.at
                )
    return tuple(unresponsive)
