"""The function that worker processes call for each task of a MapReduce job."""

from __future__ import annotations

import functools
import gc
import pickle
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise, starmap
from typing import Any

import numpy as np

from slotwise.core.errors import WorkFolderError
from slotwise.jobs.blocks import PartitionedWriter, Place
from slotwise.jobs.execution import TaskResult, packed_report
from slotwise.jobs.formats.outputs import PartWriter
from slotwise.jobs.formats.splits import Split, SplitPiece
from slotwise.jobs.mapreduce.program import (
    COPY_PHASE,
    BatchMapReduce,
    MapReduce,
    hash_partitions,
)
from slotwise.jobs.mapreduce.reading import Records, SplitReader, TaskSetup
from slotwise.jobs.shuffle.buffers import (
    Buffer,
    Groups,
    SortedRuns,
    SumTable,
    ValueTable,
    buffer_for,
    grouped,
)
from slotwise.jobs.shuffle.keys import Order
from slotwise.jobs.shuffle.pairs import Columns, Grouped, PairStream, read_pairs, write_pairs
from slotwise.jobs.shuffle.sources import PairSource
from slotwise.jobs.transfer import pickled
from slotwise.jobs.work_folder import named_file_errors
from slotwise.task import on_stop_request

_COLLECT_AFTER = 100_000


