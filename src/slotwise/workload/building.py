"""Convert the entries of a workload file to the model: jobs, pools, a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path as FilePath
from typing import Any

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.event import HostAdded, HostChange, HostDrained, HostRemoved
from slotwise.model.host_changes import ChangingHosts, check_changes, with_kinds
from slotwise.model.job import Block, Job, Phase, Tasks
from slotwise.model.network import Network
from slotwise.model.pool import Pool, Preemption
from slotwise.model.pool_tree import PoolTree
from slotwise.model.shuffle import Shuffle
from slotwise.objective.objective import Objective
from slotwise.workload.complaint import place
from slotwise.workload.schema import (
    COMMAND_KEYS,
    DATAFLOW_KEYS,
    PROGRAM_KEYS,
    ChangeEntry,
    ClusterEntry,
    HostEntry,
    JobEntry,
    NetworkEntry,
    ObjectiveEntry,
    PhaseEntry,
    PlacementEntry,
    PoolEntry,
    PreemptionEntry,
    ShuffleEntry,
    WorkloadEntry,
)
from slotwise.workload.text import Lines, Path
from slotwise.workload.workload import (
    CommandJob,
    DataflowJob,
    Described,
    Placement,
    ProgramJob,
    Workload,
)


def build(entry: WorkloadEntry, lines: Lines, folder: FilePath) -> Workload:
    """Build the workload that a file's entries describe.

    Raises InputError, with the place in the file, for values that the model rejects.
    """
    shuffle = _shuffle(entry.shuffle)
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
    pools = build_pools(entry.pools, lines)
    jobs = []
    for number, job in enumerate(entry.jobs):
        where: Path = ("jobs", number)
        _at((*where, "pool"), lines, lambda job=job: pools.check_holds_jobs(job.pool))
        made = _at(where, lines, lambda job=job: _job(job, served, block_bytes))
        jobs.append(made)
        stated = made if isinstance(made, Job) else _stated(job)
        # If the job lacks what its penalty needs, the fault is at its own penalty if it has
        # one, else at the job.
        blamed = where if job.penalty is None else (*where, "penalty")
        _at(blamed, lines, lambda stated=stated: objective.check([stated]))
    if cluster is not None and changes:
        known, given = with_kinds(cluster, changes), [j for j in jobs if isinstance(j, Job)]
        where = ("cluster", "changes")
        _at(where, lines, lambda: check_changes(known, changes, given))
    return Workload(
        jobs=tuple(jobs),
        cluster=cluster,
        pools=tuple(pools.values()),
        objective=objective,
        folder=folder,
        preemption=_preemption(entry.preemption),
        shuffle=shuffle,
        network=_network(entry.network),
        placement=_placement(entry.placement),
        changes=tuple(changes),
    )


def _at(where: Path, lines: Lines, make: Any) -> Any:
    """Call `make`; add the place in the file to an InputError."""
    try:
        return make()
    except InputError as error:
        raise InputError(f"{place(where, lines)}: {error}") from error


def _cluster(entry: ClusterEntry | None) -> Cluster | None:
    if entry is None:
        return None
    if entry.hosts is None:
        plain = Cluster.of_slots(entry.slots or 0)
        return replace(plain, heartbeat=entry.heartbeat, grace=entry.grace)
    return Cluster(tuple(map(_host, entry.hosts)), entry.heartbeat, entry.grace)


def _host(entry: HostEntry) -> Host:
    slots = {ANY_KIND: entry.slots} if isinstance(entry.slots, int) else entry.slots
    return Host(entry.name, slots, entry.rack, entry.speed)


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


def build_pools(entries: Sequence[PoolEntry], lines: Lines) -> PoolTree:
    """The tree of pools. InputError with the place in the file."""
    pools = [
        _at(("pools", number), lines, lambda entry=entry: _pool(entry))
        for number, entry in enumerate(entries)
    ]
    try:
        return PoolTree(pools)
    except InputError as error:
        # A message about several pools begins with the name of one of them.
        blamed = [n for n, p in enumerate(pools) if str(error).startswith(f"pool {p.name!r}")]
        raise InputError(f"{place(('pools', *blamed), lines)}: {error}") from error


def _pool(entry: PoolEntry) -> Pool:
    least, most = (
        {ANY_KIND: shares} if isinstance(shares, int) else shares
        for shares in (entry.slots_min, entry.slots_max)
    )
    return Pool(
        name=entry.name,
        weight=entry.weight,
        slots_min=least,
        slots_max=most,
        policy=entry.policy,
        parent=entry.parent,
        jobs_max=entry.jobs_max,
        job_weights=entry.job_weights,
        preemption=_preemption(entry.preemption),
    )


def _preemption(entry: PreemptionEntry | None) -> Preemption | None:
    if entry is None:
        return None
    least, fair = (
        inf if seconds == "never" else seconds
        for seconds in (entry.least_after, entry.fair_after)
    )
    return Preemption(least, fair, entry.fraction, entry.grace)


def _shuffle(entry: ShuffleEntry | None) -> Shuffle | None:
    if entry is None:
        return None
    return Shuffle(entry.slow_start, entry.split, entry.copies_per_slot, entry.copies_per_job)


def _network(entry: NetworkEntry | None) -> Network | None:
    if entry is None:
        return None
    return Network(entry.host or inf, entry.rack or inf, entry.core or inf)


def _placement(entry: PlacementEntry | None) -> Placement | None:
    if entry is None:
        return None
    return Placement(entry.replicas, entry.policy, entry.block_bytes)


def build_objective(entry: ObjectiveEntry) -> Objective:
    """The objective that an entry describes."""
    if entry.aggregate is None:
        return Objective.named(entry.penalty)
    return Objective(entry.penalty, entry.aggregate)


def _about(entry: JobEntry) -> dict[str, Any]:
    """The keys that all jobs share."""
    return {
        "id": entry.id,
        "arrival": entry.arrival,
        "pool": entry.pool,
        "weight": entry.weight,
        "deadline": entry.deadline,
        "steps": tuple(entry.steps),
        "penalty": entry.penalty,
        "priority": entry.priority,
    }


def _stated(entry: JobEntry) -> Job:
    """The job with a placeholder phase, to check its penalty: its phases are unknown yet."""
    return Job(phases=(Phase("any", Tasks(1)),), **_about(entry))


def _job(entry: JobEntry, cluster: Cluster | None, block_bytes: int) -> Job | Described:
    if entry.phases is not None:
        phases = tuple(_phase(phase, cluster, block_bytes) for phase in entry.phases)
        return Job(phases=phases, **_about(entry))
    if entry.dataflow is not None:
        given = {key: getattr(entry, key) for key in DATAFLOW_KEYS}
        given = {key: value for key, value in given.items() if value is not None}
        if cluster is not None:
            cluster.slot_kind(ANY_KIND)
        flow = entry.dataflow.model_dump(exclude_none=True)
        return DataflowJob(
            flow=flow, output=given.pop("output"), settings=given, **_about(entry)
        )
    keys = PROGRAM_KEYS if entry.command is None else COMMAND_KEYS
    given = {key: getattr(entry, key) for key in keys if getattr(entry, key) is not None}
    if entry.command is not None:
        if cluster is not None:
            cluster.slot_kind(ANY_KIND)
        command = entry.command if isinstance(entry.command, str) else tuple(entry.command)
        return CommandJob(
            command=command, output=given.pop("output"), settings=given, **_about(entry)
        )
    inputs = given.pop("inputs", [])
    return ProgramJob(
        program=entry.program,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        output=given.pop("output"),
        settings=given,
        **_about(entry),
    )


def _phase(entry: PhaseEntry, cluster: Cluster | None, block_bytes: int) -> Phase:
    if cluster is not None:
        cluster.slot_kind(entry.kind)  # Raises InputError for a kind that no host serves.
        cluster.check_slots(entry.kind, entry.slots)
    return Phase(
        name=entry.name,
        tasks=_tasks(entry, cluster, block_bytes),
        kind=entry.kind,
        after=frozenset(entry.after),
        slots_min=entry.slots_min,
        slots_max=entry.slots_max,
        slow_start=entry.slow_start,
        copy=entry.copying,
        continues=entry.continues,
        slots=entry.slots,
        gang=entry.gang,
    )


def _tasks(entry: PhaseEntry, cluster: Cluster | None, block_bytes: int) -> Tasks:
    blocks = tuple(Block(frozenset(hosts), block_bytes) for hosts in entry.blocks or [])
    if isinstance(entry.tasks, list):
        return Tasks(len(entry.tasks), tuple(entry.tasks), blocks)
    # Work without a number of tasks is cut into as many tasks as may run at once.
    everywhere = max(1, cluster.capacity[cluster.slot_kind(entry.kind)]) if cluster else 1
    count = entry.tasks or max(1, (entry.slots_max or everywhere) // entry.slots)
    assert entry.work is not None
    return Tasks(count, entry.work / count, blocks)
