"""A fluid model of a network: flows of bytes between hosts share its links max-min fairly."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

import numpy as np

from slotwise.model.cluster import Cluster
from slotwise.model.network import Network
from slotwise.runtime.simulated.filling import rates_of_few, rates_of_many
from slotwise.runtime.simulated.flows import FlowTable
from slotwise.runtime.simulated.links import Links

Key = TypeVar("Key", bound=Hashable)
"""The name of a flow."""

FEW = 16
"""Up to this number of concurrent flows, rates are computed faster without numpy."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes that passed between hosts of one rack, and through the core.

    Also as step functions of time: `rack[i]` and `core[i]` bytes a second from `times[i]` on.
    Flows on no limited link arrive at once and are not part of the steps.
    """

    rack_bytes: float
    core_bytes: float
    times: tuple[float, ...]
    rack: tuple[float, ...]
    core: tuple[float, ...]


class FlowNetwork(Generic[Key]):
    """Flows with a size in bytes and a name (`key`), in continuous time (seconds).

    A flow within a rack passes the link out of its host and the link into the other one.
    Between racks it also passes the links out of the rack, through the core and into the other
    rack. On one host it passes no link. Rates are max-min fair at every instant. They are
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
        A source that is no host of the cluster is beyond the core.
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
        """Stop a flow. The number of its bytes that have arrived."""
        self._move(now)
        return sum(self._remove(row) for row in sorted(self._rows.pop(key)))

    def next_end(self) -> tuple[float, Key] | None:
        """When the next flow will end if nothing starts or stops before, and its name.

        A key with several sources has several ends; it is over when `advance` returns it.
        """
        self._settle()
        if self._next is None and self._rows:
            row = self._flows.next_row()
            self._next = self._flows.cells.end[row], self._keys[row]
            assert self._next[0] < inf, "every flow makes progress"
        return self._next

    def advance(self, now: float) -> list[Key]:
        """Move the clock. The flows that are over by now, in order of end, then of start."""
        over: list[Key] = []
        while (coming := self.next_end()) is not None and coming[0] <= now:
            self._now = coming[0]
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
            coming = self.next_end()
            assert coming is None or coming[0] >= now, "earlier ends were handled by advance"
            self._now = now

    def _remove(self, row: int) -> float:
        """Remove a flow. The number of its bytes that have arrived."""
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
        """Whether the flows on a link could fill it if each had the highest possible rate."""
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
        """The new flows, and those connected by full links to them or to ended flows.

        A link that cannot be full does not connect flows: each has a lower limit elsewhere.
        None if there are more than a few: it is then faster to recompute all flows.
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
