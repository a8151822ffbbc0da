"""The bodies of map, reduce and sample tasks, as they run in worker processes."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from slotwise.program.formats.inputs import InputFormat, input_format
from slotwise.program.formats.outputs import OUTPUT_FORMATS, PartWriter
from slotwise.program.layout import Layout
from slotwise.program.mapreduce import BatchMapReduce, MapReduce

_COLLECT_AFTER = 100_000


class TaskResult(NamedTuple):
    """What a task tells the manager: records out, and bytes of map output for the reduces."""

    records: int
    bytes: int


@dataclass(frozen=True)
class Runner:
    """Everything that a worker process must know of a job, once."""

    program: MapReduce | BatchMapReduce
    input_name: str
    output_name: str
    layout: Layout
    reducers: int
    memory_bytes: int

    @cached_property
    def input(self) -> InputFormat:
        """The format of the input."""
        return input_format(self.input_name)

    def __call__(self, phase: str, task: int, attempt: int, *rest: Any) -> object:
        """Do one task; what the program raises goes through."""
        if phase == "sample":
            from slotwise.program.records import sample_task

            return sample_task(self, *rest)
        directory = self.layout.attempt_dir(phase, task, attempt)
        directory.mkdir(parents=True, exist_ok=True)
        map_task, reduce_task = self._bodies()
        thresholds = gc.get_threshold()
        # Pairs are made by the million and hardly ever in cycles: look for cycles less often.
        gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
        try:
            return (map_task if phase == "map" else reduce_task)(self, task, attempt, *rest)
        finally:
            gc.set_threshold(*thresholds)
            if phase == "reduce" or self.reducers == 0:
                shutil.rmtree(directory, ignore_errors=True)

    def part(self, phase: str, task: int, attempt: int) -> PartWriter:
        """The part of the output that an attempt writes, aside until the job commits."""
        return OUTPUT_FORMATS[self.output_name](self.layout.attempt_part(phase, task, attempt))

    def map_files(self, attempts: Sequence[int]) -> Iterator[Path]:
        """The map outputs, given the winning attempt of each map task."""
        for task, attempt in enumerate(attempts):
            yield self.layout.map_file(task, attempt)

    def _bodies(self) -> tuple[Callable[..., TaskResult], Callable[..., TaskResult]]:
        # Arrow is imported only for programs that need it.
        if isinstance(self.program, BatchMapReduce):
            from slotwise.program import batches

            return batches.map_task, batches.reduce_task
        from slotwise.program import records

        return records.map_task, records.reduce_task
