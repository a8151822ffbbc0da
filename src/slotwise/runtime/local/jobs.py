"""A job in execution: what is left of it, which attempts were begun, and their results."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

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
    open   the number of phases that may still get tasks
    """

    execution: Execution
    tasks_left: int
    begun: dict[str, array[int]]
    runner_key: str
    running: int = 0
    given_up: bool = False
    kept: dict[tuple[str, int], Pickle] = field(default_factory=dict)
    waits: ReportsWaiting | None = None
    open: int = 0
    skips: Callable[[str, int], bool] | None = None
    absorbs: Callable[[str, int, str, bool], bool] | None = None

    @classmethod
    def of(cls, execution: Execution) -> Self:
        """A job with no attempt begun."""
        counts = {phase.name: phase.tasks.count for phase in execution.job.phases}
        begun = {name: array("I", [0]) * count for name, count in counts.items()}
        found: Any = execution  # A protocol that is checked at run time takes far longer.
        return cls(
            execution,
            sum(counts.values()),
            begun,
            getattr(found, "runner_key", execution.job.id),
            waits=found if hasattr(found, "waited") else None,
            open=sum(phase.grows for phase in execution.job.phases),
            skips=getattr(found, "skips", None),
            absorbs=getattr(found, "absorbs", None),
        )

    @property
    def is_last(self) -> bool:
        """Whether the job is done when its next task is."""
        return self.tasks_left == 1 and not self.open

    @property
    def is_done(self) -> bool:
        """Whether all tasks are done, and no more come."""
        return not self.tasks_left and not self.open

    def grow(self, phase: str, count: int) -> None:
        """Add tasks to a phase."""
        self.begun[phase].extend([0] * count)
        self.tasks_left += count

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

    def arguments(self, launch: Launch) -> tuple[object, ...]:
        """The arguments of the runner for an attempt. Raises what the job's own code raises."""
        return self.execution.arguments(launch.phase.phase, launch.task, launch.attempt)

    def store(self, launch: Launch, result: object) -> None:
        """Store a result; after the last one, commit the output. May raise OSError."""
        if not self.given_up:
            self.execution.finished(launch.phase.phase, launch.task, launch.attempt, result)
            if self.is_last:
                self.execution.close(succeeded=True)

    def waited(self, launch: Launch) -> float:
        """The seconds for which an attempt that has just finished did not compute."""
        if self.waits is None:
            return 0.0
        return self.waits.waited(launch.phase.phase, launch.task, launch.attempt)

    def discard(self, launch: Launch) -> None:
        """Remove the files of an attempt. What cannot be removed now is when the job closes."""
        with suppress(OSError):
            self.execution.discard(launch.phase.phase, launch.task, launch.attempt)
