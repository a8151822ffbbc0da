"""The ends of the channels of one node copy: what it reads, and where its records go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from slotwise.programs.channels.files import FileReader, FileWriter
from slotwise.programs.channels.ring import SharedRing
from slotwise.programs.channels.spilling import Spilling
from slotwise.programs.channels.streams import Reader, Writer
from slotwise.programs.dataflow.body import reader_of
from slotwise.programs.dataflow.meeting import Meeting
from slotwise.programs.dataflow.nodes import Channel, NodeCopy
from slotwise.programs.dataflow.parts import Part
from slotwise.programs.dataflow.place import GroupAttempt, Ring
from slotwise.programs.dataflow.sorting import in_order
from slotwise.programs.formats.places import is_placed, placed
from slotwise.programs.hosts.in_place import in_place
from slotwise.programs.hosts.task_files import TaskFile, lost_here

Target = Callable[[object], object]


@dataclass
class Ends:
    """The open ends of one copy: what it reads, and the functions that take what it writes."""

    place: GroupAttempt
    copy: NodeCopy
    inputs: list[Iterable[object]] = field(default_factory=list)
    targets: dict[str, list[Target]] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    files: list[FileWriter] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def open(self, rings: Mapping[Ring, SharedRing]) -> None:
        """Open all; waits until the other ends of TCP channels are there."""
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
        """The writer that gets all records, if there is no other."""
        targets = [target for found in self.targets.values() for target in found]
        all_writers = [*self.writers, *(f.part(n) for f in self.files for n in range(f.parts))]
        if len(self.targets) == len(targets) == len(all_writers) == 1 and not self.parts:
            return all_writers[0]
        return None

    @property
    def is_wanted(self) -> bool:
        """False once all readers are known to have left, and nothing goes to files."""
        is_kept = bool(self.files or self.parts) or not self.writers
        return is_kept or any(writer.is_wanted for writer in self.writers)

    def close(self) -> None:
        """End all streams and files, and read no more. Raises what writers raise."""
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
        """Tell all other ends that the copy has failed."""
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
        """The ends of the rings that belong to this copy; it leaves the others."""
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
        """The function that sends a record through a channel."""
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
        """The records of a channel: those of its first writer, then those of the second."""
        place = self.place
        writers = place.staged.graph.writers(channel, self.copy.copy)
        if channel.kind == "direct":
            return self._read_source(channel, writers)
        if channel.kind == "file":
            records = self._read_files(channel, writers)
            if not channel.sort:
                return records
            assert channel.by is not None
            return in_order(records, channel.by, place.memory_bytes, place.folder)
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
            if lost := lost_here(files):
                raise lost from error
            raise
        finally:
            for path in fetched:
                path.unlink(missing_ok=True)

    def _file(self, channel: Channel, writer: int) -> TaskFile:
        """The file that a copy of the writer of a channel has left, and the stream for here."""
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
