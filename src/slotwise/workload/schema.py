"""The schema of a workload file, version 1, as pydantic models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from slotwise.core.cluster import GRACE_SECONDS, Count, Slots
from slotwise.core.errors import (
    MAX_EXIT_CODE,
    MAX_NUMBER,
    NAME_LENGTH,
    NAME_PATTERN,
    InputError,
    Part,
    Positive,
    Seconds,
    suggestion,
)
from slotwise.core.job import (
    MAX_COMMANDS,
    MAX_REDUCERS,
    MAX_TASKS,
    PRIORITIES,
    AfterFailed,
    Bytes,
)
from slotwise.core.objective import PENALTIES
from slotwise.core.placement import Policy
from slotwise.core.pools import JobWeights, PoolPolicy, Weight, pools_by_name
from slotwise.core.resources import Resources, requested, resources_max_of, resources_of
from slotwise.core.retries import Attempts, RetryDelay, StopsPerHour, TimeLimit
from slotwise.core.units import Percent, duration, size
from slotwise.workload.dates import Clock, instant
from slotwise.workload.workload import COMMAND_SETTINGS, DATAFLOW_SETTINGS, SETTINGS

# Types of values and strict validation, common to all entries of a workload file.


def _source_of_hosts(value: str) -> str:
    # Earlier files may have moosefs; whoever plans such a job reads what to state instead.
    is_known = value in ("auto", "moosefs") or ".py:" in value
    if is_known or value.startswith(("webhdfs://", "swebhdfs://")):
        return value
    raise ValueError(
        "expected auto, webhdfs://namenode:9870, path/to/file.py:function, or lists of hosts by"
        " path, in braces { }"
    )


_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"

Word = Annotated[str, Field(max_length=100_000, pattern=r"^[^\x00]*$")]
Command = Annotated[str, Field(min_length=1, max_length=100_000, pattern=r"^[^\x00]*$")]
Variable = Annotated[str, Field(pattern=r"^[^\x00=]+$")]
Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=NAME_PATTERN)]
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=_NO_CONTROLS)]
HostsByPath = dict[Place, Annotated[list[Name], Field(min_length=1)]]
InputHosts = HostsByPath | Annotated[Place, AfterValidator(_source_of_hosts)]
Cost = Annotated[float, Field(ge=0, le=MAX_NUMBER)]

# Numbers with units, which are text in the file.


def _with(convert: Callable[[str], float]) -> BeforeValidator:
    """Text is converted to a number; any other value is as it is."""
    return BeforeValidator(lambda value: convert(value) if isinstance(value, str) else value)


def _arrival(value: Any, info: ValidationInfo) -> Any:
    return instant(value, _clock(info)) if isinstance(value, str) else value


def _due(value: Any, info: ValidationInfo) -> Any:
    return instant(value, _clock(info), is_after=True) if isinstance(value, str) else value


def _clock(info: ValidationInfo) -> Clock | None:
    return info.context["clock"] if info.context else None


Duration = Annotated[Seconds, _with(duration)]
Work = Annotated[Positive, _with(duration)]
Arrival = Annotated[Seconds, BeforeValidator(_arrival)]
"""An instant that dates may state, too, with the clock of arrivals as context."""
Due = Annotated[Seconds, BeforeValidator(_due)]
"""The same; a time of day is later than the beginning of the clock."""

Size = Annotated[int, Field(ge=1), _with(size)]
Bandwidth = Annotated[Positive, _with(lambda text: size(text.removesuffix("/s")))]
SharePart = Annotated[str, AfterValidator(Percent.of)]


def _amounts(read: Callable[[str, Any], Resources]) -> AfterValidator:
    """Amounts that a function accepts; ValueError, which begins with the name of one."""

    def check(value: dict[str, Any]) -> dict[str, Any]:
        try:
            read("", value)
        except InputError as error:
            raise ValueError(str(error).removeprefix(": ")) from None
        return value

    return AfterValidator(check)


class Entry(BaseModel):
    """Common base of all parts of the file: unknown keys and type conversions are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


Amount = Annotated[int | float, Field(ge=0)] | str
Amounts = Annotated[dict[Name, Amount], _amounts(resources_of)]
"""Resources beside slots by name: `memory` as bytes or a size, others as numbers."""
Requested = Annotated[dict[Name, Amount], _amounts(requested)]
"""Those that each task requests."""
MostAmounts = Annotated[dict[Name, Amount], _amounts(resources_max_of)]
"""The most of them, which may be parts of the cluster."""


