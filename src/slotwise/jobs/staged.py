"""The execution of jobs of stages: attempts, results, intermediate files, commit of output.

Every job with files of its own runs here: a MapReduce job and a dataflow job differ only in
their `Stages`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from slotwise.core.errors import InputError
from slotwise.core.job import Job, Sizes
from slotwise.jobs.commit import Layout, OutputDirectory
from slotwise.jobs.execution import SuccessfulAttempts, TaskResult
from slotwise.jobs.work_folder import WorkFolder, keeping


class Done(NamedTuple):
    """The attempt of a task that won, and what it returned."""

    attempt: int
    result: object

    @property
    def address(self) -> str:
        """Where its files are fetched; empty if all hosts see them."""
        return self.result.address if isinstance(self.result, TaskResult) else ""


AllDone = Mapping[str, Mapping[int, Done]]
"""The tasks that are done, by phase and number."""


def winners(done: Mapping[int, Done], count: int) -> SuccessfulAttempts:
    """The attempts that won, of a phase of so many tasks, and where their files are."""
    attempts = tuple(done[task].attempt if task in done else 0 for task in range(count))
    # One object for each address: then it is pickled once.
    addresses = tuple(
        sys.intern(done[task].address) if task in done else "" for task in range(count)
    )
    return SuccessfulAttempts(attempts, addresses if any(addresses) else ())


class Stages(Protocol):
    """What the tasks of a job do and leave: what one kind of job adds to the execution."""

    @property
    def program(self) -> str:
        """The name that identifies the program in other runs."""
        ...

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks, for each phase in which they are known."""
        ...

    def begin(self) -> None:
        """The work folder is there, and the first task begins. May raise OSError."""
        ...

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> None:
        """An attempt is about to begin on the host whose agent has this address.

        It is empty if there is no agent. `arguments` follows.
        """
        ...

    def arguments(
        self, phase: str, task: int, attempt: int, done: AllDone
    ) -> tuple[object, ...]:
        """The arguments of the runner for one attempt."""
        ...

    def describe(self, phase: str, task: int) -> str:
        """The task, for messages."""
        ...

    def parts(self, phase: str, task: int) -> Collection[str]:
        """The names of the parts of the output that a task writes."""
        ...

    def is_intermediate(self, phase: str) -> bool:
        """Whether later tasks read the files of the tasks of a phase."""
        ...

    def finished(self, phase: str, task: int, attempt: int) -> None:
        """An attempt is about to be stored as the one that won. May raise OSError."""
        ...

    def lost(self, phase: str, tasks: Collection[int]) -> None:
        """The files of these tasks are about to be forgotten. May raise OSError."""
        ...

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """The tasks whose files nothing reads any more once this task is done."""
        ...


class StagedExecution:
    """An Execution of a job of stages.

    The first attempt of a task to finish wins; the files of other attempts are removed. The
    output appears only if the whole job succeeds.
    """

    def __init__(
        self,
        job: Job,
        runner: Callable[..., object],
        stages: Stages,
        layout: Layout,
        *,
        overwrite: bool,
    ) -> None:
        self.job = job
        self.runner = runner
        self._stages = stages
        self._layout = layout
        tasks = ((name, task) for name in job.by_name for task in range(_count(job, name)))
        parts = [part for name, task in tasks for part in stages.parts(name, task)]
        self._output = OutputDirectory(layout, overwrite, job.id, parts)
        self._work_folder = WorkFolder(layout.work_dir)
        self._done: dict[str, dict[int, Done]] = {name: {} for name in job.by_name}
        self._is_open = self._has_begun = self._is_closed = False

    @property
    def output(self) -> str:
        """The directory of the output."""
        return self._layout.output

    @property
    def program(self) -> str:
        """The name that identifies the program in other runs."""
        return self._stages.program

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks, for each phase in which they are known."""
        return self._stages.sizes

    def expect(self, job: Job) -> None:
        """Replace the job by one that differs only in its estimates of work."""
        assert job.by_name.keys() == self.job.by_name.keys()
        self.job = job

    def open(self) -> None:
        """Lock the output for this job; InputError if another job holds it.

        After an OSError this is tried again when the first task begins; that task then fails
        if the error persists.
        """
        with suppress(OSError):
            self._open()

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> None:
        """An attempt is about to begin on the host whose agent has this address."""
        self._stages.begins_at(phase, task, attempt, address)

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """The arguments of the runner; before the first ones, the work folder is made."""
        if not self._has_begun:
            self._open()
            with keeping(self._work_folder.path.parent):
                self._work_folder.open(self.job.id)
                self._stages.begin()
            self._has_begun = True
        return self._stages.arguments(phase, task, attempt, self._done)

    def describe(self, phase: str, task: int) -> str:
        """A description of the task for messages."""
        return self._stages.describe(phase, task)

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result of the first attempt that finishes; remove files of later ones."""
        done = self._done[phase]
        if task in done:
            self.discard(phase, task, attempt)
            return
        with keeping(self._work_folder.path):
            self._stages.finished(phase, task, attempt)
        done[task] = Done(attempt, result)
        for name, other in self._stages.unneeded(phase, task):
            if other in self._done[name]:
                self._remove_files(name, other, self._done[name][other].attempt)

    @property
    def folder(self) -> str:
        """The name of the folder of its intermediate files, on each host that has its own."""
        return "" if self._layout.is_shared else Path(self._layout.work_dir).name

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the intermediate files of these done tasks.

        Parts of the output and results are not intermediate files of tasks.
        """
        if not self._stages.is_intermediate(phase):
            return ()
        with keeping(self._work_folder.path):
            self._stages.lost(phase, tasks)
        for task in tasks:
            del self._done[phase][task]
        return tasks

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """The seconds for which an attempt that finished copied or waited for other tasks."""
        done = self._done[phase].get(task)
        if done is None or done.attempt != attempt or not isinstance(done.result, TaskResult):
            return 0.0
        return done.result.copying

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of an attempt, unless it won and the job is still open.

        A gang is done again as a whole, so the attempts of it that won are discarded, too.
        On an unresponsive host an attempt may continue after the end of its job.
        """
        done = self._done[phase].get(task)
        if done is not None and done.attempt == attempt and not self._is_closed:
            if not self.job.by_name[phase].is_gang:
                return
            del self._done[phase][task]
        self._remove_files(phase, task, attempt)
        if self._is_open:
            for part in self._stages.parts(phase, task):
                self._output.discard(self._layout.staged(part, attempt))
        if self._is_closed:
            self._work_folder.remove()

    def close(self, succeeded: bool) -> None:
        """Commit the parts, or remove everything that the job created.

        After a commit that raised OSError, close can be called again, with either argument.
        """
        if self._is_closed:
            return
        if succeeded:
            self._output.commit(
                {
                    part: self._layout.staged(part, done.attempt)
                    for phase, tasks in self._done.items()
                    for task, done in tasks.items()
                    for part in self._stages.parts(phase, task)
                }
            )
            self._is_closed = True
        try:
            if self._is_open and not succeeded:
                self._output.abort()
        finally:
            self._work_folder.remove()
        self._is_closed = self._is_open

    def _open(self) -> None:
        if self._is_open:
            return
        try:
            self._output.open()
        except InputError as error:
            raise InputError(f"job {self.job.id!r}: {error}") from None
        self._is_open = True

    def _remove_files(self, phase: str, task: int, attempt: int) -> None:
        directory = self._layout.attempt_dir(phase, task, attempt)
        shutil.rmtree(directory, ignore_errors=True)


def _count(job: Job, phase: str) -> int:
    return job.by_name[phase].tasks.count
