"""The gangs of a simulation: which of their tasks are done, and which attempts do not count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slotwise.model.event import Event, OutputLost, TaskFailed, TaskFinished, TaskKilled
from slotwise.model.job import Job, PhaseId


class Gangs:
    """A gang is broken when an attempt of it ends without a result.

    The output of its done tasks is then reported as lost. Its attempts that still run count as
    killed when they end.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._done: dict[PhaseId, dict[int, int]] = {
            PhaseId(job.id, phase.name): {}
            for job in jobs
            for phase in job.phases
            if phase.is_gang
        }
        self._broken: dict[PhaseId, int] = {}  # the last attempt that does not count

    def __bool__(self) -> bool:
        return bool(self._done)

    def __contains__(self, phase: object) -> bool:
        return phase in self._done

    def is_done(self, phase: PhaseId, task: int) -> bool:
        """Whether a task of a gang is done."""
        return task in self._done[phase]

    def is_void(self, event: TaskFinished | TaskFailed) -> bool:
        """Whether an attempt belongs to a gang that was broken after it began."""
        return event.attempt <= self._broken.get(event.phase, 0)

    def give_up(self, job: str) -> None:
        """A job was given up: its gangs are not done again."""
        for phase in [phase for phase in self._done if phase.job == job]:
            del self._done[phase]

    def follow(self, event: Event) -> Sequence[Event]:
        """An event as it counts, and the loss of output that follows from it."""
        if not isinstance(event, TaskFinished | TaskFailed | TaskKilled | OutputLost):
            return (event,)
        done = self._done.get(event.phase)
        if done is None:
            return (event,)
        if isinstance(event, OutputLost):
            self._broken[event.phase] = max(done.values())
            return (self._lost(event.at, event.phase, event.reason),)
        if isinstance(event, TaskFinished):
            if self.is_void(event):
                return (TaskKilled(event.at, event.phase, event.task, event.attempt),)
            done[event.task] = event.attempt
            return (event,)
        self._broken[event.phase] = max(event.attempt, self._broken.get(event.phase, 0))
        return (event, self._lost(event.at, event.phase, "")) if done else (event,)

    def _lost(self, at: float, phase: PhaseId, reason: str) -> OutputLost:
        tasks = tuple(sorted(self._done[phase]))
        self._done[phase].clear()
        return OutputLost(at, phase, tasks, reason)
