"""The execution of jobs of stages: attempts, results, intermediate files, commit of output.

It runs MapReduce and dataflow jobs; a subclass for each adds what its stages read and write.
"""

from __future__ import annotations

import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase
from slotwise.jobs.commit import Layout, OutputDirectory
from slotwise.jobs.execution import Execution, SuccessfulAttempts, TaskResult, read_report
from slotwise.jobs.kept import KeptStages, KeptTask
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
        self,
        job: Job,
        runner: Callable[..., object],
        layout: Layout,
        *,
        overwrite: bool,
        kept: KeptStages | None = None,
    ) -> None:
        """Prepare the job. A subclass sets first what `parts` reads.

        `kept` are stages of an earlier run; the job has no phases for them then.
        """
        self.job = job
        self.runner = runner
        self._layout = layout
        self._kept = kept or KeptStages(layout.work_dir, "", {})
        self._keep: Callable[[KeptStages], bool] | None = None
        self._done: dict[str, dict[int, Done]] = {name: {} for name in job.by_name}
        for name, done in self._kept.stages.items():
            self._done[name] = {
                task: Done(one.attempt, TaskResult(one.records, one.bytes))
                for task, one in enumerate(done)
            }
        counts = {name: _count(job, name) for name in job.by_name}
        counts |= {name: len(done) for name, done in self._kept.stages.items()}
        tasks = ((name, task) for name, count in counts.items() for task in range(count))
        parts = [part for name, task in tasks for part in self.parts(name, task)]
        self._output = OutputDirectory(layout, overwrite, job.id, parts, self._kept.parts())
        self._work_folder = WorkFolder(layout.work_dir)
        self._is_open = self._has_begun = self._is_closed = False
        self._has_succeeded = False

    def keep_stages(self, keep: Callable[[KeptStages], bool]) -> None:
        """Keep the output of stages whose tasks are all done, unless the job succeeds.

        `keep` gets each such stage at once, and returns whether a later run can find it.
        """
        self._keep = keep

    def keep_while(self, path: str | Path) -> None:
        """Let the work folder outlive the job while a file exists. Raises OSError."""
        staging = self._output.staged_path(self._layout.staging)
        self._work_folder.keep_while(path, staging)

    def after_stages(self, kept: KeptStages) -> Self:
        """Return the job without these stages, whose output an earlier run has kept.

        Its work folder is locked. Raises HeldError, and OSError also if the tasks differ.
        """
        counts = {name: len(tasks) for name, tasks in kept.stages.items()}
        known = {name: _count(self.job, name) for name in counts if name in self.job.by_name}
        if counts != known or kept.plan != self.plan:
            raise OSError("it has other tasks now")
        found = self.continued(kept)
        found._work_folder.adopt(self.job.id, kept.names())
        return found

    @property
    def work_dir(self) -> str:
        """The folder of its intermediate files."""
        return self._layout.work_dir

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
        if self._keep is not None and len(done) == _count(self.job, phase):
            self._keep_stage(phase, self._keep)
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
        self._kept = self._kept.without(phase)
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

    @property
    def code_files(self) -> Collection[str]:
        """The files with its code that its description does not name, as far as known."""
        return ()

    @property
    def input_files(self) -> Collection[str]:
        """The files that it reads and that its description does not name."""
        return ()

    @property
    @abstractmethod
    def plan(self) -> str:
        """What the tasks and their files depend on besides the description of the job."""

    @abstractmethod
    def continued(self, kept: KeptStages) -> Self:
        """Return the job without these stages of an earlier run, for its work folder."""

    @abstractmethod
    def files(self, phase: str, task: int, attempt: int) -> Iterable[Path] | None:
        """Return the files for later stages; None if the stage is done again in a later run."""

    def begin(self) -> None:
        """Prepare for the first task; the work folder exists. May raise OSError."""

    def on_finished(self, phase: str, task: int, attempt: int) -> None:
        """Handle that an attempt is about to be stored as successful. May raise OSError."""

    def on_lost(self, phase: str, tasks: Collection[int]) -> None:
        """Handle that the files of these tasks are lost. May raise OSError."""

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """Return the tasks whose files are no longer read once this task is done."""
        return ()

    def _keep_stage(self, phase: str, keep: Callable[[KeptStages], bool]) -> None:
        """Keep a stage whose tasks are all done, if others are left."""
        is_last = all(len(self._done[p.name]) == p.tasks.count for p in self.job.phases)
        if is_last or self._layout.folder != Path(self.work_dir):  # It is of an agent.
            return
        tasks = []
        for task, (attempt, result) in sorted(self._done[phase].items()):
            files = self.files(phase, task, attempt)
            if files is None:
                return
            names = [str(path.relative_to(self.work_dir)) for path in files]
            for part in self.parts(phase, task):
                names.append(self._output.staged_path(self._layout.staged(part, attempt)))
            if not all(names):  # It is in a store.
                return
            tasks.append(
                KeptTask(attempt, result.records, result.bytes, dict.fromkeys(names, 0))
            )
        stage = KeptStages(self.work_dir, self.plan, {phase: tuple(tasks)})
        if keep(stage):
            self._kept = replace(stage, stages={**self._kept.stages, **stage.stages})
            self._output.keep(self._kept.parts())

    def _end_folder(self) -> None:
        """Remove the work folder, except what a later run needs of a job without success."""
        if self._kept.stages and not self._has_succeeded:
            self._work_folder.leave(self._kept.names())
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


def job_without(job: Job, done: Collection[str]) -> Job:
    """Return the job without the phases that are done; none waits for them."""
    phases: list[Phase] = []
    for phase in job.phases:
        if phase.name in done:
            continue
        after = phase.after - {*done}
        if phase.after and not after:  # A phase that waits for none begins at once.
            phase = replace(phase, slow_start=1.0, copy=0.0)
        phases.append(replace(phase, after=after))
    return replace(job, phases=tuple(phases))


def _count(job: Job, phase: str) -> int:
    return job.by_name[phase].tasks.count
