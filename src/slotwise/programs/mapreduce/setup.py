"""What the tasks of a job have in common, and what each reports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from slotwise.programs.formats.inputs import InputFormat, input_format
from slotwise.programs.formats.outputs import OUTPUT_FORMATS, PartWriter
from slotwise.programs.mapreduce.layout import Layout
from slotwise.programs.mapreduce.program import BatchMapReduce, MapReduce
from slotwise.programs.shuffle.partitioned import BUCKETS


class TaskResult(NamedTuple):
    """The report of a task: records written, and bytes of map output for the reduces.

    `copying` is the seconds for which it copied map output or waited for maps.
    """

    records: int
    bytes: int
    copying: float = 0.0


@dataclass(frozen=True)
class TaskSetup:
    """The program of a job, its formats, its files and its limits."""

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

    @property
    def buckets(self) -> int:
        """The number of partitions in a map file for each reduce."""
        return BUCKETS if isinstance(self.program, BatchMapReduce) else 1

    def part(self, phase: str, task: int, attempt: int) -> PartWriter:
        """A writer for the part of an attempt; the part is staged until the job commits."""
        return OUTPUT_FORMATS[self.output_name](self.layout.attempt_part(phase, task, attempt))
