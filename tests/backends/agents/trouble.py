"""Random faults of hosts while jobs run: what may happen to agents and their processes."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agent_processes import Loopback
from slotwise.backends.agents.backend import AgentsBackend
from slotwise.backends.inbox import Ask
from slotwise.core.cluster import Cluster
from slotwise.core.events import HostDrained


class Trouble:
    """Causes a number of random faults, in a thread of its own, until the block ends.

    Hosts that have left come back. `done` has the kinds of the faults that were caused.
    """

    def __init__(
        self,
        backend: AgentsBackend,
        loopback: Loopback,
        cluster: Cluster,
        seed: int,
        count: int,
        pause: float,
    ) -> None:
        self._backend, self._loopback = backend, loopback
        self._hosts = cluster.by_name
        self._rng, self._count, self._pause = random.Random(seed), count, pause
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: BaseException | None = None
        self.done: list[str] = []

    def __enter__(self) -> Trouble:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        faults: list[Callable[[str], None]] = [
            self._kill_worker,
            self._kill_agent,
            self._freeze_agent,
            self._drain,
            self._reconnect,
        ]
        try:
            while len(self.done) < self._count and not self._wait(self._pause):
                fault = self._rng.choice(faults)
                fault(self._rng.choice(list(self._hosts)))
                self.done.append(fault.__name__)
        except BaseException as error:
            self._error = error

    def _wait(self, most: float) -> bool:
        """Wait at most this long; whether the run is over."""
        return self._is_over.wait(self._rng.uniform(0, most))

    def _kill_worker(self, host: str) -> None:
        agent = self._loopback.agents[host].pid
        path = Path(f"/proc/{agent}/task/{agent}/children")
        with suppress(OSError, ValueError, IndexError):
            os.kill(int(self._rng.choice(path.read_text().split())), signal.SIGKILL)

    def _kill_agent(self, host: str) -> None:
        agent = self._loopback.agents[host]
        agent.kill()
        agent.wait()
        self._wait(self._pause)
        connected = self._loopback.begin(self._hosts[host])
        self._loopback.join(connected)

    def _freeze_agent(self, host: str) -> None:
        agent = self._loopback.agents[host]
        agent.send_signal(signal.SIGSTOP)
        self._wait(4 * self._pause)
        agent.send_signal(signal.SIGCONT)

    def _drain(self, host: str) -> None:
        """Its running tasks end first; perhaps not all of them, because it comes back soon."""
        backend = self._backend
        backend.inbox.put(Ask(lambda: backend.on_event(HostDrained(backend.now, host))))
        self._wait(4 * self._pause)
        self._reconnect(host)

    def _reconnect(self, host: str) -> None:
        """A second connection to an agent is refused, so another agent takes its place."""
        old = self._loopback.agents[host]
        self._loopback.join(self._loopback.begin(self._hosts[host]))
        assert old.stdin is not None
        assert old.stdout is not None
        old.stdin.close()
        old.stdout.close()
        old.wait()
