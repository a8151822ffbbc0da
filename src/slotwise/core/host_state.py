"""The hosts that are present, and their free slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from slotwise.core.cluster import Cluster, Host
from slotwise.core.costs import Floats
from slotwise.core.decisions import Enqueue, Launch
from slotwise.core.job import PhaseId
from slotwise.core.resources import Resources
from slotwise.core.spare import ResourceHolder, Spare


class FreeSlots:
    """The free slots of one kind, by host.

    Those of a host where nothing can begin are set aside until that has changed. Each method is
    O(1).

    by_host  the hosts with free slots where tasks can begin, and the number of these slots
    freed    the hosts on which slots became free in this turn
    """

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.by_host = {h.name: h.slots[kind] for h in cluster.hosts if h.slots.get(kind)}
        self.freed: list[str] = []
        self._set_aside: dict[str, int] = {}
        self._excess: dict[str, int] = {}  # Slots that are held but were removed.

    @property
    def count(self) -> int:
        """The number of free slots, including those set aside, less those held in excess."""
        parts = (
            sum(self.by_host.values()),
            sum(self._set_aside.values()),
            sum(self._excess.values()),
        )
        return parts[0] + parts[1] - parts[2]

    def take(self, host: str, slots: int) -> None:
        """Take free slots of a host."""
        left = self.by_host[host] - slots
        if left > 0:
            self.by_host[host] = left
        else:
            assert left == 0, "only free slots are taken"
            del self.by_host[host]

    def give_back(self, host: str, slots: int) -> None:
        """Return slots of a host."""
        if host in self._set_aside:
            self._set_aside[host] += slots
        else:
            if self._excess:
                slots -= self._use_excess(host, slots)
            if slots:
                self.by_host[host] = self.by_host.get(host, 0) + slots
                self.freed.append(host)

    def resize(self, host: str, more: int) -> None:
        """Add `more` slots to a host; below 0, held slots may then be in excess."""
        if more >= 0:
            self.give_back(host, more)
        elif host in self._set_aside:
            self._set_aside[host] += more
        else:
            left = self.by_host.pop(host, 0) + more
            if left > 0:
                self.by_host[host] = left
            elif left < 0:
                self._excess[host] = self._excess.get(host, 0) - left

    def lose(self, host: str) -> None:
        """Set aside the slots of a host where nothing can begin from now on."""
        self._set_aside[host] = self.by_host.pop(host, 0) - self._excess.pop(host, 0)

    def join(self, host: str) -> None:
        """Make the slots of a host available again; none of a kind that came meanwhile."""
        self.add(host, self._set_aside.pop(host, 0))

    def add(self, host: str, count: int) -> None:
        """Make the slots of a host available; below 0, they are held in excess."""
        if count > 0:
            self.by_host[host] = count
            self.freed.append(host)
        elif count < 0:
            self._excess[host] = -count

    def set_aside(self, host: str) -> int:
        """The number of free slots of a host that are set aside."""
        return self._set_aside.get(host, 0)

    def forget(self, host: str) -> None:
        """Remove the slots of a host that has left; they are set aside."""
        self._set_aside.pop(host, None)

    def _use_excess(self, host: str, slots: int) -> int:
        """The part of returned slots that were removed from the host."""
        excess = self._excess.pop(host, 0)
        if excess > slots:
            self._excess[host] = excess - slots
        return min(excess, slots)


class Hosts:
    """The hosts that are present, and the free slots of all kinds.

    cluster       the hosts that are present
    capacity      slots of each kind on the hosts where tasks can begin
    free          the free slots of each kind
    spare         what is free of other resources
    unresponsive  the unresponsive hosts
    leaving       the hosts that leave when no attempt runs there
    lost          the hosts where nothing can begin: all of these
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.capacity = dict(cluster.capacity)
        self.free = {kind: FreeSlots(cluster, kind) for kind in cluster.capacity}
        self.spare = Spare(cluster.hosts)
        self.lost: set[str] = set()
        self.unresponsive: set[str] = set()
        self.leaving: set[str] = set()

    def lose(self, host: str) -> None:
        """A host became unresponsive. No effect if it has left, as a drained host may."""
        if host in self.cluster.by_name:
            self.unresponsive.add(host)
            self._shut(host)

    def join(self, host: str) -> None:
        """An unresponsive host is back. No effect if it has left, as a drained host may."""
        if host in self.unresponsive:
            self.unresponsive.remove(host)
            if host not in self.leaving:
                self.lost.remove(host)
                self._count(host, 1)
                for free in self.free.values():
                    free.join(host)

    def add(self, host: Host) -> list[str]:
        """Add a host. The kinds of slots that were not known before."""
        assert host.name not in self.cluster.by_name, "a host is added once until it leaves"
        self.cluster = self.cluster.with_host(host)
        new = [kind for kind in self.cluster.capacity if kind not in self.free]
        for kind in new:
            self.capacity[kind] = 0
            self.free[kind] = FreeSlots(Cluster(kinds=frozenset({kind})), kind)
        self._count(host.name, 1)
        self.spare.add(host)
        for kind, free in self.free.items():
            free.add(host.name, host.slots.get(kind, 0))
        return new

    def resize(self, host: str, slots: Mapping[str, int]) -> None:
        """A host has other numbers of slots. No effect if it has left."""
        old = self.cluster.by_name.get(host)
        if old is None:
            return
        self.cluster = self.cluster.resized(host, slots)
        for kind, free in self.free.items():
            more = slots.get(kind, 0) - old.slots.get(kind, 0)
            free.resize(host, more)
            if host not in self.lost:
                self.capacity[kind] += more

    def take(self, launch: Launch, phase: ResourceHolder) -> None:
        """Take the slots that a task occupies, and what it needs beside, where it is free."""
        self.free[phase.slot_kind].take(launch.host, phase.width)
        self.spare.take(launch, phase)

    def has_room(self, launch: Launch, phase: ResourceHolder) -> bool:
        """Whether this can be taken now, without reserved slots."""
        free = self.free[phase.slot_kind].by_host.get(launch.host, 0)
        return free >= phase.width and self.spare.has_free(launch, phase.held(launch))

    def give_back(self, launch: Launch, phase: ResourceHolder) -> None:
        """Return what a task had of a host."""
        self.free[phase.slot_kind].give_back(launch.host, phase.width)
        self.spare.give_back(launch, phase)

    def leave(self, host: str) -> None:
        """From now on nothing begins on a host, and it leaves when no attempt runs there."""
        if host in self.cluster.by_name:
            self.leaving.add(host)
            self._shut(host)

    def is_staying(self, host: str) -> bool:
        """Whether a host is present and not about to leave."""
        return host in self.cluster.by_name and host not in self.leaving

    def forget_if_idle(self, host: str) -> bool:
        """Remove a host that is to leave if no attempt runs there; whether it has left now."""
        if host not in self.leaving:
            return False
        has = self.cluster.by_name[host].slots
        if any(free.set_aside(host) != has.get(k, 0) for k, free in self.free.items()):
            return False
        for free in self.free.values():
            free.forget(host)
        self.spare.forget(host)
        for names in (self.lost, self.unresponsive, self.leaving):
            names.discard(host)
        self.cluster = self.cluster.without(host)
        return True

    def _shut(self, host: str) -> None:
        if host not in self.lost:
            self.lost.add(host)
            self._count(host, -1)
            for free in self.free.values():
                free.lose(host)

    def _count(self, host: str, sign: int) -> None:
        for kind, count in self.cluster.by_name[host].slots.items():
            self.capacity[kind] += sign * count

    def check(self, kind: str, held: int) -> None:
        """Assert that each slot of a kind is held or free. For tests."""
        free = self.free[kind]
        assert held + free.count == self.cluster.capacity[kind], "each slot is held or free"
        assert all(count > 0 for count in free.by_host.values())
        assert not free.by_host.keys() & self.lost, "nothing begins on a host that is lost"
        assert self.lost == self.unresponsive | self.leaving
        assert self.lost <= self.cluster.by_name.keys()
        usable = [h for h in self.cluster.hosts if h.name not in self.lost]
        assert self.capacity[kind] == sum(host.slots.get(kind, 0) for host in usable)

    def check_spare(self, phases: Iterable[ResourceHolder]) -> None:
        """Assert that what these phases hold beside slots is what is not free. For tests."""
        held: dict[str, list[Resources]] = {}
        for phase in phases:
            for launch, *_ in phase.launches.values():
                if has := phase.held(launch):
                    held.setdefault(launch.host, []).append(has)
        self.spare.check(self.cluster.by_name, held)


