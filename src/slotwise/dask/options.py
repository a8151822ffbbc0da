"""The options of the gate: the scheduler, the pools, and the rules that choose the pool."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import dask.config
from pydantic import Field, ValidationError, field_validator

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, Positive, as_name, suggestion
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Header
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree, pools_of
from slotwise.dask.computations import Submitter
from slotwise.policy.scheduler import ALLOCATORS, make_allocator
from slotwise.running import RunOptions, RunSpec
from slotwise.sources import Source
from slotwise.workload.file import build_objective, build_pools
from slotwise.workload.schema import (
    Duration,
    Entry,
    Listed,
    Name,
    ObjectiveEntry,
    Place,
    PoolDefaults,
    PoolEntry,
    Priority,
    Size,
)
from slotwise.workload.text import (
    Lines,
    complaint,
    parse_text,
    place,
    read_text,
    real_path,
    short,
)
from slotwise.workload.workload import Workload


class Rule(Entry):
    """Puts computations into a pool if all stated patterns and items match.

    client      a pattern of the name of the client, such as "alice-*"
    address     a pattern of the address of the client, such as "tcp://10.1.*"
    annotation  items that the annotation `slotwise={...}` has
    """

    pool: Name
    client: Name | None = None
    address: Name | None = None
    annotation: dict[Name, str | float | int | bool] = Field(default_factory=dict)

    def matches(self, client: str, annotation: Mapping[str, Any], address: str) -> bool:
        """Whether a computation is of this pool."""
        return (
            (self.client is None or fnmatchcase(client, self.client))
            and (self.address is None or fnmatchcase(address, self.address))
            and all(annotation.get(name) == value for name, value in self.annotation.items())
        )


class GatePool(PoolEntry):
    """A pool of the gate."""

    @field_validator("preemption", mode="before")
    @classmethod
    def _none(cls, value: Any) -> None:
        if value is not None:
            raise ValueError("Dask cannot stop a running task; leave it out")


class GateEntry(Entry):
    """The whole configuration."""

    scheduler: str = "flex"
    objective: ObjectiveEntry = Field(default_factory=ObjectiveEntry)
    pools: Annotated[list[GatePool], Listed] = Field(default_factory=list)
    pool_defaults: PoolDefaults | None = None
    rules: list[Rule] = Field(default_factory=list)
    ahead: Annotated[int, Field(ge=0, le=1_000)] | None = None
    memory: bool = False
    log: Place | None = None

    @field_validator("scheduler")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in tuple(ALLOCATORS):
            raise ValueError(f"unknown scheduler; {suggestion(value, ALLOCATORS)}")
        return value


class AnnotationEntry(Entry):
    """The annotation by `dask.annotate(slotwise={...})`."""

    pool: Name | None = None
    weight: Positive = 1.0
    deadline: Duration | None = None
    priority: Priority = "normal"
    memory: Size | None = None
    user: Name | None = None


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The options of the gate.

    scheduler  the allocator: "fifo", "fair", "flex", "las", "uwfq", "flowflex"
    objective  what to minimize
    pools      the pools with their shares, as a list, or as weights or keys by name
    rules      the first matching rule gives the pool of a computation. Without one, it is the
               pool of the annotation, else the pool with the name of the client if no pools are
               below it, else "default"
    ahead      tasks that each worker may have beyond its threads; None: by their length
    log        file to write the log to
    memory     whether tasks run only where their memory fits, as learned or stated
    """

    scheduler: str = "flex"
    objective: Objective = field(default_factory=Objective)
    pools: tuple[Pool, ...] = ()
    rules: tuple[Rule, ...] = ()
    ahead: int | None = None
    log: str | None = None
    memory: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "pools", pools_of(self.pools))
        if parts := [pool.name for pool in self.pools if pool.has_parts]:
            raise InputError(
                f"pool {parts[0]!r}: a share is a part of the cluster, whose workers come and"
                " go; give a number of slots"
            )
        if limited := [pool.name for pool in self.pools if pool.resources_max]:
            raise InputError(
                f"pool {limited[0]!r}: resources_max is not for the gate, whose pools divide"
                " slots; leave it out, and let `memory: true` keep tasks where they fit"
            )

    @classmethod
    def read(cls, path: str | Path) -> GateOptions:
        """Options from a YAML file. InputError with the place, the value and the remedy."""
        text = read_text(path, "a YAML file with the options of the gate")
        try:
            data, lines = parse_text(text)
            return cls.of_mapping({} if data is None else data, lines)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def configured(cls) -> GateOptions:
        """The options under `slotwise:` in the configuration of Dask. InputError as `read`."""
        try:
            stated = dask.config.get("slotwise", None)
            return cls.of_mapping({} if stated is None else stated)
        except InputError as error:
            raise InputError(f"under `slotwise:` in Dask's configuration: {error}") from error

    @classmethod
    def of_mapping(cls, data: Any, lines: Lines | None = None) -> GateOptions:
        """Options from plain data, as YAML gives them. InputError as `read`."""
        whole = "the file" if lines else "the value"
        lines = lines or Lines("")
        try:
            entry = GateEntry.model_validate(data)
        except ValidationError as error:
            raise InputError(complaint(error, data, lines, GateEntry, whole)) from error
        pools = build_pools(entry.pools, data, lines, entry.pool_defaults)
        if "default" in pools.inner:
            where = real_path(("pools", list(pools).index("default")), data)
            raise InputError(
                f"{place(where, lines)}: pool 'default' has pools below it, but it"
                " is for the computations that are in no other pool; give it another name"
            )
        for name, pool in pools.items():
            if kinds := sorted(pool.kinds - {ANY_KIND}):
                where = real_path(("pools", list(pools).index(name)), data)
                raise InputError(
                    f"{place(where, lines)}: pool {name!r} has shares of kind {kinds[0]!r}, but"
                    f" the slots of Dask are of kind {ANY_KIND!r}; give plain numbers"
                )
        for number, rule in enumerate(entry.rules):
            if rule.pool not in pools and rule.pool != "default":
                stated = place(("rules", number, "pool"), lines)
                hint = suggestion(rule.pool, [*pools, "default"])
                raise InputError(f"{stated}: unknown pool {rule.pool!r}; {hint}")
            pools.check_holds_jobs(rule.pool)
        objective = build_objective(entry.objective)
        due_after(objective)
        built = {"objective": objective, "pools": tuple(pools.values())}
        given = {key: value for key, value in entry if key != "pool_defaults"}
        return cls(**given | built | {"rules": tuple(entry.rules)})

    def submitter(
        self, client: str, annotation: Mapping[str, Any], address: str = ""
    ) -> Submitter:
        """The properties of the job of a computation.

        InputError for an invalid annotation, or a pool that is not among the pools.
        """
        name = client_name(client)
        try:
            entry = AnnotationEntry.model_validate(annotation)
        except ValidationError as error:
            what = complaint(error, annotation, Lines(""), AnnotationEntry, "the value")
            given = short(repr(annotation))
            raise InputError(f"annotation slotwise={given}: {what}") from error
        tree = PoolTree(self.pools)
        rule = next((r for r in self.rules if r.matches(name, annotation, address)), None)
        if rule is not None:
            pool = rule.pool
        elif entry.pool is not None:
            pool = entry.pool
        else:
            pool = name if name in tree and name not in tree.inner else "default"
        if self.pools and pool not in tree and pool != "default":
            hint = suggestion(pool, [*tree, "default"])
            raise InputError(f"unknown pool {pool!r}; {hint}")
        tree.check_holds_jobs(pool)
        of_job = entry.weight, entry.deadline, entry.priority, entry.user
        return Submitter(name, pool, *of_job)


