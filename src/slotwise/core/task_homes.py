"""Where the input of a phase's pending tasks is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Locality
from slotwise.core.job import Block
from slotwise.core.placement import PlacedBlocks

PENDING, RUNNING, DONE, BLOCKED, DROPPED, DELAYED = range(6)
"""The status of a task."""


Integers = npt.NDArray[np.signedinteger[Any]]


class Copies(NamedTuple):
    """The copies of the input of pending tasks: entry i is a copy for a task on a host.

    names  hosts, which need not be in the cluster
    tasks  the task of each copy, in increasing order
    hosts  the host of each copy, as a place in `names`
    """

    names: Sequence[str]
    tasks: Integers
    hosts: Integers


class TaskHomes:
    """The pending tasks of one phase by the hosts and racks that hold their input.

    `status` has a byte for each task, and changes. The index is cleaned as it is read, so that
    a launch does not have to update the entries of the other hosts that hold the same block.
    """

    __slots__ = (
        *("_blocks", "_by_host", "_by_rack", "_cluster", "_copies", "_has_moved", "_pinned"),
        *("_sizes", "_status", "_without"),
    )

    def __init__(self, status: bytearray, blocks: Sequence[Block], cluster: Cluster) -> None:
        self._status, self._blocks, self._cluster = status, blocks, cluster
        self._by_host: dict[str, list[int]] = {}
        self._by_rack: dict[str, list[int]] | None = None
        self._without: list[int] | None = None  # tasks without a home, once there are some
        self._pinned: dict[int, str] = {}  # the hosts of tasks that continue others
        self._copies: Copies | None = None  # of all tasks, once they are asked for
        self._sizes: Integers | None = None
        self._has_moved = False  # The racks may differ from those of the placement.
        if blocks:
            self._find_all(blocks)

    def move_to(self, cluster: Cluster) -> None:
        """The hosts have changed to these: index all pending tasks again. O(tasks)."""
        self._cluster, self._has_moved = cluster, True
        self._by_host, self._by_rack, self._without = {}, None, None
        for task in range(len(self._blocks) - 1, -1, -1):
            if self._status[task] == PENDING:
                self._index(task)
        self._sort_hosts()
        for task in self._pinned:
            self.put_back(task)

    def has_pinned_to(self, host: str) -> bool:
        """Whether a pending or delayed task may run only on this host."""
        return any(
            where == host and self._status[task] in (PENDING, DELAYED)
            for task, where in self._pinned.items()
        )

    def task_on(self, hosts: Collection[str]) -> tuple[int, str] | None:
        """A pending task with input on one of these hosts, and the host."""
        by_host, status = self._by_host, self._status
        near: Iterable[str] = hosts
        if len(by_host) < len(hosts):  # A small job in a large cluster has few homes.
            near = filter(hosts.__contains__, tuple(by_host))
        for host in near:
            tasks = by_host.get(host)
            if tasks is not None:
                while tasks:
                    if status[tasks[-1]] == PENDING:
                        return tasks[-1], host
                    tasks.pop()
                del by_host[host]
        return None

    def has_home(self, task: int) -> bool:
        """Whether a task has input on a host of the cluster, or is pinned to one."""
        return self._without is None or task in self._pinned or self._is_known(task)

    def task_without_home(self) -> int | None:
        """A pending task without a home."""
        tasks = self._without
        while tasks:
            if self._status[tasks[-1]] == PENDING:
                return tasks[-1]
            tasks.pop()
        return None

    def without_home(self) -> Sequence[int]:
        """The pending tasks without a home, lowest first."""
        tasks = set(self._without or ())
        return sorted(task for task in tasks if self._status[task] == PENDING)

    def locality(self, task: int, host: str) -> Locality:
        """How far a task would run from its input block on this host; NODE without input."""
        block = self._blocks[task]
        homes = block.hosts
        if host in homes or not (homes or block.size_bytes):
            return Locality.NODE
        rack_of = self._cluster.rack_of
        is_near = any(rack_of.get(home) == rack_of[host] for home in homes)
        return Locality.RACK if is_near else Locality.ANY

    def task_in(self, rack: str) -> int | None:
        """A pending task with input in this rack."""
        if self._by_rack is None:
            self._by_rack = self._index_racks()
        tasks = self._by_rack.get(rack)
        while tasks:
            if self._status[tasks[-1]] == PENDING:
                return tasks[-1]
            tasks.pop()
        return None

    def copies(self) -> Copies:
        """The copies of the input of pending tasks; for pinned tasks, their hosts."""
        if self._pinned or self._copies is None:
            every = self._all_copies()
            if not self._pinned:
                self._copies = every
        else:
            every = self._copies
        is_pending = np.frombuffer(self._status, np.uint8)[every.tasks] == PENDING
        return Copies(every.names, every.tasks[is_pending], every.hosts[is_pending])

    def pending(self, count: int) -> Sequence[int]:
        """The first `count` pending tasks. O(tasks), in numpy."""
        is_pending = np.frombuffer(self._status, np.uint8) == PENDING
        found: list[int] = np.flatnonzero(is_pending)[:count].tolist()
        return found

    def bytes_of(self, tasks: Integers) -> Integers:
        """The size of the input of each of these tasks; 0 where it is unknown."""
        if isinstance(self._blocks, PlacedBlocks) or not self._blocks:
            return np.full(len(tasks), getattr(self._blocks, "size_bytes", 0), np.int64)
        if self._sizes is None:
            self._sizes = np.array([block.size_bytes for block in self._blocks], np.int64)
        return self._sizes[tasks]

    def pin(self, task: int, host: str) -> None:
        """Add a task that may run only on this host, also if it was pinned to another."""
        if (before := self._pinned.get(task)) is not None and before in self._by_host:
            tasks = [other for other in self._by_host[before] if other != task]
            self._by_host[before] = tasks
        self._pinned[task] = host
        self._by_host.setdefault(host, []).append(task)

    def put_back(self, task: int) -> None:
        """Add a task that is pending again; duplicate entries do no harm."""
        if task in self._pinned:
            self._by_host.setdefault(self._pinned[task], []).append(task)
        else:
            self._index(task)

    def _all_copies(self) -> Copies:
        """The copies of the input of all tasks; O(copies)."""
        if isinstance(self._blocks, PlacedBlocks):
            return Copies(*self._blocks.all_copies())
        pairs = sorted(self._pinned.items()) or [
            (task, host)
            for task, block in enumerate(self._blocks)
            for host in sorted(block.hosts)
        ]
        place = {host: number for number, host in enumerate(sorted({h for _, h in pairs}))}
        tasks = np.array([task for task, _ in pairs], np.int64)
        return Copies(tuple(place), tasks, np.array([place[h] for _, h in pairs], np.int64))

    def _find_all(self, blocks: Sequence[Block]) -> None:
        """Index all tasks by input host; the lowest task, launched first, is last."""
        if isinstance(blocks, PlacedBlocks):
            self._by_host = blocks.homes_by_host()
            if not self._by_host.keys() <= self._cluster.position.keys():
                without = [n for n in range(len(blocks)) if not self._is_known(n)]
                self._without = without[::-1] or None
        else:
            for task in range(len(blocks) - 1, -1, -1):
                self._index(task)
        self._sort_hosts()

    def _sort_hosts(self) -> None:
        """Sort by the order of the cluster, as the order of a set is not deterministic."""
        homes, place = self._by_host, self._cluster.position
        known = sorted(homes.keys() & place.keys(), key=place.__getitem__)
        self._by_host = {host: homes[host] for host in known}

    def _is_known(self, task: int) -> bool:
        """Whether the input of a task is on some host of the cluster."""
        return not self._cluster.position.keys().isdisjoint(self._blocks[task].hosts)

    def _index(self, task: int) -> None:
        for host in sorted(self._blocks[task].hosts):
            self._by_host.setdefault(host, []).append(task)
        if not self._is_known(task):
            self._without = self._without or []
            self._without.append(task)
        if self._by_rack is not None:
            self._index_rack(self._by_rack, task)

    def _index_racks(self) -> dict[str, list[int]]:
        """Index all pending tasks by rack. Built on demand, since few phases need it."""
        if isinstance(self._blocks, PlacedBlocks) and not self._has_moved:
            return self._blocks.homes_by_rack()
        index: dict[str, list[int]] = {}
        for task in range(len(self._blocks) - 1, -1, -1):
            if self._status[task] == PENDING:
                self._index_rack(index, task)
        return index

    def _index_rack(self, index: dict[str, list[int]], task: int) -> None:
        rack_of = self._cluster.rack_of
        hosts = self._blocks[task].hosts
        for rack in {rack_of[host] for host in hosts if host in rack_of}:
            index.setdefault(rack, []).append(task)
