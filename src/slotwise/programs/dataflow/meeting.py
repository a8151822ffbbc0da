"""How the groups of a gang find each other: by files with their addresses in the work folder.

All groups of a gang have the attempt number in common, so the files of an earlier attempt are
never taken for those of this one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from slotwise.programs.channels.broken import BrokenChannelError
from slotwise.programs.channels.streams import Reader, Writer
from slotwise.programs.channels.tcp import Listener, connect
from slotwise.programs.dataflow.nodes import Channel, NodeCopy
from slotwise.programs.dataflow.place import GroupAttempt, Ring
from slotwise.task import on_stop_request, stop

MEETING_SECONDS = 300.0
"""How long a group waits for others. If one of them fails, the scheduler ends all before."""

PAUSE_LEAST, PAUSE_MOST = 0.001, 0.05
"""Seconds between two looks for an address: the first pause, doubled up to the second."""

HOST = "127.0.0.1"
"""Where groups listen; all hosts of the local backend are on this machine."""


class Meeting:
    """The TCP channels of a copy, connected: by channel and the copies at its two ends.

    A copy listens, then connects to its readers, then waits for its writers. So one that reads
    from nobody waits only for addresses, and no circle of copies waits for each other.
    """

    def __init__(self, place: GroupAttempt, copy: NodeCopy) -> None:
        graph = place.staged.graph
        self._place, self._copy = place, copy
        self.readers: dict[Ring, Reader] = {}
        self.writers: dict[Ring, Writer] = {}
        inputs = [channel for channel in graph.inputs(copy.node) if channel.kind == "tcp"]
        outputs = [channel for channel in graph.outputs(copy.node) if channel.kind == "tcp"]
        if not inputs and not outputs:
            return
        # What has only begun to wait for others has nothing to keep.
        on_stop_request(lambda _: stop())
        if not inputs:
            self._connect(outputs)
        else:
            with Listener(HOST, place.secret) as listener:
                self._publish(listener.address)
                self._connect(outputs)
                self._accept(listener, inputs)
        on_stop_request(None)

    def _publish(self, address: str) -> None:
        place = self._place
        path = place.layout.address_file(place.folder, place.group, self._copy)
        written = path.with_name(f"{path.name}.written")
        written.write_text(address, "ascii")
        os.replace(written, path)

    def _connect(self, channels: list[Channel]) -> None:
        graph, copy, secret = self._place.staged.graph, self._copy.copy, self._place.secret
        for channel in channels:
            for reader in graph.readers(channel, copy):
                key = channel.number, copy, reader
                address = self._address(NodeCopy(channel.reader, reader))
                writer = connect(address, secret, _name(key), MEETING_SECONDS)
                self.writers[key] = writer

    def _accept(self, listener: Listener, channels: list[Channel]) -> None:
        graph, copy = self._place.staged.graph, self._copy.copy
        keys = {
            _name((channel.number, writer, copy)): (channel.number, writer, copy)
            for channel in channels
            for writer in graph.writers(channel, copy)
        }
        found = listener.accept(keys, MEETING_SECONDS)
        self.readers = {keys[name]: reader for name, reader in found.items()}

    def _address(self, copy: NodeCopy) -> str:
        place = self._place
        stage, task = place.staged.tasks[copy]
        group = place.staged.by_name[stage].groups[task]
        folder = place.layout.attempt_dir(stage, task, place.attempt)
        return _await(place.layout.address_file(folder, group, copy), copy)


def _await(path: Path, copy: NodeCopy) -> str:
    """The text of a file, as soon as it is there."""
    until, pause = time.monotonic() + MEETING_SECONDS, PAUSE_LEAST
    while True:
        try:
            return path.read_text("ascii")
        except FileNotFoundError:
            if time.monotonic() > until:
                raise BrokenChannelError(
                    f"node {copy} has not begun within {MEETING_SECONDS:g} s"
                ) from None
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MOST)


def _name(key: Ring) -> str:
    return ".".join(map(str, key))
