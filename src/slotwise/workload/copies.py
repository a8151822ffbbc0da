"""Choose the hosts of block replicas at random, for all blocks of a phase at once."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from slotwise.model.cluster import Cluster

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
