"""Block placement: the hosts that hold the input of each task in a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError, suggestion
from slotwise.core.job import Block, Job

_STREAM = 1
"""Separates these random numbers from others of the same seed, job and phase."""


def place_blocks(
    jobs: tuple[Job, ...],
    cluster: Cluster,
    replicas: int,
    seed: int,
    *,
    policy: Policy = "racks",
    block_bytes: int = 0,
) -> tuple[Job, ...]:
    """Give each task that reads input a block with copies on `replicas` hosts.

    Each block has `block_bytes` bytes. Phases that wait for other phases read their output and
    get no blocks; phases with blocks keep them. The same seed gives the same placement,
    independent of the order of access. Raises InputError for an unknown policy or a negative
    `block_bytes`. O(phases): hosts are drawn on the first access to a block of the phase.
    """
    if policy not in POLICIES:
        raise InputError(f"unknown placement policy {policy!r}; {suggestion(policy, POLICIES)}")
    if block_bytes < 0:
        raise InputError(f"block_bytes is {block_bytes}; give a number of bytes >= 0")
    replicas = min(replicas, len(cluster.hosts))
    if replicas == 0:
        return jobs
    sites, placed = Sites(cluster), []
    for number, job in enumerate(jobs):
        phases = list(job.phases)
        for place, phase in enumerate(phases):
            if not phase.waits_for and not phase.tasks.blocks:
                origin = (seed, number, place)
                count = phase.tasks.count
                blocks = PlacedBlocks(sites, count, replicas, policy, origin, block_bytes)
                phases[place] = replace(phase, tasks=replace(phase.tasks, blocks=blocks))
        placed.append(replace(job, phases=tuple(phases)))
    return tuple(placed)


class PlacedBlocks(Sequence[Block]):
    """The blocks of one phase, created on access.

    It behaves like a tuple of blocks, and equals that tuple. It stores two bytes for each copy
    (four in a cluster of more than 65,536 hosts). All copies are drawn on first access, from
    `origin` alone: the seed, the number of the job and the position of the phase.
    """

    __slots__ = ("_count", "_drawn", "_origin", "_policy", "_replicas", "_sites", "size_bytes")

    def __init__(
        self,
        sites: Sites,
        count: int,
        replicas: int,
        policy: Policy,
        origin: tuple[int, int, int],
        size_bytes: int = 0,
    ) -> None:
        self._sites, self._count, self._replicas = sites, count, replicas
        self._policy, self._origin, self.size_bytes = policy, origin, size_bytes
        self._drawn: Integers | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Block, ...]: ...

    def __getitem__(self, index: int | slice) -> Block | tuple[Block, ...]:
        names, rows = self._sites.hosts, self._copies()[index].tolist()
        if isinstance(index, slice):
            return tuple(
                Block(frozenset(map(names.__getitem__, r)), self.size_bytes) for r in rows
            )
        return Block(frozenset(map(names.__getitem__, rows)), self.size_bytes)

    def __iter__(self) -> Iterator[Block]:
        for start in range(0, self._count, 4096):
            yield from self[start : start + 4096]

    def homes_by_host(self) -> dict[str, list[int]]:
        """For each host with a copy, its tasks in descending order, ready for `pop`.

        O(n) for n copies, in numpy; much faster than a loop over blocks.
        """
        copies = self._copies()[::-1]
        return _grouped(copies.ravel(), self._tasks(), self._sites.hosts)

    def homes_by_rack(self) -> dict[str, list[int]]:
        """The same for each rack; a task is listed once in each rack that holds its block."""
        racks = np.sort(self._sites.rack[self._copies()[::-1]], axis=1).astype(self._sites.kind)
        first = np.ones(racks.shape, dtype=bool)
        first[:, 1:] = racks[:, 1:] != racks[:, :-1]
        tasks = self._tasks()[first.ravel()]
        return _grouped(racks[first], tasks, self._sites.racks)

    def all_copies(self) -> tuple[tuple[str, ...], Integers, Integers]:
        """The names of the hosts, and the task and host of each copy, in order of tasks."""
        tasks = np.repeat(np.arange(self._count), self._replicas)
        return self._sites.hosts, tasks, self._copies().ravel().astype(np.int64)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacedBlocks) and self._key() == other._key():
            return True
        if not isinstance(other, PlacedBlocks | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(Block.__eq__, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"PlacedBlocks({self._count} blocks, {self._replicas} copies of each)"

    def __reduce__(self) -> tuple[type[PlacedBlocks], tuple[object, ...]]:
        return PlacedBlocks, self._key()

    def _key(self) -> tuple[object, ...]:
        of_draw = (self._sites, self._count, self._replicas, self._policy, self._origin)
        return *of_draw, self.size_bytes

    def _copies(self) -> Integers:
        if self._drawn is None:
            rng = np.random.default_rng([*self._origin, _STREAM])
            draw = self._sites, self._count, self._replicas, self._policy
            self._drawn = draw_copies(*draw, rng)
        return self._drawn

    def _tasks(self) -> Integers:
        """The task number of each copy, in descending order."""
        return np.repeat(np.arange(self._count - 1, -1, -1, dtype=np.int32), self._replicas)


def _grouped(keys: Integers, tasks: Integers, names: Sequence[str]) -> dict[str, list[int]]:
    """The tasks of each key by its name, in their order; keys without tasks are left out.

    O(tasks), independent of the number of names, because most jobs are small.
    """
    order = np.argsort(keys, kind="stable")
    keys, ordered = keys[order], tasks[order].tolist()
    starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(ordered)]
    spans = zip(keys[starts].tolist(), starts, ends, strict=True)
    return {names[key]: ordered[start:end] for key, start, end in spans}


# Choose the hosts of block replicas at random, for all blocks of a phase at once.

Policy = Literal["racks", "random"]
POLICIES: tuple[Policy, ...] = ("racks", "random")
"""Placement policies: across racks, as in HDFS, or on any hosts."""

Integers = npt.NDArray[Any]


class Sites:
    """The hosts of a cluster, ordered by rack. Arrays in this module hold host numbers.

    Phases share one such object. Equal clusters give equal objects.
    """

    __slots__ = ("hosts", "rack", "racks", "size", "start")

    def __init__(self, cluster: Cluster) -> None:
        names = dict.fromkeys(host.rack for host in cluster.hosts)
        of_rack: dict[str, list[str]] = {name: [] for name in names}
        for host in cluster.hosts:
            of_rack[host.rack].append(host.name)
        self.racks: tuple[str, ...] = tuple(of_rack)
        self.hosts: tuple[str, ...] = tuple(n for hosts in of_rack.values() for n in hosts)
        sizes = np.array([len(hosts) for hosts in of_rack.values()])
        starts = np.cumsum(sizes) - sizes
        self.rack = np.repeat(np.arange(len(sizes)), sizes)
        """The rack of each host. `start` is the first host of that rack, `size` its hosts."""
        self.start, self.size = starts[self.rack], sizes[self.rack]

    @property
    def kind(self) -> type[np.unsignedinteger[Any]]:
        """The smallest integer type that can hold a host number."""
        return np.uint16 if len(self.hosts) <= 2**16 else np.uint32

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sites):
            return NotImplemented
        return self.hosts == other.hosts and bool(np.array_equal(self.rack, other.rack))

    def __hash__(self) -> int:
        return hash(self.hosts)


def draw_copies(
    sites: Sites, count: int, replicas: int, policy: Policy, rng: np.random.Generator
) -> Integers:
    """Draw the hosts of each of `count` blocks: an array of shape (count, replicas).

    "racks": the first copy on any host, the second in another rack, the third in the rack of
    the second, further copies on any hosts without a copy (the default of HDFS, for a writer
    outside the cluster). If there is no such rack or host, and with "random": on any host
    without a copy. All eligible hosts are equally likely. O(count * replicas^2).
    """
    assert 1 <= replicas <= len(sites.hosts), "each copy has its own host"
    columns = [rng.integers(0, len(sites.hosts), count)]
    if policy == "racks" and len(sites.racks) > 1:
        if replicas > 1:
            columns.append(_elsewhere(sites, columns[0], rng))
        if replicas > 2:
            columns.append(_beside(sites, columns, rng))
    while len(columns) < replicas:
        columns.append(_unused(sites, columns, rng))
    return np.stack(columns, axis=1).astype(sites.kind)


def _elsewhere(sites: Sites, first: Integers, rng: np.random.Generator) -> Integers:
    """For each of these hosts, a host in another rack."""
    size = sites.size[first]
    drawn: Integers = rng.integers(0, len(sites.hosts) - size)
    return drawn + np.where(drawn >= sites.start[first], size, 0)  # Skip the rack.


def _beside(sites: Sites, columns: list[Integers], rng: np.random.Generator) -> Integers:
    """Another host in the rack of the last copy; if there is none, any host without a copy."""
    last = columns[-1]
    start, others = sites.start[last], sites.size[last] - 1
    drawn: Integers = start + rng.integers(0, np.maximum(others, 1))
    drawn += drawn >= last
    if (others > 0).all():
        return drawn
    return np.where(others > 0, drawn, _unused(sites, columns, rng))


def _unused(sites: Sites, columns: list[Integers], rng: np.random.Generator) -> Integers:
    """For each block, a host without a copy."""
    drawn: Integers = rng.integers(0, len(sites.hosts) - len(columns), len(columns[0]))
    for taken in np.sort(columns, axis=0):
        drawn += drawn >= taken
    return drawn
