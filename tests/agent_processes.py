"""Agents as plain processes on loopback, for tests without Dask."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from ssl import Purpose
from typing import ClassVar

from slotwise.backends.agents.agent import BEAT_SECONDS, AgentConfig, line_for
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.backends.agents.slots import AgentHost, AgentSlots, connect
from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.inbox import Entry, Inbox
from slotwise.backends.live import LiveBackend
from slotwise.backends.local import worker
from slotwise.backends.local.backend import LocalBackend
from slotwise.backends.local.workers import USUAL, Conditions
from slotwise.core.cluster import Cluster, Host
from slotwise.jobs.execution import Execution
from slotwise.jobs.hosts.auth import Security, tls_context

COMMAND = (sys.executable, "-P", "-m", "slotwise.backends.agents.agent")
TOKEN = os.urandom(16)
TIMEOUT = 120.0
"""Seconds; a test that waits for this long has failed."""


class Loopback:
    """Starts agents and connects to them: a source of hosts."""

    beats = BEAT_SECONDS

    def __init__(
        self,
        cluster: Cluster,
        folder: Path | None = None,
        tls: Mapping[str, str] | None = None,
        *,
        is_one_machine: bool = False,
    ) -> None:
        """With a `folder`, each host has its files in one of its own there.

        With `tls`, certificates as an agent is given them. All hosts of one machine have the
        same address.
        """
        self._cluster, self._folder = cluster, folder
        self._tls = tls
        self._is_one_machine = is_one_machine
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.listen: dict[str, tuple[str, int]] = {}
        self._addresses: dict[str, str] = {}

    def address(self, name: str) -> str:
        """The address of a host on loopback, which is its own: 127.0.0.2 and so on."""
        if self._is_one_machine:
            return "127.0.0.1"
        return self._addresses.setdefault(name, f"127.0.0.{2 + len(self._addresses)}")

    def begin(self, host: Host) -> AgentHost:
        """Start an agent for a host, and connect to it."""
        own = None
        if self._folder is not None:
            own = self._folder / host.name
            own.mkdir(parents=True, exist_ok=True)
        given = AgentConfig(
            sum(host.slots.values()),
            "",  # Local backends, of which these are the hosts in some tests, name none.
            self.address(host.name),
            token=None if self._tls else TOKEN.hex(),
            tls=self._tls,
            folder=own and str(own),
            speed=host.speed,
            lingers=600.0,
            beats=self.beats,
        )
        agent = self.agents[host.name] = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write(line_for(given))
        agent.stdin.flush()
        ready, _, _ = select.select([agent.stdout], [], [], TIMEOUT)
        assert ready, f"the agent of {host.name} does not start"
        port = json.loads(agent.stdout.readline())["port"]
        self.listen[host.name] = given.listen, port
        return self.connect_to(host.name)

    def connect_to(self, name: str) -> AgentHost:
        """A connection to an agent that runs."""
        security: Security = TOKEN
        if self._tls:
            security = tls_context(self._tls, Purpose.SERVER_AUTH)
        return connect(name, self.listen[name], security)

    def connect(self) -> Sequence[AgentHost]:
        """Agents for all hosts of the cluster."""
        return [self.begin(host) for host in self._cluster.hosts]

    def watch(self, join: Callable[[AgentHost], None], end: Callable[[str], None]) -> None:
        """Hosts come when a test says so: `join`."""
        self.join = join

    remedy = "start an agent"

    def left(self, name: str) -> None:
        """Nothing comes back by itself."""

    def close(self) -> None:
        """End all agents."""
        for agent in self.agents.values():
            assert agent.stdin is not None
            agent.stdin.close()
        for agent in self.agents.values():
            end_agent(agent)


class EagerSlots(AgentSlots):
    """Slots of agents for tests of local backends: sends orders at once, and knows processes.

    These tests do not call `wait` before they look what their tasks do.
    """

    source: Loopback

    def start_pickled(
        self, slot: int, key: str, task: bytes, conditions: Conditions = USUAL
    ) -> None:
        """Start a task at once."""
        super().start_pickled(slot, key, task, conditions)
        self._flush()

    def request_stop(self, slot: int, until: float) -> None:
        """Ask a task at once."""
        super().request_stop(slot, until)
        self._flush()

    def kill(self, slot: int) -> None:
        """Kill a task at once, and wait until its agent has replaced the worker."""
        host = self._host_of[slot]
        before = self._workers(host)
        super().kill(slot)
        self._flush()
        until = time.monotonic() + TIMEOUT
        while before and before <= self._workers(host):
            assert time.monotonic() < until
            time.sleep(0.005)

    def _dismiss(self, hosts: Iterable[AgentHost]) -> None:
        """Other tests use the agents."""

    def pids(self) -> tuple[int, ...]:
        """The worker processes of all hosts, one host after another."""
        return tuple(
            pid for host in self._hosts.values() for pid in sorted(self._workers(host))
        )

    def _workers(self, host: AgentHost) -> set[int]:
        """The worker processes of a host, when none of them begins or ends; none without agent.

        A child that does not run the program yet may have no group of its own to send signals
        to. One that has ended runs none.
        """
        agent, until = self.source.agents[host.name], time.monotonic() + TIMEOUT
        while agent.poll() is None:
            pids = _children(agent.pid)
            if len(pids) == host.slots and all(map(_is_worker, pids)):
                return {*pids}
            assert time.monotonic() < until
            time.sleep(0.005)
        return set()


class Reused(Loopback):
    """Agents that serve one test after another, because an interpreter takes long to start.

    Another one is started where the environment, the folder or the streams are others. They
    report often what their workers do, as the manager sees it at once on its own machine.
    """

    beats = 0.05

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._keys: dict[str, object] = {}

    idle: ClassVar[dict[object, list[tuple[subprocess.Popen[str], tuple[str, int]]]]] = {}

    def begin(self, host: Host) -> AgentHost:
        """Connect to an agent that is idle, or to a new one."""
        if host.name in self.agents:
            self._keep(host.name)
        key = self._keys[host.name] = self._key(host)
        while self.idle.get(key):
            agent, listens = self.idle[key].pop()
            if agent.poll() is None:
                self.agents[host.name], self.listen[host.name] = agent, listens
                return self.connect_to(host.name)
            end_agent(agent)
        return super().begin(host)

    def close(self) -> None:
        """Keep the agents for others."""
        for name in list(self.agents):
            self._keep(name)

    def _keep(self, name: str) -> None:
        """Keep an agent for others, when it has ended its workers."""
        agent, listens = self.agents.pop(name), self.listen.pop(name)
        key = self._keys.pop(name)
        until = time.monotonic() + TIMEOUT
        while _children(agent.pid):
            assert time.monotonic() < until
            time.sleep(0.005)
        self.idle.setdefault(key, []).append((agent, listens))

    @classmethod
    def end(cls) -> None:
        """End all agents."""
        for found in cls.idle.values():
            for agent, _ in found:
                end_agent(agent)
        cls.idle.clear()

    @classmethod
    def pids(cls) -> set[int]:
        """The agents that are idle."""
        return {agent.pid for found in cls.idle.values() for agent, _ in found}

    def _key(self, host: Host) -> object:
        given = sorted((k, v) for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST")
        streams = [(found.st_dev, found.st_ino) for found in map(os.fstat, (1, 2))]
        described = sum(host.slots.values()), host.speed, self.address(host.name)
        return *described, repr((given, streams))


def end_agent(agent: subprocess.Popen[str]) -> None:
    """End an agent by its standard input."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.close()
    agent.stdout.close()
    agent.wait(60)


