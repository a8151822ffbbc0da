"""The function that worker processes call for each task of a MapReduce job."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from slotwise.model.errors import WorkFolderError
from slotwise.programs.mapreduce.layout import COPY_PHASE
from slotwise.programs.mapreduce.program import BatchMapReduce
from slotwise.programs.mapreduce.setup import TaskSetup
from slotwise.programs.shuffle.sources import PairSource
from slotwise.programs.task_result import TaskResult
from slotwise.programs.work_folder import finding
from slotwise.task import on_stop_request

_COLLECT_AFTER = 100_000


class Runner(TaskSetup):
    """Runs the tasks of a job in worker processes; sent once to each."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle in a worker, and import what tasks need before the first one is timed.

        Task times are the estimates of later runs, and most tasks are not the first.
        """
        self.__dict__.update(state)
        self._bodies()
        _ = self.input

    def __call__(self, phase: str, task: int, attempt: int, *rest: Any) -> object:
        """Run one task; exceptions of the program propagate."""
        if phase == "sample":
            from slotwise.programs.mapreduce.records import sample_task

            return sample_task(self, *rest)
        directory = self.layout.make_attempt_dir(phase, task, attempt)
        thresholds = gc.get_threshold()
        # A task creates millions of pairs, which are rarely in cycles: collect less often.
        gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
        try:
            with finding(self.layout.folder):
                if phase == "map":
                    on_stop_request(self.program.on_preempt)
                    result = self._bodies()[0](self, task, attempt, *rest)
                    return result._replace(address=self.layout.address)
                return self._reduce_side(phase, task, attempt, *rest)
        finally:
            gc.set_threshold(*thresholds)
            if phase == "reduce" or self.reducers == 0:
                shutil.rmtree(directory, ignore_errors=True)

    def _reduce_side(
        self, phase: str, task: int, attempt: int, source: PairSource
    ) -> TaskResult:
        """Copy the input of a reduce if needed; reduce it unless this is a copy task.

        Raises LostInputError if files of other tasks that it needs are missing or incomplete.
        """
        begun = time.monotonic()
        try:
            places = source.places(self.layout, task, attempt, self.buckets)
            copying = time.monotonic() - begun
            if phase == COPY_PHASE:
                return TaskResult(0, 0, copying, self.layout.address)
            on_stop_request(self.program.on_preempt)
            reduce_task = self._bodies()[1]
            return reduce_task(self, task, attempt, places)._replace(copying=copying)
        except (OSError, WorkFolderError) as error:
            with suppress(OSError):
                if lost := source.lost(self.layout, task):
                    raise lost from error
            raise

    def _bodies(self) -> tuple[Callable[..., TaskResult], Callable[..., TaskResult]]:
        # Arrow is imported only for programs that need it.
        if isinstance(self.program, BatchMapReduce):
            from slotwise.programs.mapreduce import batches

            return batches.map_task, batches.reduce_task
        from slotwise.programs.mapreduce import records

        return records.map_task, records.reduce_task
