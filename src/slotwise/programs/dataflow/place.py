"""One attempt of a group: where its files are, and what it knows of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slotwise.programs.channels.ring import SharedRing
from slotwise.programs.dataflow.layout import DataflowLayout
from slotwise.programs.dataflow.nodes import NodeCopy
from slotwise.programs.dataflow.stages import StagedGraph
from slotwise.programs.task_result import SuccessfulAttempts

AllWinners = Mapping[str, SuccessfulAttempts]
"""The attempts that won, of each task of the stages whose files are read."""

Ring = tuple[int, int, int]
"""A channel and the copies at its two ends."""


class Rendezvous(NamedTuple):
    """Where the groups of an attempt of a gang meet: in the folder of the first that begins.

    A group that meets no others uses its own.

    secret   that of the run, by which the ends of TCP channels know each other
    task     the number of the group that has the folder
    address  the agent of its host; empty if it is a folder that all hosts see
    """

    secret: bytes
    task: int
    address: str = ""


@dataclass(frozen=True)
class GroupAttempt:
    """One attempt of a group.

    winners  the attempts that won, of all tasks whose files it reads
    meeting  where its nodes meet those of others, for TCP channels
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
        """The shared memory between the copies of the group; to be made before they fork."""
        graph = self.staged.graph
        return {
            (channel.number, copy.copy, reader): SharedRing()
            for copy in self.group
            for channel in graph.outputs(copy.node)
            if channel.kind == "shm"
            for reader in graph.readers(channel, copy.copy)
        }
