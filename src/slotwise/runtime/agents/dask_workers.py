"""The workers of a Dask cluster as hosts: Dask starts an agent beside each of them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from ssl import Purpose
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Client

from slotwise.model.errors import InputError, SlotwiseError
from slotwise.programs.hosts.greeting import RefusedError, Security
from slotwise.programs.hosts.security import tls_context
from slotwise.runtime.agents.lease import Leases
from slotwise.runtime.agents.plugin import START_SECONDS, AgentPlugin, agent_address, tls_of
from slotwise.runtime.agents.slots import AgentHost, connect

LOOK_SECONDS = 1.0
"""How often the manager looks for workers that have come."""

TIMEOUT = "distributed.comm.timeouts.connect"
"""In the configuration of Dask: how long a connection may take."""

FIND_SECONDS = 5.0
"""How long the scheduler may take to answer, if Dask's configuration does not say it."""


class DaskWorkers:
    """Agents on all workers of a Dask cluster, also on those that come later.

    A host has the name of its worker. `connect` first, then `watch`; `close` ends the agents.
    A lease keeps Dask from using the threads whose slots the agents have.
    """

    def __init__(self, client: Client | str, slots: int | None = None) -> None:
        """With `slots`, at most so many of each worker. InputError without a scheduler."""
        self._is_mine = isinstance(client, str)
        client = _client(client) if isinstance(client, str) else client
        self._client = client
        token = os.urandom(16)
        self._plugin = f"slotwise-agent-{os.urandom(4).hex()}"
        tls = tls_of(client.security, "client")
        self.has_tls = tls is not None
        self._security: Security = tls_context(tls, Purpose.SERVER_AUTH) if tls else token
        self._connected: dict[str, str] = {}  # by the worker's address, its name
        self._refused: dict[str, str] = {}  # by the worker's address, why
        self._told: set[str] = set()  # addresses
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None
        self._leases = Leases(client, self._plugin)
        try:
            client.register_plugin(AgentPlugin(self._plugin, token.hex(), slots))
        except Exception as error:  # Of any kind, raised in a worker by Dask.
            self.close()
            raise SlotwiseError(
                f"agents cannot be started on the workers of the Dask cluster: {error}; they"
                " need the same version of slotwise"
            ) from error

    def connect(self) -> list[AgentHost]:
        """Connect to the agents of the workers that are there and are not connected.

        SlotwiseError if there are none of which an agent can be used.
        """
        hosts = self._new()
        if not hosts and not self._connected:
            why = "; ".join(self._refused.values())
            raise SlotwiseError(
                f"no worker of the Dask cluster can be used: {why or 'there are none'};"
                " start some with dask worker"
            )
        return hosts

    def watch(self, join: Callable[[AgentHost], None]) -> None:
        """Call `join` for each host that comes, in a thread of its own, until `close`."""
        self._watcher = threading.Thread(
            target=self._watch, args=(join,), name="slotwise Dask workers", daemon=True
        )
        self._watcher.start()

    def left(self, name: str) -> None:
        """The connection to a host has ended; connect again if its worker is still there."""
        for address, known in list(self._connected.items()):
            if known == name:
                del self._connected[address]
                self._leases.drop(address)

    def close(self) -> None:
        """End all agents. Idempotent."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(START_SECONDS)
        if self._client.status == "running":
            self._leases.close()
            # Of workers that have no agent, or end now; agents also end without a manager.
            with suppress(Exception):
                self._client.unregister_worker_plugin(  # type: ignore[no-untyped-call]
                    self._plugin
                )
        if self._is_mine:
            self._client.close()  # type: ignore[no-untyped-call]

    def _watch(self, join: Callable[[AgentHost], None]) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                for host in self._new():
                    join(host)
            except Exception as error:  # Of Dask, while the cluster changes or ends.
                if self._client.status != "running":
                    return
                print(f"slotwise: looking for Dask workers failed: {error}", file=sys.stderr)

    def _new(self) -> list[AgentHost]:
        """Connections to the agents of workers that are not connected."""
        workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        for address in self._connected.keys() - workers.keys():
            del self._connected[address]
            self._leases.drop(address)
        unknown = [address for address in workers if address not in self._connected]
        if not unknown:
            return []
        found = self._client.run(
            agent_address, self._plugin, workers=unknown, on_error="return"
        )
        hosts = []
        for address, agent in found.items():
            if isinstance(agent, BaseException):
                if isinstance(agent, SlotwiseError):
                    self._refuse(address, str(agent), is_told=True)
                    continue
                # It may still begin.
                is_told = address in self._refused
                self._refuse(address, f"{address}: {agent}", is_told=is_told)
                continue
            name = str(workers[address]["name"])
            try:
                hosts.append(connect(name, tuple(agent), self._security))
            except RefusedError as error:
                self._refuse(address, str(error), is_told=True)
            else:
                self._connected[address] = name
                self._leases.take(address, hosts[-1].slots)
        return hosts

    def _refuse(self, address: str, why: str, *, is_told: bool) -> None:
        """Note why a worker cannot be used; if it is to be told, tell it once."""
        self._refused[address] = why
        if is_told and address not in self._told:
            self._told.add(address)
            print(f"slotwise: a worker of the Dask cluster is left out: {why}", file=sys.stderr)


def _client(address: str) -> Client:
    """A client of the scheduler at this address. InputError if there is none."""
    try:
        return Client(  # type: ignore[no-untyped-call]
            address, set_as_default=False, timeout=_find_seconds()
        )
    except (OSError, ValueError, TypeError) as error:
        reason = str(error)
    # The client that was begun must end now. Later its event loop has ended, and it waits.
    gc.collect()
    raise InputError(
        f"there is no Dask scheduler at {address!r}: {reason}; give its address, such as"
        f" tcp://127.0.0.1:8786, or a longer time in Dask's configuration, {TIMEOUT}"
    )


def _find_seconds() -> float:
    """How long the scheduler may take to answer: a few seconds, or what Dask is told."""
    stated = dask.config.get(TIMEOUT)
    if stated == dask.config.get(TIMEOUT, config=dask.config.merge(*dask.config.defaults)):
        return FIND_SECONDS
    return float(parse_timedelta(stated))
