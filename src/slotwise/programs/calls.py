"""Jobs made of plain Python calls, and jobs that sleep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slotwise import task as running
from slotwise.model.errors import InputError
from slotwise.model.job import Job

Function = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class _Dispatch:
    """Calls the function of a phase with a task number; registers its preemption hook."""

    functions: Mapping[str, Function]

    def __call__(self, phase: str, task: int) -> object:
        function = self.functions[phase]
        running.on_stop_request(getattr(function, "on_preempt", None))
        return function(task)


class Calls:
    """A job in which each task is one call, `functions[phase](task)`, in a worker process.

    `results[phase][task]` holds what the calls returned. A function may use `slotwise.task`.
    If a function has an attribute `on_preempt`, it is called with the seconds left when the
    task is asked to stop. Raises InputError for a phase without a function and for a function
    without a phase.
    """

    def __init__(self, job: Job, functions: Mapping[str, Function] | Function) -> None:
        if callable(functions):  # One function serves every phase.
            functions = dict.fromkeys(job.by_name, functions)
        for name in sorted(job.by_name.keys() ^ functions.keys()):
            lacks = "has no function" if name in job.by_name else "is not a phase of the job"
            raise InputError(
                f"job {job.id!r}: {name!r} {lacks}; give one function for each phase"
            )
        self.job = job
        self.runner: Callable[..., object] = _Dispatch(dict(functions))
        self.results: dict[str, dict[int, object]] = {name: {} for name in functions}

    def open(self) -> None:
        """Do nothing: calls reserve no resources."""

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The name of the phase and the number of the task."""
        return (phase, task)

    def describe(self, phase: str, task: int) -> str:
        """A description of the task, for messages."""
        return f"{phase} task {task} of job {self.job.id}"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result of the first attempt that finishes."""
        self.results[phase].setdefault(task, result)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Do nothing: a call has no known files to remove."""

    def close(self, succeeded: bool) -> None:
        """Do nothing: `results` already holds the results."""


class Sleep:
    """A synthetic job: each task sleeps for the seconds given as the work of its phase.

    On an emulated host of speed s it sleeps 1 / s times as long, because pausing the process,
    which slows computation there, does not slow a sleep.
    When a task is asked to stop, it stops at once; its next attempt sleeps only the remainder.
    Raises InputError for a phase without `work`.
    """

    def __init__(self, job: Job) -> None:
        for phase in job.phases:
            if phase.tasks.work is None:
                raise InputError(
                    f"job {job.id!r}: phase {phase.name!r} has no work, so the time to sleep is"
                    " unknown; give `work`"
                )
        self.job = job
        self.runner: Callable[..., object] = running.sleep

    def open(self) -> None:
        """Do nothing: a sleep reserves no resources."""

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The seconds to sleep."""
        work = self.job.by_name[phase].tasks.work_of(task)
        assert work is not None
        return (work,)

    def describe(self, phase: str, task: int) -> str:
        """A description of the task, for messages."""
        return f"{phase} task {task} of job {self.job.id} (it sleeps)"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Do nothing: a sleep has no result."""

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Do nothing: a sleep writes no files."""

    def close(self, succeeded: bool) -> None:
        """Do nothing: there is no output to commit."""
