"""What the tasks of a job have in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from slotwise.programs.formats.inputs import InputFormat, input_format
from slotwise.programs.formats.outputs import OUTPUT_FORMATS, PartWriter
from slotwise.programs.mapreduce.layout import MapReduceLayout
from slotwise.programs.mapreduce.program import BatchMapReduce, MapReduce
from slotwise.programs.shuffle.partitioned import BUCKETS


@dataclass(frozen=True)
class TaskSetup:
    """The program of a job, its formats, its files and its limits."""

    program: MapReduce | BatchMapReduce
    input_name: str
    output_name: str
    layout: MapReduceLayout
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
