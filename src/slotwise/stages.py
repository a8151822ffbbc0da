"""Stages: the finished stages of jobs that did not complete, which `--resume` reads.

Their output stays in the work folder of the job, parts of the output of the job beside that.
The record of the workload file has a line for each stage, written when its last task is done.
All is kept until the job is completed, the file is run without `--resume`, or the folder of
the run is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slotwise import __version__
from slotwise.done_record import DoneRecord, KeptJob, MadeFrom
from slotwise.jobs.execution import Execution
from slotwise.jobs.kept import KeptStages
from slotwise.jobs.staged import StagedExecution
from slotwise.jobs.work_folder import HeldError, remove_kept
from slotwise.resume import CODE, INPUT, DoneRecorder, made_from, versions
from slotwise.run_folder import RunFolder, warn_of_state
from slotwise.workload.workload import DataflowJob, ProgramJob, Workload


class Stages:
    """Continues jobs after stages that are kept, and keeps those that are done in this run."""

    def __init__(
        self,
        record: DoneRecord,
        workload: Workload,
        kept: Mapping[str, KeptJob],
        recorder: DoneRecorder,
    ) -> None:
        """`kept` are the stages that are used, by job; `recorder` notes planned jobs."""
        self._recorder = recorder
        self._record, self._workload, self._kept = record, workload, kept
        self._run: RunFolder | None = None
        self._continued: list[StagedExecution] = []

    def begin(self, run: Path) -> None:
        """Keep stages as long as the folder of this run."""
        self._run = RunFolder(run)
        for execution in self._continued:
            with suppress(OSError):  # Then they stay as long as the earlier run.
                self._own(execution)

    def __call__(self, entry: Any, execution: Execution) -> Execution:
        """Return the execution to run: without stages that are kept. It keeps its own."""
        if isinstance(execution, StagedExecution):
            self._recorder.planned(entry.id, execution.input_files)
        if not isinstance(execution, StagedExecution) or not is_kept(entry):
            return execution
        kept = self._kept.get(entry.id)
        if kept is not None:
            try:
                execution = execution.after_stages(kept.stages)
            except (OSError, HeldError) as error:
                warn_of_state(f"job {entry.id!r} runs its finished stages again: {error}")
                remove_kept(kept.stages.folder)
                kept = None
            else:
                self._continued.append(execution)
        execution.keep_stages(self._keeping(entry, execution, kept))
        return execution

    def close(self) -> None:
        """Release the work folders of jobs that have not begun."""
        for execution in self._continued:
            execution.close(succeeded=False)

    def _keeping(
        self, entry: ProgramJob | DataflowJob, execution: StagedExecution, kept: KeptJob | None
    ) -> Callable[[KeptStages], bool]:
        def made() -> MadeFrom:
            return stages_made_from(entry, self._workload, execution)

        before, has_line = made() if kept is None else kept.made_from, kept is not None

        def keep(stages: KeptStages) -> bool:
            nonlocal has_line
            if made() != before:  # A file may have changed while a task read it.
                return False
            try:
                if not has_line and not self._own(execution):
                    return False
                line = None if has_line else before
                self._record.keep(entry.id, stages.measured(), line)
            except OSError as error:
                why = f"a stage of job {entry.id!r} is not kept: {error.strerror}"
                warn_of_state(why)
                return False
            has_line = True
            return True

        return keep

    def _own(self, execution: StagedExecution) -> bool:
        if self._run is not None:
            execution.keep_while(self._run.keeps(execution.work_dir))
        return self._run is not None


def is_kept(entry: Any) -> bool:
    """Whether stages of a job can be kept: its program or dataflow is given by its name."""
    if isinstance(entry, ProgramJob):
        return isinstance(entry.program, str)
    return isinstance(entry, DataflowJob) and isinstance(entry.flow, str | Mapping)


def stages_made_from(
    entry: ProgramJob | DataflowJob, workload: Workload, execution: StagedExecution
) -> MadeFrom:
    """What the stages of a job are made from, also files that other jobs have written."""
    read = [(CODE, path) for path in execution.code_files]
    read += [(INPUT, path) for path in execution.input_files]
    described = made_from(entry, workload, ())
    return {"slotwise": __version__, **versions(read), **described}
