"""Plan a dataflow job: find its graph and its input, derive stages, create the job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotwise.model.cluster import ANY_KIND, Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Block, Job, Phase, Tasks
from slotwise.programs.commit import check_output, place_of
from slotwise.programs.dataflow.execution import DataflowStages
from slotwise.programs.dataflow.graph import Dataflow
from slotwise.programs.dataflow.group import GroupRunner
from slotwise.programs.dataflow.inputs import bytes_on_hosts
from slotwise.programs.dataflow.layout import DataflowLayout
from slotwise.programs.dataflow.loading import load_flow
from slotwise.programs.dataflow.stages import DataflowStage, StagedGraph, derive
from slotwise.programs.dataflow.stated import flow_of
from slotwise.programs.formats.held import blocks
from slotwise.programs.staged import StagedExecution
from slotwise.programs.work_folder import temporary_folder, work_folder_name

MEMORY_BYTES = 256 << 20
MEMORY_LEAST_BYTES = 1 << 20


def plan_dataflow(
    job_id: str,
    flow: Dataflow | str | Mapping[str, Any],
    output: str | Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    overwrite: bool = False,
    work_dir: str | Path | None = None,
    base_dir: str | Path | None = None,
    arrival: float = 0.0,
    pool: str = "default",
    weight: float = 1.0,
    deadline: float | None = None,
    steps: tuple[tuple[float, float], ...] = (),
    penalty: str | None = None,
    priority: str = "normal",
    slots_min: int = 0,
    slots_max: int | None = None,
    cluster: Cluster | None = None,
) -> StagedExecution:
    """Check a dataflow job and prepare it to run; nothing is written yet.

    `flow` is a Dataflow, the place of one ("app.py:flow"), or what a workload file says under
    `dataflow`. Relative paths are relative to `base_dir`. `memory_bytes` limits the memory of a
    channel that spills. `slots_min` and `slots_max` apply to each phase. Raises InputError for
    invalid arguments, and for a bundle that `cluster` can never hold.
    """
    if not isinstance(memory_bytes, int) or memory_bytes < MEMORY_LEAST_BYTES:
        raise InputError(
            f"job {job_id!r}: memory_bytes is {memory_bytes!r}; give a whole number >="
            f" {MEMORY_LEAST_BYTES}"
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
    job = Job(
        job_id,
        tuple(
            _phase(stage, _homes(staged, stage, cluster), slots_min, slots_max)
            for stage in staged.stages
        ),
        arrival,
        pool,
        weight,
        deadline,
        steps,
        penalty,
        priority,
    )
    work = Path(work_dir or temporary_folder()).absolute() / work_folder_name()
    numbers = {stage.name: number for number, stage in enumerate(staged.stages)}
    layout = DataflowLayout(str(work), place, work_dir is not None, numbers)
    stages = DataflowStages(job_id, staged, layout)
    runner = GroupRunner(staged, layout, memory_bytes)
    return StagedExecution(job, runner, stages, layout, overwrite=overwrite)


def staged_graph(
    flow: Dataflow | str | Mapping[str, Any], base_dir: str | Path | None
) -> StagedGraph:
    """The graph of a dataflow in any of its forms, with its stages."""
    if isinstance(flow, str):
        flow = load_flow(flow, base_dir)
    elif isinstance(flow, Mapping):
        flow = flow_of(flow, base_dir)
    if not isinstance(flow, Dataflow):
        raise InputError(f"{flow!r:.80} is no dataflow; give a slotwise.Dataflow or its place")
    return derive(flow.graph(base_dir or ""))


def check_fits(stage: DataflowStage, cluster: Cluster) -> None:
    """InputError for a group that no host can hold, or a gang that the cluster cannot."""
    kind = cluster.slot_kind(ANY_KIND)
    if not cluster.hosts:
        return  # Hosts come later.
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
    """A block for each group with the hosts that hold most of its input, if some are known."""
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
    )
