"""The attempts that hosts were sent: one that was sent before is not begun again."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from slotwise.model.decision import Launch
from slotwise.model.job import Job, PhaseId


class LaunchDeduplicator:
    """The last attempt launched of each task; the attempts of a task come in order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._counts = {
            PhaseId(job.id, phase.name): phase.tasks.count
            for job in jobs
            for phase in job.phases
        }
        self._latest: dict[PhaseId, array[int]] = {}
        self._taken_back: set[tuple[PhaseId, int]] = set()

    def is_new(self, launch: Launch) -> bool:
        """Record a launch; whether it was not launched before. O(1)."""
        latest = self._latest.get(launch.phase)
        if latest is None:
            latest = array("I", [0]) * self._counts[launch.phase]
            self._latest[launch.phase] = latest
        task = launch.task
        if launch.attempt <= latest[task]:
            return False
        latest[task] = launch.attempt
        if self._taken_back:
            self._taken_back.discard((launch.phase, task))
        return True

    def take_back(self, phase: PhaseId, task: int) -> None:
        """Record that the last attempt of a task was killed or given up."""
        self._taken_back.add((phase, task))

    def was_taken_back(self, launch: Launch) -> bool:
        """Whether an attempt that is over ended without a result because it was taken back."""
        is_latest = launch.attempt == self._latest[launch.phase][launch.task]
        return not is_latest or (launch.phase, launch.task) in self._taken_back
