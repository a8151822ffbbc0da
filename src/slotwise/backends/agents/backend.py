"""The backend for several hosts, with an agent on each that runs its worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from slotwise.backends.agents.slots import AgentHost, AgentSlots
from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.inbox import Ask
from slotwise.backends.live import LiveBackend
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import HostsLostError
from slotwise.core.events import HostAdded, HostRemoved
from slotwise.core.tracebacks import error_line
from slotwise.jobs.execution import Execution
from slotwise.jobs.hosts.sockets import lacking

GRACE = 10.0
"""Seconds for which a host may be silent before its tasks are restarted elsewhere."""


class HostSource(Protocol):
    """A source of hosts with agents, such as the workers of a Dask cluster."""

    def connect(self) -> Sequence[AgentHost]:
        """The hosts that are present now. SlotwiseError if there are none."""
        ...

    def watch(self, join: Callable[[AgentHost], None], end: Callable[[str], None]) -> None:
        """Call `join` in another thread for each host that is added later, until `close`.

        Call `end` in that thread with the reason if no more hosts can join.
        """
        ...

    def left(self, name: str) -> None:
        """Record that the connection to a host has ended. The host may reconnect."""
        ...

    @property
    def remedy(self) -> str:
        """What a user can do to add a host."""
        ...

    def close(self) -> None:
        """End the agents. Idempotent."""
        ...


class AgentsBackend(LiveBackend):
    """Runs launches in the worker processes of agents.

    A host is removed when its connection ends, and its tasks are restarted elsewhere. It may
    reconnect. A silent host is unresponsive. `close` also closes the source of the hosts.
    """

    is_local = False

    def __init__(
        self,
        executions: Iterable[Execution],
        source: HostSource,
        hosts: Sequence[AgentHost],
        *,
        grace: float = GRACE,
        is_open: bool = False,
        logs: AttemptLogs | None = None,
    ) -> None:
        """Start with `hosts`, to which `source` has connected."""
        self._source, self._is_open = source, is_open
        self._agents = AgentSlots()
        self._joining = {host.name: host for host in hosts}
        self._waiting: list[AgentHost] = []  # until commits on these hosts have ended
        self._is_reported = False  # that no host is left
        self._end_reason = ""  # why no more hosts can join; empty while they can
        cluster = cluster_of(hosts, grace)
        super().__init__(executions, cluster, self._agents, is_open=is_open, logs=logs)
        source.watch(
            lambda host: self.inbox.put(Ask(partial(self._join, host))),
            lambda why: self.inbox.put(Ask(partial(self._end_joining, why))),
        )

    def close(self) -> None:
        """End all processes and agents; remove the output of unfinished jobs. Idempotent."""
        self._agents.dismiss()
        super().close()
        self._source.close()

    def _join(self, host: AgentHost) -> None:
        """Add a host, or replace its earlier connection.

        If the output of a job whose last task ran on this host is being committed, the
        scheduler still counts the host as present. It is then added after the commit.
        """
        self._agents.leave(host)
        self._change_hosts(HostRemoved(self.now, host.name), "has connected again")
        if self._jobs.is_committing(host.name):
            self._waiting.append(host)
            return
        self._joining[host.name] = host
        self._change_hosts(HostAdded(self.now, _host(host)))

    def _end_joining(self, why: str) -> None:
        self._end_reason = why
        if self._slots.of_host:
            print(f"slotwise: {why}: no more hosts can join", file=sys.stderr)

    def _begin_host(self, host: Host) -> Sequence[int]:
        return self._agents.add(self._joining.pop(host.name))

    def _address(self, host: str) -> str:
        return self._agents.addresses.get(host, "")

    def _placed(self, reason: object, host: str) -> object:
        if not isinstance(reason, str):
            return reason
        remedy = lacking(error_line(reason), host)
        return f"on host {host}: {reason}" + (f"; {remedy}" if remedy else "")

    def _forget(self, key: str, folders: tuple[str, ...]) -> None:
        super()._forget(key, folders)
        for folder in folders:
            self._agents.clean(folder)

    def _remove(self, host: str, why: str = "was removed") -> None:
        super()._remove(host, why)
        self._jobs.lost_files(host)

    def _check_hosts_left(self) -> None:
        """Print once when no host responds any more, and when one responds again.

        HostsLostError if no host is left and none can join.
        """
        if self._end_reason and not self._slots.of_host:
            raise HostsLostError(
                f"no host is left, and none can join: {self._end_reason}; start the cluster"
                " again, then run again the jobs that are not done"
            )
        is_none = len(self._slots.of_host) == len(self._monitor.unresponsive)
        if is_none == self._is_reported:
            return
        self._is_reported = is_none
        text = "a host reconnected; jobs continue"
        if is_none:
            end = "session.close(cancels=True)" if self._is_open else "Ctrl-C"
            text = (
                "no host is left: jobs wait until one joins or responds;"
                f" {self._source.remedy}; {end} ends the wait"
            )
        print(f"slotwise: {text}", file=sys.stderr)

    def _take_arrivals(self, now: float) -> None:
        for host in self._agents.take_disconnected():
            self._source.left(host)
            why = self._agents.why.pop(host, "has closed its connection")
            self._change_hosts(HostRemoved(now, host), why)
        waiting, self._waiting = self._waiting, []
        for connected in waiting:
            if self._jobs.is_committing(connected.name):
                self._waiting.append(connected)
            else:
                self.inbox.put(Ask(partial(self._join, connected)))
        super()._take_arrivals(now)
        self._check_hosts_left()


def cluster_of(hosts: Sequence[AgentHost], grace: float = GRACE) -> Cluster:
    """The hosts of agents as a cluster for the scheduler, which learns their speeds."""
    return Cluster(tuple(map(_host, hosts)), grace=grace)


def _host(connected: AgentHost) -> Host:
    return Host(
        connected.name,
        {ANY_KIND: connected.slots},
        addresses=connected.addresses,
        resources=connected.resources,
    )
