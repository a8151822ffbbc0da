"""The execution of jobs of stages: attempts, results, intermediate files, commit of output.

It runs MapReduce and dataflow jobs; a subclass for each adds what its stages read and write.
"""

from __future__ import annotations

import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slotwise.core.errors import InputError
from slotwise.core.job import Job
from slotwise.jobs.commit import Layout, OutputDirectory
from slotwise.jobs.execution import Execution, SuccessfulAttempts, TaskResult, read_report
from slotwise.jobs.work_folder import WorkFolder, work_folder_errors


class Done(NamedTuple):
    """The successful attempt of a task, and its report."""

    attempt: int
    result: TaskResult

    @property
    def address(self) -> str:
        """The address that serves its files; empty if all hosts see them."""
        return self.result.address


def winners(done: Mapping[int, Done], count: int) -> SuccessfulAttempts:
    """Return the successful attempts of a phase of `count` tasks, and their addresses."""
    attempts = tuple(done[task].attempt if task in done else 0 for task in range(count))
    # Interned, so that each address is pickled once.
    addresses = tuple(
        sys.intern(done[task].address) if task in done else "" for task in range(count)
    )
    return SuccessfulAttempts(attempts, addresses if any(addresses) else ())


class StagedExecution(Execution):
    """The execution of a job of stages.

    The first attempt of a task to finish wins; the files of other attempts are removed. The
    output appears only if the whole job succeeds.
    """

    waits = True

    def __init__(
        self, job: Job, runner: Callable[..., object], layout: Layout, *, overwrite: bool
    ) -> None:
        """Prepare the job. A subclass sets first what `parts` reads."""
        self.job = job
        self.runner = runner
        self._layout = layout
        tasks = ((name, task) for name in job.by_name for task in range(_count(job, name)))
        parts = [part for name, task in tasks for part in self.parts(name, task)]
        self._output = OutputDirectory(layout, overwrite, job.id, parts)
        self._work_folder = WorkFolder(layout.work_dir)
        self._done: dict[str, dict[int, Done]] = {name: {} for name in job.by_name}
        self._is_open = self._has_begun = self._is_closed = False
        self._has_succeeded = False

    @property
    def output(self) -> str:
        """The directory of the output."""
        return self._layout.output

    def open(self) -> None:
        """Lock the output for this job. Raises InputError if another job holds it.

        After an OSError this is retried when the first task begins; that task then fails if the
        error persists.
        """
        with suppress(OSError):
            self._open()

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return the arguments of the runner. The first call creates the work folder."""
        if not self._has_begun:
            self._open()
            with work_folder_errors(self._work_folder.path.parent):
                self._work_folder.open(self.job.id)
                self.begin()
            self._has_begun = True
        return (phase, task, attempt, *self.inputs(phase, task))

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result of the first attempt that finishes; remove files of others."""
        done = self._done[phase]
        if task in done:
            self.discard(phase, task, attempt)
            return
        report = self.report(phase, result)
        with work_folder_errors(self._work_folder.path):
            self.on_finished(phase, task, attempt)
        done[task] = Done(attempt, report)
        for name, other in self.unneeded(phase, task):
            if other in self._done[name]:
                self._remove_files(name, other, self._done[name][other].attempt)

    @property
    def folder(self) -> str:
        """The name of its folder on hosts that do not share intermediate files, or ""."""
        return "" if self._layout.is_shared else Path(self._layout.work_dir).name

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the intermediate files of done tasks, and return these tasks.

        Parts of the output and results are not intermediate files.
        """
        if not self.is_intermediate(phase):
            return ()
        with work_folder_errors(self._work_folder.path):
            self.on_lost(phase, tasks)
        for task in tasks:
            del self._done[phase][task]
        return tasks

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """Return the seconds for which a finished attempt copied or waited for other tasks."""
        done = self._done[phase].get(task)
        return done.result.copying if done is not None and done.attempt == attempt else 0.0

    def report(self, phase: str, result: object) -> TaskResult:
        """Return the report of a task from its result. Raises ValueError."""
        return read_report(result)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of an attempt, unless it succeeded and the job is still open.

        A gang is done again as a whole, so its successful attempts are discarded, too. On an
        unresponsive host an attempt may continue after the end of its job.
        """
        done = self._done[phase].get(task)
        if done is not None and done.attempt == attempt and not self._is_closed:
            if not self.job.by_name[phase].is_gang:
                return
            del self._done[phase][task]
        self._remove_files(phase, task, attempt)
        if self._is_open:
            for part in self.parts(phase, task):
                self._output.discard(self._layout.staged(part, attempt))
        if self._is_closed:
            self._end_folder()

    def close(self, succeeded: bool) -> None:
        """Commit the parts, or remove everything that the job created.

        After a commit that raised OSError, close can be called again with either argument.
        """

        if self._is_closed:
            return
        if succeeded:
            self._output.commit(
                {
                    part: self._layout.staged(part, done.attempt)
                    for phase, tasks in self._done.items()
                    for task, done in tasks.items()
                    for part in self.parts(phase, task)
                }
            )
            self._is_closed = self._has_succeeded = True
        try:
            if self._is_open and not succeeded:
                self._output.abort()
        finally:
            self._end_folder()
        self._is_closed = self._is_open

    # What the kinds of jobs differ in.

    @abstractmethod
    def inputs(self, phase: str, task: int) -> tuple[object, ...]:
        """Return what the runner gets after phase, task and attempt."""

    @abstractmethod
    def parts(self, phase: str, task: int) -> Collection[str]:
        """Return the names of the parts of the output that a task writes."""

    @abstractmethod
    def is_intermediate(self, phase: str) -> bool:
        """Return whether later tasks read the files of the tasks of a phase."""

    def begin(self) -> None:
        """Prepare for the first task; the work folder exists. May raise OSError."""

    def on_finished(self, phase: str, task: int, attempt: int) -> None:
        """Handle that an attempt is about to be stored as successful. May raise OSError."""

    def on_lost(self, phase: str, tasks: Collection[int]) -> None:
        """Handle that the files of these tasks are lost. May raise OSError."""

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """Return the tasks whose files are no longer read once this task is done."""
        return ()

    def kept_names(self) -> Collection[str]:
        """Return the names in the work folder that a later run needs to continue the job."""
        return ()

    def _end_folder(self) -> None:
        """Remove the work folder, except what a later run needs of a job without success."""
        if names := () if self._has_succeeded else self.kept_names():
            self._work_folder.leave(names)
        else:
            self._work_folder.remove()

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
