"""The interface between the local backend and one job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from slotwise.core.job import Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Execution(Protocol):
    """One job on the local backend: the code of its tasks, and the handling of their results.

    Everything but `runner` stays in the manager process. Calls are never concurrent.
    """

    @property
    def job(self) -> Job:
        """The job as the scheduler sees it: phases, counts and estimates of work."""
        ...

    @property
    def runner(self) -> Callable[..., object]:
        """The function that workers call for each task; sent once to each with cloudpickle.

        It may use `slotwise.task` to check for a stop request and to read what an earlier
        attempt kept.
        """
        ...

    def open(self) -> None:
        """Reserve what the job needs exclusively, such as its output, before a run begins.

        Raises InputError if that is not available; nothing is reserved then.
        """
        ...

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The arguments of `runner` for one attempt; called at its launch. Keep them small."""
        ...

    def describe(self, phase: str, task: int) -> str:
        """The task, for messages: "map task 3 (books/a.txt, bytes 0-67108864)"."""
        ...

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store what an attempt returned; the first to finish wins. May raise OSError."""
        ...

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove what a failed or killed attempt left behind.

        Also the result of an attempt that has finished, if its phase is a gang of which another
        attempt then fails, is killed, or loses its output: the task is done again.
        """
        ...

    def close(self, succeeded: bool) -> None:
        """Commit the output, or remove all that was written; remove temporary files.

        Called at the end, also for a job that never began. May raise OSError if a commit
        fails, and is then called again.
        """
        ...


@runtime_checkable
class ReportsWaiting(Protocol):
    """An execution in which some tasks hold a slot without computing for part of the time."""

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """The seconds for which an attempt that has just finished copied or waited."""
        ...


@runtime_checkable
class LosesOutput(Protocol):
    """An execution with intermediate output that can be lost, such as files of its tasks."""

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the intermediate output of done tasks, which is lost.

        Those of the tasks that had any; they are done again, and with one of a gang all others.
        May raise OSError, and has no effect then.
        """
        ...


@runtime_checkable
class KnowsHosts(Protocol):
    """An execution whose running tasks find each other, on whatever hosts they are."""

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> None:
        """An attempt is about to begin on the host whose agent has this address.

        It is empty if there is no agent. `arguments` is called next.
        """
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
    """An execution of a program whose task durations grow with the bytes of input."""

    @property
    def job(self) -> Job:
        """The job as the scheduler sees it."""
        ...

    @property
    def program(self) -> str:
        """The name that identifies the program in other runs."""
        ...

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks, for each phase in which they are known."""
        ...

    def expect(self, job: Job) -> None:
        """Replace the job by one that differs only in its estimates of work."""
        ...


# What a task of a job of stages reports.


class TaskResult(NamedTuple):
    """The report of a task: records written, and bytes of its output for other tasks.

    `copying` is the seconds for which it copied that of other tasks or waited for them.
    `address` is where other hosts fetch its output for other tasks; empty if they see it.
    """

    records: int
    bytes: int
    copying: float = 0.0
    address: str = ""


class SuccessfulAttempts(NamedTuple):
    """Of all tasks of a phase, the attempts that won; 0 for a task that is not done.

    `addresses` is where other hosts fetch what they have left; empty if all hosts see all.
    """

    attempts: tuple[int, ...]
    addresses: tuple[str, ...] = ()

    def of(self, task: int) -> tuple[int, str]:
        """The attempt of a task that won, and its address."""
        return self.attempts[task], self.addresses[task] if self.addresses else ""


# The errors of a task that has lost what it needs: output of other tasks, or a process.

CHANGED = (
    "is missing or incomplete; find out what removes or changes files there while jobs run"
)


class IncompleteFileError(OSError):
    """The end of a file is missing."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(f"{path} is incomplete")


class LostInputError(BaseException):
    """Output of done tasks is lost: they must be done again before the task that reads it.

    It is no Exception, so that `except Exception` in user code does not catch it. It is sent to
    the manager as it is.

    phase    the phase whose output is lost
    outputs  its tasks, each with the number of the attempt that wrote the output
    place    the first file that is lost
    why      what is wrong with it, after its name
    """

    def __init__(
        self,
        phase: str,
        outputs: tuple[tuple[int, int], ...],
        place: str,
        why: str = CHANGED,
    ) -> None:
        super().__init__(phase, outputs, place, why)
        self.phase, self.outputs, self.place, self.why = phase, outputs, place, why

    @classmethod
    def of(
        cls, phase: str, lost: Iterable[tuple[int, int, str | Path]], why: str = CHANGED
    ) -> LostInputError | None:
        """The error for these tasks, attempts and files; None if there are none."""
        found = tuple(lost)
        if not found:
            return None
        outputs = tuple((task, attempt) for task, attempt, _ in found)
        return cls(phase, outputs, str(found[0][2]), why)

    def __str__(self) -> str:
        return f"{self.place} {self.why}"


class LostAttemptError(BaseException):
    """A process of the attempt has ended without a word: the attempt is lost, not failed.

    The worker process of a task need not be the only one. Like LostInputError it is no
    Exception, and is sent as it is.
    """
