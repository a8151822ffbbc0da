"""Plan a dataflow job: build its graph, find its input, derive stages, create the job."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from slotwise.core.cluster import ANY_KIND, Cluster
from slotwise.core.errors import InputError
from slotwise.core.job import Block, Job, Phase, Sizes, Tasks
from slotwise.jobs.commit import check_output, place_of
from slotwise.jobs.dataflow.graph import Dataflow
from slotwise.jobs.dataflow.group import GroupRunner
from slotwise.jobs.dataflow.loading import flow_of, load_flow
from slotwise.jobs.dataflow.nodes import NodeCopy, SplitSource
from slotwise.jobs.dataflow.place import DataflowLayout, Rendezvous
from slotwise.jobs.dataflow.stages import (
    DataflowStage,
    StagedGraph,
    bytes_of_copies,
    bytes_on_hosts,
    derive,
    sources_read,
)
from slotwise.jobs.dataflow.stated import Stated, stated
from slotwise.jobs.execution import SuccessfulAttempts
from slotwise.jobs.formats.planned import blocks
from slotwise.jobs.kept import KeptStages
from slotwise.jobs.staged import StagedExecution, job_without, winners
from slotwise.jobs.work_folder import temporary_folder, work_folder_name

MEMORY_BYTES = 256 << 20
MIN_MEMORY_BYTES = 1 << 20


def plan_dataflow(
    job_id: str,
    flow: Dataflow | str | Mapping[str, Any],
    output: str | Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    overwrite: bool = False,
    work_dir: str | Path | None = None,
    base_dir: str | Path | None = None,
    slots_min: int = 0,
    slots_max: int | None = None,
    cluster: Cluster | None = None,
    **about: Any,
) -> StagedExecution:
    """Check a dataflow job and prepare it to run. Nothing is written yet.

    `flow` is a Dataflow, the place of one ("app.py:flow"), or the value of `dataflow` in a
    workload file. Relative paths are relative to `base_dir`. `memory_bytes` limits the memory
    of a channel that spills. `slots_min` and `slots_max` apply to each phase. `about` holds the
    other fields of the `Job`. Raises InputError for invalid arguments, and for a bundle that
    `cluster` can never hold.
    """
    if not isinstance(memory_bytes, int) or memory_bytes < MIN_MEMORY_BYTES:
        raise InputError(
            f"job {job_id!r}: memory_bytes is {memory_bytes!r}; give a whole number >="
            f" {MIN_MEMORY_BYTES}"
        )
    if not str(output):
        raise InputError(f"job {job_id!r}: no output; name a directory that does not exist yet")
    place = place_of(output, base_dir)
    staged = staged_graph(flow, base_dir)
    if not staged.graph.written:
        raise InputError(f"job {job_id!r}: the dataflow writes nothing; add flow.write(node)")
    check_output(place, overwrite)
    if cluster is not None:
        for stage in staged.stages:
            check_fits(stage, cluster)
    phases = tuple(
        _phase(stage, _homes(staged, stage, cluster), slots_min, slots_max)
        for stage in staged.stages
    )
    job = Job(job_id, phases, **about)
    work = Path(work_dir or temporary_folder()).absolute() / work_folder_name()
    numbers = {stage.name: number for number, stage in enumerate(staged.stages)}
    layout = DataflowLayout(str(work), place, work_dir is not None, numbers)
    runner = GroupRunner(staged, layout, memory_bytes)
    return DataflowExecution(job, runner, overwrite=overwrite)


def staged_graph(
    flow: Dataflow | str | Mapping[str, Any], base_dir: str | Path | None
) -> StagedGraph:
    """Return the graph of a dataflow in any of its forms, with its stages."""
    if isinstance(flow, str):
        flow = load_flow(flow, base_dir)
    elif isinstance(flow, Mapping):
        flow = flow_of(flow, base_dir)
    if not isinstance(flow, Dataflow):
        raise InputError(
            f"{flow!r:.80} is not a dataflow; give a slotwise.Dataflow or its place"
        )
    return derive(flow.graph(base_dir or ""))


def check_fits(stage: DataflowStage, cluster: Cluster) -> None:
    """Raise InputError for a group that no host can hold, or a gang that the cluster cannot."""
    kind = cluster.slot_kind(ANY_KIND)
    if not cluster.hosts:
        return  # Hosts are added later.
    sizes = {host.name: host.slots.get(kind, 0) for host in cluster.hosts}
    largest = max(sizes, key=sizes.__getitem__)
    if sizes[largest] < stage.slots:
        group = max(stage.groups, key=len)
        raise InputError(
            f"{', '.join(map(str, group))} run on one host, because shm channels join them, and"
            f" need {stage.slots} slots; the largest host, {largest!r}, has {sizes[largest]}:"
            " make one of these channels tcp or file, or give nodes fewer copies"
        )
    room = sum(size // stage.slots for size in sizes.values())
    if stage.gang and room < len(stage.groups):
        raise InputError(
            f"the bundle of {', '.join(stage.nodes)} starts together, because tcp channels join"
            f" them: {len(stage.groups)} groups, each in the slots of the largest one,"
            f" {stage.slots}; the cluster holds {room} of them: make a channel file, or give"
            " nodes fewer copies"
        )


def _homes(
    staged: StagedGraph, stage: DataflowStage, cluster: Cluster | None
) -> tuple[Block, ...]:
    """Return a block for each group with the hosts that hold most of its input, if known."""
    return blocks([bytes_on_hosts(staged.graph, group) for group in stage.groups], cluster)


def _phase(
    stage: DataflowStage, homes: tuple[Block, ...], slots_min: int, slots_max: int | None
) -> Phase:
    is_equal = len(set(stage.work)) == 1  # One number then stands for all tasks.
    return Phase(
        stage.name,
        Tasks(len(stage.groups), stage.work[0] if is_equal else stage.work, homes),
        after=stage.after,
        slots_min=slots_min,
        slots_max=slots_max,
        slots=stage.slots,
        gang=stage.gang,
        resources=stage.needs,
    )


SECRET_BYTES = 32


class DataflowExecution(StagedExecution):
    """A phase for each stage of the graph, with a task for each group."""

    def __init__(
        self,
        job: Job,
        runner: GroupRunner,
        *,
        overwrite: bool,
        kept: KeptStages | None = None,
    ) -> None:
        self._runner, self._overwrite = runner, overwrite
        self._staged = runner.staged
        self._files = runner.layout
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._read = {
            stage.name: frozenset(stages)
            for stage in self._staged.stages
            if (stages := self._stages_read(stage))
        }
        self._intermediate = frozenset().union(*self._read.values())
        self._winners: dict[str, SuccessfulAttempts] = {}
        # For each gang that has begun, its last attempt, and the folder for addresses.
        self._gangs: dict[str, tuple[int, Rendezvous]] = {}
        super().__init__(job, runner, runner.layout, overwrite=overwrite, kept=kept)

    @cached_property
    def _stated(self) -> Stated:
        return stated(self._staged)

    @property
    def code_files(self) -> Collection[str]:
        """The files of the functions of nodes, of keys and in parameters."""
        return self._stated.code_files

    @property
    def input_files(self) -> Collection[str]:
        """The files of all sources, also of those in an app."""
        sources = (node.source for node in self._staged.graph.nodes.values())
        return {
            piece.path
            for source in sources
            if isinstance(source, SplitSource)
            for split in source.splits
            for piece in split
        }

    @property
    def plan(self) -> str:
        """A digest of the groups, the channels, the parameters and the input of the nodes."""
        return self._stated.digest

    def continued(self, kept: KeptStages) -> Self:
        """Return the job without these stages of an earlier run, for its work folder."""
        runner = replace(self._runner, layout=replace(self._files, work_dir=kept.folder))
        job = job_without(self.job, kept.stages)
        return type(self)(job, runner, overwrite=self._overwrite, kept=kept)

    def files(self, phase: str, task: int, attempt: int) -> Iterable[Path] | None:
        """Return the files of channels that a group writes.

        A stage without such files or parts of the output has other effects; it is done again.
        """
        if phase not in self._intermediate and not self.parts(phase, task):
            return None
        folder = self._files.attempt_dir(phase, task, attempt)
        return [
            self._files.channel_file(folder, channel, copy.copy)
            for copy in self._staged.by_name[phase].groups[task]
            for channel in self._staged.graph.outputs(copy.node)
            if channel.kind == "file"
        ]

    @property
    def program(self) -> str:
        """The name of the dataflow in other runs."""
        return f"dataflow {'+'.join(self._staged.graph.nodes)}"

    @cached_property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of each group, for stages in which none is 0.

        They are the bytes of its input, if each group of the stage reads some; otherwise an
        estimate for its longest copy, from the input of the nodes before it.
        """
        found: dict[str, Sizes] = {}
        estimated = bytes_of_copies(self._staged.graph)
        for stage in map(self._staged.by_name.__getitem__, self.job.by_name):
            sizes = tuple(sum(map(self._input_bytes, group)) for group in stage.groups)
            if not all(sizes):
                sizes = tuple(int(max(map(estimated.__getitem__, g))) for g in stage.groups)
            if all(sizes):
                found[stage.name] = sizes
        return found

    def inputs(self, phase: str, task: int) -> tuple[object, ...]:
        """Return the attempts to read from, and the rendezvous."""
        found = {name: self._won(name) for name in self._read.get(phase, ())}
        alone = Rendezvous(self._secret, task)
        meeting = self._gangs[phase][1] if self._staged.by_name[phase].gang else alone
        return (found, meeting)

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        """Make the first group that begins in an attempt of a gang the rendezvous of all."""
        if self._staged.by_name[phase].gang and self._gangs.get(phase, (0,))[0] != attempt:
            agent = "" if self._files.is_shared else address
            self._gangs[phase] = attempt, Rendezvous(self._secret, task, agent)
        return True

    def describe(self, phase: str, task: int) -> str:
        """Return a description of the task for messages, with its nodes and their input."""
        group = self._staged.by_name[phase].groups[task]
        nodes = "node" if len(group) == 1 else "nodes"
        names = ", ".join(map(str, group))
        files = [text for copy in group for text in self._inputs(copy)]
        reads = f"; {files[0]}" if len(files) == 1 else ""
        return f"task {task} of job {self.job.id} ({nodes} {names}{reads})"

    def parts(self, phase: str, task: int) -> Collection[str]:
        """Return a part for each copy of a written node."""
        return [
            self._files.part(written, copy.copy)
            for copy in self._staged.by_name[phase].groups[task]
            for written in self._staged.graph.written
            if written.node == copy.node
        ]

    def is_intermediate(self, phase: str) -> bool:
        """Return whether a node of the stage writes to a file channel."""
        return phase in self._intermediate

    def on_finished(self, phase: str, task: int, attempt: int) -> None:
        """Forget the cached attempts of the phase."""
        self._winners.pop(phase, None)

    def on_lost(self, phase: str, tasks: Collection[int]) -> None:
        """Forget the cached attempts of the phase: the tasks will have others."""
        self._winners.pop(phase, None)

    def _won(self, stage: str) -> SuccessfulAttempts:
        if stage not in self._winners:  # Created once for all its readers.
            groups = len(self._staged.by_name[stage].groups)
            self._winners[stage] = winners(self._done[stage], groups)
        return self._winners[stage]

    def _stages_read(self, stage: DataflowStage) -> set[str]:
        """Return the stages whose files the stage reads."""
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
