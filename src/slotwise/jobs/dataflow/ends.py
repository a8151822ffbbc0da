"""The ends of the channels of one node copy: its inputs, and the targets of its records."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from slotwise.core.errors import RecordError
from slotwise.jobs.channels.files import FileReader, FileWriter, Spilling
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.dataflow.nodes import OUT, Channel, Node, NodeCopy, Written
from slotwise.jobs.dataflow.place import GroupAttempt, Meeting, Ring
from slotwise.jobs.formats.outputs import OUTPUT_FORMATS
from slotwise.jobs.formats.splits import is_placed, placed
from slotwise.jobs.hosts.task_files import TaskFile, in_place, lost_local_files
from slotwise.jobs.mapreduce.program import stable_hash
from slotwise.jobs.shuffle.pairs import column_bytes
from slotwise.jobs.transfer import pickled
from slotwise.jobs.work_folder import work_folder_errors

Target = Callable[[object], object]


@dataclass
class Ends:
    """The open ends of one copy: its inputs, and the functions that take its records."""

    place: GroupAttempt
    copy: NodeCopy
    inputs: list[Iterable[object]] = field(default_factory=list)
    targets: dict[str, list[Target]] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    files: list[FileWriter] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def open(self, rings: Mapping[Ring, SharedRing]) -> None:
        """Open all ends. Waits until the other ends of TCP channels are connected."""
        graph, copy = self.place.staged.graph, self.copy
        own, running = self._claim(rings)
        meeting = Meeting(self.place, copy)
        running |= meeting.readers
        own |= meeting.writers
        self.readers += running.values()
        self.writers += own.values()
        node = graph.nodes[copy.node]
        self.targets = {output: [] for output in node.outputs}
        for channel in graph.outputs(copy.node):
            if channel.kind != "direct":
                self.targets[channel.output].append(self._target(channel, own))
        for written in graph.written:
            if written.node == copy.node:
                part = Part(self.place, written, copy.copy)
                self.parts.append(part)
                self.targets[written.output].append(part.write)
        for channel in graph.inputs(copy.node):
            self.inputs.append(self._input(channel, running))

    @property
    def only_writer(self) -> Writer | None:
        """The writer that gets all records, or None if there are other targets."""
        targets = [target for found in self.targets.values() for target in found]
        all_writers = [*self.writers, *(f.part(n) for f in self.files for n in range(f.parts))]
        if len(self.targets) == len(targets) == len(all_writers) == 1 and not self.parts:
            return all_writers[0]
        return None

    @property
    def is_wanted(self) -> bool:
        """False once all readers are known to have left and nothing is written to files."""
        is_kept = bool(self.files or self.parts) or not self.writers
        return is_kept or any(writer.is_wanted for writer in self.writers)

    def close(self) -> None:
        """End all streams and files, and stop reading. Raises what writers raise."""
        for reader in self.readers:
            if reader.failure is not None:  # User code may have caught it.
                raise reader.failure
        written: tuple[FileWriter | Part | Writer, ...] = (
            *self.files,
            *self.parts,
            *self.writers,
        )
        for writer in written:
            writer.close()
        for reader in self.readers:
            reader.close()

    def fail(self, reason: str) -> None:
        """Notify all other ends that the copy has failed."""
        running: tuple[Writer | Reader, ...] = (*self.writers, *self.readers)
        for end in running:
            with suppress(Exception):
                end.fail(reason)
        files: tuple[FileWriter | Part, ...] = (*self.files, *self.parts)
        for file in files:
            with suppress(Exception):
                file.abandon()

    def _claim(
        self, rings: Mapping[Ring, SharedRing]
    ) -> tuple[dict[Ring, Writer], dict[Ring, Reader]]:
        """Return the ends of the rings of this copy, and leave the other rings."""
        channels = {channel.number: channel for channel in self.place.staged.graph.channels}
        own: dict[Ring, Writer] = {}
        running: dict[Ring, Reader] = {}
        for key, ring in rings.items():
            number, writer, reader = key
            channel = channels[number]
            if self.copy == NodeCopy(channel.writer, writer):
                own[key] = ring.writer()
            elif self.copy == NodeCopy(channel.reader, reader):
                running[key] = ring.reader()
            else:
                ring.leave()
        return own, running

    def _target(self, channel: Channel, running: Mapping[Ring, Writer]) -> Target:
        """Return the function that sends a record through a channel."""
        place, copy = self.place, self.copy.copy
        readers = place.staged.graph.readers(channel, copy)
        if channel.kind == "file":
            path = place.layout.channel_file(place.folder, channel, copy)
            parts = len(readers) if channel.route == "hash" else 1
            file = FileWriter(path, parts)
            self.files.append(file)
            writers = [file.part(number) for number in range(parts)]
        else:
            writers = [running[channel.number, copy, reader] for reader in readers]
        if len(writers) == 1:
            return writers[0].write
        if channel.route == "hash":
            return partial(_by_hash, channel, writers)
        return partial(_to_all, writers)

    def _input(self, channel: Channel, running: Mapping[Ring, Reader]) -> Iterable[object]:
        """Return the records of a channel, one writer after another."""
        place = self.place
        writers = place.staged.graph.writers(channel, self.copy.copy)
        if channel.kind == "direct":
            return self._read_source(channel, writers)
        if channel.kind == "file":
            records = self._read_files(channel, writers)
            if not channel.sort:
                return records
            assert channel.by is not None
            return sorted_by_key(records, channel.by, place.memory_bytes, place.folder)
        readers = [running[channel.number, writer, self.copy.copy] for writer in writers]
        if channel.spills:
            share = place.memory_bytes // len(readers)
            spilling = [Spilling(reader, share, place.folder) for reader in readers]
            self.readers += spilling
            readers = list(spilling)
        return _chained(readers)

    def _read_source(self, channel: Channel, copies: Iterable[int]) -> Iterator[object]:
        source = self.place.staged.graph.nodes[channel.writer].source
        assert source is not None
        for copy in copies:
            try:
                yield from source.records(copy)
            except Exception as error:
                if not is_placed(error):
                    placed(error, source.describe(copy))
                raise

    def _read_files(self, channel: Channel, writers: Iterable[int]) -> Iterator[object]:
        files = [self._file(channel, writer) for writer in writers]
        copies = self.place.layout.fetched_files(self.place.folder, channel, self.copy.copy)
        fetched: set[Path] = set()
        try:
            places = list(in_place(files, 1, copies))
            fetched = {path for path, _ in places} - {file.path for file in files}
            for path, part in places:
                yield from FileReader(path, part)
        except OSError as error:
            if lost := lost_local_files(files):
                raise lost from error
            raise
        finally:
            for path in fetched:
                path.unlink(missing_ok=True)

    def _file(self, channel: Channel, writer: int) -> TaskFile:
        """Return the file of a copy of the writer of a channel, with the stream to read."""
        layout = self.place.layout
        stage, task = self.place.staged.tasks[NodeCopy(channel.writer, writer)]
        attempt, address = self.place.winners[stage].of(task)
        folder = layout.attempt_dir(stage, task, attempt)
        path = layout.channel_file(folder, channel, writer)
        part = self.copy.copy if channel.route == "hash" else 0
        return TaskFile(stage, task, attempt, address, path, part)


def _by_hash(channel: Channel, writers: Sequence[Writer], record: object) -> None:
    writers[reader_of(channel, record, len(writers))].write(record)


def _to_all(writers: Sequence[Writer], record: object) -> None:
    for writer in writers:
        writer.write(record)


def _chained(readers: Iterable[Reader]) -> Iterator[object]:
    for reader in readers:
        yield from reader


# Parts of the output, which copies of nodes write.

BATCH_RECORDS = 1024

_PLAIN: frozenset[type] = frozenset({str, int})


class Part:
    """Writes records in an output format; the part is staged until the job commits."""

    def __init__(self, place: GroupAttempt, written: Written, copy: int) -> None:
        path = place.layout.staged(place.layout.part(written, copy), place.attempt)
        self._writer = OUTPUT_FORMATS[written.output_format](path)
        self._is_text = written.output_format == "text"
        self._records: list[Any] = []

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return self._writer.rows

    def write(self, record: object) -> None:
        """Append a record, or the rows of an Arrow table or batch."""
        if hasattr(record, "to_pylist") and hasattr(record, "schema"):
            import pyarrow as pa

            self._flush()
            is_batch = isinstance(record, pa.RecordBatch)
            self._writer.write_table(pa.Table.from_batches([record]) if is_batch else record)
            return
        self._records.append(record)
        if len(self._records) >= BATCH_RECORDS:
            self._flush()

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close the file and leave it incomplete."""
        with suppress(Exception):
            self._writer.close()

    def _flush(self) -> None:
        records, self._records = self._records, []
        if records:
            self._writer.write(*self._columns(records))

    def _columns(self, records: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Split pairs into keys and values; other records are values without a key.

        In text output a pair is a tuple like any other.
        """
        pairs = [record if _is_pair(record) else (None, record) for record in records]
        keys, values = zip(*pairs, strict=True)
        if self._is_text and not {*map(type, keys), *map(type, values)} <= _PLAIN:
            return [None] * len(records), records
        return keys, values


def _is_pair(record: object) -> bool:
    return isinstance(record, tuple) and len(record) == 2


# The code of one copy of a node, as it runs in worker processes and in an evaluation.


class Output(NamedTuple):
    """A record for the output of this name, from a node that has several outputs."""

    name: str
    record: Any


def records_written(
    node: Node, copy: int, inputs: Sequence[Iterable[object]]
) -> Iterator[tuple[str, object]]:
    """Yield the records of a copy in order, as pairs (output, record).

    `inputs` holds the records of each of its inputs. Errors of the function propagate. Raises
    RecordError if it does not return records.
    """
    if node.source is not None:
        yield from ((OUT, record) for record in node.source.records(copy))
        return
    assert node.function is not None
    streams = [iter(records) for records in inputs]
    if isinstance(node.function, type):
        result = node.function(**node.parameters)(*streams)
    else:
        result = node.function(*streams, **node.parameters)
    where = f"node {NodeCopy(node.name, copy)}"
    if result is None:
        return
    if not isinstance(result, Iterable) or isinstance(result, str | bytes | Mapping):
        raise RecordError(
            f"{where} returned {result!r:.80}; a node yields records, or returns a list of them"
        )
    is_named = node.outputs != (OUT,)
    for record in result:
        if not is_named and not isinstance(record, Output):
            yield OUT, record
            continue
        if not isinstance(record, Output) or record.name not in node.outputs:
            known = ", ".join(map(repr, node.outputs)) if is_named else "none with a name"
            raise RecordError(
                f"{where} yielded {record!r:.80}; yield slotwise.Output(name, record) for one"
                f" of its outputs ({known}), which `outputs` lists"
            )
        yield record.name, record.record


def reader_of(channel: Channel, record: object, copies: int) -> int:
    """Return the copy of the reader that gets a record of a channel with the route "hash".

    Raises RecordError for a key of a type without a stable hash.
    """
    assert channel.by is not None
    key = channel.by(record)
    try:
        return stable_hash(key) % copies
    except TypeError:
        raise RecordError(
            f"{channel}: a key is {key!r:.80}, of type {type(key).__name__}; give strings,"
            " bytes, numbers, dates, None, or tuples of these"
        ) from None


def in_order(channel: Channel, records: Iterable[Any]) -> Iterable[Any]:
    """Return the records of one reader, sorted if the channel sorts."""
    if not channel.sort:
        return records
    assert channel.by is not None
    return sorted(records, key=channel.by)


# Sorting of the records of a reader by a key, in bounded memory.

SLICE_RECORDS = 1024
"""The number of records that are measured, written and read together."""


def sorted_by_key(
    records: Iterable[Any], by: Callable[[Any], Any], memory_bytes: int, folder: Path
) -> Iterator[Any]:
    """Yield the records sorted by by(record); the sort is stable.

    Sorted runs of about `memory_bytes` are merged from unnamed files in `folder`.
    """
    runs: list[BinaryIO] = []
    held: list[Any] = []
    size = 0
    stream = iter(records)
    while some := list(islice(stream, SLICE_RECORDS)):
        held += some
        size += column_bytes(some)
        if size >= memory_bytes:
            runs.append(_spilled(sorted(held, key=by), folder))
            held, size = [], 0
    held.sort(key=by)
    if not runs:
        yield from held
        return
    yield from merge(*map(_read, runs), held, key=by)


def _spilled(records: list[Any], folder: Path) -> BinaryIO:
    with work_folder_errors(folder):
        file = cast("BinaryIO", tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
    for start in range(0, len(records), SLICE_RECORDS):
        some = pickled(records[start : start + SLICE_RECORDS], None, [])
        with work_folder_errors(folder):
            file.write(some)
    with work_folder_errors(folder):
        file.seek(0)
    return file


def _read(file: BinaryIO) -> Iterator[Any]:
    with file:
        while True:
            try:
                some = pickle.load(file)
            except EOFError:
                return
            yield from some
