"""The links of a cluster's network, as numbers, and the path of a flow between two hosts."""

from __future__ import annotations

from enum import IntEnum
from math import inf, isfinite

from slotwise.model.cluster import Cluster
from slotwise.model.network import Network

MAX_PATH = 5
"""The longest path: out of a host, out of its rack, the core, into a rack, into a host."""


class Way(IntEnum):
    """How far a flow goes: it stays on its host, in its rack, or passes the core."""

    HOST = 0
    RACK = 1
    CORE = 2


class Links:
    """Links are numbered: out of each host, into each, out of each rack, into each, the core.

    `capacity` is in bytes a second. The last link, `nowhere`, has no limit and pads paths.
    """

    __slots__ = (
        "_core",
        "_has_limit",
        "_host",
        "_rack",
        "_racks",
        "capacity",
        "fastest",
        "nowhere",
    )

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._host = {host.name: number for number, host in enumerate(cluster.hosts)}
        racks = {name: i for i, name in enumerate(dict.fromkeys(cluster.rack_of.values()))}
        hosts, first = len(self._host), 2 * len(self._host)
        self._rack = [first + racks[host.rack] for host in cluster.hosts]
        self._racks = len(racks)
        self._core = first + 2 * len(racks)
        self.nowhere = self._core + 1
        self.capacity = [network.host] * (2 * hosts) + [network.rack] * (2 * len(racks))
        self.capacity += [network.core, inf]
        self._has_limit = [isfinite(capacity) for capacity in self.capacity]
        self.fastest = network.host
        """The highest rate of a flow, since every flow enters a host."""

    def path(self, source: str, target: str) -> tuple[tuple[int, ...], Way]:
        """The limited links on the path of a flow. An unknown source is beyond the core."""
        if source == target:
            return (), Way.HOST
        hosts = len(self._host)
        origin, end = self._host.get(source), self._host[target]
        if origin is not None and self._rack[origin] == self._rack[end]:
            return self._limited(origin, hosts + end), Way.RACK
        into = (self._core, self._rack[end] + self._racks, hosts + end)
        out = () if origin is None else (origin, self._rack[origin])
        return self._limited(*out, *into), Way.CORE

    def out_of(self, host: str) -> int:
        """The link out of a host; `nowhere` if it is no host."""
        return self._host.get(host, self.nowhere)

    def _limited(self, *path: int) -> tuple[int, ...]:
        return tuple([link for link in path if self._has_limit[link]])
