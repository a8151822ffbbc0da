"""What each host is to run next, where a policy plans that ahead (DMRS V)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from slotwise.model.decision import Enqueue, Launch
from slotwise.model.job import PhaseId


class Queues:
    """The queues of the last `Enqueue`, without what was launched since.

    jobs         in the order in which their tasks were placed
    is_outdated  whether jobs, tasks or hosts came or went since that it knew nothing of
    has_heard    whether time passed since, so that estimates may have changed
    """

    def __init__(self) -> None:
        self._by_host: dict[str, deque[tuple[PhaseId, int]]] = {}
        self.jobs: tuple[str, ...] = ()
        self.is_outdated = self.has_heard = False

    @property
    def by_host(self) -> Mapping[str, deque[tuple[PhaseId, int]]]:
        """Phase and number of the tasks of each host, the next one first."""
        return self._by_host

    def replace(self, decision: Enqueue) -> None:
        """These queues in place of all others."""
        self._by_host = {host: deque(queue) for host, queue in decision.queues.items()}
        self.jobs = decision.jobs
        self.is_outdated = self.has_heard = False

    def launched(self, launch: Launch) -> None:
        """A task runs: it leaves its queue, where it is first as a rule. O(1) then."""
        task = (launch.phase, launch.task)
        queue = self._by_host.get(launch.host)
        if queue and queue[0] == task:
            queue.popleft()
        else:
            for queue in self._by_host.values():
                if task in queue:
                    queue.remove(task)
