"""A network as a fluid: flows of bytes between hosts share its links max-min fairly."""

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
from slotwise.runtime.simulated.flows import Flows
from slotwise.runtime.simulated.links import Links

Key = TypeVar("Key", bound=Hashable)
"""What names a flow."""

FEW = 16
"""Up to so many flows at once, rates are found faster without numpy."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has passed between hosts of one rack, and through the core, in bytes.

    As steps over time, too: `rack[i]` and `core[i]` bytes a second from `times[i]` on. What
    passes no link with a limit arrives at once and is no part of the steps.
    """

    rack_bytes: float
    core_bytes: float
    times: tuple[float, ...]
    rack: tuple[float, ...]
    core: tuple[float, ...]


class FlowNetwork(Generic[Key]):
    """Flows, each of so many bytes and with a name (`key`), in continuous time (seconds).

    A flow within a rack passes out of its host and into the other one. Between racks it passes
    out of the rack, through the core and into the other rack, too. On one host it passes
    nothing. Rates are max-min fair at every instant. They are found anew when flows start or
    end: once for all that do so at one instant, and only for flows that this may touch, which
    are those that share a link that may be full. Instants never decrease from call to call, and
    ends are taken by `advance` before anything that comes later.
    """

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self._links = Links(cluster, network)
        self._capacities = np.array(self._links.capacity)
        self._members: list[set[int]] = [set() for _ in self._links.capacity]
        self._flows = Flows(self._links.nowhere)
        self._keys: dict[int, Key] = {}
        self._rows: dict[Key, set[int]] = {}
        self._fresh: set[int] = set()  # Flows that have no rate yet.
        self._eased: set[int] = set()  # Links that may have been full, and lost a flow.
        self._next: tuple[float, Key] | None = None  # None: to be looked for, or nothing
        self._now = 0.0
        self._rack_bytes = self._core_bytes = 0.0
        self._times, self._rack, self._core = array("d"), array("d"), array("d")

    def start(
        self, now: float, key: Key, source: str | Sequence[str], target: str, size: float
    ) -> None:
        """Begin to send so many bytes to a host. O(sources); rates are found when asked for.

        From several sources: from each the same part, as a flow of its own; all is there with
        the last of them. A source that is no host of the cluster lies beyond the core.
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
        """Give up a flow; how many of its bytes have arrived."""
        self._move(now)
        return sum(self._remove(row) for row in sorted(self._rows.pop(key)))

    def next_end(self) -> tuple[float, Key] | None:
        """When the next flow will end if nothing starts or stops before, and its name.

        One from several sources ends several times: it is over when `advance` says so.
        """
        self._settle()
        if self._next is None and self._rows:
            row = self._flows.next_row()
            self._next = self._flows.cells.end[row], self._keys[row]
            assert self._next[0] < inf, "every flow gets on"
        return self._next

    def advance(self, now: float) -> list[Key]:
        """Move the clock; the flows that are over by now, in the order of their ends.

        Those that end at one instant come in the order in which they were started.
        """
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
                break  # What starts at this instant is to be known before rates are found.
        self._move(now)
        return over

    def leaving(self, host: str) -> int:
        """How many flows leave a host now; 0 where hosts have no limit."""
        return len(self._members[self._links.out_of(host)])

    def rate(self, key: Key) -> float:
        """The bytes a second that a flow gets now; 0 where no link has a limit."""
        self._settle()
        return sum(self._flows.cells.rate[row] for row in sorted(self._rows[key]))

    def traffic(self) -> Traffic:
        """What has passed by now. O(flows + steps)."""
        self._settle()
        flows, rack, core = self._flows, self._rack_bytes, self._core_bytes
        for row in self._keys:
            arrived = flows.arrived(row, self._now)
            rack += arrived * flows.cells.in_rack[row]
            core += arrived * flows.cells.in_core[row]
        return Traffic(rack, core, tuple(self._times), tuple(self._rack), tuple(self._core))

    def _move(self, now: float) -> None:
        assert now >= self._now, "time does not go back"
        if now > self._now:
            coming = self.next_end()
            assert coming is None or coming[0] >= now, "ends that came before have been taken"
            self._now = now

    def _remove(self, row: int) -> float:
        """Forget a flow; how many of its bytes have arrived."""
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
        """Whether the flows that pass a link could fill it, were each as fast as can be."""
        links = self._links
        return len(self._members[link]) * links.fastest > links.capacity[link]

    def _settle(self) -> None:
        """Find the rates of all flows that what came and went since the last time touches."""
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
        """The flows that came, and those that share a full link with them or with who went.

        A link that cannot be full ties no flows together: each has a limit of its own that is
        lower. None if they are more than a few: it is faster then to take all flows.
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
