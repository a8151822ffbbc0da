"""Plan a MapReduce job: check the request, find the input, estimate work, create the job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Self

from slotwise.core.cluster import Cluster
from slotwise.core.errors import InputError, check_range
from slotwise.core.job import COPY_KIND, MAX_REDUCERS, Block, Job, Phase, Shuffle, Sizes, Tasks
from slotwise.core.resources import Resources, requested
from slotwise.jobs.commit import check_output, place_of
from slotwise.jobs.execution import TaskResult
from slotwise.jobs.formats.outputs import SUFFIXES, check_output_format
from slotwise.jobs.formats.planned import SPLIT_BYTES, InputHosts, PlannedInput, blocks, held_by
from slotwise.jobs.formats.splits import Split, SplitPiece, bytes_on_hosts
from slotwise.jobs.kept import KeptStages
from slotwise.jobs.loading import AnyProgram, known_as, load
from slotwise.jobs.mapreduce.program import (
    COPY_PHASE,
    BatchMapReduce,
    MapReduce,
    MapReduceLayout,
)
from slotwise.jobs.mapreduce.tasks import Runner
from slotwise.jobs.shuffle.sources import (
    CompleteCopy,
    Copied,
    FinishedMaps,
    IncrementalCopy,
    InPlace,
    PairSource,
)
from slotwise.jobs.staged import StagedExecution, job_without, winners
from slotwise.jobs.work_folder import temporary_folder, work_folder_name

MEMORY_BYTES = 256 << 20
MIN_MEMORY_BYTES = 1 << 20
SAMPLE_PIECES = 32
MIN_SAMPLE_PIECE_BYTES = 1 << 16

KINDS = ("map", "reduce")
"""The kinds of tasks that may request different resources."""


def plan_mapreduce(
    job_id: str,
    program: str | type[AnyProgram] | AnyProgram,
    inputs: str | Sequence[str] = (),
    output: str | Path = "",
    *,
    reducers: int = 2,
    parameters: Mapping[str, Any] | None = None,
    input_hosts: InputHosts = None,
    input_format: str = "text",
    output_format: str = "text",
    split_bytes: int = SPLIT_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    overwrite: bool = False,
    work_dir: str | Path | None = None,
    base_dir: str | Path | None = None,
    slots: int = 1,
    resources: Mapping[str, Any] | None = None,
    slots_min: int = 0,
    slots_max: int | None = None,
    shuffle: Shuffle | None = None,
    cluster: Cluster | None = None,
    **about: Any,
) -> StagedExecution:
    """Check a MapReduce job and prepare it to run. Nothing is written yet.

    `program` is as for `load`. `inputs` are paths, globs or directories. `input_hosts` names
    the hosts that hold some of these, by path, glob or directory, or a source of locations: see
    `slotwise.Dataflow.read`. Relative paths are relative to `base_dir`. `memory_bytes` limits
    the memory of a task's pairs. Shuffled data is in a directory of the job under `work_dir`
    (default: the system's directory for temporary files). `slots_min` and `slots_max` apply to
    each phase, `slots` and `resources` to each task of map and reduce; `resources` may state
    these by kind: `{"map": {...}, "reduce": {...}}`. The phases are map and, unless
    `reducers` is 0, reduce; a program with total_order and two or more reduces has a phase
    sample before them. `about` holds the other fields of the `Job`. Raises InputError or
    MissingExtraError for invalid arguments.

    With `shuffle`, reduces begin to copy before all maps are done, and copying may be a
    separate phase, reduce-copy. Without it, reduces wait for the maps and read map output in
    place. A separate copy phase copies by default for as many reduces at once as `cluster` has
    reduce slots, or for all reduces without `cluster`.
    """
    made = load(program, parameters, base_dir)
    count = reducers if made.num_reducers is None else made.num_reducers
    _check_numbers(job_id, count, split_bytes, memory_bytes)
    _check_keys(made, count)
    if not str(output):
        raise InputError(f"job {job_id!r}: no output; name a directory that does not exist yet")
    place = place_of(output, base_dir)
    check_output(place, overwrite)
    check_output_format(output_format)
    patterns = [inputs] if isinstance(inputs, str) else list(inputs)
    source = _input(job_id, made, patterns, input_format, base_dir)
    splits = source.splits(split_bytes)
    samples = count > 1 and isinstance(made, MapReduce) and made.total_order
    work = Path(work_dir or temporary_folder()).absolute() / work_folder_name()
    layout = MapReduceLayout(str(work), place, work_dir is not None, SUFFIXES[output_format])
    sizes = _sizes(source, splits, count, samples)
    held = held_by(input_hosts, source.files, base_dir)
    homes = blocks([bytes_on_hosts(split, held) for split in splits], cluster)
    needs = requests_of(job_id, resources)
    phases = _phases(made, sizes, homes, count, (slots_min, slots_max), slots, needs)
    job = Job(job_id, phases, **about)
    if shuffle is not None:
        job = shuffle.job(job, cluster or Cluster.of_slots(max(1, count)))
    runner = Runner(made, source.format_name, output_format, layout, count, memory_bytes)
    sample = source.sample(SAMPLE_PIECES, MIN_SAMPLE_PIECE_BYTES) if samples else []
    return MapReduceExecution(job, runner, splits, sample, sizes, overwrite=overwrite)


def _input(
    job_id: str,
    program: AnyProgram,
    patterns: list[str],
    format_name: str,
    base_dir: str | Path | None,
) -> PlannedInput:
    """Return the input of a job: files, or numbers of records that the program generates."""
    makes = getattr(program, "records_made", None)
    if makes is not None and patterns:
        raise InputError(
            f"job {job_id!r}: {program.name} generates its records; leave out inputs"
        )
    if makes is None and not patterns:
        raise InputError(f"job {job_id!r}: no inputs; give paths or globs of files to read")
    if makes is None:
        return PlannedInput.of_files(patterns, format_name, base_dir)
    return PlannedInput.of_numbers(makes, getattr(program, "record_bytes", 1))


def _sizes(
    source: PlannedInput, splits: list[Split], reducers: int, samples: bool
) -> dict[str, Sizes]:
    """Return the input bytes of each task by phase; reduces have equal parts of the total."""
    maps = tuple(map(source.bytes_of, splits))
    sizes: dict[str, Sizes] = {"map": maps}
    if samples:
        # A sample reads at most this number of blocks.
        sizes["sample"] = min(sum(maps), SAMPLE_PIECES * MIN_SAMPLE_PIECE_BYTES)
    if reducers:
        sizes["reduce"] = sum(maps) // reducers
    return sizes


def _phases(
    program: AnyProgram,
    sizes: dict[str, Sizes],
    homes: tuple[Block, ...],
    reducers: int,
    shares: tuple[int, int | None],
    slots: int,
    needs: Mapping[str, Resources],
) -> tuple[Phase, ...]:
    """Return the phases, with work estimated from bytes at the rates of the program."""
    rate, maps, sample = program.map_bytes_per_second, sizes["map"], sizes.get("sample")
    assert isinstance(maps, tuple)
    map_tasks = Tasks(len(maps), tuple(size / rate for size in maps), homes)
    after = frozenset({"sample"} if sample is not None else ())
    by_kind: Any = {kind: {"slots": slots, "resources": needs[kind]} for kind in needs}
    phases = [Phase("map", map_tasks, "map", after, *shares, **by_kind["map"])]
    if isinstance(sample, int):
        # It has one task, so a larger slots_min would leave slots idle.
        tasks = Tasks(1, sample / rate)
        phases.insert(0, Phase("sample", tasks, "map", resources=needs["map"]))
    if reducers:
        work = sum(maps) / program.reduce_bytes_per_second / reducers
        reduces = Tasks(reducers, work)
        after = frozenset({"map"})
        reduce = Phase("reduce", reduces, "reduce", after, *shares, **by_kind["reduce"])
        phases.append(reduce)
    return tuple(phases)


def requests_of(job_id: str, stated: Any) -> dict[str, Resources]:
    """What each map and each reduce requests, stated for both or by kind."""
    what = f"job {job_id!r}: resources"
    if not isinstance(stated, Mapping) or not any(
        isinstance(one, Mapping) for one in stated.values()
    ):
        return dict.fromkeys(KINDS, requested(what, stated))
    if unknown := [kind for kind in stated if kind not in KINDS]:
        raise InputError(
            f"{what} has {unknown[0]!r} beside amounts by kind; the kinds are map and reduce"
        )
    return {kind: requested(f"{what}: {kind}", stated.get(kind)) for kind in KINDS}


def _check_numbers(job_id: str, reducers: int, split_bytes: int, memory_bytes: int) -> None:
    for name, value, least, most in (
        ("reducers", reducers, 0, MAX_REDUCERS),
        ("split_bytes", split_bytes, 1, inf),
        ("memory_bytes", memory_bytes, MIN_MEMORY_BYTES, inf),
    ):
        remedy = f"give a whole number >= {least}"
        remedy += f", at most {most}" if most < inf else ""
        check_range(f"job {job_id!r}: {name}", value, least, most, remedy, whole=True)


def _check_keys(program: AnyProgram, reducers: int) -> None:
    if isinstance(program, BatchMapReduce) and reducers and not program.keys:
        raise InputError(
            f"program {program.name} maps batches and has no key columns; set keys ="
            ' ("column",) in its class, or reducers: 0 to have no reduces'
        )


class MapReduceExecution(StagedExecution):
    """The phases sample, map, reduce-copy and reduce; a job has those that it needs."""

    def __init__(
        self,
        job: Job,
        runner: Runner,
        splits: Sequence[Split],
        sample: Sequence[SplitPiece],
        sizes: Mapping[str, Sizes],
        *,
        overwrite: bool,
        kept: KeptStages | None = None,
    ) -> None:
        """`kept` are the maps of an earlier run; the job has no phases for them then."""
        self._program = known_as(runner.program)
        self._sizes = {name: sizes[name] for name in sizes if name in job.by_name}
        self._overwrite = overwrite
        self._files = runner.layout
        self._splits = splits
        self._sample = tuple(sample)
        self._points = b""  # The pickle of the points between the ranges of reduces.
        self._writes_parts = "reduce" if runner.reducers else "map"
        self._copies_separately = COPY_PHASE in job.by_name
        self._announces_maps = any(p.slow_start < 1 or p.kind == COPY_KIND for p in job.phases)
        self._in_place: InPlace | None = None
        self._finished_maps: FinishedMaps | None = None
        self._runner = runner
        super().__init__(job, runner, runner.layout, overwrite=overwrite, kept=kept)

    @property
    def plan(self) -> str:
        """The number of reduces, for which maps partition their output."""
        return f"{self._runner.reducers} reduces"

    def continued(self, kept: KeptStages) -> Self:
        """Return the job without maps, and without the sample, which only they read."""
        layout = replace(self._files, work_dir=kept.folder)
        return type(self)(
            job_without(self.job, {*kept.stages, "sample"}),
            replace(self._runner, layout=layout),
            self._splits,
            (),
            self._sizes,
            overwrite=self._overwrite,
            kept=kept,
        )

    def files(self, phase: str, task: int, attempt: int) -> Iterable[Path] | None:
        """Return the output of a map. Copies are made again."""
        return [self._files.map_file(task, attempt)] if phase == "map" else None

    @property
    def program(self) -> str:
        """The name of the program in other runs."""
        return self._program

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks of each phase."""
        return self._sizes

    def begin(self) -> None:
        """Create the file of finished maps, if tasks copy from maps as these finish."""
        if self._announces_maps:
            self._finished_maps = FinishedMaps(self._files.finished_maps)

    def inputs(self, phase: str, task: int) -> tuple[object, ...]:
        """Return the input: a split and the points of the sample, the sample, or a source."""
        if phase == "map":
            return (self._splits[task], self._points)
        if phase == "sample":
            return (self._sample,)
        return (self._source(phase, task),)

    def report(self, phase: str, result: object) -> TaskResult:
        """Return the report of a task. That of the sample is a pickle for the maps."""
        if phase != "sample":
            return super().report(phase, result)
        if not isinstance(result, bytes):
            raise ValueError("it is not the result of a sample")
        self._points = result
        return TaskResult(0, 0)

    def describe(self, phase: str, task: int) -> str:
        """Return a description of the task for messages, with the input of a map task."""
        if phase != "map":
            return super().describe(phase, task)
        split = self._splits[task]
        # With several inputs, errors name the one that was being read.
        several = f"{len(split)} inputs, {split[0].path} to {split[-1].path}"
        what = several if len(split) > 1 else str(split[0])
        return f"map task {task} of job {self.job.id} ({what})"

    def parts(self, phase: str, task: int) -> Collection[str]:
        """Return the part of a reduce, or of a map if there are no reduces."""
        return (self._files.part_name(phase, task),) if phase == self._writes_parts else ()

    def is_intermediate(self, phase: str) -> bool:
        """Return whether the files are map output or copies for reduces."""
        return phase not in (self._writes_parts, "sample")

    def on_finished(self, phase: str, task: int, attempt: int) -> None:
        """Announce a finished map to the tasks that copy."""
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.announce(task, attempt)

    def on_lost(self, phase: str, tasks: Collection[int]) -> None:
        """Withdraw maps that were announced."""
        if phase == "map" and self._finished_maps is not None:
            self._finished_maps.withdraw(tasks)
        self._in_place = None

    def unneeded(self, phase: str, task: int) -> Iterable[tuple[str, int]]:
        """Return the copy task of a reduce that is done."""
        is_copied = phase == "reduce" and self._copies_separately
        return ((COPY_PHASE, task),) if is_copied else ()

    def _source(self, phase: str, task: int) -> PairSource:
        """Return the source of map output for an attempt of a reduce or a copy task."""
        if phase == "reduce" and self._copies_separately:
            copied = self._done[COPY_PHASE][task]
            return Copied(copied.attempt, copied.address)
        maps = len(self._splits)
        if len(self._done["map"]) < maps:
            return IncrementalCopy(maps, phase)
        if self._in_place is None:  # Created once for all reduces.
            self._in_place = InPlace(winners(self._done["map"], maps))
        return CompleteCopy(self._in_place) if phase == COPY_PHASE else self._in_place
