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
    """Calls the function of a phase with the number of a task, and its hook when it is told."""

    functions: Mapping[str, Function]

    def __call__(self, phase: str, task: int) -> object:
        function = self.functions[phase]
        running.on_stop_request(getattr(function, "on_preempt", None))
        return function(task)


class Calls:
    """A job each of whose tasks is one call: `functions[phase](task)`, in a worker process.

    `results[phase][task]` holds what the calls returned. A function may use `slotwise.task`;
    its attribute `on_preempt`, if it has one, is called with the seconds left when the task is
    told to stop. Raises InputError where a phase has no function or a function no phase.
    """

    def __init__(self, job: Job, functions: Mapping[str, Function] | Function) -> None:
        if callable(functions):  # One function is for every phase.
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
        """There is nothing that others could take."""

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The name of the phase and the number of the task."""
        return (phase, task)

    def describe(self, phase: str, task: int) -> str:
        """The task in words."""
        return f"{phase} task {task} of job {self.job.id}"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Keep the result of the first attempt that finishes."""
        self.results[phase].setdefault(task, result)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """A call leaves nothing behind that we know of."""

    def close(self, succeeded: bool) -> None:
        """There is nothing to commit: the results are in `results`."""


class Sleep:
    """A synthetic job: each task sleeps as many seconds as its phase says it works.

    On a host of speed s that is played it sleeps 1 / s times as long: stopping and continuing
    a process, by which computing is slowed there, does not slow a sleep.
    Told to stop, a task stops at once; its next attempt sleeps the rest only.
    Raises InputError for a phase whose work nobody has said.
    """

    def __init__(self, job: Job) -> None:
        for phase in job.phases:
            if phase.tasks.work is None:
                raise InputError(
                    f"job {job.id!r}: phase {phase.name!r} does not say its work, so nobody"
                    " knows how long to sleep; give `work`"
                )
        self.job = job
        self.runner: Callable[..., object] = running.sleep

    def open(self) -> None:
        """There is nothing that others could take."""

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The seconds to sleep."""
        work = self.job.by_name[phase].tasks.work_of(task)
        assert work is not None
        return (work,)

    def describe(self, phase: str, task: int) -> str:
        """The task in words."""
        return f"{phase} task {task} of job {self.job.id} (it sleeps)"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Sleep has no result."""

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Sleep leaves nothing behind."""

    def close(self, succeeded: bool) -> None:
        """There is nothing to commit."""
