"""What the live world asks of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from slotwise.model.job import Job
from slotwise.model.observation import Sizes


class Execution(Protocol):
    """What the live world asks of one job: bodies of tasks, and what becomes of results.

    Everything but `runner` stays in the manager. One call at a time is made to it.
    """

    @property
    def job(self) -> Job:
        """The job as the scheduler sees it: phases, counts and estimates of work."""
        ...

    @property
    def runner(self) -> Callable[..., object]:
        """Sent once to each worker process by cloudpickle; called there for each task.

        It may ask `slotwise.task` whether to stop, and what an earlier attempt has kept.
        """
        ...

    def open(self) -> None:
        """Take what the job needs for itself alone, such as its output, before a run begins.

        Raises InputError, and has taken nothing, where that is not to be had.
        """
        ...

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """What `runner` gets for one attempt: small and plain; asked for at its launch."""
        ...

    def describe(self, phase: str, task: int) -> str:
        """The task in words, for messages: "map task 3 (books/a.txt, bytes 0-67108864)"."""
        ...

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Keep what an attempt returned; the first to finish wins. May raise OSError."""
        ...

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove what a failed or killed attempt left behind."""
        ...

    def close(self, succeeded: bool) -> None:
        """Commit the output or take back all that was written; remove temporary files.

        Called at the end, also of a job that never began. May raise OSError where a commit
        fails, and is called again then.
        """
        ...


@runtime_checkable
class ReportsWaiting(Protocol):
    """An execution some of whose tasks do not compute all the time that they hold a slot."""

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """For how many seconds an attempt that has just finished copied or waited."""
        ...


@runtime_checkable
class WritesOutput(Protocol):
    """An execution that writes its result to a place of its own."""

    @property
    def job(self) -> Job:
        """The job as the scheduler sees it."""
        ...

    @property
    def output(self) -> str:
        """The path or URL of the folder that it writes."""
        ...


@runtime_checkable
class HasInputSizes(Protocol):
    """An execution of a program whose tasks take the longer the more bytes they stand for."""

    @property
    def job(self) -> Job:
        """The job as the scheduler sees it."""
        ...

    @property
    def program(self) -> str:
        """The name by which the program is known again in another run."""
        ...

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks, for phases of which they are known."""
        ...

    def expect(self, job: Job) -> None:
        """Have this job in place of its own, from which it differs by estimates of work."""
        ...
