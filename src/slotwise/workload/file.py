"""Read and validate a workload file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.workload.building import build
from slotwise.workload.complaint import complaint, place
from slotwise.workload.entry import InputHosts
from slotwise.workload.schema import PhaseEntry, WorkloadEntry
from slotwise.workload.text import Lines, Path, parse_text, read_text
from slotwise.workload.workload import Described, Workload
from slotwise.workload.yaml_text import NESTED_TOO_DEEPLY


def read_workload(path: str | FilePath) -> Workload:
    """Read a workload file in YAML or JSON.

    Raises InputError, whose message names the place, the value and the remedy.
    """
    text = read_text(path, "a workload file")
    try:
        return parse_workload(text, FilePath(path).parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def parse_workload(text: str, folder: FilePath | None = None) -> Workload:
    """Parse the text of a workload file; its relative paths are relative to `folder`.

    Raises InputError as `read_workload` does.
    """
    try:
        return _parse(text, folder or FilePath())
    except RecursionError as error:
        raise InputError(NESTED_TOO_DEEPLY) from error


def read_job(
    stated: Mapping[str, object], slots: int, folder: FilePath | None = None
) -> Job | Described:
    """A job from a mapping that is like an entry of `jobs` in a workload file.

    It may name any pool. Work without a number of tasks is cut for this number of slots.
    Raises InputError as `read_workload` does.
    """
    job = dict(stated)
    pool = job.get("pool", "default")
    pools = [{"name": pool}] if isinstance(pool, str) and pool and pool != "default" else []
    data = {"slotwise": 1, "cluster": {"slots": slots}, "pools": pools, "jobs": [job]}
    return _validated(data, Lines(""), folder or FilePath()).jobs[0]


def _parse(text: str, folder: FilePath) -> Workload:
    data, lines = parse_text(text)
    if not isinstance(data, dict):
        raise InputError("the file must contain keys and values; begin it with `slotwise: 1`")
    return _validated(data, lines, folder)


def _validated(data: dict[str, Any], lines: Lines, folder: FilePath) -> Workload:
    try:
        entry = WorkloadEntry.model_validate(data)
    except ValidationError as error:
        raise InputError(complaint(error, data, lines)) from error
    for where, what in _cross_faults(entry):
        raise InputError(f"{place(where, lines)}: {what}")
    return build(entry, lines, folder)


def _cross_faults(entry: WorkloadEntry) -> Iterator[tuple[Path, str]]:
    """Errors across entries: duplicate names, and references to unknown names."""
    yield from _twice(("jobs",), "id", [job.id for job in entry.jobs])
    yield from _twice(("pools",), "name", [pool.name for pool in entry.pools])
    hosts = entry.cluster.hosts if entry.cluster and entry.cluster.hosts else []
    yield from _twice(("cluster", "hosts"), "name", [host.name for host in hosts])
    pools = {pool.name for pool in entry.pools} | {"default"}
    inner = {pool.parent for pool in entry.pools}
    names = {host.name for host in hosts}
    changes = entry.cluster.changes if entry.cluster else []
    names |= {change.add.name for change in changes if change.add is not None}
    for number, job in enumerate(entry.jobs):
        if job.pool not in pools:
            known = ", ".join(sorted(pools - inner))
            yield (
                ("jobs", number, "pool"),
                f"unknown pool {job.pool!r}; add it under pools, or use one of: {known}",
            )
        for place_of, phase in enumerate(job.phases or []):
            where = ("jobs", number, "phases", place_of)
            yield from _phase_faults(phase, where, names)
        yield from _host_faults(job.input_hosts, ("jobs", number), names)
        nodes = (job.dataflow and job.dataflow.nodes) or []
        for place_of, node in enumerate(nodes):
            place_in = ("jobs", number, "dataflow", "nodes", place_of)
            yield from _host_faults(node.input_hosts, place_in, names)


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
            f"{given} blocks for {count} tasks; give one list of hosts for each task",
        )
    for number, block in enumerate(phase.blocks):
        yield from _unknown(block, (*where, "blocks", number), hosts)


def _host_faults(
    stated: InputHosts | None, where: Path, hosts: set[str]
) -> Iterator[tuple[Path, str]]:
    for place_of, names in (stated or {}).items():
        yield from _unknown(names, (*where, "input_hosts", place_of), hosts)


def _unknown(names: list[str], where: Path, hosts: set[str]) -> Iterator[tuple[Path, str]]:
    for host in names:
        if host not in hosts:
            yield where, f"unknown host {host!r}; use the names of hosts in cluster.hosts"


def _twice(where: Path, key: str, names: list[str]) -> Iterator[tuple[Path, str]]:
    seen: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in seen:
            yield (
                (*where, number, key),
                f"{name!r} is also the {key} of {where[-1]}[{seen[name]}]; rename one",
            )
        seen[name] = number