def _children(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return sorted(map(int, found))


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        return worker.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(
            b"\0"
        )
    return False


def run_on_agents() -> None:
    """From now on, each host of a local backend is an agent: a process with its own workers.

    Jobs whose reduces copy early get folders that all hosts see.
    """
    put = Inbox.put

    def share(execution: object) -> None:
        if getattr(execution, "needs_shared_files", ""):
            object.__setattr__(execution._layout, "is_shared", True)  # type: ignore[attr-defined]

    def begin(
        self: LocalBackend,
        executions: Iterable[Execution],
        slots: int | Mapping[str, int] | Cluster,
        *,
        is_open: bool = False,
        logs: AttemptLogs | None = None,
    ) -> None:
        cluster = slots if isinstance(slots, Cluster) else LocalBackend.cluster(slots)
        given, agents = list(executions), EagerSlots()
        for execution in given:
            share(execution)
        source = agents.source = Reused(cluster)
        self._source, self._agents = source, agents  # type: ignore[attr-defined]
        self._processes = agents  # type: ignore[assignment]
        self._waiting, self._end_reason = [], ""  # type: ignore[attr-defined]
        self._is_open, self._is_reported = is_open, False  # type: ignore[attr-defined]
        try:
            LiveBackend.__init__(self, given, cluster, agents, is_open=is_open, logs=logs)
        except BaseException:
            source.close()
            raise

    def begin_host(self: LocalBackend, host: Host) -> Sequence[int]:
        return self._agents.add(self._source.begin(host))  # type: ignore[attr-defined]

    def put_shared(self: Inbox, entry: Entry) -> None:
        share(entry)
        put(self, entry)

    LocalBackend.__bases__ = (AgentsBackend,)
    LocalBackend.is_local = True  # Hosts may be added.
    LocalBackend.__init__ = begin  # type: ignore[method-assign]
    LocalBackend._begin_host = begin_host  # type: ignore[method-assign]
    Inbox.put = put_shared  # type: ignore[method-assign]
    atexit.register(Reused.end)


def files_named(folder: Path, name: str) -> list[Path]:
    """The files of this name below a folder, of which others may be removed meanwhile.

    `Path.rglob` fails if a folder disappears while it is read.
    """
    return [Path(place, name) for place, _, names in os.walk(folder) if name in names]
