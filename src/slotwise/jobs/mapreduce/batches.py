"""Map and reduce tasks of programs by batches of Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from slotwise.jobs.blocks import BUCKETS, PartitionedReader, PartitionedWriter, Place
from slotwise.jobs.execution import TaskResult
from slotwise.jobs.formats.splits import Split
from slotwise.jobs.mapreduce.program import BatchMapReduce
from slotwise.jobs.mapreduce.reading import SplitReader, TaskSetup
from slotwise.jobs.shuffle.tables import joined, read_tables, write_buckets


def map_task(
    setup: TaskSetup, task: int, attempt: int, split: Split, points: bytes
) -> TaskResult:
    """Map a split. Rows are written to buckets by key, or to the output of a map-only job."""
    tables = _mapped(setup, SplitReader(setup, split))
    if setup.reducers == 0:
        return _write_part(setup, "map", task, attempt, tables)
    path = setup.layout.map_file(task, attempt)
    rows = 0
    with PartitionedWriter(path, setup.reducers * BUCKETS) as file:
        for table in _gathered(setup, tables):
            write_buckets(file, table, _program(setup).keys, setup.reducers)
            rows += table.num_rows
    return TaskResult(rows, file.bytes)


def reduce_task(
    setup: TaskSetup, task: int, attempt: int, places: Iterable[Place]
) -> TaskResult:
    """Reduce the buckets of one partition, as many at a time as fit in memory."""
    program = _program(setup)
    what = f"reduce of {program.name}"
    tables = (
        reduced
        for partition in _partition_tables(setup, places)
        for reduced in _tables(program.reduce(partition), what)
    )
    return _write_part(setup, "reduce", task, attempt, tables)


def _mapped(setup: TaskSetup, reading: SplitReader) -> Iterator[pa.Table]:
    program = _program(setup)
    for table in reading.tables():
        with reading.placed_errors():
            yield from _tables(program.map(table), f"map of {program.name}")


def _gathered(setup: TaskSetup, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the mapped tables, joined up to the memory limit and combined."""
    combine = getattr(_program(setup), "combine", None)
    what = f"combine of {_program(setup).name}"
    limit = _limit_bytes(setup)
    pending: list[pa.Table] = []
    held = 0
    for table in tables:
        pending.append(table)
        held += table.nbytes
        if held < limit:
            continue
        if combine is not None:
            pending = list(_tables(combine(joined(pending)), what))
            held = sum(part.nbytes for part in pending)
        if held >= limit // 2:
            yield joined(pending)
            pending, held = [], 0
    if pending:
        last = joined(pending)
        yield from (last,) if combine is None else _tables(combine(last), what)


def _partition_tables(setup: TaskSetup, places: Iterable[Place]) -> Iterator[pa.Table]:
    keys = [(name, "ascending") for name in _program(setup).keys]
    readers = [(PartitionedReader(path), first) for path, first in places]
    pending: list[pa.Table] = []
    held = 0
    for bucket in range(BUCKETS):
        tables = [t for reader, first in readers for t in read_tables(reader, first + bucket)]
        size = sum(table.nbytes for table in tables)
        if pending and held + size > _limit_bytes(setup):
            yield joined(pending).sort_by(keys)
            pending, held = [], 0
        pending += tables
        held += size
    if pending:
        yield joined(pending).sort_by(keys)


def _tables(result: pa.Table | Iterable[pa.Table] | None, what: str) -> Iterator[pa.Table]:
    results = [result] if isinstance(result, pa.Table) else result
    for table in () if results is None else results:
        if not isinstance(table, pa.Table):
            raise TypeError(f"{what} must return pyarrow Tables; it returned {table!r:.80}")
        if table.num_rows:
            yield table


def _write_part(
    setup: TaskSetup, phase: str, task: int, attempt: int, tables: Iterator[pa.Table]
) -> TaskResult:
    part = setup.part(phase, task, attempt)
    try:
        for table in tables:
            part.write_table(table)
    finally:
        part.close()
    return TaskResult(part.rows, 0)


def _program(setup: TaskSetup) -> BatchMapReduce:
    assert isinstance(setup.program, BatchMapReduce)
    return setup.program


def _limit_bytes(setup: TaskSetup) -> int:
    # Joining, sorting and reducing each make a copy.
    return setup.memory_bytes // 4
