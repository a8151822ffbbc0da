"""The plugin of a Dask worker that starts an agent beside it, registered by a session."""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import dask.config
from distributed.diagnostics.plugin import WorkerPlugin

from slotwise.backends.agents.agent import AgentConfig, line_for
from slotwise.backends.local.pacing import MIN_SPEED
from slotwise.core.errors import InputError, SlotwiseError, check_number
from slotwise.core.resources import GPU, MEANT, MEMORY
from slotwise.jobs.memory import reserve, usable_memory
from slotwise.jobs.work_folder import TRIES, sweep

START_SECONDS = 30.0
"""How long an agent may take to start."""

END_SECONDS = 10.0
"""How long an agent may take to end before it is killed, so that its Dask worker can end."""

SPEED = "slotwise-agent.speed"
"""The setting of Dask on a host for the speed to which its tasks are slowed.

It emulates hosts of different speeds on one machine.
"""

AGENT = (sys.executable, "-P", "-m", "slotwise.backends.agents.agent")
"""The command of an agent. With -P, files in the worker's folder do not hide its modules."""


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """The request of a session to start an agent beside a Dask worker.

    name   the name of the plugin, one for each session
    token  the secret that authenticates the manager if the cluster has no TLS
    slots  the most slots of the agent; by default as many as the worker has threads
    """

    name: str
    token: str
    slots: int | None


class AgentPlugin(WorkerPlugin):
    """Starts an agent beside a Dask worker, and ends it with the worker."""

    def __init__(self, order: AgentOrder) -> None:
        self.name, self._order = order.name, order

    async def setup(self, worker: Any) -> None:
        """Start the agent; called by Dask.

        An error is kept for `address`, so that only this worker is left out.
        """
        self._has_ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | str
        try:
            config = self._config(worker)
            self._address = await asyncio.to_thread(self._start, config)
        except (SlotwiseError, OSError, ValueError) as error:
            self._address = str(error)
            await self.teardown(worker)

    async def teardown(self, worker: Any) -> None:
        """End the agent and its worker processes; it is killed if it does not end."""
        process, ends = self._process, time.monotonic() + END_SECONDS
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            while not self._has_ended.is_set() and time.monotonic() < ends:
                await asyncio.sleep(0.02)
            process.kill()
        self._has_ended.set()

    @property
    def has_begun(self) -> bool:
        """Whether the agent was started, even if it has ended since."""
        return isinstance(self._address, tuple)

    def address(self) -> tuple[str, int] | str:
        """The address of the agent; or why there is none, with the remedy."""
        if isinstance(self._address, tuple) and self._has_ended.is_set():
            return (
                "its agent has ended, or was killed, perhaps because memory was short; restart"
                " this Dask worker"
            )
        return self._address

    def wait(self) -> None:
        """Block until the agent has ended."""
        self._has_ended.wait()

    def _config(self, worker: Any) -> AgentConfig:
        tls = tls_of(worker.security, "worker")
        threads: int = worker.state.nthreads
        return AgentConfig(
            threads if self._order.slots is None else min(self._order.slots, threads),
            str(worker.name),
            urlsplit(worker.address).hostname or "127.0.0.1",
            None if tls else self._order.token,
            tls,
            folder=worker.local_directory,
            speed=_configured_speed(),
            resources=_resources(worker),
        )

    def _start(self, config: AgentConfig) -> tuple[str, int]:
        """Start the agent, and wait for its address."""
        pipe = subprocess.PIPE
        process = self._process = subprocess.Popen(AGENT, stdin=pipe, stdout=pipe)
        # A thread notices the end also while the worker's event loop is busy or has ended.
        threading.Thread(
            target=self._notice_end, args=(process, config), name="slotwise agent", daemon=True
        ).start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line_for(config).encode())
        process.stdin.flush()
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        line = process.stdout.readline() if poll.poll(START_SECONDS * 1000) else b""
        if not line:
            raise SlotwiseError("its agent did not start; see the messages of its Dask worker")
        reply = json.loads(line)
        if reason := reply.get("failed"):
            raise SlotwiseError(reason)
        return config.listen, int(reply["port"])

    def _notice_end(self, process: subprocess.Popen[bytes], config: AgentConfig) -> None:
        process.wait()
        self._has_ended.set()
        assert config.folder is not None
        with suppress(OSError):
            sweep(config.folder, TRIES)  # A killed agent leaves its files behind.


async def begin_agent(order: AgentOrder, dask_worker: Any) -> tuple[str, int] | str:
    """Start an agent beside a worker, unless there is one. Runs in the worker.

    Returns its address; or why it cannot be used, with the remedy. An agent that could not
    start is started again, since the disk may have space now. A killed agent is not.
    """
    before = dask_worker.plugins.get(order.name)
    if before is not None and not before.has_begun:
        await dask_worker.plugin_remove(order.name)
    if order.name not in dask_worker.plugins:
        await dask_worker.plugin_add(AgentPlugin(order), order.name, catch_errors=False)
    found: tuple[str, int] | str = dask_worker.plugins[order.name].address()
    return f"host {str(dask_worker.name)!r}: {found}" if isinstance(found, str) else found


async def end_agent(name: str, dask_worker: Any) -> None:
    """End the agent beside a worker, if there is one. Runs in the worker."""
    if name in dask_worker.plugins:
        await dask_worker.plugin_remove(name)


def tls_of(security: Any, role: str) -> dict[str, str] | None:
    """The certificates of a role in a Dask cluster; None without TLS."""
    given = security.get_tls_config_for_role(role)
    names = {"ca_file": given["ca_file"], "cert": given["cert"], "key": given["key"]}
    return names if all(names.values()) else None


def _resources(worker: Any) -> dict[str, float]:
    """What a worker states of its resources: its memory limit less a reserve, and Dask's.

    Dask's `GPU` are GPUs here. Its `MEMORY` is left out, since the limit is what holds.
    """
    found: dict[str, float] = {}
    for name, amount in worker.state.total_resources.items():
        known = MEANT.get(name.lower(), name.lower())
        if known == GPU:
            found[GPU] = int(amount)
        elif known != MEMORY:
            found[name] = amount
    if limit := worker.memory_manager.memory_limit:
        found[MEMORY] = min(usable_memory(), max(0, limit - reserve(limit)))
    return found


def _configured_speed() -> float:
    """The setting `SPEED` of this host; 1 by default. InputError if it cannot be emulated."""
    speed = dask.config.get(SPEED, 1.0)
    check_number(SPEED, speed)
    if not MIN_SPEED <= speed <= 1:
        raise InputError(f"{SPEED} is {speed:g}; expected a number from {MIN_SPEED:g} to 1")
    return float(speed)
