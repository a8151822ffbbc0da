"""A small Dask cluster whose workers are threads of this process, with the gate."""

from __future__ import annotations

import threading
import time
from typing import Any

from distributed import Client, LocalCluster

import slotwise.dask as gate
from waiting import until


class Meeting:
    """Tasks, which are threads of this process, and the most of them that ran at once.

    None of them ends before so many as are wanted have met, however slowly they begin.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.call(1)

    def call(self, wanted: int) -> None:
        """The tasks that begin from now on."""
        self.wanted, self.most, self._here = wanted, 0, 0

    def attend(self) -> None:
        """As a task."""
        with self._lock:
            self._here += 1
            self.most = max(self.most, self._here)
        until(lambda: self.most >= self.wanted)
        time.sleep(0.02)  # For those that should not be here.
        with self._lock:
            self._here -= 1


MEETING = Meeting()
"""For `meet`, which is sent to workers by its name."""


def meet(number: int) -> None:
    """A task."""
    MEETING.attend()


class Cluster:
    """A cluster, its clients, and what the gate knows."""

    def __init__(self, workers: int = 2, threads: int = 1, **options: Any) -> None:
        self.local = LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=False,
            dashboard_address="127.0.0.1:0",
            **options,
        )
        self.clients: list[Client] = []

    def client(self, name: str = "someone") -> Client:
        """A further client."""
        self.clients.append(Client(self.local, name=name, set_as_default=False))
        return self.clients[-1]

    def install(self, scheduler: str = "fair", **options: Any) -> None:
        """Install the gate."""
        gate.install(self.client("installer"), scheduler=scheduler, **options)

    @property
    def gate(self) -> Any:
        """The gate."""
        return self.local.scheduler.plugins["slotwise"]

    def check_empty(self) -> None:
        """Nothing is held or remembered when all futures are released."""
        for client in self.clients:
            client.close()
        one = self.gate

        def is_empty() -> bool:
            tables = [one._holding._held, one._computations.tasks, one._computations.alive]
            tables.append(one.history._alive)
            return not any(tables) and not list(one._state.jobs_left())

        until(is_empty)
        assert not one.is_open, "the gate has not failed"
        assert one._computations.running == 0
        one._state.check()

    def close(self) -> None:
        """Stop everything."""
        for client in self.clients:
            client.close()
        self.local.close()
