"""A job on the local backend: what is left of it, and which of its attempts were begun."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Self

from slotwise.model.decision import Launch
from slotwise.programs.execution import Execution, ReportsWaiting
from slotwise.runtime.local.workers import Pickle

DONE = 2**32 - 1
"""Replaces the number of the last attempt of a task that is done: no later one is valid."""


@dataclass(slots=True)
class LiveJob:
    """A job that is not over: its execution, and the numbers of its open and running tasks.

    begun  the number of the last attempt of each task that was begun, by phase; 0: none
    kept   the values kept by stopped attempts of tasks that are not done, by phase and number
    waits  the execution, if it reports how long its tasks waited
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
        """A job with no attempt begun."""
        counts = {phase.name: phase.tasks.count for phase in execution.job.phases}
        begun = {name: array("I", [0]) * count for name, count in counts.items()}
        waits = execution if isinstance(execution, ReportsWaiting) else None
        return cls(execution, sum(counts.values()), begun, waits=waits)

    def latest(self, launch: Launch) -> int:
        """The number of the last attempt begun of a launch's task; 0 if none was."""
        return self.begun[launch.phase.phase][launch.task]

    def begin(self, launch: Launch) -> None:
        """Mark an attempt as begun: neither it nor an earlier one may begin again."""
        self.running += 1
        self.begun[launch.phase.phase][launch.task] = launch.attempt

    def finish(self, launch: Launch) -> None:
        """Mark the task of an attempt as done."""
        self.tasks_left -= 1
        self.begun[launch.phase.phase][launch.task] = DONE
        self.kept.pop((launch.phase.phase, launch.task), None)
