"""A workload: jobs, pools, a cluster and an objective as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypedDict, Unpack, cast

from slotwise.core.cluster import Cluster, Network
from slotwise.core.errors import (
    InputError,
    Limits,
    check_all,
    check_limits,
    check_path,
    check_range,
    check_type,
    shown,
    suggestion,
)
from slotwise.core.events import HostAdded, HostChange, PoolsChanged
from slotwise.core.job import AfterFailed, Bytes, Job, Phase, Shuffle, Tasks, names_of
from slotwise.core.objective import Objective
from slotwise.core.placement import Policy
from slotwise.core.pools import Pool, Preemption, check_kinds, check_resources, pools_of
from slotwise.core.units import seconds_of

SETTINGS = (
    "reducers",
    "parameters",
    "input_hosts",
    "input_format",
    "output_format",
    "split_bytes",
    "memory_bytes",
    "overwrite",
    "slots",
    "resources",
    "slots_min",
    "slots_max",
)
"""The settings of a program job in addition to its input and output."""


class Properties(TypedDict, total=False):
    """The fields of `JobProperties` as keyword arguments of functions that describe jobs."""

    arrival: float | str
    pool: str
    weight: float
    deadline: float | str | None
    promise: float | str | None
    steps: Sequence[tuple[float, float]]
    penalty: str | None
    priority: str
    after: Iterable[str]
    after_each: Iterable[str]
    after_failed: AfterFailed
    attempts: int | None
    retry_delay: float | str | None
    time_limit: float | str | None
    time_requested: float | str | None
    memory_limit: bool
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProperties:
    """What each job states besides what it runs; the fields are those of `Job`."""

    arrival: float = 0.0
    pool: str = "default"
    weight: float = 1.0
    deadline: float | None = None
    promise: float | None = None
    steps: tuple[tuple[float, float], ...] = ()
    penalty: str | None = None
    priority: str = "normal"
    after: frozenset[str] = frozenset()
    after_each: frozenset[str] = frozenset()
    after_failed: AfterFailed = "cancel"
    attempts: int | None = None
    retry_delay: float | None = None
    time_limit: float | None = None
    time_requested: float | None = None
    memory_limit: bool = False
    user: str | None = None

    @property
    def predecessors(self) -> frozenset[str]:
        """The jobs that it waits for, as a whole or task by task."""
        return self.after | self.after_each


PROPERTIES = tuple(Properties.__annotations__)
"""The names of the fields of `JobProperties`."""


def properties_of(function: str, job: str, given: Properties) -> dict[str, Any]:
    """The properties that `function` got, as fields of `JobProperties`.

    TypeError for another name; InputError for a value that is not of the form of a field. The
    other values are checked when the job runs.
    """
    for name in given:
        if name not in PROPERTIES:
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r};"
                f" known: {', '.join(PROPERTIES)}"
            )
    values: dict[str, Any] = dict(given)
    durations = {"arrival", "deadline", "promise", "retry_delay", "time_limit"}
    for name in values.keys() & {*durations, "time_requested"}:
        values[name] = seconds_of(f"job {job!r}: {name}", values[name])
    if "steps" in values:
        values["steps"] = _steps(job, values["steps"])
    for name in ("after", "after_each"):
        if name in values:
            values[name] = names_of(f"job {job!r}: {name}", values[name])
    return values


@dataclass(frozen=True, slots=True)
class ProgramJob(JobProperties):
    """A job that runs a program: its input, the program and its output.

    Its phases and tasks are determined later, from its input. `settings` are arguments of
    slotwise.jobs.mapreduce.planning.plan_mapreduce.
    """

    id: str
    program: Any
    inputs: tuple[str, ...] = ()
    output: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


COMMAND_SETTINGS = (
    "tasks",
    "inputs",
    "env",
    "cwd",
    "work",
    "overwrite",
    "resources",
    "slots",
    "slots_min",
    "slots_max",
    "hosts",
    "no_retry",
    "first_task",
)
"""The settings of a job of commands in addition to its command and output."""


@dataclass(frozen=True, slots=True)
class CommandJob(JobProperties):
    """A job in which each task runs the same command, and the folder for their output.

    Without a folder, what the command prints is discarded.
    `settings` are arguments of slotwise.jobs.commands.plan_commands.
    """

    id: str
    command: str | tuple[str, ...]
    output: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


DATAFLOW_SETTINGS = (
    "memory_bytes",
    "overwrite",
    "slots_min",
    "slots_max",
)
"""The settings of a dataflow job in addition to its graph and output."""


@dataclass(frozen=True, slots=True)
class DataflowJob(JobProperties):
    """A job that runs a graph of nodes: a slotwise.Dataflow, or one from a workload file.

    Its phases and tasks are determined later, from the graph and its input. `settings` are
    arguments of slotwise.jobs.dataflow.planning.plan_dataflow.
    """

    id: str
    flow: Any
    output: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


Part = CommandJob | ProgramJob
"""What a phase of a `PhasedJob` may be."""


@dataclass(frozen=True, slots=True)
class PhasedJob(JobProperties):
    """A job whose phases are commands and programs, which may wait for each other.

    The id of each is the name of the phase, and its `after` names phases. Raises InputError for
    other properties of a phase, and for dependencies that a job cannot have.
    """

    id: str
    phases: tuple[Part, ...]

    def __post_init__(self) -> None:
        defaults = JobProperties()
        for part in self.phases:
            check_type(f"job {self.id!r}: a phase", part, Part, PARTS_REMEDY)
            for name in PROPERTIES:
                if name != "after" and getattr(part, name) != getattr(defaults, name):
                    raise InputError(
                        f"job {self.id!r}, phase {part.id!r}: {name} is not for a phase; state"
                        " it for the job"
                    )
        # The rules of names and dependencies are those of any job.
        Job(self.id, tuple(Phase(one.id, Tasks(1), after=one.after) for one in self.phases))


PARTS_REMEDY = "expected slotwise.command(...) or slotwise.mapreduce(...)"


Replicas = Annotated[int, Limits(1, inf, "expected a whole number >= 1", whole=True)]


@dataclass(frozen=True, slots=True)
class Placement:
    """How input is distributed over hosts in a simulation.

    replicas     number of hosts that hold each block, at least 1
    policy       "racks": across racks, as in HDFS; "random": on any hosts
    block_bytes  bytes that each task reads, over the network if its host holds no copy
    """

    replicas: Replicas = 3
    policy: Policy = "racks"
    block_bytes: Bytes = 0

    def __post_init__(self) -> None:
        check_limits("placement", self)


USUAL_KINDS = ("map", "reduce", "copy")
"""The kinds of the phases of programs."""

Described = ProgramJob | CommandJob | DataflowJob | PhasedJob
"""A job that is described by what it runs, with its output; phases are determined later."""


def parts_of(entry: Described) -> tuple[ProgramJob | CommandJob | DataflowJob, ...]:
    """The phases of a job of commands and programs; any other job itself."""
    return entry.phases if isinstance(entry, PhasedJob) else (entry,)


@dataclass(frozen=True)
class Workload:
    """Everything that is to be scheduled.

    pools       a list, or a mapping by name: `{"a": 2, "b": {"slots_max": 3}}`
    replicas    short form of a placement with this number; 0 without one: input is local
                everywhere
    objective   an objective, or the name of a penalty
    folder      the folder that relative paths are relative to
    preemption  how pools without settings of their own reclaim slots
    shuffle     how reduces get map output, or None: after all maps are done
    network     the simulated network, or None: the simulation sets the time of remote reads
    changes     changes of the hosts of the cluster, in a simulation
    pool_changes  changes of the pools, in order of time: all pools from an instant on
    placement   where input is in a simulation, or None: everywhere, unless `replicas` is given
    place_of    the place of a job in the file that it was read from, for messages
    """

    jobs: tuple[Job | Described, ...]
    cluster: Cluster | None = None
    pools: tuple[Pool, ...] = ()
    objective: Objective = field(default_factory=Objective)
    replicas: int = 0
    folder: Path = field(default_factory=Path)
    preemption: Preemption | None = None
    shuffle: Shuffle | None = None
    network: Network | None = None
    placement: Placement | None = None
    changes: tuple[HostChange, ...] = ()
    pool_changes: tuple[PoolsChanged, ...] = ()
    place_of: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, Iterable) or isinstance(self.jobs, str | bytes | Mapping):
            raise InputError(f"workload: jobs is {shown(self.jobs)}; expected a list of jobs")
        object.__setattr__(self, "jobs", tuple(self.jobs))  # A list is accepted, too.
        if isinstance(self.objective, str):  # The name of a penalty is accepted, too.
            object.__setattr__(self, "objective", Objective.of(self.objective))
        for name, (kind, remedy) in _PARTS.items():
            check_type(f"workload: {name}", getattr(self, name), kind, remedy)
        object.__setattr__(self, "pools", pools_of(self.pools, "workload: pools"))
        remedy = "expected a list of slotwise.HostAdded, HostDrained and HostRemoved"
        check_all("workload: changes", self.changes, HostChange, remedy)
        remedy = "expected a list of slotwise.PoolsChanged"
        check_all("workload: pool_changes", self.pool_changes, PoolsChanged, remedy)
        remedy = "expected a whole number >= 0"
        check_range("workload: replicas", self.replicas, 0, inf, remedy, whole=True)
        check_path("workload: folder", self.folder, optional=False)
        if self.placement is None and self.replicas:
            object.__setattr__(self, "placement", Placement(self.replicas))
        replicas = self.placement.replicas if self.placement else 0
        if self.replicas not in (0, replicas):
            raise InputError(
                f"replicas is {self.replicas}, but those of the placement are {replicas};"
                " leave one out"
            )
        object.__setattr__(self, "replicas", replicas)
        if self.jobs and all(isinstance(job, Job | Described) for job in self.jobs):
            for pools in (self.pools, *(one.pools for one in self.pool_changes)):
                check_limited(pools, self)


def check_limited(pools: Iterable[Pool], workload: Workload) -> None:
    """InputError for a share of a kind, or a limit of a resource, that a workload lacks."""
    check_kinds(pools, _kinds(workload))
    if workload.cluster is not None:
        check_resources(pools, _resources(workload, workload.cluster))


def _resources(workload: Workload, cluster: Cluster) -> Iterator[str]:
    """The resources beside slots that hosts have, or jobs request."""
    hosts = [one.host for one in workload.changes if isinstance(one, HostAdded)]
    for host in (*cluster.hosts, *hosts):
        yield from host.resources
    for job in workload.jobs:
        if isinstance(job, Job):
            for phase in job.phases:
                yield from phase.needs


def _kinds(workload: Workload) -> Iterator[str]:
    """The kinds of slots and of phases; programs have the usual ones."""
    yield from USUAL_KINDS
    hosts = [one.host for one in workload.changes if isinstance(one, HostAdded)]
    for host in (*(workload.cluster.hosts if workload.cluster else ()), *hosts):
        yield from host.slots
    for job in workload.jobs:
        if isinstance(job, Job):
            yield from (phase.kind for phase in job.phases)


_PARTS: dict[str, tuple[Any, str]] = {
    "cluster": (Cluster | None, "expected a slotwise.Cluster or None"),
    "objective": (Objective, "expected a slotwise.Objective"),
    "preemption": (Preemption | None, "expected a slotwise.Preemption or None"),
    "shuffle": (Shuffle | None, "expected a slotwise.Shuffle or None"),
    "network": (Network | None, "expected a slotwise.Network or None"),
    "placement": (Placement | None, "expected a slotwise.Placement or None"),
}
"""The type of each part of a workload, and the remedy for a value of another type."""


def mapreduce(
    program: Any,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path = "",
    *,
    id: str | None = None,
    **options: Any,
) -> ProgramJob:
    """Describe a MapReduce job: a program by name, as `file.py:Class`, or as an object.

    `options` are the fields of `JobProperties` (pool, deadline, after and so on), the settings
    named in SETTINGS, and `work_dir`, the folder for shuffled data. Raises InputError for
    others; values are checked when the job runs.
    """
    settings = {name: options.pop(name) for name in (*SETTINGS, "work_dir") if name in options}
    known = (*SETTINGS, "work_dir", *PROPERTIES)
    if unknown := sorted(options.keys() - set(known)):
        hint = suggestion(unknown[0], known)
        raise InputError(f"mapreduce has no setting {unknown[0]!r}; {hint}")
    if not isinstance(program, str) and id is None:
        id = getattr(program, "name", None) or type(program).__name__
    name = id or str(program)
    if settings.get("work_dir"):
        _path(name, "work_dir", settings["work_dir"])
    return ProgramJob(
        id=name,
        program=program,
        inputs=_paths(name, inputs),
        output=_path(name, "output", output),
        settings=settings,
        **properties_of("mapreduce", name, cast(Properties, options)),
    )


def command(
    command: str | Sequence[str],
    output: str | Path | None = None,
    *,
    id: str,
    tasks: int = 1,
    inputs: str | Path | Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    work: float | str | None = None,
    overwrite: bool = False,
    resources: Mapping[str, Any] | None = None,
    slots: int = 1,
    slots_min: int | str = 0,
    slots_max: int | str | None = None,
    hosts: str | Iterable[str] = (),
    no_retry: Sequence[int] = (),
    first_task: int = 0,
    **properties: Unpack[Properties],
) -> CommandJob:
    """Describe a job in which each task runs a command: a list, or a string for /bin/sh.

    In the environment of the command, SLOTWISE_TASK is the number of the task, from
    `first_task`. Its output is stored in files in the folder `output`; without one it is
    discarded. `work` is the estimated work of all tasks together, in seconds. Times may be
    durations, such as "5m", and shares a part of the cluster, such as "50%". `inputs` are the
    files that it reads: if one changes, `--resume` runs it again. Each task takes this number
    of `slots` of a host, and requests `resources` of it: `{"memory": "4 GiB", "gpu": 1}`. With
    `hosts`, its tasks run only on these.
    With an exit code in `no_retry` the job fails without further attempts. `properties` are
    the fields of `JobProperties`: pool, deadline, after and so on. Values are checked when the
    job runs.
    """
    if not isinstance(command, Sequence):
        raise InputError(
            f"job {id!r}: command is {shown(command)}; expected a string or a list of strings"
        )
    if overwrite and output is None:
        raise InputError(
            f"job {id!r}: overwrite is for a command with an output; remove it, or name a"
            " folder for the output"
        )
    return CommandJob(
        id=id,
        command=command if isinstance(command, str) else tuple(command),
        output=None if output is None else _path(id, "output", output),
        settings={
            "tasks": tasks,
            "inputs": _paths(id, inputs),
            "env": env,
            "cwd": cwd,
            "work": seconds_of(f"job {id!r}: work", work),
            "overwrite": overwrite,
            "resources": resources,
            "slots": slots,
            "slots_min": slots_min,
            "slots_max": slots_max,
            "hosts": names_of(f"job {id!r}: hosts", hosts),
            "no_retry": no_retry,
            "first_task": first_task,
        },
        **properties_of("command", id, properties),
    )


def phases(parts: Iterable[Part], *, id: str, **properties: Unpack[Properties]) -> PhasedJob:
    """Describe a job whose phases are commands and programs: one deadline, one response time.

    `parts` are `slotwise.command(...)` and `slotwise.mapreduce(...)`. The id of each is the
    name of the phase, and its `after` names the phases before it. `properties` are the fields
    of `JobProperties`, for the whole job. Raises InputError for a part that states others.
    """
    if not isinstance(parts, Iterable):
        raise InputError(f"job {id!r}: parts is {shown(parts)}; expected a list of parts")
    return PhasedJob(id=id, phases=tuple(parts), **properties_of("phases", id, properties))


def _paths(job: str, paths: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    if isinstance(paths, Iterable) and not isinstance(paths, str):
        return tuple(_path(job, "inputs", path) for path in paths)
    return (_path(job, "inputs", paths),)


def _path(job: str, what: str, path: object) -> str:
    check_path(f"job {job!r}: {what}", path, optional=False)
    return str(path)


def _steps(job: str, steps: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    if not isinstance(steps, Iterable):
        raise InputError(
            f"job {job!r}: steps is {shown(steps)}; expected pairs (seconds, cost)"
        )
    return tuple(steps)
