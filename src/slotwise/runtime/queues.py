"""The queue of tasks of each host, for policies that plan queues (DMRS V)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from slotwise.model.decision import Enqueue, Launch
from slotwise.model.job import PhaseId


class Queues:
    """The queues of the last `Enqueue`, without the tasks launched since.

    jobs         in the order in which their tasks were placed
    is_outdated  whether jobs, tasks or hosts that they do not cover came or went since
    has_heard    whether time has passed since, so that estimates may have changed
    """

    def __init__(self) -> None:
        self._by_host: dict[str, deque[tuple[PhaseId, int]]] = {}
        self.jobs: tuple[str, ...] = ()
        self.is_outdated = self.has_heard = False

    @property
    def by_host(self) -> Mapping[str, deque[tuple[PhaseId, int]]]:
        """The phase and number of each host's tasks, the next one first."""
        return self._by_host

    def replace(self, decision: Enqueue) -> None:
        """Replace all queues by these."""
        self._by_host = {host: deque(queue) for host, queue in decision.queues.items()}
        self.jobs = decision.jobs
        self.is_outdated = self.has_heard = False

    def launched(self, launch: Launch) -> None:
        """Remove a launched task from its queue. O(1) if it is first there, as usual."""
        task = (launch.phase, launch.task)
        queue = self._by_host.get(launch.host)
        if queue and queue[0] == task:
            queue.popleft()
        else:
            for queue in self._by_host.values():
                if task in queue:
                    queue.remove(task)