def _kind_of_amounts(value: Any) -> str:
    is_mapping = isinstance(value, Mapping)
    by_kind = is_mapping and any(isinstance(one, Mapping) for one in value.values())
    return "(by kind)" if by_kind else "(amounts)"


RequestedOfWork = Annotated[
    Annotated[Requested, Tag("(amounts)")]
    | Annotated[dict[Literal["map", "reduce"], Requested], Tag("(by kind)")],
    Discriminator(_kind_of_amounts),
]
"""The same; of a program also by kind."""


# The schema of the key `dataflow` of a job in a workload file.

MAX_COPIES = 100_000
"""The maximum number of copies of a node."""


class ReadEntry(Entry):
    """How a node reads an output of another node."""

    node: Name
    output: Name | None = None
    kind: Literal["file", "tcp", "shm", "direct"] | None = None
    by: Place | None = None
    broadcast: bool = False
    sort: bool = False


class NodeEntry(Entry):
    """A node with a function, or a source: input files, or values."""

    name: Name
    function: Place | None = None
    reads: list[Name | ReadEntry] | None = None
    copies: Annotated[int, Field(ge=1, le=MAX_COPIES)] | None = None
    parameters: dict[str, Any] | None = None
    outputs: Annotated[list[Name], Field(min_length=1)] | None = None
    work: Duration | None = None
    resources: Requested | None = None
    inputs: Place | Annotated[list[Place], Field(min_length=1)] | None = None
    input_format: Name | None = None
    split_bytes: Size | None = None
    tables: bool | None = None
    input_hosts: InputHosts | None = None
    values: list[Any] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [key for key in NODE_KEYS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("expected one of function, inputs and values")
        for key in sorted({key for keys in NODE_KEYS.values() for key in keys}):
            if key not in NODE_KEYS[given[0]] and getattr(self, key) is not None:
                raise ValueError(f"{key} is not for a node with {given[0]}; remove it")
        return self


NODE_KEYS = {
    "function": ("reads", "copies", "parameters", "outputs", "work", "resources"),
    "inputs": ("input_format", "split_bytes", "tables", "input_hosts"),
    "values": ("copies",),
}
"""The further keys of each kind of node."""


class WriteEntry(Entry):
    """An output of a node that is output of the job."""

    node: Name
    output: Name | None = None
    output_format: Name | None = None


class DataflowEntry(Entry):
    """A graph of nodes, or the place of a slotwise.Dataflow in Python."""

    app: Place | None = None
    nodes: Annotated[list[NodeEntry], Field(min_length=1)] | None = None
    write: Annotated[list[Name | WriteEntry], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.app is None) == (self.nodes is None):
            raise ValueError("expected either app or nodes")
        if (self.nodes is None) != (self.write is None):
            raise ValueError(
                "write is missing; name the nodes that are output of the job"
                if self.write is None
                else "write is for nodes, and an app defines its own outputs; remove it"
            )
        return self


VERSION = 1
"""The version of the file format."""


class HostEntry(Entry):
    """A host. `slots` is a number of plain slots, or a mapping from kind to number."""

    name: Name
    rack: Name = "rack"
    slots: Slots | dict[Name, Count]
    speed: Positive = 1.0
    resources: Amounts = Field(default_factory=dict)


class ChangeEntry(Entry):
    """A change of the hosts at an instant: one is added, drained or removed."""

    at: Arrival
    add: HostEntry | None = None
    drain: Name | None = None
    remove: Name | None = None

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        if sum(one is not None for one in (self.add, self.drain, self.remove)) != 1:
            raise ValueError("expected one of add, drain and remove")
        return self


class ClusterEntry(Entry):
    """Either a number of slots that serve every kind, or hosts."""

    slots: Slots | None = None
    hosts: Annotated[list[HostEntry], Field(min_length=1)] | None = None
    resources: Amounts = Field(default_factory=dict)
    heartbeat: Duration = 0.0
    grace: Duration = GRACE_SECONDS
    changes: list[ChangeEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.slots is None) == (self.hosts is None):
            raise ValueError("expected either slots or hosts")
        if self.hosts is not None and self.resources:
            raise ValueError("resources beside hosts; state the resources of each host")
        return self


class PlacementEntry(Entry):
    """How input is distributed over hosts in a simulation."""

    replicas: Annotated[int, Field(ge=1)] = 3
    policy: Policy = "racks"
    block_bytes: Annotated[Bytes, _with(size)] = 0


class NetworkEntry(Entry):
    """Bandwidths in bytes per second; a missing value means no limit."""

    host: Bandwidth | None = None
    rack: Bandwidth | None = None
    core: Bandwidth | None = None


class ShuffleEntry(Entry):
    """When reduces may begin to copy, and whether copying is a separate phase."""

    slow_start: Part = 1.0
    split: bool = False
    copies_per_slot: Slots = 2
    copies_per_job: Slots | None = None


class PreemptionEntry(Entry):
    """When and how a pool reclaims slots. Missing values are inherited from its parent."""

    least_after: Duration | Literal["never"] | None = None
    fair_after: Duration | Literal["never"] | None = None
    fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    grace: Duration | None = None
    jobs_after: Duration | Literal["never"] | None = None
    dry_run: bool | None = None


class ObjectiveEntry(Entry):
    """A penalty and its aggregation: sum, or max (the default for makespan).

    The name of a penalty alone stands for the penalty with its default aggregation.
    """

    penalty: str = "response"
    aggregate: Literal["sum", "max"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str | Mapping):
            return {"penalty": value} if isinstance(value, str) else value
        raise ValueError(
            "expected the name of a penalty, or keys and values, in braces { }: penalty and"
            " aggregate"
        )

    @field_validator("penalty")
    @classmethod
    def _known(cls, value: str) -> str:
        return known_penalty(value)

    @model_validator(mode="after")
    def _check_aggregate(self) -> Self:
        if self.penalty == "makespan" and self.aggregate == "sum":
            raise ValueError("makespan is a maximum; set aggregate to max")
        return self


class PoolDefaults(Entry):
    """What a pool states, apart from its place. Shares are numbers by kind of slot.

    A plain number is for all kinds together.
    """

    weight: Weight = 1.0
    slots_min: Count | SharePart | dict[Name, Count | SharePart] = Field(default_factory=dict)
    slots_max: Count | SharePart | dict[Name, Count | SharePart] = Field(default_factory=dict)
    policy: PoolPolicy = "fair"
    jobs_max: Count | None = None
    job_weights: JobWeights = "stated"
    jobs_max_per_user: Count | dict[Name, Count] = Field(default_factory=dict)
    promises_max_per_user: Count | dict[Name, Count] = Field(default_factory=dict)
    preemptible: bool = True
    stops_per_hour: StopsPerHour | None = None
    resources_max: MostAmounts = Field(default_factory=dict)

    @property
    def stated(self) -> dict[str, Any]:
        """The keys that it states, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class PoolEntry(PoolDefaults):
    """A pool, and what its children do not state."""

    name: Name
    parent: Name | None = None
    preemption: PreemptionEntry | None = None
    child_defaults: PoolDefaults | None = None


class PoolChangeEntry(PoolDefaults):
    """What a pool states from an instant on; the keys that are left out stay as they are."""

    at: Arrival
    pool: Name
    preemption: PreemptionEntry | None = None

    @model_validator(mode="after")
    def _some_change(self) -> Self:
        if not self.stated.keys() - {"at", "pool"}:
            raise ValueError("expected what changes, such as slots_max")
        return self


def _listed(value: Any) -> Any:
    """Pools by name as a list; the messages of `complaint` name them by their keys."""
    if not isinstance(value, list | Mapping):
        raise ValueError("expected a list of pools, or pools by name, such as {prod: 2}")
    try:
        return pools_by_name(value) if isinstance(value, Mapping) else value
    except InputError as error:
        raise ValueError(str(error)) from error


Listed = BeforeValidator(_listed)
"""For a list of pools: it may be stated as a mapping by name, too."""


Names = Annotated[list[Name], BeforeValidator(lambda one: [one] if type(one) is str else one)]
"""A list of names; one may be stated without brackets."""


def _some_hosts(names: list[str]) -> list[str]:
    if not names:
        raise ValueError("name some, or leave it out to allow any host")
    return names


AllowedHosts = Annotated[Names, AfterValidator(_some_hosts)]
"""The names of the hosts where tasks may run."""


class PhaseEntry(Entry):
    """A phase: work in seconds at speed 1, tasks as a number or as the work of each.

    `copying` is the key `copy` of the file, because pydantic models have a method `copy`.
    """

    name: Name
    kind: Name = "task"
    work: Work | None = None
    tasks: (
        Annotated[int, Field(ge=1, le=MAX_TASKS)]
        | Annotated[list[Positive], Field(min_length=1)]
        | Annotated[list[Work], Field(min_length=1)]
        | None
    ) = None
    slots: Slots = 1
    slots_min: Count | SharePart = 0
    slots_max: Slots | SharePart | None = None
    after: Names = Field(default_factory=list)
    slow_start: Part = 1.0
    copying: Duration = Field(0.0, alias="copy")
    continues: Name | None = None
    blocks: list[Annotated[list[Name], Field(min_length=1)]] | None = None
    gang: bool = False
    hosts: AllowedHosts = Field(default_factory=list)
    resources: Requested = Field(default_factory=dict)
    memory_peak: Size | Annotated[list[Size], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.work is None and not isinstance(self.tasks, list):
            raise ValueError("give its work in seconds, or tasks as a list of seconds")
        if isinstance(self.tasks, list) and self.work is not None:
            total = sum(self.tasks)
            if abs(self.work - total) > 1e-9 * total:
                raise ValueError(
                    f"work is {self.work} but its tasks add up to {total}; leave work out"
                )
        if self.gang and self.tasks is None:
            raise ValueError("a gang starts all of its tasks together; give their number")
        return self


Priority = Literal["very_high", "high", "normal", "low", "very_low"]
assert set(get_args(Priority)) == set(PRIORITIES), "the schema lists all priorities"


class WorkEntry(Entry):
    """What a job or a phase runs: a program with its input and output, or a command."""

    program: Place | None = None
    command: Command | Annotated[list[Word], Field(min_length=1)] | None = None
    tasks: Annotated[int, Field(ge=1, le=MAX_COMMANDS)] | None = None
    env: dict[Variable, Word] | None = None
    cwd: Place | None = None
    work: Work | None = None
    inputs: Place | Annotated[list[Place], Field(min_length=1)] | None = None
    input_hosts: InputHosts | None = None
    output: Place | None = None
    reducers: Annotated[int, Field(ge=0, le=MAX_REDUCERS)] | None = None
    parameters: dict[str, Any] | None = None
    input_format: Name | None = None
    output_format: Name | None = None
    split_bytes: Size | None = None
    memory_bytes: Size | None = None
    overwrite: bool | None = None
    slots: Slots | None = None
    resources: RequestedOfWork | None = None
    slots_min: Count | SharePart | None = None
    slots_max: Slots | SharePart | None = None
    hosts: AllowedHosts | None = None
    first_task: Annotated[int, Field(ge=0)] | None = None
    no_retry: (
        Annotated[
            list[Annotated[int, Field(ge=0, le=MAX_EXIT_CODE)]],
            BeforeValidator(lambda code: [code] if type(code) is int else code),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _one_kind_of_work(self) -> Self:
        stated = [key for key in KEYS_OF if getattr(self, key, None) is not None]
        kind, *others = stated or [""]
        if not kind:
            raise ValueError("expected either phases or a program or a command or a dataflow")
        if others:
            one = kind if kind == "phases" else f"a {kind}"
            raise ValueError(f"expected either {one} or a {others[0]}")
        foreign = {key: one for one, keys in KEYS_OF.items() for key in keys}
        for key, one in foreign.items():
            if key not in KEYS_OF[kind] and getattr(self, key) is not None:
                where = "phases" if isinstance(self, PartEntry) else "jobs"
                raise ValueError(f"{key} is for {where} with a {one}, not {kind}; remove it")
        if kind in ("program", "dataflow") and self.output is None:
            raise ValueError(f"a {kind} needs an output; name a folder")
        if kind == "command" and _kind_of_amounts(self.resources) == "(by kind)":
            raise ValueError("resources by kind are for programs; give amounts by name")
        if self.output is None and self.overwrite is not None:
            raise ValueError("overwrite is for a command with an output; remove it")
        return self


class PartEntry(WorkEntry):
    """A phase that is a program or a command."""

    name: Name
    after: Names = Field(default_factory=list)


def _kind_of_phase(value: Any) -> str:
    is_part = isinstance(value, Mapping) and ("command" in value or "program" in value)
    return "(part)" if is_part or isinstance(value, PartEntry) else "(work)"


AnyPhaseEntry = Annotated[
    Annotated[PhaseEntry, Tag("(work)")] | Annotated[PartEntry, Tag("(part)")],
    Discriminator(_kind_of_phase),
]
"""A phase of stated work, or one that is a program or a command."""


class JobEntry(WorkEntry):
    """A job: phases, a program with its input and output, a command, or a dataflow."""

    id: Name
    arrival: Arrival = 0.0
    pool: Name = "default"
    weight: Positive = 1.0
    deadline: Due | None = None
    promise: Due | None = None
    steps: list[tuple[Due, Cost]] = Field(default_factory=list)
    penalty: str | None = None
    priority: Priority = "normal"
    after: Names = Field(default_factory=list)
    after_each: Names = Field(default_factory=list)
    after_failed: AfterFailed = "cancel"
    attempts: Attempts | None = None
    retry_delay: Annotated[RetryDelay, _with(duration)] | None = None
    time_limit: Annotated[TimeLimit, _with(duration)] | None = None
    time_requested: Annotated[TimeLimit, _with(duration)] | None = None
    memory_limit: bool = False
    user: Name | None = None
    program_name: Name | None = None
    phases: Annotated[list[AnyPhaseEntry], Field(min_length=1)] | None = None
    dataflow: DataflowEntry | None = None

    @field_validator("steps", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        # YAML and JSON have only lists, but strict validation requires tuples.
        if isinstance(value, list):
            return [tuple(step) if isinstance(step, list) else step for step in value]
        return value

    @field_validator("steps")
    @classmethod
    def _increasing(cls, steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
        for one, other in pairwise(steps):
            if not (one[0] < other[0] and one[1] < other[1]):
                raise ValueError(
                    f"step {list(other)} follows {list(one)}; times and costs must increase"
                )
        return steps

    @field_validator("penalty")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return None if value is None else known_penalty(value)

    @model_validator(mode="after")
    def _one_kind_of_phases(self) -> Self:
        kinds = {type(phase) for phase in self.phases or ()}
        if len(kinds) > 1:
            raise ValueError(
                "phases of stated work do not mix with commands and programs; give each phase a"
                " command or a program, or make them jobs of their own, with `after`"
            )
        if self.program_name is not None and kinds != {PhaseEntry}:
            raise ValueError("program_name is for phases of stated work; remove it")
        return self


PROGRAM_KEYS = ("inputs", "output", *SETTINGS)
"""The keys that are only for jobs with a program."""

COMMAND_KEYS = ("output", *COMMAND_SETTINGS)
"""The keys that are only for jobs with a command."""

DATAFLOW_KEYS = ("output", *DATAFLOW_SETTINGS)
"""The keys that are only for jobs with a dataflow."""

KEYS_OF = {
    "phases": (),
    "dataflow": DATAFLOW_KEYS,
    "command": COMMAND_KEYS,
    "program": PROGRAM_KEYS,
}
"""The further keys of each kind of work; keys of several kinds are named after the last."""


class WorkloadEntry(Entry):
    """The whole file."""

    slotwise: int
    start: str | None = None
    cluster: ClusterEntry | None = None
    placement: PlacementEntry | None = None
    network: NetworkEntry | None = None
    shuffle: ShuffleEntry | None = None
    preemption: PreemptionEntry | None = None
    objective: ObjectiveEntry = Field(default_factory=ObjectiveEntry)
    pool_defaults: PoolDefaults | None = None
    pools: Annotated[list[PoolEntry], Listed] = Field(default_factory=list)
    pool_changes: list[PoolChangeEntry] = Field(default_factory=list)
    jobs: Annotated[list[JobEntry], Field(min_length=1)]

    @field_validator("slotwise", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if type(value) is not int or value != VERSION:
            raise ValueError(
                f"this slotwise reads version {VERSION}; write slotwise: {VERSION}"
            )
        return value


def known_penalty(value: str) -> str:
    """Return the name of a penalty; raise ValueError if it is unknown."""
    if value not in PENALTIES:
        raise ValueError(f"unknown penalty; {suggestion(value, PENALTIES)}")
    return value