# Measured and expected times of finished tasks, from which host speeds are estimated.

MAX_PHASES = 32
"""The number of phases to keep. Beyond it, the one with the earliest first entry is dropped."""


@dataclass(frozen=True, slots=True)
class TaskTimings:
    """What finished tasks took, by phase (rows) and host (columns).

    tasks   the number of tasks whose times are known
    ratios  the logarithm of their seconds over their expected work in seconds at speed 1;
            0 without tasks
    """

    phases: Sequence[PhaseId]
    hosts: Sequence[str]
    tasks: npt.NDArray[np.float64]
    ratios: npt.NDArray[np.float64]


class Finished:
    """Totals over finished tasks, by phase and host. `note` is O(1), and `seen` a copy.

    A host that is seen for the first time costs O(phases x hosts), and so does a phase beyond
    the first `MAX_PHASES`. Most policies never read it: the state notes tasks only after it
    was read for the first time.

    is_read  whether it was read
    """

    def __init__(self) -> None:
        self.is_read = False
        # The totals of each phase: by host, expected work, seconds and tasks.
        self._totals: dict[PhaseId, dict[str, tuple[float, float, int]]] = {}
        # Where phases and hosts are in the arrays of `TaskTimings`.
        self._rows: dict[PhaseId, int] = {}
        self._columns: dict[str, int] = {}
        self._tasks, self._ratios = _tables(0)
        self._has_columns = True  # Whether each host in the totals has one.

    def note(self, phase: PhaseId, host: str, work: float, seconds: float) -> None:
        """Add a finished task: expected `work` (seconds at speed 1) and measured `seconds`."""
        totals = self._totals.get(phase)
        if totals is None:
            if len(self._totals) == MAX_PHASES:
                self._drop_oldest()
            totals = self._totals[phase] = {}
            self._rows[phase] = len(self._rows)
        expected, measured, tasks = totals.get(host, (0.0, 0.0, 0))
        totals[host] = expected + work, measured + seconds, tasks + 1
        if host in self._columns:
            self._write(phase, host)
        else:
            self._has_columns = False

    def forget(self, host: str) -> None:
        """Drop the totals of a host that has left; one that comes back may differ."""
        for totals in self._totals.values():
            totals.pop(host, None)
        self._columns.clear()
        self._has_columns = False

    @property
    def seen(self) -> TaskTimings:
        """The totals as arrays."""
        self.is_read = True
        if not self._has_columns:
            self._write_all()
        rows = len(self._rows)
        return TaskTimings(
            list(self._rows),
            list(self._columns),
            self._tasks[:rows].copy(),
            self._ratios[:rows].copy(),
        )

    def _drop_oldest(self) -> None:
        """Drop the first row; all others move up."""
        del self._totals[next(iter(self._totals))]
        self._rows = {phase: row for row, phase in enumerate(self._totals)}
        for table in (self._tasks, self._ratios):
            table[:-1] = table[1:]
            table[-1] = 0.0

    def _write_all(self) -> None:
        """Give each host a column, and compute all entries again."""
        for totals in self._totals.values():
            for host in totals:
                self._columns.setdefault(host, len(self._columns))
        self._tasks, self._ratios = _tables(len(self._columns))
        for phase, totals in self._totals.items():
            for host in totals:
                self._write(phase, host)
        self._has_columns = True

    def _write(self, phase: PhaseId, host: str) -> None:
        """Compute the entries of a phase and a host."""
        expected, seconds, tasks = self._totals[phase][host]
        if seconds > 0 and expected > 0:
            place = self._rows[phase], self._columns[host]
            self._tasks[place] = tasks
            self._ratios[place] = log(seconds / expected)


