"""The plugin of a Dask worker that starts an agent beside it."""

from __future__ import annotations

import asyncio
import json
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import dask.config
from distributed.diagnostics.plugin import WorkerPlugin

from slotwise.model.errors import InputError, SlotwiseError
from slotwise.model.typed import check_number
from slotwise.programs.hosts.greeting import RefusedError
from slotwise.programs.lock import LOOKS
from slotwise.programs.work_folder import sweep
from slotwise.runtime.agents.agent import Given, line_for
from slotwise.runtime.local.pacing import SPEED_LEAST

START_SECONDS = 30.0
"""How long an agent may take to start."""

END_SECONDS = 10.0
"""How long an agent may take to end. Then it is killed: a Dask worker can always end."""

SPEED = "slotwise-agent.speed"
"""In the configuration of Dask on a host: the speed to which its tasks are slowed.

With it, hosts of different speeds can be tried on one machine.
"""

AGENT = (sys.executable, "-P", "-m", "slotwise.runtime.agents.agent")
"""Starts an agent. Files in the folder of the worker must not hide modules that it needs."""


class AgentPlugin(WorkerPlugin):
    """Starts an agent beside a Dask worker, which ends with it.

    It has as many slots as the worker has threads, or at most `slots`. Connections need the
    certificates of the cluster, or without TLS the token.
    """

    def __init__(self, name: str, token: str, slots: int | None) -> None:
        self.name = name
        self._token, self._slots = token, slots

    async def setup(self, worker: Any) -> None:
        """Start the agent; called by Dask in each worker, also in those that come later.

        An error is kept for `address`: without its agent only this worker is left out.
        """
        self._has_ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | SlotwiseError
        try:
            given = self._given(worker)
            self._address = await asyncio.to_thread(self._start, given)
        except (SlotwiseError, OSError, ValueError) as error:
            self._address = RefusedError(f"host {str(worker.name)!r}: {error}")
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

    def address(self) -> tuple[str, int]:
        """Where the agent listens. RefusedError if it could not be started."""
        if isinstance(self._address, SlotwiseError):
            raise self._address
        return self._address

    def wait(self) -> None:
        """Block until the agent has ended."""
        self._has_ended.wait()

    def _given(self, worker: Any) -> Given:
        tls = tls_of(worker.security, "worker")
        threads: int = worker.state.nthreads
        return Given(
            threads if self._slots is None else min(self._slots, threads),
            urlsplit(worker.address).hostname or "127.0.0.1",
            None if tls else self._token,
            tls,
            folder=worker.local_directory,
            speed=_speed_here(),
        )

    def _start(self, given: Given) -> tuple[str, int]:
        """Start the agent, and wait for its address."""
        pipe = subprocess.PIPE
        process = self._process = subprocess.Popen(AGENT, stdin=pipe, stdout=pipe)
        # The end is noticed also while the event loop of the worker is busy or has ended.
        threading.Thread(
            target=self._notice_end, args=(process, given), name="slotwise agent", daemon=True
        ).start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line_for(given).encode())
        process.stdin.flush()
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        line = process.stdout.readline() if poll.poll(START_SECONDS * 1000) else b""
        if not line:
            raise SlotwiseError("its agent did not start; see the messages of its Dask worker")
        return given.listen, int(json.loads(line)["port"])

    def _notice_end(self, process: subprocess.Popen[bytes], given: Given) -> None:
        process.wait()
        self._has_ended.set()
        assert given.folder is not None
        with suppress(OSError):
            sweep(given.folder, LOOKS)  # If it was killed, its files are still there.


def agent_address(plugin: str, dask_worker: Any) -> tuple[str, int]:
    """The address of the agent beside a worker. Runs in the worker."""
    host, port = dask_worker.plugins[plugin].address()
    return host, port


def tls_of(security: Any, role: str) -> dict[str, str] | None:
    """The certificates of a role in a Dask cluster; None without TLS."""
    given = security.get_tls_config_for_role(role)
    names = {"ca_file": given["ca_file"], "cert": given["cert"], "key": given["key"]}
    return names if all(names.values()) else None


def _speed_here() -> float:
    """The speed that the configuration of Dask states for this host; 1 by default.

    InputError for a speed that cannot be emulated.
    """
    speed = dask.config.get(SPEED, 1.0)
    check_number(SPEED, speed)
    if not SPEED_LEAST <= speed <= 1:
        raise InputError(f"{SPEED} is {speed:g}; give a number from {SPEED_LEAST:g} to 1")
    return float(speed)
