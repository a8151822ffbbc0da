"""Conversion of the log of a live run to jobs that can be simulated."""

from __future__ import annotations

from dataclasses import replace

from slotwise.core.errors import InputError
from slotwise.core.job import Job, PhaseId
from slotwise.core.log import Header, Log
from slotwise.insight.reducer import Attempt, RunReducer

MIN_WORK = 1e-6
"""The smallest work of a task, in seconds; shorter measurements are raised to it."""


def measured_jobs(log: Log) -> tuple[Job, ...]:
    """Return the jobs of a run with the measured work of each task, in seconds at speed 1.

    A simulation of these jobs estimates the result of the run under another scheduler.
    InputError if a task never succeeded. O(attempts).
    """
    run = _Measured(log.header, is_brief=False).follow(log)
    return tuple(_measured(span.job, run.seconds) for span in run.jobs.values())


class _Measured(RunReducer):
    """Collects the work of each task, by its last attempt that succeeded."""

    def __init__(self, header: Header, is_brief: bool = True) -> None:
        super().__init__(header, is_brief)
        self.seconds: dict[tuple[PhaseId, int], float] = {}

    def on_attempt(self, attempt: Attempt) -> None:
        """Store the work of a successful attempt."""
        if attempt.ending == "done":
            work = attempt.seconds * self.hosts.speeds[attempt.host]
            self.seconds[attempt.phase, attempt.task] = max(work, MIN_WORK)


def _measured(job: Job, seconds: dict[tuple[PhaseId, int], float]) -> Job:
    phases = []
    for phase in job.phases:
        name = PhaseId(job.id, phase.name)
        tasks = [(name, task) for task in range(phase.tasks.count)]
        missing = [task for task in tasks if task not in seconds]
        if missing:
            raise InputError(
                f"{name} task {missing[0][1]} never succeeded: its work is unknown"
            )
        work = tuple(seconds[task] for task in tasks)
        phases.append(replace(phase, tasks=replace(phase.tasks, work=work)))
    return replace(job, phases=tuple(phases))
