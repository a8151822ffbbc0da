"""One attempt of a group: where its files are, and what it knows of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotwise.programs.channels.ring import SharedRing
from slotwise.programs.dataflow.layout import DataflowLayout
from slotwise.programs.dataflow.nodes import NodeCopy
from slotwise.programs.dataflow.stages import StagedGraph

Attempts = Mapping[str, Sequence[int]]
"""The attempts that won, of each task of the stages whose files are read."""

Ring = tuple[int, int, int]
"""A channel and the copies at its two ends."""


@dataclass(frozen=True)
class GroupAttempt:
    """One attempt of a group.

    attempts  the attempts that won, of all tasks whose files it reads
    secret    that of the run, by which the groups of a gang know each other
    """

    staged: StagedGraph
    layout: DataflowLayout
    memory_bytes: int
    phase: str
    task: int
    attempt: int
    attempts: Attempts
    secret: bytes

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
