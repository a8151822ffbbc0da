"""Which hosts get the copies of blocks: drawn at once for all blocks of a phase."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from slotwise.model.cluster import Cluster

Policy = Literal["racks", "random"]
POLICIES: tuple[Policy, ...] = ("racks", "random")
"""How copies are spread: over racks, as HDFS does, or anywhere."""

Integers = npt.NDArray[Any]


class Sites:
    """The hosts of a cluster, rack by rack; a number stands for a host everywhere below.

    Phases share one such object. Equal clusters make equal ones.
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
        """The rack of each host; `start` and `size` are the first host of it, and its hosts."""
        self.start, self.size = starts[self.rack], sizes[self.rack]

    @property
    def kind(self) -> type[np.unsignedinteger[Any]]:
        """The smallest type of number that holds a host."""
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
    """The hosts that hold each of `count` blocks: an array of count rows, replicas columns.

    "racks": the first on any host, the second in another rack, the third in the rack of the
    second, further ones on any hosts that have none yet (the default of HDFS, for a writer
    outside the cluster). Where there is no such rack or host, and with "random": on any host
    that has none yet. All hosts that may be drawn are equally likely. O(count * replicas^2).
    """
    assert 1 <= replicas <= len(sites.hosts), "each copy has a host of its own"
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
    """A host in another rack than each of these."""
    size = sites.size[first]
    drawn: Integers = rng.integers(0, len(sites.hosts) - size)
    return drawn + np.where(drawn >= sites.start[first], size, 0)  # Step over the rack.


def _beside(sites: Sites, columns: list[Integers], rng: np.random.Generator) -> Integers:
    """A host in the rack of the last copy; any one without a copy, if it has no other."""
    last = columns[-1]
    start, others = sites.start[last], sites.size[last] - 1
    drawn: Integers = start + rng.integers(0, np.maximum(others, 1))
    drawn += drawn >= last
    if (others > 0).all():
        return drawn
    return np.where(others > 0, drawn, _unused(sites, columns, rng))


def _unused(sites: Sites, columns: list[Integers], rng: np.random.Generator) -> Integers:
    """A host that holds none of the copies so far."""
    drawn: Integers = rng.integers(0, len(sites.hosts) - len(columns), len(columns[0]))
    for taken in np.sort(columns, axis=0):
        drawn += drawn >= taken
    return drawn
