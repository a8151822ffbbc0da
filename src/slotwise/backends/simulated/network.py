"""A fluid model of a network: flows of bytes between hosts share its links max-min fairly."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf, isfinite
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from slotwise.core.cluster import Cluster, Network

Key = TypeVar("Key", bound=Hashable)
"""The name of a flow."""

FEW = 16
"""The number of concurrent flows up to which rates are computed faster without numpy."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes sent between hosts of one rack, and through the core.

    Also as step functions of time: `rack[i]` and `core[i]` bytes a second from `times[i]` on.
    Flows without a limited link arrive at once and are not part of the steps.
    """

    rack_bytes: float
    core_bytes: float
    times: tuple[float, ...]
    rack: tuple[float, ...]
    core: tuple[float, ...]


class FlowNetwork(Generic[Key]):
    """Flows with a size in bytes and a name (`key`), in continuous time (seconds).

    A flow within a rack passes the link out of its source and the link into its target. Between
    racks it also passes the links out of the rack, through the core and into the other rack.
    Within a host it passes no link. Rates are max-min fair at every instant. They are
    recomputed when flows start or end: once for all changes at one instant, and only for the
    flows that may be affected, which share a link that may be full. Instants must not decrease
    from call to call, and `advance` must be called for all ends before any later instant.
    """

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._links = Links(cluster, network)
        self._capacities = np.array(self._links.capacity)
        self._members: list[set[int]] = [set() for _ in self._links.capacity]
        self._flows = FlowTable(self._links.nowhere)
        self._keys: dict[int, Key] = {}
        self._rows: dict[Key, set[int]] = {}
        self._fresh: set[int] = set()  # flows that have no rate yet
        self._eased: set[int] = set()  # links that may have been full, and lost a flow
        self._next: tuple[float, Key] | None = None  # None: not computed, or no flow
        self._now = 0.0
        self._rack_bytes = self._core_bytes = 0.0
        self._times, self._rack, self._core = array("d"), array("d"), array("d")

    def start(
        self, now: float, key: Key, source: str | Sequence[str], target: str, size: float
    ) -> None:
        """Begin to send `size` bytes to a host. O(sources); rates are computed when needed.

        Several sources send equal parts as separate flows; the key ends with the last of them.
        A source that is not a host of the cluster is beyond the core.
        """
        assert key not in self._rows, f"flow {key} is under way"
        assert 0 <= size < inf, "a flow has a number of bytes"
        self._move(now)
        sources = (source,) if isinstance(source, str) else source
        assert sources, "a flow comes from somewhere"
        rows = self._rows[key] = set()
        for one in sources:
            path, way = self._links.path(one, target)
            row = self._flows.begin(path, way, size / len(sources), now)
            rows.add(row)
            self._keys[row] = key
            self._fresh.add(row)
            for link in path:
                self._members[link].add(row)

    def stop(self, now: float, key: Key) -> float:
        """Stop a flow; returns the number of its bytes that have arrived."""
        self._move(now)
        return sum(self._remove(row) for row in sorted(self._rows.pop(key)))

    def next_end(self) -> tuple[float, Key] | None:
        """The end of the next flow if none starts or stops before, and its key.

        A key with several sources has several ends; it is over when `advance` returns it.
        """
        self._settle()
        if self._next is None and self._rows:
            row = self._flows.next_row()
            self._next = self._flows.cells.end[row], self._keys[row]
            assert self._next[0] < inf, "every flow makes progress"
        return self._next

    def advance(self, now: float) -> list[Key]:
        """Advance the clock; returns the flows that are over, in order of end, then start."""
        over: list[Key] = []
        while (upcoming := self.next_end()) is not None and upcoming[0] <= now:
            self._now = upcoming[0]
            for row in self._flows.ended(self._now):
                key = self._keys[row]
                self._remove(row)
                self._rows[key].remove(row)
                if not self._rows[key]:
                    del self._rows[key]
                    over.append(key)
            if self._now == now:
                break  # Flows may still start now, before rates are computed.
        self._move(now)
        return over

    def leaving(self, host: str) -> int:
        """The number of flows that leave a host now; 0 if hosts have no limit."""
        return len(self._members[self._links.out_of(host)])

    def rate(self, key: Key) -> float:
        """The current rate of a flow in bytes a second; 0 if no link has a limit."""
        self._settle()
        return sum(self._flows.cells.rate[row] for row in sorted(self._rows[key]))

    def traffic(self) -> Traffic:
        """The traffic so far. O(flows + steps)."""
        self._settle()
        flows, rack, core = self._flows, self._rack_bytes, self._core_bytes
        for row in self._keys:
            arrived = flows.arrived(row, self._now)
            rack += arrived * flows.cells.in_rack[row]
            core += arrived * flows.cells.in_core[row]
        return Traffic(rack, core, tuple(self._times), tuple(self._rack), tuple(self._core))

    def _move(self, now: float) -> None:
        assert now >= self._now, "time never decreases"
        if now > self._now:
            upcoming = self.next_end()
            assert upcoming is None or upcoming[0] >= now, (
                "earlier ends were handled by advance"
            )
            self._now = now

    def _remove(self, row: int) -> float:
        """Remove a flow; returns the number of its bytes that have arrived."""
        flows = self._flows
        arrived = flows.arrived(row, self._now)
        self._rack_bytes += arrived * flows.cells.in_rack[row]
        self._core_bytes += arrived * flows.cells.in_core[row]
        for link in flows.paths[row]:
            if self._may_be_full(link):
                self._eased.add(link)
            self._members[link].remove(row)
        flows.clear(row)
        self._next = None
        del self._keys[row]
        self._fresh.discard(row)
        return arrived

    def _may_be_full(self, link: int) -> bool:
        """Whether the flows on a link fill it if each has the highest possible rate."""
        links = self._links
        return len(self._members[link]) * links.fastest > links.capacity[link]

    def _settle(self) -> None:
        """Recompute the rates that the changes since the last call may affect."""
        if not self._fresh and not self._eased:
            return
        flows, few = self._flows, self._touched()
        if few is None:
            all_rows = flows.under_way()
            rates = rates_of_many(flows.links[all_rows], self._capacities)
            flows.change_many(all_rows, rates, self._now)
        else:
            paths = [flows.paths[row] for row in few]
            flows.change_few(few, rates_of_few(paths, self._links.capacity), self._now)
        self._next = None
        self._fresh.clear()
        self._eased.clear()
        self._note_traffic()

    def _touched(self) -> list[int] | None:
        """The new flows, and the flows that full links connect to them or to ended flows.

        A link that cannot be full does not connect flows: each has a lower limit on another.
        None for more than `FEW` flows: it is then faster to recompute all flows.
        """
        paths, found = self._flows.paths, set(self._fresh)
        if len(found) > FEW:
            return None
        links = set(self._eased)
        for row in found:
            links.update(filter(self._may_be_full, paths[row]))
        seen, open_links = links, list(links)
        while open_links:
            members = self._members[open_links.pop()]
            if len(members) + len(found) > FEW:
                return None
            for row in members - found:
                found.add(row)
                for link in paths[row]:
                    if link not in seen and self._may_be_full(link):
                        seen.add(link)
                        open_links.append(link)
        return sorted(found)

    def _note_traffic(self) -> None:
        times = self._times
        if times and times[-1] == self._now:
            for column in (times, self._rack, self._core):
                column.pop()
        rack, core = self._flows.rate_in_rack(), self._flows.rate_in_core()
        if not times or rack != self._rack[-1] or core != self._core[-1]:
            times.append(self._now)
            self._rack.append(rack)
            self._core.append(core)


MAX_PATH = 5
"""The longest path: out of a host, out of its rack, the core, into a rack, into a host."""


class Way(IntEnum):
    """The reach of a flow: within its host, within its rack, or through the core."""

    HOST = 0
    RACK = 1
    CORE = 2


class Links:
    """Links are numbered: out of each host, into each, out of each rack, into each, the core.

    `capacity` is in bytes a second. The last link, `nowhere`, has no limit and pads paths.
    """

    __slots__ = (
        *("_core", "_has_limit", "_host", "_rack", "_racks", "capacity"),
        *("fastest", "nowhere"),
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
        """The limited links on the path of a flow; an unknown source is beyond the core."""
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
        """The link out of a host; `nowhere` for an unknown host."""
        return self._host.get(host, self.nowhere)

    def _limited(self, *path: int) -> tuple[int, ...]:
        return tuple([link for link in path if self._has_limit[link]])


NOBODY = -1
_NUMBERS = ("end", "left", "number", "rate", "since", "size", "in_rack", "in_core")


class Cells:
    """The same columns as memory views, which are several times faster for single numbers."""

    __slots__ = _NUMBERS

    end: memoryview[float]
    left: memoryview[float]
    number: memoryview[int]
    rate: memoryview[float]
    since: memoryview[float]
    size: memoryview[float]
    in_rack: memoryview[float]
    in_core: memoryview[float]


class FlowTable:
    """A table with a row for each flow, in columns so that numpy changes many flows at once.

    number  in order of start; NOBODY if the row is free
    size    total bytes
    left    bytes that were missing at the instant `since`
    rate    bytes a second since then; 0 if no link has a limit: the flow then ends at once
    end     the instant at which it ends at that rate; inf while it has no rate
    in_rack, in_core    1 if it stays in its rack, or passes the core; otherwise 0

    The rows of ended flows are reused. A flow whose rate does not change keeps its exact end.
    """

    __slots__ = (*_NUMBERS, "_free", "_nowhere", "_numbers", "cells", "links", "paths", "top")

    def __init__(self, nowhere: int, rows: int = 64) -> None:
        self.top = self._numbers = 0  # All rows from `top` on are free.
        self._free: list[int] = []
        self._nowhere = nowhere
        self.paths: list[tuple[int, ...]] = []
        self.links = np.full((rows, MAX_PATH), nowhere)
        self.number = np.full(rows, NOBODY)
        self.end = np.full(rows, inf)
        self.size, self.left, self.since, self.rate = (np.zeros(rows) for _ in range(4))
        self.in_rack, self.in_core = np.zeros(rows), np.zeros(rows)
        self._view()

    def begin(self, path: tuple[int, ...], way: Way, size: float, now: float) -> int:
        """Add a flow without a rate; returns its row."""
        if self._free:
            row = self._free.pop()
            self.paths[row] = path
        else:
            row, self.top = self.top, self.top + 1
            self.paths.append(path)
            if row == len(self.end):
                self._double()
        self.links[row, : len(path)] = path
        cells = self.cells
        cells.number[row] = self._numbers
        self._numbers += 1
        cells.size[row] = cells.left[row] = size
        cells.since[row] = now
        cells.in_rack[row] = float(way is Way.RACK)
        cells.in_core[row] = float(way is Way.CORE)
        return row

    def clear(self, row: int) -> None:
        """Free the row of a flow that is over."""
        cells = self.cells
        self.paths[row] = ()
        self.links[row] = self._nowhere
        cells.number[row] = NOBODY
        cells.end[row] = inf
        cells.size[row] = cells.left[row] = cells.rate[row] = 0.0
        cells.in_rack[row] = cells.in_core[row] = 0.0
        self._free.append(row)

    def change_few(self, rows: Sequence[int], rates: Sequence[float], now: float) -> None:
        """Set the rates of flows from `now` on; a flow with rate inf ends now."""
        cells = self.cells
        for row, new in zip(rows, rates, strict=True):
            old = cells.rate[row]
            if new != old or cells.end[row] == inf:
                left = max(0.0, cells.left[row] - old * (now - cells.since[row]))
                cells.left[row], cells.since[row] = left, now
                cells.end[row] = now + left / new
                cells.rate[row] = 0.0 if new == inf else new

    def change_many(
        self, rows: npt.NDArray[np.int64], rates: npt.NDArray[np.float64], now: float
    ) -> None:
        """Like `change_few`, with numpy."""
        is_other = (rates != self.rate[rows]) | (self.end[rows] == inf)
        rows, rates = rows[is_other], rates[is_other]
        left = np.maximum(0.0, self.left[rows] - self.rate[rows] * (now - self.since[rows]))
        self.left[rows], self.since[rows] = left, now
        self.end[rows] = now + left / rates
        self.rate[rows] = np.where(rates == inf, 0.0, rates)

    def arrived(self, row: int, now: float) -> float:
        """The bytes of a flow that have arrived by `now`."""
        cells = self.cells
        if cells.end[row] <= now:
            return cells.size[row]
        left = cells.left[row] - cells.rate[row] * (now - cells.since[row])
        return cells.size[row] - max(0.0, left)

    def ended(self, now: float) -> list[int]:
        """The rows of the flows that end by `now`, in order of start."""
        rows: list[int] = np.flatnonzero(self.end[: self.top] <= now).tolist()
        return sorted(rows, key=self.cells.number.__getitem__) if len(rows) > 1 else rows

    def under_way(self) -> npt.NDArray[np.int64]:
        """The rows of all flows."""
        return np.flatnonzero(self.number[: self.top] != NOBODY)

    def next_row(self) -> int:
        """The row of the flow that ends first; at least one flow must exist."""
        return int(self.end[: self.top].argmin())

    def rate_in_rack(self) -> float:
        """Bytes a second that stay in their racks, over all flows."""
        return float(self.rate[: self.top] @ self.in_rack[: self.top])

    def rate_in_core(self) -> float:
        """Bytes a second that pass the core, over all flows."""
        return float(self.rate[: self.top] @ self.in_core[: self.top])

    def _double(self) -> None:
        more = FlowTable(self._nowhere, len(self.end))
        for name in ("links", *_NUMBERS):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
        self._view()

    def _view(self) -> None:
        self.cells = Cells()
        for name in _NUMBERS:
            setattr(self.cells, name, memoryview(getattr(self, name)))


# Max-min fair rates of flows that share links, by exact progressive filling.
#
# No flow can get a higher rate without reducing the rate of a flow with at most its rate. These
# rates are unique (Bertsekas and Gallager, Data Networks, 6.5.2).

Numbers = npt.NDArray[np.float64]


def rates_of_few(paths: Sequence[Sequence[int]], capacity: Sequence[float]) -> list[float]:
    """The rate of each flow, given the links on its path; inf for an empty path.

    Each pass fills the link with the least capacity per flow, fixes the rates of its flows, and
    subtracts them. A pass scans all links in use, so this is for a few dozen flows.
    """
    users: dict[int, list[int]] = {}
    for flow, path in enumerate(paths):
        for link in path:
            users.setdefault(link, []).append(flow)
    room = {link: capacity[link] for link in users}
    count = {link: len(flows) for link, flows in users.items()}
    rates = [inf] * len(paths)
    while count:
        tight = min(count, key=lambda link: room[link] / count[link])
        level = room[tight] / count[tight]
        for flow in users[tight]:
            if rates[flow] == inf:
                rates[flow] = level
                for link in paths[flow]:
                    room[link] = max(0.0, room[link] - level)
                    count[link] -= 1
                    if not count[link]:
                        del count[link]
    return rates


def rates_of_many(paths: npt.NDArray[np.int64], capacity: Numbers) -> Numbers:
    """Like `rates_of_few`, with numpy; `paths` has a row of links for each flow.

    Rows may be padded with a link of capacity inf. Each round fills all links whose flows have
    no smaller level on another link. Fixing other flows can only raise the level of a link, so
    none of these links would fill earlier. O(paths.size) for each round. The number of rounds
    is the length of the longest chain of dependent links, which is small.
    """
    room, rates = capacity.copy(), np.full(len(paths), inf)
    left = np.flatnonzero(np.isfinite(capacity[paths]).any(axis=1))
    while left.size:
        at = paths[left]
        count = np.bincount(at.ravel(), minlength=len(room))
        level = room / np.maximum(count, 1)
        levels = level[at]
        lowest = levels.min(axis=1, keepdims=True)
        is_tight = np.ones(len(room), dtype=bool)
        is_tight[at[levels > lowest]] = False  # A flow has a smaller level on another link.
        done = is_tight[at].any(axis=1)
        given = lowest[done, 0]
        rates[left[done]] = given
        spent = np.bincount(
            at[done].ravel(), np.repeat(given, paths.shape[1]), minlength=len(room)
        )
        room = np.maximum(room - spent, 0.0)
        left = left[~done]
    return rates
