"""The interface between the live backends and one job."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from slotwise.core.job import Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from slotwise.core.rates import Rates
    from slotwise.jobs.accounts import Account


class TaskPlace(NamedTuple):
    """Where a task runs: its host, and the numbers of the GPUs there that it has.

    `kept` is the work that it has done, in seconds at speed 1.
    """

    host: str
    devices: tuple[int, ...] = ()
    kept: float = 0.0


class Execution(ABC):
    """One job on a live backend: the code of its tasks, and the handling of their results.

    Everything but `runner` stays in the manager process. Calls are never concurrent.

    job     the job as the scheduler sees it: phases, counts and estimates of work
    runner  the function that workers call for each task; sent once to each worker, pickled. It
            may use `slotwise.task` to check for a stop request and to read what an earlier
            attempt kept
    """

    job: Job
    runner: Callable[..., object]

    sleeps = False
    """Whether tasks only sleep, so that pauses of their processes do not slow them."""

    waits = False
    """Whether attempts hold slots without computing for some time, which `waited` returns."""

    is_shown = True
    """Whether the terminal shows what tasks print."""

    ending_seconds = 0.0
    """Seconds in which an attempt may end by itself after its time limit; then it is killed."""

    account: Account | None = None
    """The account as which tasks run; None for that of the manager."""

    done_before: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    """The tasks, by phase, that an earlier run has done."""

    adopted: Mapping[str, Mapping[int, TaskPlace]] = MappingProxyType({})
    """The tasks, by phase, that an earlier run has begun and that run on, with their places.

    Where there is room they are counted as running when the job arrives, and begin first.
    Others begin when they are launched. `arguments` says how their attempts are attached to.
    """

    unpickles = False
    """Whether results are unpickled in this process. If not, `finished` gets the bytes that a
    task returns, and for anything else the pickle that its worker made of it."""

    @property
    def runner_key(self) -> str:
        """The name under which workers keep the runner; its own one, of the job by default."""
        return self.job.id

    @property
    def output(self) -> str:
        """The path or URL of the folder that it writes to; empty if there is none."""
        return ""

    @property
    def outputs(self) -> tuple[str, ...]:
        """All folders that it writes to; of most jobs, `output` if there is one."""
        return (self.output,) if self.output else ()

    @property
    def closes_in_thread(self) -> bool:
        """Whether `close` after success may take long, so that a thread calls it."""
        return bool(self.outputs)

    @property
    def result(self) -> object:
        """The result of the job in a session: the place of its output by default, or None."""
        return self.output or None

    @property
    def folder(self) -> str:
        """The name of its folder on each host with its own; empty if it needs none."""
        return ""

    @property
    def folders(self) -> tuple[str, ...]:
        """The names of all its folders on each such host; of most jobs, `folder`."""
        return (self.folder,) if self.folder else ()

    @property
    def program(self) -> str:
        """The name of the program in other runs; empty if it says nothing about durations."""
        return ""

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks of a program, for each phase in which they are known."""
        return {}

    def known_as(self, phase: str) -> tuple[str, str]:
        """The program and the phase by which histories know the tasks of a phase."""
        return self.program, phase

    def estimated(self, rates: Rates) -> Job:
        """The job with estimates of the work of its tasks where `rates` have them."""
        return rates.job(self.job, self.program, self.sizes)

    def expect(self, job: Job) -> None:
        """Replace the job by one that differs only in its estimates of work."""
        assert job.by_name.keys() == self.job.by_name.keys()
        self.job = job

    def open(self) -> None:
        """Reserve what the job needs exclusively, such as its output, before a run begins.

        Raises InputError, and reserves nothing, if that is not available.
        """

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        """Handle that an attempt is about to begin on a host; `arguments` is called next.

        Return False if the task is done without the attempt. `address` is that of the agent of
        the host, or empty without an agent.
        """
        return True

    def seconds_before(self, phase: str, task: int) -> float:
        """The seconds for which the attempt that now begins had run in an earlier run."""
        return 0.0

    @abstractmethod
    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return the arguments of `runner` for an attempt at its launch. Keep them small."""

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Return the local files to which an attempt writes its stdout and stderr, if any.

        They exist until `discard` or `close` is called. Otherwise it prints to its worker.
        """
        return ()

    def describe(self, phase: str, task: int) -> str:
        """Return the task for messages: "map task 3 (books/a.txt, bytes 0-67108864)"."""
        return f"{phase} task {task} of job {self.job.id}"

    def printed(self, phase: str, task: int, path: str) -> None:
        """Note the file with the output of an attempt; `finished` is called next."""

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the return value of an attempt. The first to finish wins. May raise OSError.

        Raises FailedAttemptError if the attempt has failed all the same.
        """

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """Return the seconds for which an attempt that has just finished copied or waited.

        It held its slot without computing.
        """
        return 0.0

    def absorbs(
        self, phase: str, task: int, reason: str, *, is_lost: bool, is_own: bool
    ) -> bool:
        """Whether a task counts as done although its attempt failed or was lost.

        `is_own` says whether the task itself has ended its worker.
        """
        return False

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the lost intermediate output of done tasks, and return the tasks that had any.

        They are done again, and with one of a gang all others. If OSError is raised, nothing is
        forgotten.
        """
        return ()

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of a failed or killed attempt.

        Also called for an attempt of a gang that has finished, if another attempt of the gang
        then fails, is killed, or loses its output. The task is done again.
        """

    def close(self, succeeded: bool) -> None:
        """Commit the output, or remove everything written. Temporary files are removed.

        Called at the end, also for a job that never began. If a commit fails, this may raise
        OSError, and is called again.
        """


# Reports of tasks of jobs of stages.


class TaskResult(NamedTuple):
    """The report of a task: records written, and bytes of its output for other tasks.

    `copying` is the seconds for which it copied output of other tasks or waited for it.
    `address` serves its output for other tasks to other hosts; empty if all hosts see it.
    """

    records: int
    bytes: int
    copying: float = 0.0
    address: str = ""


def packed_report(report: TaskResult) -> bytes:
    """Return a report as the bytes that a worker sends; they are read without unpickling."""
    return json.dumps(report).encode()


def read_report(packed: object) -> TaskResult:
    """Return the report in these bytes. Raises ValueError for others."""
    try:
        found = json.loads(packed) if isinstance(packed, bytes) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or list(map(type, found)) != [int, int, float, str]:
        raise ValueError("it is not the report of a task")
    return TaskResult(*found)


class SuccessfulAttempts(NamedTuple):
    """The successful attempt of each task of a phase; 0 for a task that is not done.

    `addresses` serve their files to other hosts; empty if all hosts see them.
    """

    attempts: tuple[int, ...]
    addresses: tuple[str, ...] = ()

    def of(self, task: int) -> tuple[int, str]:
        """Return the successful attempt of a task and its address."""
        return self.attempts[task], self.addresses[task] if self.addresses else ""


# Errors of a task that has lost output of other tasks, or a process.

CHANGED = (
    "is missing or incomplete; find out what removes or changes files there while jobs run"
)


class IncompleteFileError(OSError):
    """The end of a file is missing."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(f"{path} is incomplete")


class LostInputError(BaseException):
    """Output of done tasks is lost: they must be done again before the task that reads it.

    It is not an Exception, so that `except Exception` in user code does not catch it. It is
    sent to the manager unchanged.

    phase    the phase whose output is lost
    outputs  its tasks, each with the number of the attempt that wrote the output
    place    the first lost file
    why      the reason, as it follows the name of the file in the message
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
        """Return the error for these tasks, attempts and files, or None if there are none."""
        found = tuple(lost)
        if not found:
            return None
        outputs = tuple((task, attempt) for task, attempt, _ in found)
        return cls(phase, outputs, str(found[0][2]), why)

    def __str__(self) -> str:
        return f"{self.place} {self.why}"


class FailedAttemptError(Exception):
    """An attempt whose result has arrived has failed; the message is the reason."""


class LostAttemptError(BaseException):
    """A process of the attempt ended without a result: the attempt is lost, not failed.

    A task may have more processes than its worker. Like LostInputError, this is not an
    Exception, and is sent unchanged.
    """
