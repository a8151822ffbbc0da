"""A job in the live world: what is left of it, and which of its attempts were begun."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Self

from slotwise.model.decision import Launch
from slotwise.program.execution import Execution, ReportsWaiting
from slotwise.runtime.local.workers import Pickle

DONE = 2**32 - 1
"""Stands for the number of the last attempt of a task that is done: no attempt comes later."""


@dataclass(slots=True)
class LiveJob:
    """A job that is not over: its execution, and how much of it is left and under way.

    begun  the number of the last attempt of each task that was begun, by phase; 0: none
    kept   what tasks that are not done have kept of stopped attempts, by phase and number
    waits  the execution, if it tells for how long its tasks waited
    """

    execution: Execution
    tasks_left: int
    begun: dict[str, array[int]]
    running: int = 0
    given_up: bool = False
    kept: dict[tuple[str, int], Pickle] = field(default_factory=dict)
    waits: ReportsWaiting | None = None

    @classmethod
    def of(cls, execution: Execution) -> Self:
        """A job nothing of which was begun."""
        counts = {phase.name: phase.tasks.count for phase in execution.job.phases}
        begun = {name: array("I", [0]) * count for name, count in counts.items()}
        waits = execution if isinstance(execution, ReportsWaiting) else None
        return cls(execution, sum(counts.values()), begun, waits=waits)

    def latest(self, launch: Launch) -> int:
        """The number of the attempt of a launch's task that was begun last, 0 if none was."""
        return self.begun[launch.phase.phase][launch.task]

    def begin(self, launch: Launch) -> None:
        """An attempt is begun: neither it nor any before it will be again."""
        self.running += 1
        self.begun[launch.phase.phase][launch.task] = launch.attempt

    def finish(self, launch: Launch) -> None:
        """The task of an attempt is done."""
        self.tasks_left -= 1
        self.begun[launch.phase.phase][launch.task] = DONE
        self.kept.pop((launch.phase.phase, launch.task), None)
