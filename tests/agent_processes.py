"""Agents as plain processes on loopback, for tests without Dask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from slotwise.model.cluster import Cluster, Host
from slotwise.programs.execution import Execution
from slotwise.runtime.agents.agent import Given, line_for
from slotwise.runtime.agents.slots import AgentHost, AgentSlots, connect
from slotwise.runtime.live_backend import LiveBackend
from slotwise.runtime.local.backend import LocalBackend

COMMAND = (sys.executable, "-m", "slotwise.runtime.agents.agent")
TOKEN = os.urandom(16)


class Loopback:
    """Starts agents and connects to them: a source of hosts."""

    def __init__(self, cluster: Cluster, folder: Path | None = None) -> None:
        """With a `folder`, each host has its files in one of its own there."""
        self._cluster, self._folder = cluster, folder
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}

    def begin(self, host: Host) -> AgentHost:
        """Start an agent for a host, and connect to it."""
        own = None
        if self._folder is not None:
            own = self._folder / host.name
            own.mkdir(parents=True, exist_ok=True)
        given = Given(
            sum(host.slots.values()),
            token=TOKEN.hex(),
            folder=own and str(own),
            speed=host.speed,
        )
        agent = self.agents[host.name] = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(line_for(given))
        agent.stdin.flush()
        self.ports[host.name] = json.loads(agent.stdout.readline())["port"]
        return self.connect_to(host.name)

    def connect_to(self, name: str) -> AgentHost:
        """A connection to an agent that runs."""
        return connect(name, ("127.0.0.1", self.ports[name]), TOKEN)

    def connect(self) -> Sequence[AgentHost]:
        """Agents for all hosts of the cluster."""
        return [self.begin(host) for host in self._cluster.hosts]

    def watch(self, join: Callable[[AgentHost], None]) -> None:
        """Hosts come when a test says so: `join`."""
        self.join = join

    def left(self, name: str) -> None:
        """Nothing comes back by itself."""

    def close(self) -> None:
        """End all agents."""
        for agent in self.agents.values():
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdin.close()
            agent.stdout.close()
        for agent in self.agents.values():
            agent.wait(60)


def run_on_agents() -> None:
    """From now on, each host of a local backend is an agent: a process with its own workers."""

    def begin(
        self: LocalBackend,
        executions: Iterable[Execution],
        slots: int | Mapping[str, int] | Cluster,
        *,
        is_open: bool = False,
    ) -> None:
        cluster = slots if isinstance(slots, Cluster) else LocalBackend.cluster(slots)
        agents = AgentSlots()
        source = Loopback(cluster)
        self._source, self._agents = source, agents  # type: ignore[attr-defined]
        try:
            LiveBackend.__init__(self, executions, cluster, agents, is_open=is_open)
        except BaseException:
            source.close()
            raise

    def begin_host(self: LocalBackend, host: Host) -> Sequence[int]:
        return self._agents.add(self._source.begin(host))  # type: ignore[attr-defined]

    def close(self: LocalBackend) -> None:
        LiveBackend.close(self)
        self._source.close()  # type: ignore[attr-defined]

    LocalBackend.__init__ = begin  # type: ignore[method-assign]
    LocalBackend._begin_host = begin_host  # type: ignore[method-assign]
    LocalBackend.close = close  # type: ignore[method-assign]
