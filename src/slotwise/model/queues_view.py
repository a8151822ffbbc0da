"""The queues of hosts as a policy sees them, if it plans queues (DMRS V)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from slotwise.model.job import PhaseId


class QueuesView(Protocol):
    """The queues of the last `Enqueue`, without the tasks launched since."""

    @property
    def by_host(self) -> Mapping[str, Sequence[tuple[PhaseId, int]]]:
        """The phase and number of each host's tasks, the next one first."""
        ...

    @property
    def jobs(self) -> Sequence[str]:
        """The jobs in the order in which their tasks were placed."""
        ...

    @property
    def is_outdated(self) -> bool:
        """Whether jobs, tasks or hosts that it does not cover came or went since."""
        ...

    @property
    def has_heard(self) -> bool:
        """Whether time has passed since, so that estimates may have changed."""
        ...
