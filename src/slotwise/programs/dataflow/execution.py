"""The stages of a dataflow job, as the execution of jobs of stages sees them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from slotwise.model.observation import Sizes
from slotwise.programs.dataflow.estimates import bytes_of_copies
from slotwise.programs.dataflow.inputs import sources_read
from slotwise.programs.dataflow.layout import DataflowLayout
from slotwise.programs.dataflow.nodes import NodeCopy
from slotwise.programs.dataflow.place import Rendezvous
from slotwise.programs.dataflow.stages import DataflowStage, StagedGraph
from slotwise.programs.staged import AllDone, winners
from slotwise.programs.task_result import SuccessfulAttempts

SECRET_BYTES = 32


class DataflowStages:
    """A phase for each stage of the graph, with a task for each group."""

    def __init__(self, job: str, staged: StagedGraph, layout: DataflowLayout) -> None:
        self.program = f"dataflow {'+'.join(staged.graph.nodes)}"
        self._job = job
        self._staged = staged
        self._layout = layout
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._read = {
            stage.name: frozenset(stages)
            for stage in staged.stages
            if (stages := self._stages_read(stage))
        }
        self._intermediate = frozenset().union(*self._read.values())
        self._winners: dict[str, SuccessfulAttempts] = {}
        # For each gang that has begun, its last attempt, and where its groups meet.
        self._gangs: dict[str, tuple[int, Rendezvous]] = {}

    @cached_property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of each group, for stages in which none is 0.

        They are those of its input, if each group of the stage reads some; else an estimate of
        what its longest copy reads, from the input of the nodes before it.
        """
        found: dict[str, Sizes] = {}
        estimated = bytes_of_copies(self._staged.graph)
        for stage in self._staged.stages:
            sizes = tuple(sum(map(self._input_bytes, group)) for group in stage.groups)
            if not all(sizes):
                sizes = tuple(int(max(map(estimated.__getitem__, g))) for g in stage.groups)
            if all(sizes):
                found[stage.name] = sizes
        return found

    def begin(self) -> None:
        """All that stages share is made by their tasks."""

    def arguments(
        self, phase: str, task: int, attempt: int, done: AllDone
    ) -> tuple[object, ...]:
        """Phase, task, attempt, the attempts whose files it may read, where it meets others."""
        found = {name: self._won(name, done) for name in self._read.get(phase, ())}
        alone = Rendezvous(self._secret, task)
        meeting = self._gangs[phase][1] if self._staged.by_name[phase].gang else alone
        return (phase, task, attempt, found, meeting)

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> None:
        """The first group of an attempt of a gang that begins is where the others meet it."""
        if self._staged.by_name[phase].gang and self._gangs.get(phase, (0,))[0] != attempt:
            there = "" if self._layout.is_shared else address
            self._gangs[phase] = attempt, Rendezvous(self._secret, task, there)

    def describe(self, phase: str, task: int) -> str:
        """A description of the task for messages, with its nodes and their input."""
        group = self._staged.by_name[phase].groups[task]
        nodes = "node" if len(group) == 1 else "nodes"
        names = ", ".join(map(str, group))
        files = [text for copy in group for text in self._inputs(copy)]
        reads = f"; {files[0]}" if len(files) == 1 else ""
        return f"task {task} of job {self._job} ({nodes} {names}{reads})"

    def parts(self, phase: str, task: int) -> Collection[str]:
        """A part for each copy of a written node."""
        return [
            self._layout.part(written, copy.copy)
            for copy in self._staged.by_name[phase].groups[task]
            for written in self._staged.graph.written
            if written.node == copy.node
        ]

    def is_intermediate(self, phase: str) -> bool:
        """Whether a node of the stage writes to a file channel."""
        return phase in self._intermediate

    def finished(self, phase: str, task: int, attempt: int) -> None:
        """Nobody waits for a single task: stages begin when those before them are done."""
        self._winners.pop(phase, None)

    def lost(self, phase: str, tasks: Collection[int]) -> None:
        """The tasks will have other attempts."""
        self._winners.pop(phase, None)

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """Files stay to the end: any task that reads them may have to be done again."""
        return ()

    def _won(self, stage: str, done: AllDone) -> SuccessfulAttempts:
        if stage not in self._winners:  # Made once for all its readers.
            groups = len(self._staged.by_name[stage].groups)
            self._winners[stage] = winners(done[stage], groups)
        return self._winners[stage]

    def _stages_read(self, stage: DataflowStage) -> set[str]:
        """The stages whose files the stage reads."""
        graph, tasks = self._staged.graph, self._staged.tasks
        return {
            tasks[NodeCopy(channel.writer, writer)][0]
            for group in stage.groups
            for copy in group
            for channel in graph.inputs(copy.node)
            if channel.kind == "file"
            for writer in graph.writers(channel, copy.copy)
        }

    def _input_bytes(self, copy: NodeCopy) -> int:
        found = sources_read(self._staged.graph, copy)
        return sum(source.bytes_of(number) for source, number in found)

    def _inputs(self, copy: NodeCopy) -> list[str]:
        found = sources_read(self._staged.graph, copy)
        return [source.describe(number) for source, number in found]