def due_after(objective: Objective) -> float | None:
    """The default deadline of a computation, in seconds after its arrival.

    0 if the objective needs a deadline; None if it does not. InputError if the objective needs
    properties that computations of Dask cannot state.
    """
    job = Job("computation", (Phase("task", Tasks(1, 1.0)),))
    for due in (None, 0.0):
        with suppress(InputError):
            objective.check([replace(job, deadline=due)])
            return due
    raise InputError(
        f"objective: penalty {objective.penalty!r} needs properties that computations of Dask"
        " cannot state; name another one"
    )


def client_name(client: str) -> str:
    """The name that a user gave to a client, or "client"; its id is Client-NAME-UUID."""
    found = _CLIENT.fullmatch(client)
    return as_name((found and found["name"]) or "client", CLIENT_LENGTH)


CLIENT_LENGTH = 100
"""The maximum length of the name of a client; the names of its jobs also have a number."""

_CLIENT = re.compile(r"[^-]+-(?:(?P<name>.*)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


HOST = "dask"
"""The only host in the log of a gate, because Dask chooses the worker."""

REST_SECONDS = 0.01
"""The least time between allocations; meanwhile, free slots are filled by the last one.

An allocation of few phases takes up to 1 ms. When a stage of a small graph begins, free slots
are used by others until the next allocation, and each of their tasks keeps its slot to its end.
"""

SEARCH_REST_SECONDS = 0.05
"""The same for allocators that search, whose allocations take about 20 ms."""

QUICK_SECONDS = 1e-4
"""The most `phase_seconds` of an allocator that does not search."""


def header_of(options: GateOptions) -> Header:
    """The header of a log that starts without slots and jobs, for the state and scheduler."""
    workload = Workload((), pools=tuple(options.pools))
    cluster = Cluster((Host(HOST, {ANY_KIND: 0}),), kinds=frozenset({ANY_KIND}))
    given = RunOptions(objective=options.objective)
    spec = RunSpec(options.scheduler, "live", (), cluster, Source(workload), given, {})
    allocator = make_allocator(options.scheduler, options.objective)
    is_quick = allocator.phase_seconds <= QUICK_SECONDS
    rest = REST_SECONDS if is_quick else SEARCH_REST_SECONDS
    header = spec.header(rest_seconds=rest, is_open=True)
    # Dask decides how often a task is repeated. The account is that of Dask's scheduler: it is
    # not the user of the computations.
    return replace(header, attempts_max=10**9, losses_max=10**9, user=None)


logger = logging.getLogger("slotwise.dask")


def submitter_of(
    options: GateOptions,
    client: str,
    annotation: Mapping[str, Any],
    address: str,
    priority: float,
) -> Submitter:
    """The properties of the job of a graph.

    An invalid annotation is ignored, with a warning. A `priority` of Dask above 0 is
    "very_high", and one below 0 "very_low", unless the annotation states a priority.
    """
    try:
        submitter = options.submitter(client, annotation, address)
    except InputError as error:
        logger.warning("client %s: %s; it is ignored", client, error)
        try:
            submitter = options.submitter(client, {}, address)
        except InputError:
            submitter = Submitter(client_name(client))
    if priority and submitter.priority == "normal":
        return replace(submitter, priority="very_high" if priority > 0 else "very_low")
    return submitter
