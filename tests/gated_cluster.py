"""A small Dask cluster whose workers are threads of this process, with the gate."""

from __future__ import annotations

from typing import Any

from distributed import Client, LocalCluster

import slotwise.dask as gate
from waiting import until


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
