"""One attempt of a group: its files, its data of the job, and its TCP channels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slotwise.jobs.channels.carriers import BrokenChannelError
from slotwise.jobs.channels.ring import SharedRing
from slotwise.jobs.channels.streams import Reader, Writer
from slotwise.jobs.channels.tcp import Listener, connect
from slotwise.jobs.commit import Layout
from slotwise.jobs.dataflow.nodes import Channel, NodeCopy, Written
from slotwise.jobs.dataflow.stages import StagedGraph
from slotwise.jobs.execution import SuccessfulAttempts
from slotwise.jobs.formats.outputs import SUFFIXES
from slotwise.jobs.hosts import notes
from slotwise.jobs.hosts.sockets import host_address, is_local, local_address
from slotwise.task import on_stop_request, stop

if TYPE_CHECKING:
    from ssl import SSLContext


AllWinners = Mapping[str, SuccessfulAttempts]
"""The successful attempts of the stages whose files are read."""

Ring = tuple[int, int, int]
"""A channel and the copies at its two ends."""


class Rendezvous(NamedTuple):
    """The folder in which the groups of an attempt of a gang exchange their addresses.

    It is the folder of the first group that begins; a single group uses its own.

    secret   the secret of the run, by which the ends of TCP channels authenticate each other
    task     the number of the group that has the folder
    address  the agent of its host; empty if all hosts see the folder
    """

    secret: bytes
    task: int
    address: str = ""


@dataclass(frozen=True)
class GroupAttempt:
    """One attempt of a group.

    winners  the successful attempts of all tasks whose files it reads
    meeting  the folder for the addresses of TCP channels
    """

    staged: StagedGraph
    layout: DataflowLayout
    memory_bytes: int
    phase: str
    task: int
    attempt: int
    winners: AllWinners
    meeting: Rendezvous

    @property
    def folder(self) -> Path:
        """The directory of the attempt."""
        return self.layout.attempt_dir(self.phase, self.task, self.attempt)

    @property
    def group(self) -> tuple[NodeCopy, ...]:
        """The node copies that run."""
        return self.staged.by_name[self.phase].groups[self.task]

    def rings(self) -> dict[Ring, SharedRing]:
        """Create the shared memory between the copies of the group, before they fork."""
        graph = self.staged.graph
        return {
            (channel.number, copy.copy, reader): SharedRing()
            for copy in self.group
            for channel in graph.outputs(copy.node)
            if channel.kind == "shm"
            for reader in graph.readers(channel, copy.copy)
        }


# The paths of a dataflow job's files while it runs, and of its output.


@dataclass(frozen=True, slots=True)
class DataflowLayout(Layout):
    """The paths of one dataflow job; `numbers` are those of its stages, by name."""

    numbers: Mapping[str, int]

    def attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """Return the directory of one attempt. Its name has no stage, which may be too long."""
        return self.folder / f"{self.numbers[phase]}-{task}-{attempt}"

    def channel_file(self, attempt_dir: Path, channel: Channel, writer: int) -> Path:
        """Return the file that a copy of the writer of a channel writes."""
        return attempt_dir / f"channel-{channel.number}-{writer}"

    def fetched_files(self, attempt_dir: Path, channel: Channel, reader: int) -> Path:
        """Return the prefix of files that a copy of the reader fetches from other hosts."""
        return attempt_dir / f"fetched-{channel.number}-{reader}"

    def part(self, written: Written, copy: int) -> str:
        """Return the part of the output that a copy of a node writes, with its folder."""
        name = f"part-n-{copy:05}{SUFFIXES[written.output_format]}"
        return f"{written.folder}/{name}" if written.folder else name


# How the groups of a gang connect: by notes with their addresses in one folder, that of the
# attempt of the group that begins first. All groups of a gang have the same attempt number, so
# notes of an earlier attempt are never mistaken for those of this one. Hosts that do not see
# the folder use the agent of the host that has it.

MEETING_SECONDS = 300.0
"""How long a group waits for others. If one fails, the scheduler ends all groups earlier."""

MIN_PAUSE, MAX_PAUSE = 0.001, 0.05
"""Seconds between two checks for an address: the minimum is doubled up to the maximum."""

LOOPBACK = "127.0.0.1"
"""Where a group that is not in a gang listens."""

Note = Callable[[str, str | None], str | None]
"""Writes a note by its name if its content is given, and returns the content of the note."""


class Meeting:
    """The connected TCP channels of a copy: by channel and the copies at its two ends.

    A copy listens, then connects to its readers, then waits for its writers. So a copy without
    writers waits only for addresses, and copies never wait for each other in a circle.
    """

    def __init__(self, place: GroupAttempt, copy: NodeCopy) -> None:
        graph = place.staged.graph
        self._place, self._copy, self._secret = place, copy, place.meeting.secret
        self.readers: dict[Ring, Reader] = {}
        self.writers: dict[Ring, Writer] = {}
        inputs = [channel for channel in graph.inputs(copy.node) if channel.kind == "tcp"]
        outputs = [channel for channel in graph.outputs(copy.node) if channel.kind == "tcp"]
        if not inputs and not outputs:
            return
        # A copy that only waits for others has nothing to keep.
        on_stop_request(lambda _: stop())
        if not inputs:
            self._connect(outputs, self._exchange(outputs))
        else:
            host = host_address() if self._is_gang else LOOPBACK
            with Listener(host, self._secret, self._tls(listens=True)) as listener:
                self._connect(outputs, self._exchange(outputs, listener.address))
                self._accept(listener, inputs)
        on_stop_request(None)

    @property
    def _is_gang(self) -> bool:
        return self._place.staged.by_name[self._place.phase].gang

    def _tls(self, *, listens: bool) -> SSLContext | None:
        """Return the TLS context of a gang if the cluster has TLS, else None.

        Channels of a group that is not in a gang stay on loopback.
        """
        if not self._is_gang or not local_address():
            return None
        # Imported here because these imports take long.
        from ssl import Purpose

        from slotwise.jobs.hosts.auth import local_tls

        return local_tls(Purpose.CLIENT_AUTH if listens else Purpose.SERVER_AUTH)

    def _exchange(self, channels: list[Channel], own: str = "") -> dict[NodeCopy, str]:
        """Write a note with the own address, if given; return the addresses of all readers."""
        graph, copy = self._place.staged.graph, self._copy
        readers = {
            NodeCopy(channel.reader, reader)
            for channel in channels
            for reader in graph.readers(channel, copy.copy)
        }
        with ExitStack() as stack:
            note = self._notes(stack)
            if own:
                _await(note, self._note_of(copy), own)
            return {reader: _await(note, self._note_of(reader)) for reader in readers}

    def _notes(self, stack: ExitStack) -> Note:
        """Return the access to the notes of the meeting, on this or another host."""
        place = self._place
        folder = place.layout.attempt_dir(place.phase, place.meeting.task, place.attempt)
        if is_local(place.meeting.address):
            return partial(notes.note, folder)
        # Imported here because importing ssl takes long.
        from slotwise.jobs.hosts.notes import RemoteStore

        store = RemoteStore(place.meeting.address, folder)
        stack.callback(store.close)
        return store.note

    def _note_of(self, copy: NodeCopy) -> str:
        stage, task = self._place.staged.tasks[copy]
        return f"{task}-{self._place.staged.by_name[stage].groups[task].index(copy)}"

    def _connect(self, channels: list[Channel], addresses: Mapping[NodeCopy, str]) -> None:
        graph, copy = self._place.staged.graph, self._copy.copy
        tls = self._tls(listens=False)
        for channel in channels:
            for reader in graph.readers(channel, copy):
                key = channel.number, copy, reader
                address = addresses[NodeCopy(channel.reader, reader)]
                self.writers[key] = connect(
                    address, self._secret, _name(key), MEETING_SECONDS, tls
                )

    def _accept(self, listener: Listener, channels: list[Channel]) -> None:
        graph, copy = self._place.staged.graph, self._copy.copy
        keys = {
            _name((channel.number, writer, copy)): (channel.number, writer, copy)
            for channel in channels
            for writer in graph.writers(channel, copy)
        }
        found = listener.accept(keys, MEETING_SECONDS)
        self.readers = {keys[name]: reader for name, reader in found.items()}


def _await(note: Note, name: str, text: str | None = None) -> str:
    """Wait until a note exists or the own one is written. Other groups may begin first."""
    until, pause = time.monotonic() + MEETING_SECONDS, MIN_PAUSE
    while True:
        why = ""
        try:
            found = note(name, text)
            if found is not None:
                return found
        except ConnectionError as error:  # The scheduler detects if the host is lost.
            why = f": {error}"
        if time.monotonic() > until:
            raise BrokenChannelError(
                f"other groups have not begun within {MEETING_SECONDS:g} s{why}"
            )
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


def _name(key: Ring) -> str:
    return ".".join(map(str, key))
