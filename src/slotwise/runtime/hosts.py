"""The responsive hosts and their free slots."""

from __future__ import annotations

from slotwise.model.cluster import Cluster


class FreeSlots:
    """The free slots of one kind, by host.

    Those of an unresponsive host are set aside until it is back. Each method is O(1).

    by_host  the responsive hosts with free slots, and the number of these slots
    freed    the hosts on which slots became free in this turn
    """

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.by_host = {h.name: h.slots[kind] for h in cluster.hosts if h.slots.get(kind)}
        self.freed: list[str] = []
        self._away: dict[str, int] = {}

    @property
    def count(self) -> int:
        """The number of free slots, including those of unresponsive hosts."""
        return sum(self.by_host.values()) + sum(self._away.values())

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
        if host in self._away:
            self._away[host] += slots
        else:
            self.by_host[host] = self.by_host.get(host, 0) + slots
            self.freed.append(host)

    def lose(self, host: str) -> None:
        """Set aside the slots of a host that became unresponsive."""
        self._away[host] = self.by_host.pop(host, 0)

    def join(self, host: str) -> None:
        """Make the slots of a host that is back available again."""
        if count := self._away.pop(host):
            self.by_host[host] = count
            self.freed.append(host)


class Hosts:
    """The free slots of all kinds, and the unresponsive hosts: nothing can begin there.

    capacity  slots of each kind on responsive hosts
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.capacity = dict(cluster.capacity)
        self.free = {kind: FreeSlots(cluster, kind) for kind in cluster.capacity}
        self.lost: set[str] = set()

    def new_turn(self) -> None:
        """Begin a turn: clear the lists of hosts on which slots became free."""
        for free in self.free.values():
            free.freed.clear()

    def lose(self, host: str) -> None:
        """A host became unresponsive."""
        self.lost.add(host)
        self._count(host, -1)
        for free in self.free.values():
            free.lose(host)

    def join(self, host: str) -> None:
        """An unresponsive host is back."""
        self.lost.remove(host)
        self._count(host, 1)
        for free in self.free.values():
            free.join(host)

    def _count(self, host: str, sign: int) -> None:
        for kind, count in self._cluster.by_name[host].slots.items():
            if count:
                self.capacity[kind] += sign * count

    def check(self, kind: str, held: int, capacity: int) -> None:
        """Assert that each slot of a kind is held or free. For tests."""
        free = self.free[kind]
        assert held + free.count == capacity, "each slot is held or free"
        assert all(count > 0 for count in free.by_host.values())
        assert not free.by_host.keys() & self.lost, "nothing begins on an unresponsive host"
        there = [h for h in self._cluster.hosts if h.name not in self.lost]
        assert self.capacity[kind] == sum(host.slots.get(kind, 0) for host in there)
