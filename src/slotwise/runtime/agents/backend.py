"""The backend of many hosts: an agent on each of them runs its worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.event import HostAdded, HostRemoved
from slotwise.programs.execution import Execution
from slotwise.runtime.agents.slots import AgentHost, AgentSlots
from slotwise.runtime.live_backend import LiveBackend
from slotwise.runtime.local.arrivals import Ask

GRACE = 10.0
"""Seconds for which a host may be silent before its tasks begin again elsewhere."""


class HostSource(Protocol):
    """Where hosts with agents come from, such as the workers of a Dask cluster.

    has_tls  whether all connections to agents and between them are encrypted
    """

    has_tls: bool

    def connect(self) -> Sequence[AgentHost]:
        """The hosts that are there now. SlotwiseError if there are none."""
        ...

    def watch(self, join: Callable[[AgentHost], None]) -> None:
        """Call `join` in another thread for each host that comes later, until `close`."""
        ...

    def left(self, name: str) -> None:
        """The connection to a host has ended. It may come again."""
        ...

    def close(self) -> None:
        """End the agents. Idempotent."""
        ...


class AgentsBackend(LiveBackend):
    """Runs launches in the worker processes of agents.

    A host whose connection ends leaves, and its tasks begin again elsewhere. It may come back.
    A host that is silent is unresponsive. The source of the hosts is closed with the backend.
    """

    is_here = False

    def __init__(
        self,
        executions: Iterable[Execution],
        source: HostSource,
        hosts: Sequence[AgentHost],
        *,
        grace: float = GRACE,
        is_open: bool = False,
    ) -> None:
        """Begin with these hosts, which `source` has connected."""
        self._source = source
        self._agents = AgentSlots()
        self._joining = {host.name: host for host in hosts}
        self._waiting: list[AgentHost] = []  # until commits on these hosts have ended
        super().__init__(executions, cluster_of(hosts, grace), self._agents, is_open=is_open)
        source.watch(lambda host: self.put(Ask(partial(self._join, host))))

    def close(self) -> None:
        """End all processes and agents; remove the output of unfinished jobs. Idempotent."""
        self._agents.dismiss()
        super().close()
        self._source.close()

    def _join(self, host: AgentHost) -> None:
        """Add a host, or replace its earlier connection.

        While the output of a job is being committed whose last task ran on this host, the
        scheduler still counts it as there. It joins when that is over.
        """
        self._change_hosts(HostRemoved(self.now, host.name), "has connected again")
        if self._jobs.is_committing(host.name):
            self._waiting.append(host)
            return
        self._joining[host.name] = host
        self._change_hosts(HostAdded(self.now, _host(host)))

    def _begin_host(self, host: Host) -> Sequence[int]:
        return self._agents.add(self._joining.pop(host.name))

    def _address(self, host: str) -> str:
        return self._agents.addresses.get(host, "")

    def _forget(self, key: str, folder: str) -> None:
        super()._forget(key, folder)
        if folder:
            self._agents.clean(folder)

    def _remove(self, host: str, why: str = "was removed") -> None:
        super()._remove(host, why)
        self._jobs.lost_files(host)

    def _take_arrivals(self, now: float) -> None:
        for host in self._agents.take_gone():
            self._source.left(host)
            why = self._agents.why.pop(host, "has closed its connection")
            self._change_hosts(HostRemoved(now, host), why)
        waiting, self._waiting = self._waiting, []
        for connected in waiting:
            if self._jobs.is_committing(connected.name):
                self._waiting.append(connected)
            else:
                self.put(Ask(partial(self._join, connected)))
        super()._take_arrivals(now)


def cluster_of(hosts: Sequence[AgentHost], grace: float = GRACE) -> Cluster:
    """The hosts of agents, as the scheduler sees them. Their speeds are learned."""
    return Cluster(tuple(map(_host, hosts)), grace=grace)


def _host(connected: AgentHost) -> Host:
    slots = {ANY_KIND: connected.slots}
    return Host(connected.name, slots, addresses=connected.addresses)
