"""Leases: tasks of Dask that occupy the threads of a worker whose slots an agent uses.

Dask runs nothing else on these threads, does not count the worker as idle, and shows the tasks
as "slotwise-lease". They end with the agent, and so with its manager or worker.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from distributed import Client, Future, get_worker

LEASE = "slotwise-lease"

PRIORITY = 1_000_000
"""The priority of leases in Dask: above that of all tasks that wait for a thread."""


class Leased(Protocol):
    """The plugin of a worker that is leased."""

    def wait(self) -> None:
        """Block until its agent has ended."""
        ...


def is_lease(key: object) -> bool:
    """Whether a task of Dask with this key is part of a lease."""
    return isinstance(key, tuple) and key[:1] == (LEASE,)


class Leases:
    """The leases of one session, by the address of the worker."""

    def __init__(self, client: Client, plugin: str) -> None:
        """`plugin` is the name of the plugin, which is `Leased`, in each worker."""
        self._client, self._plugin = client, plugin
        self._futures: dict[str, list[Future[None]]] = {}

    def take(self, address: str, threads: int) -> None:
        """Occupy threads of a worker, each when its present task has ended; returns at once."""
        self.drop(address)
        name = os.urandom(4).hex()
        self._futures[address] = [
            self._client.submit(
                occupy,
                self._plugin,
                key=(LEASE, name, number),
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                priority=PRIORITY,
            )
            for number in range(threads)
        ]

    def drop(self, address: str) -> None:
        """Forget the lease of a worker that has left, for which it would wait forever."""
        for future in self._futures.pop(address, ()):
            future.release()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Forget all leases."""
        for address in list(self._futures):
            self.drop(address)


def occupy(plugin: str) -> None:
    """Occupy a thread of a worker until the agent beside it has ended; runs in the worker."""
    found: Any = get_worker().plugins.get(plugin)
    if found is not None:
        found.wait()
