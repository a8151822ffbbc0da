"""Read and validate a workload file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from math import inf
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import ValidationError

from slotwise.core.cluster import ANY_KIND, Cluster, Host, Network
from slotwise.core.dependencies import dependency_faults
from slotwise.core.errors import InputError, SlotwiseWarning, suggestion
from slotwise.core.events import (
    ChangingHosts,
    HostAdded,
    HostChange,
    HostDrained,
    HostRemoved,
    PoolsChanged,
    check_changes,
    with_kinds,
)
from slotwise.core.files import other_kind
from slotwise.core.job import Block, Job, Phase, Shuffle, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree, Preemption, check_resources
from slotwise.core.resources import NOTHING, resources_of
from slotwise.core.units import Percent
from slotwise.workload.dates import Clock, day_after
from slotwise.workload.schema import (
    COMMAND_KEYS,
    DATAFLOW_KEYS,
    PROGRAM_KEYS,
    ChangeEntry,
    ClusterEntry,
    Entry,
    HostEntry,
    InputHosts,
    JobEntry,
    ObjectiveEntry,
    PartEntry,
    PhaseEntry,
    PoolChangeEntry,
    PoolDefaults,
    PoolEntry,
    WorkEntry,
    WorkloadEntry,
)
from slotwise.workload.text import (
    Lines,
    Path,
    complaint,
    parse_text,
    place,
    read_text,
    real_path,
    short,
)
from slotwise.workload.workload import (
    PROPERTIES,
    CommandJob,
    DataflowJob,
    Described,
    Part,
    PhasedJob,
    Placement,
    ProgramJob,
    Workload,
    check_limited,
)
from slotwise.workload.yaml_text import NESTED_TOO_DEEPLY


def read_workload(
    path: str | FilePath,
    *,
    now: datetime | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Workload:
    """Read a workload file in YAML or JSON.

    `now` is for live work, whose clock begins at this instant: dates and times of day in the
    file become seconds from then. Without it the file must state its `start` to have them.
    `defaults` are values of keys that the file may leave out. Raises InputError, whose message
    names the place, the value and the remedy.
    """
    try:
        text = read_text(path, "a workload file")
        return _parse(text, FilePath(path).parent, _now(now), f"{path}: ", defaults)
    except InputError as error:
        if kind := other_kind(path, "a workload file"):
            raise InputError(f"{path}: this is {kind}; name a workload file") from error
        raise


def parse_workload(text: str, folder: FilePath | None = None) -> Workload:
    """Parse the text of a workload file; its relative paths are relative to `folder`.

    Raises InputError as `read_workload` does.
    """
    return _parse(text, folder or FilePath(), None)


def read_job(
    stated: Mapping[str, object],
    slots: int,
    folder: FilePath | None = None,
    *,
    now: datetime | None = None,
) -> Job | Described:
    """Read a job from a mapping with the keys of an entry of `jobs` in a workload file.

    It may name any pool. Work without a number of tasks is cut for this number of slots. `now`
    is that of `read_workload`. Raises InputError as that does.
    """
    job = dict(stated)
    pool = job.get("pool", "default")
    pools = [{"name": pool}] if isinstance(pool, str) and pool and pool != "default" else []
    data = {"slotwise": 1, "cluster": {"slots": slots}, "pools": pools, "jobs": [job]}
    lines, clock = Lines(""), _now(now)
    if not isinstance(pool, str) or not PLAIN_NAME.fullmatch(pool):
        return _validated(data, lines, folder or FilePath(), clock).jobs[0]
    # The same without the parts that do not depend on the job: a service reads each job so.
    entry = _entry(data, lines, clock)
    objective = build_objective(entry.objective)
    return _built(("jobs", 0), entry.jobs[0], lines, _of_slots(slots), 0, objective)


PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
"""A name of a pool that needs no check."""


@lru_cache(8)
def _of_slots(slots: int) -> Cluster | None:
    return _cluster(ClusterEntry(slots=slots))


def read_sharing(
    stated: Mapping[str, Any],
    kinds: Iterable[str] = (),
    resources: Iterable[str] | None = None,
) -> tuple[tuple[Pool, ...], Objective, Preemption | None]:
    """The pools, the objective and the preemption that keys of a workload file state.

    These are `pools`, `pool_defaults`, `objective` and `preemption`. Hosts have slots of these
    kinds, and these resources; None: it is not known which. Raises InputError.
    """
    named = dict.fromkeys((ANY_KIND, *kinds))
    phases = [{"name": kind, "kind": kind, "work": 1, "tasks": 1} for kind in named]
    job = {"id": "none", "phases": phases, "deadline": 1}
    data, lines = {"slotwise": 1, "jobs": [job], **stated}, Lines("")
    workload = _validated(data, lines, FilePath(), None)
    if resources is not None:
        with _blaming(_places(workload.pools, data), ("pools",), lines):
            check_resources(workload.pools, resources)
    return workload.pools, workload.objective, workload.preemption


def _now(now: datetime | None) -> Clock | None:
    """The clock of live work, in the zone of this machine."""
    return None if now is None else Clock(now.astimezone(), is_now=True)


def _parse(
    text: str,
    folder: FilePath,
    clock: Clock | None,
    file: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Workload:
    """Parse the text of a workload file. Messages begin with `file`."""
    try:
        data, lines = parse_text(text)
        if not isinstance(data, dict):
            raise InputError(
                "the file must contain keys and values; begin it with `slotwise: 1`"
            )
        workload = _validated({**(defaults or {}), **data}, lines, folder, clock)
        numbers = {job.id: number for number, job in enumerate(workload.jobs)}
        for job, what in dependency_faults(workload.jobs):
            raise InputError(f"{place(('jobs', numbers[job], 'after'), lines)}: {what}")
        if clock is not None and "start" not in data:
            _warn_of_tomorrow(workload, data["jobs"], clock, lines, file)
    except RecursionError as error:
        raise InputError(f"{file}{NESTED_TOO_DEEPLY}") from error
    except InputError as error:
        raise InputError(f"{file}{error}") from error
    return replace(workload, place_of=_JobPlaces(file, lines, numbers))


def _warn_of_tomorrow(
    workload: Workload,
    stated: Sequence[Mapping[str, object]],
    clock: Clock,
    lines: Lines,
    file: str,
) -> None:
    """Warn of the first time of day that is over today, so that it is one of tomorrow."""
    for number, job in enumerate(workload.jobs):
        for key in ("arrival", "deadline", "promise"):
            at = getattr(job, key)
            if at is not None and (date := day_after(stated[number].get(key), at, clock)):
                where = place(("jobs", number, key), lines)
                text = f"{file}{where} is {stated[number][key]}, which means {date}"
                warnings.warn(f"{text}; state the date for another day", SlotwiseWarning, 2)
                return


@dataclass(frozen=True, slots=True)
class _JobPlaces:
    """The place of each job in a file, as the beginning of a message."""

    file: str
    lines: Lines
    numbers: Mapping[str, int]

    def __call__(self, job: str) -> str:
        if job not in self.numbers:
            return ""  # It was added to the workload later.
        return f"{self.file}{place(('jobs', self.numbers[job]), self.lines)}: "


def _validated(
    data: dict[str, Any], lines: Lines, folder: FilePath, clock: Clock | None
) -> Workload:
    if "start" in data:
        clock = _stated_clock(data["start"], lines)
    return build(_entry(data, lines, clock), data, lines, folder)


def _entry(data: dict[str, Any], lines: Lines, clock: Clock | None) -> WorkloadEntry:
    """The entries of a file, checked one by one and together. InputError."""
    try:
        entry = WorkloadEntry.model_validate(data, context={"clock": clock})
    except ValidationError as error:
        raise InputError(complaint(error, data, lines)) from error
    for where, what in _cross_faults(entry):
        raise InputError(f"{place(where, lines)}: {what}")
    return entry


def _stated_clock(start: object, lines: Lines) -> Clock:
    try:
        return Clock.stated(start)
    except ValueError as error:
        where = place(("start",), lines)
        raise InputError(f"{where} is {short(repr(start))}: {error}") from None


def _cross_faults(entry: WorkloadEntry) -> Iterator[tuple[Path, str]]:
    """Errors across entries: duplicate names, and references to unknown names."""
    yield from _duplicates(("jobs",), "id", [job.id for job in entry.jobs])
    yield from _duplicates(("pools",), "name", [pool.name for pool in entry.pools])
    hosts = entry.cluster.hosts if entry.cluster and entry.cluster.hosts else []
    yield from _duplicates(("cluster", "hosts"), "name", [host.name for host in hosts])
    pools = {pool.name for pool in entry.pools} | {"default"}
    inner = {pool.parent for pool in entry.pools}
    names = {host.name for host in hosts}
    changes = entry.cluster.changes if entry.cluster else []
    names |= {change.add.name for change in changes if change.add is not None}
    for number, job in enumerate(entry.jobs):
        if job.pool not in pools:
            known = sorted(pools - inner)
            add = f"add it under pools, or use one of: {', '.join(known)}"
            yield (
                ("jobs", number, "pool"),
                f"unknown pool {job.pool!r}; {suggestion(job.pool, known, add)}",
            )
        for place_of, phase in enumerate(job.phases or []):
            where = ("jobs", number, "phases", place_of)
            if isinstance(phase, PartEntry):
                yield from _host_faults(phase.input_hosts, where, names)
            else:
                yield from _phase_faults(phase, where, names)
        yield from _host_faults(job.input_hosts, ("jobs", number), names)
        nodes = (job.dataflow and job.dataflow.nodes) or []
        for place_of, node in enumerate(nodes):
            place_in = ("jobs", number, "dataflow", "nodes", place_of)
            yield from _host_faults(node.input_hosts, place_in, names)


def _phase_faults(
    phase: PhaseEntry, where: Path, hosts: set[str]
) -> Iterator[tuple[Path, str]]:
    if hosts:
        yield from _unknown(phase.hosts, (*where, "hosts"), hosts)
    count = len(phase.tasks) if isinstance(phase.tasks, list) else phase.tasks
    if isinstance(phase.memory_peak, list) and len(phase.memory_peak) != count:
        given, of = len(phase.memory_peak), f"{count} tasks" if count else "no number of tasks"
        yield (*where, "memory_peak"), f"{given} peaks and {of}; give one size for each task"
    if phase.blocks is None:
        return
    given = len(phase.blocks)
    if count is None:
        yield (*where, "blocks"), f"{given} blocks and no tasks; add `tasks: {given}`"
    elif given != count:
        yield (
            (*where, "blocks"),
            f"{given} blocks for {count} tasks; expected one list of hosts for each task",
        )
    for number, block in enumerate(phase.blocks):
        yield from _unknown(block, (*where, "blocks", number), hosts)


def _host_faults(
    stated: InputHosts | None, where: Path, hosts: set[str]
) -> Iterator[tuple[Path, str]]:
    if not isinstance(stated, dict) or not hosts:  # A real cluster has hosts of its own.
        return
    for place_of, names in stated.items():
        yield from _unknown(names, (*where, "input_hosts", place_of), hosts)


def _unknown(names: list[str], where: Path, hosts: set[str]) -> Iterator[tuple[Path, str]]:
    for host in names:
        if host not in hosts:
            hint = suggestion(host, sorted(hosts), "use the names of hosts in cluster.hosts")
            yield where, f"unknown host {host!r}; {hint}"


def _duplicates(where: Path, key: str, names: list[str]) -> Iterator[tuple[Path, str]]:
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in seen:
            yield (
                (*where, number, key),
                f"{name!r} is also the {key} of {where[-1]}[{seen[name]}]; rename one",
            )
        seen[name] = number


# Conversion of the entries of a workload file to jobs, pools and a cluster.


def build(
    entry: WorkloadEntry, data: Mapping[str, Any], lines: Lines, folder: FilePath
) -> Workload:
    """Build the workload that the entries of a file describe; `data` is what it states.

    Raises InputError, with the place in the file, for values that the model rejects.
    """
    shuffle = _part(Shuffle, entry.shuffle)
    cluster = _at(("cluster",), lines, lambda: _cluster(entry.cluster))
    changes: list[HostChange] = []
    served = cluster
    if entry.cluster is not None and cluster is not None:
        changes = _changes(entry.cluster, cluster, lines)
        served = with_kinds(cluster, changes)
    if served is not None and shuffle is not None:
        served = _at(("shuffle",), lines, lambda: shuffle.cluster(served))
    objective = build_objective(entry.objective)
    block_bytes = entry.placement.block_bytes if entry.placement else 0
    pools = build_pools(entry.pools, data, lines, entry.pool_defaults)
    jobs = []
    for number, job in enumerate(entry.jobs):
        where: Path = ("jobs", number)
        _at((*where, "pool"), lines, lambda job=job: pools.check_holds_jobs(job.pool))
        jobs.append(_built(where, job, lines, served, block_bytes, objective))
    if cluster is not None and changes:
        known, given = with_kinds(cluster, changes), [j for j in jobs if isinstance(j, Job)]
        where = ("cluster", "changes")
        _at(where, lines, lambda: check_changes(known, changes, given))
    with _blaming(_places(pools.values(), data), ("pools",), lines):
        workload = Workload(
            jobs=tuple(jobs),
            cluster=cluster,
            pools=tuple(pools.values()),
            objective=objective,
            folder=folder,
            preemption=_part(Preemption, entry.preemption),
            shuffle=shuffle,
            network=_part(Network, entry.network),
            placement=_part(Placement, entry.placement),
            changes=tuple(changes),
        )
    if not entry.pool_changes:
        return workload
    pool_changes = tuple(_pool_changes(entry.pool_changes, pools, workload, lines))
    return replace(workload, pool_changes=pool_changes)


def _built(
    where: Path,
    job: JobEntry,
    lines: Lines,
    cluster: Cluster | None,
    block_bytes: int,
    objective: Objective,
) -> Job | Described:
    """The job of an entry at a place. InputError with that."""
    phases = tuple(
        _at((*where, "phases", at), lines, lambda one=one: _phase(one, cluster, block_bytes))
        for at, one in enumerate(job.phases or ())
        if isinstance(one, PhaseEntry)
    )
    made: Job | Described = _at(where, lines, lambda: _job(job, phases, cluster))
    stated = made if isinstance(made, Job) else _stated(job)
    # A missing deadline or step is reported at the penalty of the job, if it has one.
    blamed = where if job.penalty is None else (*where, "penalty")
    _at(blamed, lines, lambda: objective.check([stated]))
    return made


def _at(where: Path, lines: Lines, make: Any) -> Any:
    """Return the result of `make`; an InputError gets the place in the file."""
    try:
        return make()
    except InputError as error:
        raise _placed(where, lines, error) from error


def _placed(where: Path, lines: Lines, error: InputError) -> InputError:
    """The error with its place, which may end with the pool that the message begins with."""
    named = f"pool {where[-1]!r}: " if where else ""
    return InputError(f"{place(where, lines)}: {str(error).removeprefix(named)}")


def _cluster(entry: ClusterEntry | None) -> Cluster | None:
    if entry is None:
        return None
    if entry.hosts is None:
        host = Host("cluster", {ANY_KIND: entry.slots or 0}, resources=entry.resources)
        return Cluster((host,), entry.heartbeat, entry.grace)
    return Cluster(tuple(map(_host, entry.hosts)), entry.heartbeat, entry.grace)


def _host(entry: HostEntry) -> Host:
    slots = {ANY_KIND: entry.slots} if isinstance(entry.slots, int) else entry.slots
    return Host(entry.name, slots, entry.rack, entry.speed, resources=entry.resources)


def _changes(entry: ClusterEntry, cluster: Cluster, lines: Lines) -> list[HostChange]:
    """The changes of the hosts, in order of time."""
    hosts, changes = ChangingHosts(cluster), []
    numbered = sorted(enumerate(entry.changes), key=lambda one: one[1].at)
    for number, stated in numbered:
        where: Path = ("cluster", "changes", number)
        change = _at(where, lines, lambda stated=stated: _change(stated))
        _at(where, lines, lambda change=change: hosts.follow(change))
        changes.append(change)
    return changes


def _change(entry: ChangeEntry) -> HostChange:
    if entry.add is not None:
        return HostAdded(entry.at, _host(entry.add))
    if entry.drain is not None:
        return HostDrained(entry.at, entry.drain)
    assert entry.remove is not None
    return HostRemoved(entry.at, entry.remove)


def build_pools(
    entries: Sequence[PoolEntry],
    data: Mapping[str, Any],
    lines: Lines,
    defaults: PoolDefaults | None = None,
) -> PoolTree:
    """The tree of pools. InputError with the place in the file, which states `data`.

    A pool has what it does not state from the `child_defaults` of its parent, otherwise from
    `defaults`. These are for the pool "default", too, which need not be stated.
    """
    for_all = {} if defaults is None else defaults.stated
    by_name = {entry.name: entry for entry in entries}
    inner = {entry.parent for entry in entries}

    def pool(entry: PoolEntry) -> Pool:
        above = by_name.get(entry.parent or "")
        of_parent = above.child_defaults.stated if above and above.child_defaults else {}
        given = {**for_all, **of_parent}
        if entry.name in inner:
            given.pop("policy", None)  # Pools within a pool share by weight.
        stated = given | entry.stated | {"preemption": _part(Preemption, entry.preemption)}
        stated.pop("child_defaults", None)
        return Pool(**stated)

    pools = [
        _at(real_path(("pools", number), data), lines, lambda entry=entry: pool(entry))
        for number, entry in enumerate(entries)
    ]
    if for_all and "default" not in by_name:
        pools.append(_at(("pool_defaults",), lines, lambda: Pool("default", **for_all)))
    with _blaming(_places(pools, data), ("pools",), lines):
        return PoolTree(pools)


def _pool_changes(
    entries: Sequence[PoolChangeEntry], pools: PoolTree, workload: Workload, lines: Lines
) -> Iterator[PoolsChanged]:
    """All pools after each instant at which some change, in order of time.

    Changes of one instant are one event. O(pools) for each instant. InputError with the place
    of the change, also for what no host and no phase of the workload has.
    """
    current = dict(pools)
    numbered = sorted(enumerate(entries), key=lambda one: one[1].at)
    for at, group in groupby(numbered, key=lambda one: one[1].at):
        where: Path = ()
        places: dict[str, Path] = {}
        for number, stated in group:
            places[stated.pool] = where = ("pool_changes", number)
            if stated.pool not in current and stated.pool != "default":
                hint = suggestion(stated.pool, sorted({*current, "default"}))
                raise InputError(
                    f"{place((*where, 'pool'), lines)}: unknown pool {stated.pool!r}; {hint}"
                )
            before = current.get(stated.pool, Pool())
            current[stated.pool] = pool = _at(
                where, lines, lambda stated=stated, before=before: _changed(before, stated)
            )
            _at(where, lines, lambda pool=pool: check_limited([pool], workload))
        with _blaming(places, where, lines):
            tree = PoolTree(current.values())
        yield PoolsChanged(at, tuple(tree.values()))


def _changed(pool: Pool, entry: PoolChangeEntry) -> Pool:
    """The pool with what a change states; its preemption key by key."""
    stated = {key: value for key, value in entry.stated.items() if key not in ("at", "pool")}
    if preemption := _part(Preemption, entry.preemption):
        stated["preemption"] = preemption.within(pool.preemption)
    return replace(pool, **stated)


def _places(pools: Iterable[Pool], data: Mapping[str, Any]) -> dict[str, Path]:
    """Where each of these pools is stated; the last may be "default" with the defaults."""
    stated = len(data.get("pools", ()))
    return {
        pool.name: real_path(("pools", number), data) if number < stated else ("pool_defaults",)
        for number, pool in enumerate(pools)
    }


@contextmanager
def _blaming(places: Mapping[str, Path], otherwise: Path, lines: Lines) -> Iterator[None]:
    """Begin messages about pools, which begin with the name of one, with its place."""
    try:
        yield
    except InputError as error:
        if "pool" not in str(error).partition(":")[0]:
            raise
        blamed = [name for name in places if str(error).startswith(f"pool {name!r}")]
        raise _placed(places[blamed[0]] if blamed else otherwise, lines, error) from error


T = TypeVar("T")


def _part(kind: Callable[..., T], entry: Entry | None) -> T | None:
    """The part of a workload with what an entry states, or None."""
    if entry is None:
        return None
    stated = entry.model_dump(exclude_none=True)
    return kind(**{key: inf if value == "never" else value for key, value in stated.items()})


def build_objective(entry: ObjectiveEntry) -> Objective:
    """The objective that an entry describes."""
    if entry.aggregate is None:
        return Objective.named(entry.penalty)
    return Objective(entry.penalty, entry.aggregate)


def _properties(entry: JobEntry) -> dict[str, Any]:
    """The properties that all kinds of jobs have."""
    properties = {name: getattr(entry, name) for name in PROPERTIES}
    for name in ("after", "after_each"):
        properties[name] = frozenset(properties[name])
    return {"id": entry.id, **properties, "steps": tuple(entry.steps)}


def _stated(entry: JobEntry) -> Job:
    """The job with a placeholder phase, to check its penalty before its phases are known."""
    about = _properties(entry) | {"memory_limit": False}  # Its requests are not known yet.
    return Job(phases=(Phase("any", Tasks(1)),), **about)


def _job(
    entry: JobEntry, phases: tuple[Phase, ...], cluster: Cluster | None
) -> Job | Described:
    if phases:
        return Job(phases=phases, program=entry.program_name or "", **_properties(entry))
    parts = [one for one in entry.phases or () if isinstance(one, PartEntry)]
    if cluster is not None and any(one.command is not None for one in (entry, *parts)):
        cluster.slot_kind(ANY_KIND)
    if parts:
        made = (_part_of(one, {"id": one.name, "after": frozenset(one.after)}) for one in parts)
        return PhasedJob(phases=tuple(made), **_properties(entry))
    if entry.dataflow is not None:
        given = {key: getattr(entry, key) for key in DATAFLOW_KEYS}
        given = {key: value for key, value in given.items() if value is not None}
        if cluster is not None:
            cluster.slot_kind(ANY_KIND)
        flow = entry.dataflow.model_dump(exclude_none=True)
        return DataflowJob(
            flow=flow, output=given.pop("output"), settings=given, **_properties(entry)
        )
    return _part_of(entry, _properties(entry))


def _part_of(entry: WorkEntry, properties: dict[str, Any]) -> Part:
    """The command or the program of a job or a phase."""
    keys = PROGRAM_KEYS if entry.command is None else COMMAND_KEYS
    given = {key: getattr(entry, key) for key in keys if getattr(entry, key) is not None}
    if entry.command is not None:
        command = entry.command if isinstance(entry.command, str) else tuple(entry.command)
        return CommandJob(
            command=command,
            output=given.pop("output", None),
            settings=given,
            **properties,
        )
    inputs = given.pop("inputs", [])
    return ProgramJob(
        program=entry.program,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        output=given.pop("output"),
        settings=given,
        **properties,
    )


def _phase(entry: PhaseEntry, cluster: Cluster | None, block_bytes: int) -> Phase:
    if cluster is not None:
        cluster.slot_kind(entry.kind)  # Raises InputError for a kind that no host serves.
        # The only host may have other resources when the jobs run: those of an option.
        needs = entry.resources if len(cluster.hosts) > 1 else NOTHING
        cluster.check_task(entry.kind, entry.slots, resources_of("resources", needs))
    slots_min: Any = entry.slots_min
    slots_max: Any = entry.slots_max
    if cluster is not None:
        slots_min = cluster.part(slots_min, entry.kind)
        slots_max = cluster.part(slots_max, entry.kind, 1)
    elif isinstance(slots_min, Percent) or isinstance(slots_max, Percent):
        raise InputError(
            "a part of the cluster needs it in the file; state cluster, or numbers"
        )
    return Phase(
        name=entry.name,
        tasks=_tasks(entry, cluster, block_bytes, slots_max),
        kind=entry.kind,
        after=frozenset(entry.after),
        slots_min=slots_min,
        slots_max=slots_max,
        slow_start=entry.slow_start,
        copy=entry.copying,
        continues=entry.continues,
        slots=entry.slots,
        gang=entry.gang,
        hosts=frozenset(entry.hosts),
        resources=entry.resources or NOTHING,
    )


def _tasks(
    entry: PhaseEntry, cluster: Cluster | None, block_bytes: int, slots_max: int | None
) -> Tasks:
    blocks = tuple(Block(frozenset(hosts), block_bytes) for hosts in entry.blocks or [])
    peaks: Any = entry.memory_peak
    if isinstance(entry.tasks, list):
        return Tasks(len(entry.tasks), tuple(entry.tasks), blocks, peaks=peaks)
    # Work without a number of tasks is cut into as many tasks as may run together.
    everywhere = max(1, cluster.capacity[cluster.slot_kind(entry.kind)]) if cluster else 1
    count = entry.tasks or max(1, (slots_max or everywhere) // entry.slots)
    assert entry.work is not None
    return Tasks(count, entry.work / count, blocks, peaks=peaks)
