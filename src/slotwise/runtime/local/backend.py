"""The local backend: this machine. Its slots are worker processes; it runs in real time.

It can emulate several hosts, each with its own worker processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.programs.execution import Execution
from slotwise.runtime.live_backend import LiveBackend
from slotwise.runtime.local.processes import Processes

HOST = "localhost"
"""The name of the only host, if no cluster is emulated."""


class LocalBackend(LiveBackend):
    """Runs launches in the worker processes of this machine.

    `slots` is their number, or their number by kind, or a cluster: then each host has its own
    worker processes, one for each slot. A worker is unresponsive if another process has stopped
    it; the only host never is.
    """

    def __init__(
        self,
        executions: Iterable[Execution],
        slots: int | Mapping[str, int] | Cluster,
        *,
        is_open: bool = False,
    ) -> None:
        cluster = slots if isinstance(slots, Cluster) else self.cluster(slots)
        self._processes = Processes(stdout=1 if is_open else 2)
        super().__init__(executions, cluster, self._processes, is_open=is_open)

    @staticmethod
    def cluster(slots: int | Mapping[str, int]) -> Cluster:
        """This machine as a cluster of one host."""
        by_kind = {ANY_KIND: slots} if isinstance(slots, int) else slots
        return Cluster((Host(HOST, by_kind),))

    def _begin_host(self, host: Host) -> Sequence[int]:
        return self._processes.add([host.speed] * sum(host.slots.values()))