def _tables(hosts: int) -> tuple[Floats, Floats]:
    """The numbers of tasks, and the logarithms of measured over expected times; 0 so far."""
    return np.zeros((MAX_PHASES, hosts)), np.zeros((MAX_PHASES, hosts))


# The queue of tasks of each host, for policies that plan queues (DMRS V).


class Queues:
    """The queues of the last `Enqueue`, without the tasks launched since.

    by_host      the phase and number of each host's tasks, the next one first
    jobs         in the order in which their tasks were placed
    starts       the reservations of phases that waited then
    is_outdated  whether jobs, tasks or hosts that they do not cover came or went since
    has_time_passed whether time has passed since, so that estimates may have changed
    """

    def __init__(self) -> None:
        self.by_host: dict[str, deque[tuple[PhaseId, int]]] = {}
        self.jobs: tuple[str, ...] = ()
        self.starts: Mapping[PhaseId, float] = {}
        self.is_outdated = self.has_time_passed = False

    def replace(self, decision: Enqueue) -> None:
        """Replace all queues by these."""
        self.by_host = {host: deque(queue) for host, queue in decision.queues.items()}
        self.jobs, self.starts = decision.jobs, decision.starts
        self.is_outdated = self.has_time_passed = False

    def launched(self, launch: Launch) -> None:
        """Remove a launched task from its queue. O(1) if it is first there, as usual."""
        task = (launch.phase, launch.task)
        queue = self.by_host.get(launch.host)
        if queue and queue[0] == task:
            queue.popleft()
        else:
            for queue in self.by_host.values():
                if task in queue:
                    queue.remove(task)
