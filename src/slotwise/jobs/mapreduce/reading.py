"""Read the input of a map task, and track the position in it for error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

from slotwise.core.errors import InputChanged
from slotwise.jobs.blocks import BUCKETS
from slotwise.jobs.formats.files import check_unchanged
from slotwise.jobs.formats.inputs import InputFormat, input_format, line_blocks, text_of
from slotwise.jobs.formats.outputs import OUTPUT_FORMATS, PartWriter
from slotwise.jobs.formats.splits import Split, SplitPiece, is_placed, placed
from slotwise.jobs.mapreduce.program import BatchMapReduce, MapReduce, MapReduceLayout

if TYPE_CHECKING:
    import pyarrow as pa


Block = TypeVar("Block")
Records = tuple[Iterator[Any], Sequence[Any]]
"""The keys and values of some records."""


class SplitReader:
    """Reads a split piece by piece. `place` adds the position in the input to an error.

    The position is computed only for errors; tracking it costs a few instructions per block.
    """

    def __init__(self, setup: TaskSetup, split: Split) -> None:
        self._setup = setup
        self._split = split
        self._piece: SplitPiece | None = None
        self._done = 0  # Records of the piece in earlier blocks.
        self._keys: Sequence[Any] = ()
        self._left: Iterator[Any] = iter(())
        self._span: tuple[int, int] | None = None

    def records(self) -> Iterator[Records]:
        """Yield the records in blocks. Take keys one by one, each when its record is mapped."""
        for keys, values in self._blocks(self._setup.input.records):
            self._keys, self._left = keys, iter(keys)
            yield self._left, values
            self._done, self._keys = self._done + len(keys), ()

    def texts(self) -> Iterator[str]:
        """Yield the text of many whole lines at once, with their line breaks."""
        for offset, block in self._blocks(line_blocks):
            self._span = offset, offset + len(block)
            yield text_of(block)
            self._span = None

    def tables(self) -> Iterator[pa.Table]:
        """Yield the records as Arrow tables."""
        for table in self._blocks(self._setup.input.tables):
            yield table
            self._done += table.num_rows

    def check(self) -> None:
        """Raise InputChanged if the file being read has changed since planning."""
        if self._piece is not None:
            check_unchanged(self._piece.path, self._piece.version)

    def place(self, error: Exception) -> None:
        """Add the position to an error that has none; raise InputChanged for a changed file."""
        if self._piece is None or is_placed(error) or isinstance(error, InputChanged):
            return
        with suppress(OSError):
            self.check()
        placed(error, self._where(self._piece))

    @contextmanager
    def placed_errors(self) -> Iterator[None]:
        """Add the position of the last read record to errors of the context."""
        try:
            yield
        except Exception as error:
            self.place(error)
            raise

    def _blocks(self, read: Callable[[SplitPiece], Iterator[Block]]) -> Iterator[Block]:
        """Yield the blocks of each piece, read on demand."""
        for piece in self._split:
            self._setup.program.path = piece.path
            self._piece, self._done = piece, 0
            with self.placed_errors():
                yield from read(piece)

    def _where(self, piece: SplitPiece) -> str:
        """Return the position of the last record, or of the last text or table."""
        if self._span is not None:
            return f"{piece.path}, bytes {self._span[0]}-{self._span[1]}"
        taken = len(self._keys) - length_hint(self._left) if self._keys else 0
        key = self._keys[taken - 1] if taken else None
        try:
            return self._setup.input.where(piece, self._done + max(taken - 1, 0), key)
        except Exception:
            return piece.path  # The file can no longer be read.


@dataclass(frozen=True)
class TaskSetup:
    """The common data of the tasks of a job: program, formats, files and limits."""

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
        """Create a writer for the part of an attempt, which is staged until the job commits."""
        return OUTPUT_FORMATS[self.output_name](self.layout.attempt_part(phase, task, attempt))
