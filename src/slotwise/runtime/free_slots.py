"""The free slots of one kind, host by host."""

from __future__ import annotations

from slotwise.model.cluster import Cluster


class FreeSlots:
    """Which hosts have free slots now, and how many.

    Those of a host that is silent are put away until it is back. Each method is O(1).

    by_host  the hosts with free slots that can be given away, and how many
    freed    the hosts on which slots came free in this turn
    """

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.by_host = {h.name: h.slots[kind] for h in cluster.hosts if h.slots.get(kind)}
        self.freed: list[str] = []
        self._away: dict[str, int] = {}

    @property
    def count(self) -> int:
        """All free slots, those of silent hosts among them."""
        return sum(self.by_host.values()) + sum(self._away.values())

    def take(self, host: str) -> None:
        """A free slot of a host is given away."""
        left = self.by_host[host] - 1
        if left:
            self.by_host[host] = left
        else:
            del self.by_host[host]

    def give_back(self, host: str) -> None:
        """A slot of a host is free again."""
        if host in self._away:
            self._away[host] += 1
        else:
            self.by_host[host] = self.by_host.get(host, 0) + 1
            self.freed.append(host)

    def lose(self, host: str) -> None:
        """Put the slots of a silent host away."""
        self._away[host] = self.by_host.pop(host, 0)

    def join(self, host: str) -> None:
        """The slots of a host that is back can be given away."""
        if count := self._away.pop(host):
            self.by_host[host] = count
            self.freed.append(host)