class Runner(TaskSetup):
    """Runs the tasks of a job in worker processes; sent once to each."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle in a worker, and do the imports of tasks before the first one is timed.

        Task times become estimates of later runs, and most tasks are not the first.
        """
        self.__dict__.update(state)
        self._bodies()
        _ = self.input

    def __call__(self, phase: str, task: int, attempt: int, *rest: Any) -> bytes:
        """Run one task, and return its packed report; exceptions of the program propagate.

        The sample returns the pickle of its points.
        """
        if phase == "sample":
            return pickled(sample_task(self, *rest), None, [])
        return packed_report(self._run(phase, task, attempt, *rest))

    def _run(self, phase: str, task: int, attempt: int, *rest: Any) -> TaskResult:
        directory = self.layout.make_attempt_dir(phase, task, attempt)
        thresholds = gc.get_threshold()
        # A task creates millions of pairs, which are rarely in cycles.
        gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
        try:
            with named_file_errors(self.layout.folder):
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
        """Copy the input of a reduce if needed, and reduce it unless this is a copy task.

        Raises LostInputError if files of other tasks are missing or incomplete.
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
        # This module imports Arrow, so it is imported only for programs that need it.
        if isinstance(self.program, BatchMapReduce):
            from slotwise.jobs.mapreduce import batches

            return batches.map_task, batches.reduce_task

        return map_task, reduce_task


# Map, reduce and sample tasks of programs by records.

SAMPLE_RECORDS = 2000
"""The number of records that the sample reads from each piece."""


def map_task(
    setup: TaskSetup, task: int, attempt: int, split: Split, points: bytes
) -> TaskResult:
    """Map a split. Pairs are written to partitions, or to the output of a map-only job."""
    reading = SplitReader(setup, split)
    pairs = _mapped(setup, reading)
    if setup.reducers == 0:
        part = setup.part("map", task, attempt)
        return _write_part(part, pairs)
    path = setup.layout.map_file(task, attempt)
    with PartitionedWriter(path, setup.reducers) as file:
        spread = _Spread(setup, pickle.loads(points) if points else (), file)
        buffer = buffer_for(_program(setup), _buffer_bytes(setup))
        fold = getattr(setup.program, "fold_chunk", None)
        if fold is not None and setup.input_name == "text" and isinstance(buffer, SumTable):
            _fold(fold, reading, buffer, spread)
        else:
            _collect(pairs, buffer, spread)
    return TaskResult(spread.records, file.bytes)


def reduce_task(
    setup: TaskSetup, task: int, attempt: int, places: Iterable[Place]
) -> TaskResult:
    """Reduce the output of all maps for one reduce to one part of the output."""
    program = _program(setup)
    buffer = buffer_for(program, _buffer_bytes(setup))
    runs = SortedRuns(
        setup.layout.attempt_dir("reduce", task, attempt),
        Order.of(program),
        _chunk_bytes(setup),
    )
    for path, partition in places:
        for columns in read_pairs(path, partition):
            if isinstance(columns, Grouped):
                assert isinstance(buffer, ValueTable), "the maps had a buffer of the same type"
                buffer.add_grouped(*columns)
            else:
                buffer.add(*columns)
            if buffer.is_full():
                runs.spill(buffer.drain(in_order=True))
    part = setup.part("reduce", task, attempt)
    if type(program).reduce is MapReduce.reduce and runs.is_empty:
        # The sorted pairs are the output, so whole slices can be written.
        return _write_part(part, buffer.drain(in_order=True))
    reduced = starmap(program.reduce, _groups(program, buffer, runs))
    what = f"reduce of {program.name}"
    return _write_part(part, PairStream(reduced, what, _batch_bytes(setup)))


def sample_task(setup: TaskSetup, pieces: Sequence[SplitPiece]) -> tuple[Any, ...]:
    """Return the keys that divide the sampled keys into an equal range for each reduce."""
    program = _program(setup)
    keys: list[Any] = []
    for piece in pieces:
        reading = SplitReader(setup, (piece,))
        first = islice(reading.records(), 1)
        some = ((islice(ks, SAMPLE_RECORDS), vs[:SAMPLE_RECORDS]) for ks, vs in first)
        keys += chain.from_iterable(ks for ks, _ in _batched_map(setup, reading, some))
        reading.check()
    ordered = Order.of(program).keys(keys)
    cuts = [len(ordered) * i // setup.reducers for i in range(1, setup.reducers)]
    return tuple(ordered[cut] for cut in cuts) if ordered else ()


class _Spread:
    """Writes pairs to the partitions of their keys."""

    def __init__(
        self, setup: TaskSetup, points: Sequence[Any], file: PartitionedWriter
    ) -> None:
        program = _program(setup)
        self.records = 0
        self._file = file
        self._chunk_bytes = _chunk_bytes(setup)
        self._reducers = setup.reducers
        self._partitions: Callable[[Sequence[Any]], list[int]]
        if program.total_order:
            order = Order.of(program)
            self._partitions = lambda keys: order.ranges(keys, points)
        elif type(program).partition is MapReduce.partition:
            self._partitions = lambda keys: hash_partitions(keys, setup.reducers)
        else:
            self._partitions = lambda keys: _own_partitions(program, keys, setup.reducers)

    def write(self, slices: Iterator[Columns | Grouped]) -> None:
        """Append the pairs of the slices, keeping their order within each partition."""
        for columns in slices:
            keys, values = columns
            is_grouped = isinstance(columns, Grouped)
            self.records += sum(map(len, values)) if is_grouped else len(keys)
            if self._reducers == 1:
                write_pairs(self._file, 0, columns, self._chunk_bytes)
                continue
            parts = np.array(self._partitions(keys), dtype=np.int64)
            order = np.argsort(parts, kind="stable").tolist()
            ordered = [keys[i] for i in order], [values[i] for i in order]
            ends = np.cumsum(np.bincount(parts, minlength=self._reducers)).tolist()
            for number, (first, last) in enumerate(pairwise([0, *ends])):
                part = ordered[0][first:last], ordered[1][first:last]
                made = Grouped(*part) if is_grouped else part
                write_pairs(self._file, number, made, self._chunk_bytes)


def _own_partitions(program: MapReduce, keys: Sequence[Any], reducers: int) -> list[int]:
    parts = [program.partition(key, reducers) for key in keys]
    for key, part in zip(keys, parts, strict=True):
        if not 0 <= part < reducers:
            raise ValueError(
                f"partition of {program.name} returned {part} for the key {key!r:.80}; it must"
                f" be from 0 to {reducers - 1}"
            )
    return parts


def _collect(pairs: PairStream, buffer: Buffer, spread: _Spread) -> None:
    for keys, values in pairs:
        buffer.add(keys, values)
        pairs.pass_on(buffer.take)
        if buffer.is_full():
            spread.write(_drained(buffer))
    spread.write(_drained(buffer))


def _drained(buffer: Buffer) -> Iterator[Columns | Grouped]:
    """Remove all pairs of a buffer, in the form that is smallest in the shuffle."""
    return buffer.drain_grouped() if isinstance(buffer, ValueTable) else buffer.drain(False)


def _fold(
    fold_chunk: Callable[..., None], reading: SplitReader, table: SumTable, spread: _Spread
) -> None:
    for text in reading.texts():
        with reading.placed_errors():
            table.fold(fold_chunk, text)
        if table.is_full():
            spread.write(table.drain(in_order=False))
    spread.write(table.drain(in_order=False))


def _mapped(setup: TaskSetup, reading: SplitReader) -> PairStream:
    program = _program(setup)
    map_chunk = getattr(program, "map_chunk", None)
    if setup.input_name == "text" and map_chunk is not None:
        what = f"map_chunk of {program.name}"
        results = map(map_chunk, reading.texts())
        return PairStream(results, what, _batch_bytes(setup), reading.place)
    return _batched_map(setup, reading, reading.records())


def _batched_map(
    setup: TaskSetup, reading: SplitReader, records: Iterable[Records]
) -> PairStream:
    program = _program(setup)
    results = chain.from_iterable(map(program.map, keys, values) for keys, values in records)
    what = f"map of {program.name}"
    return PairStream(results, what, _batch_bytes(setup), reading.place)


def _groups(program: MapReduce, buffer: Buffer, runs: SortedRuns) -> Groups:
    if runs.is_empty:
        return buffer.groups()
    runs.spill(buffer.drain(in_order=True))
    groups = grouped(runs.merged())
    if (add := getattr(program, "add", None)) is None:
        return groups
    return ((key, iter((functools.reduce(add, values),))) for key, values in groups)


def _write_part(part: PartWriter, columns: Iterable[Columns]) -> TaskResult:
    try:
        for keys, values in columns:
            part.write(keys, values)
    finally:
        part.close()
    return TaskResult(part.rows, 0)


def _program(setup: TaskSetup) -> MapReduce:
    assert isinstance(setup.program, MapReduce)
    return setup.program


def _buffer_bytes(setup: TaskSetup) -> int:
    # The rest is for written slices, read chunks, and overhead of the interpreter.
    return setup.memory_bytes * 3 // 4


def _chunk_bytes(setup: TaskSetup) -> int:
    return min(1 << 20, setup.memory_bytes // 256)


def _batch_bytes(setup: TaskSetup) -> int:
    return setup.memory_bytes // 32
