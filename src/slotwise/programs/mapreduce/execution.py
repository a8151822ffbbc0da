"""A MapReduce job on the local backend: task arguments, results, and the commit of output."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.model.observation import Sizes
from slotwise.model.shuffle import COPY_KIND
from slotwise.programs.commit import OutputDirectory
from slotwise.programs.formats.splits import Split, SplitPiece
from slotwise.programs.loading import known_as
from slotwise.programs.mapreduce.layout import COPY_PHASE
from slotwise.programs.mapreduce.setup import TaskResult
from slotwise.programs.mapreduce.tasks import Runner
from slotwise.programs.shuffle.finished_maps import FinishedMaps
from slotwise.programs.shuffle.sources import AsTheyCome, Copied, InPlace, PairSource
from slotwise.programs.work_folder import WorkFolder


class MapReduceExecution:
    """An Execution; create it with `plan_mapreduce`.

    The first attempt of a task to finish wins; the files of other attempts are removed. The
    output appears only if the whole job succeeds.
    """

    def __init__(
        self,
        job: Job,
        runner: Runner,
        splits: Sequence[Split],
        sample: Sequence[SplitPiece],
        overwrite: bool,
        sizes: Mapping[str, Sizes],
    ) -> None:
        self.job = job
        self.program = known_as(runner.program)
        self.sizes = sizes
        self.runner: Callable[..., object] = runner
        self._layout = runner.layout
        self._splits = splits
        self._sample = tuple(sample)
        self._writes_parts = "reduce" if runner.reducers else "map"
        count = job.by_name[self._writes_parts].tasks.count
        parts = [runner.layout.part_name(self._writes_parts, task) for task in range(count)]
        self._output = OutputDirectory(runner.layout, overwrite, job.id, parts)
        self._work_folder = WorkFolder(runner.layout.work_dir)
        self._results: dict[str, dict[int, object]] = {name: {} for name in job.by_name}
        self._winners: dict[str, dict[int, int]] = {name: {} for name in job.by_name}
        self._in_place: InPlace | None = None
        self._finished_maps: FinishedMaps | None = None
        self._is_open = self._has_begun = self._is_closed = False

    @property
    def output(self) -> str:
        """The directory of the output."""
        return self._layout.output

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

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Phase, task, attempt, and the split of a map, source of a reduce, or the sample."""
        if not self._has_begun:
            self._begin()
        if phase == "map":
            return (phase, task, attempt, self._splits[task], self._points())
        if phase == "sample":
            return (phase, task, attempt, self._sample)
        return (phase, task, attempt, self._source(phase, task))

    def describe(self, phase: str, task: int) -> str:
        """A description of the task for messages, with the input of a map task."""
        if phase != "map":
            return f"{phase} task {task} of job {self.job.id}"
        split = self._splits[task]
        # If there are several inputs, an error names the one that was being read.
        several = f"{len(split)} inputs, {split[0].path} to {split[-1].path}"
        what = several if len(split) > 1 else str(split[0])
        return f"map task {task} of job {self.job.id} ({what})"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result of the first attempt that finishes; remove files of later ones.

        A finished map is announced to the tasks that copy. The files of a copy task are
        removed when its reduce has finished.
        """
        if task in self._winners[phase]:
            self.discard(phase, task, attempt)
            return
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.tell(task, attempt)
        self._winners[phase][task] = attempt
        self._results[phase][task] = result
        if phase == "reduce" and task in self._winners.get(COPY_PHASE, ()):
            copied = self._layout.attempt_dir(COPY_PHASE, task, self._winners[COPY_PHASE][task])
            shutil.rmtree(copied, ignore_errors=True)

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the map output, or the copies for reduces, of these done tasks.

        Parts of the output and the sample are not intermediate files of tasks.
        """
        if phase in (self._writes_parts, "sample"):
            return ()
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.withdraw(tasks)
        for task in tasks:
            del self._winners[phase][task], self._results[phase][task]
        self._in_place = None
        return tasks

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """The seconds for which an attempt that finished copied or waited for maps."""
        if self._winners[phase].get(task) != attempt:
            return 0.0
        result = self._results[phase][task]
        return result.copying if isinstance(result, TaskResult) else 0.0

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of an attempt, unless it won and the job is still open.

        On an unresponsive host an attempt may continue after the end of its job.
        """
        if self._winners[phase].get(task) == attempt and not self._is_closed:
            return
        shutil.rmtree(self._layout.attempt_dir(phase, task, attempt), ignore_errors=True)
        if phase == self._writes_parts and self._is_open:
            self._output.discard(self._layout.attempt_part(phase, task, attempt))
        if self._is_closed:
            self._work_folder.remove()

    def close(self, succeeded: bool) -> None:
        """Commit the parts, or remove everything that the job created.

        After a commit that raised OSError, close can be called again, with either argument.
        """
        if self._is_closed:
            return
        if succeeded:
            phase, layout = self._writes_parts, self._layout
            self._output.commit(
                {
                    layout.part_name(phase, task): layout.attempt_part(phase, task, attempt)
                    for task, attempt in self._winners[phase].items()
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

    def _begin(self) -> None:
        self._open()
        self._work_folder.open(self.job.id)
        if any(phase.slow_start < 1 or phase.kind == COPY_KIND for phase in self.job.phases):
            self._finished_maps = FinishedMaps(self._layout.finished_maps)
        self._has_begun = True

    def _points(self) -> Any:
        return self._results["sample"][0] if "sample" in self._results else ()

    def _source(self, phase: str, task: int) -> PairSource:
        """The source from which an attempt of a reduce or a copy task reads map output."""
        maps = len(self._splits)
        if phase == COPY_PHASE:
            return AsTheyCome(maps, phase)
        if COPY_PHASE in self._winners:
            return Copied(self._winners[COPY_PHASE][task])
        winners = self._winners["map"]
        if len(winners) < maps:
            return AsTheyCome(maps, phase)
        if self._in_place is None:  # Created once for all reduces.
            self._in_place = InPlace(tuple(winners[number] for number in range(maps)))
        return self._in_place
