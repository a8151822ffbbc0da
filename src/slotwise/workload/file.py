"""Reading a workload file: the door at which everything is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.job import Block, Job, Phase, Tasks
from slotwise.model.pool import Pool
from slotwise.objective.objective import Objective
from slotwise.workload.complaint import complaint, place
from slotwise.workload.schema import (
    PROGRAM_KEYS,
    ClusterEntry,
    JobEntry,
    ObjectiveEntry,
    PhaseEntry,
    PoolEntry,
    WorkloadEntry,
)
from slotwise.workload.text import Path, parse_text
from slotwise.workload.workload import ProgramJob, Workload

SIZE_MOST = 256 << 20
"""Bytes: a larger workload file is refused, not read into memory."""


def read_workload(path: str | FilePath) -> Workload:
    """Read a workload file (YAML; JSON is part of it).

    InputError with one message that names the place, the value and the remedy.
    """
    file = FilePath(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(SIZE_MOST + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a workload file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8; name a workload file") from error
    if len(content) > SIZE_MOST:
        raise InputError(f"{path}: larger than {SIZE_MOST >> 20} MiB; split the workload")
    try:
        return parse_workload(text, file.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def parse_workload(text: str, folder: FilePath | None = None) -> Workload:
    """The workload that a text describes; relative paths in it are relative to `folder`."""
    data, lines = parse_text(text)
    if not isinstance(data, dict):
        raise InputError("the file must hold keys and values; begin it with `slotwise: 1`")
    try:
        entry = WorkloadEntry.model_validate(data)
    except ValidationError as error:
        raise InputError(complaint(error, data, lines)) from error
    for where, what in _cross_faults(entry):
        raise InputError(f"{place(where, lines)}: {what}")
    return _build(entry, lines, folder or FilePath())


def _cross_faults(entry: WorkloadEntry) -> Iterator[tuple[Path, str]]:
    """What no entry can see alone: names used twice, names that do not exist."""
    yield from _twice(("jobs",), "id", [job.id for job in entry.jobs])
    yield from _twice(("pools",), "name", [pool.name for pool in entry.pools])
    hosts = entry.cluster.hosts if entry.cluster and entry.cluster.hosts else []
    yield from _twice(("cluster", "hosts"), "name", [host.name for host in hosts])
    pools = {pool.name for pool in entry.pools} | {"default"}
    names = {host.name for host in hosts}
    for number, job in enumerate(entry.jobs):
        if job.pool not in pools:
            known = ", ".join(sorted(pools))
            yield (
                ("jobs", number, "pool"),
                f"unknown pool {job.pool!r}; add it under pools, or use one of: {known}",
            )
        for place_of, phase in enumerate(job.phases or []):
            where = ("jobs", number, "phases", place_of)
            yield from _phase_faults(phase, where, names)


def _phase_faults(
    phase: PhaseEntry, where: Path, hosts: set[str]
) -> Iterator[tuple[Path, str]]:
    if phase.blocks is None:
        return
    given = len(phase.blocks)
    count = len(phase.tasks) if isinstance(phase.tasks, list) else phase.tasks
    if count is None:
        yield (*where, "blocks"), f"{given} blocks and no tasks; add `tasks: {given}`"
    elif given != count:
        yield (
            (*where, "blocks"),
            f"{given} blocks for {count} tasks; give one list of hosts a task",
        )
    for number, block in enumerate(phase.blocks):
        for host in block:
            if host not in hosts:
                yield (
                    (*where, "blocks", number),
                    f"unknown host {host!r}; name hosts that stand under cluster.hosts",
                )


def _twice(where: Path, key: str, names: list[str]) -> Iterator[tuple[Path, str]]:
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in seen:
            yield (
                (*where, number, key),
                f"{name!r} is the {key} of {where[-1]}[{seen[name]}] too; rename one",
            )
        seen[name] = number


def _build(entry: WorkloadEntry, lines: dict[Path, int], folder: FilePath) -> Workload:
    cluster = _at(("cluster",), lines, lambda: _cluster(entry.cluster))
    objective = _objective(entry.objective)
    jobs = []
    for number, job in enumerate(entry.jobs):
        where: Path = ("jobs", number)
        jobs.append(_at(where, lines, lambda job=job: _job(job, cluster)))
        # A job that lacks what its penalty needs: the penalty may be its own.
        blamed = where if job.penalty is None else (*where, "penalty")
        _at(blamed, lines, lambda job=job: objective.check([_stated(job)]))
    pools = []
    for number, pool in enumerate(entry.pools):
        pools.append(_at(("pools", number), lines, lambda pool=pool: _pool(pool)))
    return Workload(
        jobs=tuple(jobs),
        cluster=cluster,
        pools=tuple(pools),
        objective=objective,
        replicas=entry.placement.replicas if entry.placement else 0,
        folder=folder,
    )


def _at(where: Path, lines: dict[Path, int], make: Any) -> Any:
    """Make a value; say where, if the model refuses it."""
    try:
        return make()
    except InputError as error:
        raise InputError(f"{place(where, lines)}: {error}") from error


def _cluster(entry: ClusterEntry | None) -> Cluster | None:
    if entry is None:
        return None
    if entry.hosts is None:
        return Cluster.of_slots(entry.slots or 0)
    return Cluster(
        tuple(
            Host(
                host.name,
                {ANY_KIND: host.slots} if isinstance(host.slots, int) else host.slots,
                host.rack,
                host.speed,
            )
            for host in entry.hosts
        )
    )


def _pool(entry: PoolEntry) -> Pool:
    least, most = (
        {ANY_KIND: shares} if isinstance(shares, int) else shares
        for shares in (entry.slots_min, entry.slots_max)
    )
    return Pool(entry.name, entry.weight, least, most, entry.policy)


def _objective(entry: ObjectiveEntry) -> Objective:
    if entry.aggregate is None:
        return Objective.named(entry.penalty)
    return Objective(entry.penalty, entry.aggregate)


def _about(entry: JobEntry) -> dict[str, Any]:
    """What is said of a job, whatever does its work."""
    return {
        "id": entry.id,
        "arrival": entry.arrival,
        "pool": entry.pool,
        "weight": entry.weight,
        "deadline": entry.deadline,
        "steps": tuple(entry.steps),
        "penalty": entry.penalty,
    }


def _stated(entry: JobEntry) -> Job:
    """The job as its penalty sees it; the phases of a program are not known yet."""
    return Job(phases=(Phase("any", Tasks(1)),), **_about(entry))


def _job(entry: JobEntry, cluster: Cluster | None) -> Job | ProgramJob:
    if entry.phases is not None:
        phases = tuple(_phase(phase, cluster) for phase in entry.phases)
        return Job(phases=phases, **_about(entry))
    given = {
        key: getattr(entry, key) for key in PROGRAM_KEYS if getattr(entry, key) is not None
    }
    inputs = given.pop("inputs", [])
    return ProgramJob(
        program=entry.program,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        output=given.pop("output"),
        settings=given,
        **_about(entry),
    )


def _phase(entry: PhaseEntry, cluster: Cluster | None) -> Phase:
    if cluster is not None:
        cluster.slot_kind(entry.kind)  # Refuses a kind that no host serves.
    return Phase(
        name=entry.name,
        tasks=_tasks(entry, cluster),
        kind=entry.kind,
        after=frozenset(entry.after),
        slots_min=entry.slots_min,
        slots_max=entry.slots_max,
    )


def _tasks(entry: PhaseEntry, cluster: Cluster | None) -> Tasks:
    blocks = tuple(Block(frozenset(hosts)) for hosts in entry.blocks or [])
    if isinstance(entry.tasks, list):
        return Tasks(len(entry.tasks), tuple(entry.tasks), blocks)
    # Work without a number of tasks can be cut as finely as there are slots for it.
    everywhere = cluster.capacity[cluster.slot_kind(entry.kind)] if cluster else 1
    count = entry.tasks or entry.slots_max or everywhere
    assert entry.work is not None
    return Tasks(count, entry.work / count, blocks)
