"""A job on a real backend that is not over."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from slotwise.model.decision import Launch
from slotwise.programs.execution import Execution, ReportsWaiting

DONE = 1 << 31
"""Added to the number of the last attempt of a task that is done: no later one is valid."""

Pickle = bytes | bytearray
"""A value as it is sent between processes; code that only passes it on does not unpickle it."""


@dataclass(slots=True)
class LiveJob:
    """A job that is not over: its execution, and the numbers of its open and running tasks.

    begun    the number of the last attempt of each task that was begun, by phase; 0: none
    running  the tasks of which an attempt runs, or has ended and is being committed
    kept     the values kept by stopped attempts of tasks that are not done, by phase and number
    waits    the execution, if it reports how long its tasks waited
    open     the number of phases that may still get tasks
    skips    whether a task is done without an attempt; None: none is
    absorbs  whether a task counts as done although its attempt failed; None: none does
    loses    forgets output of tasks that is lost; None: there is no intermediate output
    begins   is told where attempts are about to begin; None: it does not matter
    broken   for each gang that was broken, its last attempt that does not count
    folder   the name of its folder on each host that has its own; empty if it needs none
    places   the hosts of the done tasks whose output is there, by phase and number
    later    while the output is being committed: attempts to discard afterwards; else None
    """

    execution: Execution
    tasks_left: int
    begun: dict[str, array[int]]
    runner_key: str
    running: set[tuple[str, int]] = field(default_factory=set)
    given_up: bool = False
    kept: dict[tuple[str, int], Pickle] = field(default_factory=dict)
    waits: ReportsWaiting | None = None
    open: int = 0
    skips: Callable[[str, int], bool] | None = None
    absorbs: Callable[[str, int, str, bool], bool] | None = None
    loses: Callable[[str, Collection[int]], Collection[int]] | None = None
    begins: Callable[[str, int, int, str], None] | None = None
    broken: dict[str, int] = field(default_factory=dict)
    folder: str = ""
    places: dict[tuple[str, int], str] = field(default_factory=dict)
    later: list[Launch] | None = None

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
            loses=getattr(found, "lose", None),
            begins=getattr(found, "begins_at", None),
            folder=getattr(found, "folder", ""),
        )

    @property
    def is_last(self) -> bool:
        """Whether the job is done when its next task is."""
        return self.tasks_left == 1 and not self.open

    @property
    def is_done(self) -> bool:
        """Whether all tasks are done, and no more come."""
        return not self.tasks_left and not self.open

    def needed(self, phase: str, tasks: Iterable[int]) -> list[int]:
        """The done ones of these tasks whose output a task that is not done may read."""
        done = [task for task in sorted(set(tasks)) if self.begun[phase][task] >= DONE]
        needed: set[int] = set()
        for reader in self.execution.job.phases:
            if reader.continues == phase:
                needed.update(t for t in done if self.begun[reader.name][t] < DONE)
            elif phase in reader.waits_for and (
                reader.grows or any(begun < DONE for begun in self.begun[reader.name])
            ):
                return done
        return sorted(needed)

    def is_broken(self, launch: Launch) -> bool:
        """Whether an attempt belongs to a gang that was broken after it began."""
        return launch.attempt <= self.broken.get(launch.phase.phase, 0)

    def break_gang(self, phase: str, attempt: int) -> list[int]:
        """All tasks of a gang are to be done again. The numbers of those that were done.

        `attempt` and earlier ones do not count any more.
        """
        self.broken[phase] = attempt
        begun = self.begun[phase]
        done = [task for task, last in enumerate(begun) if last >= DONE]
        for task in done:
            begun[task] -= DONE
        self.tasks_left += len(done)
        return done

    def discard(self, launch: Launch) -> None:
        """Remove the files of an attempt. What cannot be removed now is when the job closes."""
        if self.later is not None:
            self.later.append(launch)
            return
        with suppress(OSError):
            self.execution.discard(launch.phase.phase, launch.task, launch.attempt)
