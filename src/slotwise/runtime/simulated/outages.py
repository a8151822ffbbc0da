"""Outages: times in which hosts are cut off from the scheduler, and when it notices them.

Messages between the scheduler and such a host, in either direction, are delayed until the host
is reachable. Its tasks continue, and hosts still exchange the data that tasks read and copy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, inf

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.typed import MAX_TIME, check_name, is_number, shown


@dataclass(frozen=True, slots=True)
class Outage:
    """A host is cut off at the instant `at` for `seconds`. InputError for invalid numbers."""

    host: str
    at: float
    seconds: float

    def __post_init__(self) -> None:
        check_name("the host of an outage", self.host)
        place = f"outage {self.host}={shown(self.at)}+{shown(self.seconds)}"
        if not is_number(self.at) or not 0 <= self.at <= MAX_TIME:
            raise InputError(
                f"{place}: it begins at {shown(self.at)}; give seconds >= 0, at most"
                f" {MAX_TIME:g}"
            )
        if not is_number(self.seconds) or not 0 < self.seconds <= MAX_TIME:
            raise InputError(
                f"{place}: it lasts {shown(self.seconds)} s; give seconds > 0, at most"
                f" {MAX_TIME:g}"
            )

    @property
    def over(self) -> float:
        """The instant at which the host can be reached again."""
        return self.at + self.seconds

    def __str__(self) -> str:
        return f"outage {self.host}={self.at:g}+{self.seconds:g}"


def check_outages(outages: object) -> None:
    """InputError for what is no collection of outages, and if those of one host overlap."""
    if not isinstance(outages, Collection) or not all(isinstance(o, Outage) for o in outages):
        raise InputError(f"outages is {outages!r}; give a tuple of `Outage`")
    earlier: dict[str, Outage] = {}
    for outage in sorted(outages, key=lambda one: (one.host, one.at)):
        before = earlier.get(outage.host)
        if before is not None and outage.at < before.over:
            raise InputError(f"{before} and {outage} overlap; make them one")
        earlier[outage.host] = outage


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A time in which no message gets through, from `cut` until just before `back`.

    It is noticed at the first missing report; `noticed` is None if no report is missing.
    """

    host: str
    cut: float
    noticed: float | None
    back: float


class Reports:
    """When each host reports: once per heartbeat, evenly spread over the hosts; or at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._heartbeat, count = cluster.heartbeat, len(cluster.hosts)
        self._first = {
            host.name: cluster.heartbeat * number / count
            for number, host in enumerate(cluster.hosts)
        }

    def next(self, host: str, at: float) -> float:
        """The first report of a host at an instant or later."""
        if not self._heartbeat:
            return at
        first = self._first[host]
        beats = (at - first) / self._heartbeat
        if beats == inf:
            return at  # A heartbeat below any difference of two instants.
        return max(at, first + ceil(beats) * self._heartbeat)


class Unreachables:
    """All times in which hosts are unreachable. False if there are none."""

    def __init__(self, outages: Iterable[Outage], reports: Reports) -> None:
        self._of: dict[str, list[Unreachable]] = {}
        for host in sorted({outage.host for outage in outages}):
            own = sorted((o for o in outages if o.host == host), key=lambda one: one.at)
            self._of[host] = list(_unreachable(own, reports))

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[Unreachable]:
        for unreachable in self._of.values():
            yield from unreachable

    def through(self, host: str, at: float) -> float:
        """When a message to or from a host arrives if it is sent at this instant."""
        unreachable = self._of.get(host, ())
        place = bisect_right(unreachable, at, key=lambda one: one.cut)
        return max(at, unreachable[place - 1].back) if place else at


def _unreachable(outages: list[Outage], reports: Reports) -> Iterator[Unreachable]:
    """The times in which one host is unreachable, given its outages in order."""
    left = outages[::-1]
    while left:
        host, cut, over = left[-1].host, left[-1].at, left.pop().over
        missing = reports.next(host, cut)
        while True:
            back = reports.next(host, over) if missing < over else over
            if not left or left[-1].at > back:
                break
            over = left.pop().over  # The next outage begins before any report.
        yield Unreachable(host, cut, missing if missing < over else None, back)
