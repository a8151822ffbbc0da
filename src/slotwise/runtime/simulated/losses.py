"""Outputs of done tasks that are lost while other tasks still need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from slotwise.model.event import TaskFinished
from slotwise.model.job import Job, PhaseId


class Losses:
    """Which outputs are lost, and whether it matters.

    Only output that a later phase reads can be lost, and only while this phase is not done: the
    output of a job is safe.
    """

    def __init__(
        self, jobs: Iterable[Job], loss: Callable[[TaskFinished], float | None]
    ) -> None:
        self._loss = loss
        self._left: dict[PhaseId, int] = {}
        self._readers: dict[PhaseId, list[PhaseId]] = {}
        self._given_up: set[str] = set()
        for job in jobs:
            for phase in job.phases:
                reader = PhaseId(job.id, phase.name)
                self._left[reader] = phase.tasks.count
                for name in phase.waits_for:
                    self._readers.setdefault(PhaseId(job.id, name), []).append(reader)

    def seconds_after(self, event: TaskFinished) -> float | None:
        """Count the end of a task; after how many seconds its output is lost, if it is."""
        self._left[event.phase] -= 1
        return self._loss(event) if event.phase in self._readers else None

    def give_up(self, job: str) -> None:
        """Nothing more is lost of a job that was given up."""
        self._given_up.add(job)

    def matters(self, phase: PhaseId) -> bool:
        """Whether output of this phase is still needed."""
        return phase.job not in self._given_up and any(
            self._left[reader] for reader in self._readers[phase]
        )

    def undo(self, phase: PhaseId, tasks: int) -> None:
        """Count this number of tasks as not done any more."""
        self._left[phase] += tasks
