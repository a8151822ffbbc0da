"""Stages: the output of the maps of jobs that did not complete, which `--resume` reads.

The output stays in the work folder of its job. The record of the workload file has a line for
each job, written when its last map is done. The work folder is kept until the job is completed,
the file is run without `--resume`, or the folder of the run is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slotwise import __version__
from slotwise.done_record import DoneRecord, KeptStage, MadeFrom
from slotwise.jobs.execution import Execution
from slotwise.jobs.mapreduce.kept import KeptMaps
from slotwise.jobs.mapreduce.planning import MapReduceExecution
from slotwise.jobs.work_folder import HeldError
from slotwise.resume import made_from
from slotwise.run_folder import RunFolder, warn_of_state
from slotwise.workload.workload import ProgramJob, Workload


class Stages:
    """Continues jobs after maps that are kept, and keeps those that are done in this run."""

    def __init__(
        self, record: DoneRecord, workload: Workload, kept: Mapping[str, KeptStage]
    ) -> None:
        """`kept` are the stages that are used, by job."""
        self._record, self._workload, self._kept = record, workload, kept
        self._run: RunFolder | None = None
        self._continued: list[MapReduceExecution] = []

    def begin(self, run: Path) -> None:
        """Keep stages as long as the folder of this run."""
        self._run = RunFolder(run)
        for execution in self._continued:
            with suppress(OSError):  # Then they stay as long as the earlier run.
                self._own(execution)

    def __call__(self, entry: Any, execution: Execution) -> Execution:
        """Return the execution to run: without maps that are kept, or one that keeps them."""
        if not isinstance(execution, MapReduceExecution) or not is_kept(entry):
            return execution
        stage = self._kept.get(entry.id)
        if stage is not None:
            try:
                found = execution.after_maps(stage.maps)
            except (OSError, HeldError) as error:
                warn_of_state(f"job {entry.id!r} runs its maps again: {error}")
            else:
                self._continued.append(found)
                return found
        execution.keep_maps(self._keeping(entry, execution))
        return execution

    def close(self) -> None:
        """Release the work folders of jobs that have not begun."""
        for execution in self._continued:
            execution.close(succeeded=False)

    def _keeping(
        self, entry: ProgramJob, execution: MapReduceExecution
    ) -> Callable[[KeptMaps], bool]:
        before = stage_made_from(entry, self._workload)

        def keep(maps: KeptMaps) -> bool:
            # A file may have changed while a map read it.
            if stage_made_from(entry, self._workload) != before:
                return False
            try:
                if not self._own(execution):
                    return False
                self._record.keep(entry.id, KeptStage(before, maps.measured()))
            except OSError as error:
                warn_of_state(f"the maps of job {entry.id!r} are not kept: {error.strerror}")
                return False
            return True

        return keep

    def _own(self, execution: MapReduceExecution) -> bool:
        if self._run is not None:
            execution.keep_while(self._run.keeps(execution.work_dir))
        return self._run is not None


def is_kept(entry: Any) -> bool:
    """Whether stages of a job can be kept: it is a program that is given by its name."""
    return isinstance(entry, ProgramJob) and isinstance(entry.program, str)


def stage_made_from(entry: ProgramJob, workload: Workload) -> MadeFrom:
    """What the maps of a job are made from, also files that other jobs have written."""
    return {"slotwise": __version__, **made_from(entry, workload, ())}
