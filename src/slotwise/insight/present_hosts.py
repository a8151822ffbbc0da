"""The hosts that are present during a run and their slots over time, from its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.events import (
    HostAdded,
    HostChange,
    HostDrained,
    HostResized,
)
from slotwise.core.job import Job, PhaseId
from slotwise.core.log import Header
from slotwise.core.resources import UNIT, Resources
from slotwise.insight.bound import Missing, rates_of

LITTLE = 1e-9
"""Part of the total power; smaller differences are rounding errors."""

MAX_MISSING = 32
"""The maximum number of parts of missing power that lower bounds use."""


@dataclass(frozen=True, slots=True)
class SlotsOverTime:
    """A number of slots: `first` at the beginning, then `changes` by (instant, difference)."""

    first: int
    changes: tuple[tuple[float, int], ...] = ()

    @property
    def most(self) -> int:
        """The largest number at any time."""
        return max(count for _, count in self._steps())

    def seconds(self, start: float, end: float) -> float:
        """The slot-seconds from `start` to `end`."""
        area = self.first * (end - start)
        for at, more in self.changes:
            area += more * max(0.0, end - max(at, start))
        return area

    def between(self, start: float, end: float) -> Iterator[tuple[float, float, int]]:
        """Yield the intervals of constant numbers from `start` to `end`: from, to, number."""
        steps = [*self._steps(), (end, 0)]
        for (since, count), (until, _) in pairwise(steps):
            if max(since, start) < min(until, end):
                yield max(since, start), min(until, end), count

    def _steps(self) -> Iterator[tuple[float, int]]:
        """Each instant of a change, and the number from then on."""
        total: dict[float, int] = {}
        for at, more in sorted(self.changes):
            total[at] = total.get(at, 0) + more
        numbers = accumulate(total.values(), initial=self.first)
        return zip([float("-inf"), *total], numbers, strict=True)


class PresentHosts:
    """Tracks the changes of hosts in a log, with true speeds.

    A drained host is present until its last attempt has ended. In `widest` and `missing` it is
    present until it is removed, since other schedules may use it longer.

    speeds    the speed of each present or past host
    leaving   the number of running attempts on each drained host
    by_name   the present and past hosts, in their last state
    """

    def __init__(self, header: Header) -> None:
        self._true: Mapping[str, float] = header.parameters.get("speeds") or {}
        self._cluster = self._at_first = header.true_cluster
        self.speeds = {host.name: host.speed for host in self._cluster.hosts}
        self.by_name = dict(self._cluster.by_name)
        self.leaving: dict[str, int] = {}
        self._first = dict(self._cluster.capacity)
        self._amounts_first = self._cluster.totals
        self._amounts_changes: dict[str, list[tuple[float, int]]] = {}
        self._changes: dict[str, list[tuple[float, int]]] = {}
        self._slot_kinds: dict[PhaseId, str] = {}  # if other than those of the phases
        self._rates: dict[str, list[float]] = {}  # for `widest`; empty until a host is added
        self._resources: dict[str, float] = {}  # the largest amounts times speeds
        self._has_new_kinds = False
        self._powers = [(0.0, self._power())]

    def arrive(self, job: Job) -> None:
        """Add a job. Its phases use the kinds of slots that are known at its arrival."""
        kinds = self._cluster.capacity
        for phase in job.phases:
            if phase.kind not in kinds and ANY_KIND in kinds:
                self._slot_kinds[PhaseId(job.id, phase.name)] = ANY_KIND

    def change(self, event: HostChange, running: int) -> None:
        """Apply a change of a host with `running` attempts."""
        if isinstance(event, HostAdded):
            self._add(event.at, event.host)
        elif event.host not in self._cluster.by_name:
            return  # It has left before.
        elif isinstance(event, HostDrained):
            # The drain counts as an attempt, so that `ended` also removes an idle host.
            self.leaving[event.host] = running + 1
            self.ended(event.host, event.at)
        else:
            self._count(event.at, event.host, -1)
            self._remove(event.host)
            self._powers.append((event.at, self._power()))

    def resize(self, event: HostResized) -> None:
        """Change the numbers of slots of a host."""
        if event.host not in self._cluster.by_name:
            return
        self._count(event.at, event.host, -1)
        self._widen(event.at, self._cluster.resized(event.host, event.slots))
        self.by_name[event.host] = self._cluster.by_name[event.host]
        self._count(event.at, event.host, 1)

    def ended(self, host: str, at: float) -> None:
        """Count the end of an attempt on a drained host."""
        if self.leaving[host] == 1:
            self._count(at, host, -1)
        self.leaving[host] -= 1

    def slots(self, kind: str | None = None) -> SlotsOverTime:
        """The number of slots of one kind, or of all kinds."""
        kinds = {*self._first, *self._changes} if kind is None else {kind}
        changes = [change for one in kinds for change in self._changes.get(one, ())]
        first = sum(self._first.get(one, 0) for one in kinds)
        return SlotsOverTime(first, tuple(sorted(changes)))

    def resource(self, name: str) -> SlotsOverTime:
        """The amount of a resource beside slots."""
        changes = self._amounts_changes.get(name, ())
        return SlotsOverTime(self._amounts_first.get(name, 0), tuple(sorted(changes)))

    def slot_kind(self, job: Job, phase: str) -> str:
        """The kind of slots that a phase of a job used."""
        return self._slot_kinds.get(PhaseId(job.id, phase), job.by_name[phase].kind)

    def on_slots(self, job: Job) -> Job:
        """The job with the kinds of slots that its phases used as their kinds."""
        if not self._has_new_kinds:
            return job
        phases = (replace(p, kind=self.slot_kind(job, p.name)) for p in job.phases)
        return replace(job, phases=tuple(phases))

    def widest(self) -> Cluster:
        """A cluster whose n fastest slots were never slower than any n slots at any instant.

        Every schedule on the changing hosts is possible on it, apart from the hosts of tasks:
        see docs/algorithms/bounds.md. Without added hosts it is the initial cluster.
        """
        if not self.has_changed:
            return self._at_first
        hosts = []
        for kind, rates in self._rates.items():
            speeds = Counter(more - less for less, more in pairwise([0.0, *rates]))
            hosts += [
                Host(f"{kind} {speed!r}", {kind: count}, speed=speed)
                for speed, count in speeds.items()
                if speed > 0
            ]
        amounts = {name: UNIT * ceil(amount / UNIT) for name, amount in self._resources.items()}
        if amounts:
            hosts.append(Host("other resources", {}, resources=Resources(amounts)))
        return replace(self._cluster, hosts=tuple(hosts), kinds=frozenset(self._rates))

    @property
    def has_changed(self) -> bool:
        """Whether hosts came or were resized, so that `widest` has other hosts than the run."""
        return bool(self._rates)

    def missing(self, end: float) -> list[Missing]:
        """The largest parts of the power of `widest` that were absent at times until `end`."""
        widest = self.widest()
        most = {kind: sum(rates_of(widest, kind)[-1:]) for kind in widest.capacity}
        found = []
        for kind, whole in most.items():
            powers = [(at, whole - power.get(kind, 0.0)) for at, power in self._powers]
            for (start, power), (until, _) in pairwise([*powers, (end, 0.0)]):
                if power > LITTLE * whole and start < min(until, end):
                    found.append(Missing(kind, start, min(until, end), power))
        found.sort(key=lambda one: one.power * (one.start - one.end))
        return found[:MAX_MISSING]

    def _power(self) -> dict[str, float]:
        """The work that the slots of each kind do in a second."""
        power = dict.fromkeys(self._cluster.capacity, 0.0)
        for host in self._cluster.hosts:
            for kind, count in host.slots.items():
                if count:
                    power[kind] += host.speed * count
        return power

    def _add(self, at: float, host: Host) -> None:
        host = replace(host, speed=self._true.get(host.name, host.speed))
        if host.name in self._cluster.by_name:  # It was drained and has left.
            self._remove(host.name)
        known = self._cluster.capacity
        self._widen(at, self._cluster.with_host(host))
        self._has_new_kinds |= len(self._cluster.capacity) > len(known)
        self.speeds[host.name] = host.speed
        self.by_name[host.name] = host
        self._count(at, host.name, 1)

    def _remove(self, name: str) -> None:
        self._cluster = self._cluster.without(name)
        self.leaving.pop(name, None)

    def _count(self, at: float, name: str, sign: int) -> None:
        """Count the slots of a host, unless it was drained and has left."""
        if not self.leaving.get(name, 1):
            return
        host = self._cluster.by_name[name]
        for kind, count in host.slots.items():
            if count:
                self._changes.setdefault(kind, []).append((at, sign * count))
        for resource, amount in host.resources.items():
            self._amounts_changes.setdefault(resource, []).append((at, sign * amount))

    def _widen(self, at: float, cluster: Cluster) -> None:
        """Change to a cluster, and raise the rates to at least those of it."""
        self._cluster = cluster
        self._powers.append((at, self._power()))
        for one in (cluster,) if self._rates else (self._at_first, cluster):
            for name in one.totals.keys() - one.capacity.keys():
                power = sum(host.speed * host.resources.get(name, 0) for host in one.hosts)
                self._resources[name] = max(power, self._resources.get(name, 0.0))
            for kind in one.capacity:
                before, now = self._rates.get(kind, []), rates_of(one, kind)
                most = max(len(before), len(now))
                self._rates[kind] = [
                    max(rates[min(n, len(rates) - 1)] for rates in (before, now) if rates)
                    for n in range(most)
                ]
