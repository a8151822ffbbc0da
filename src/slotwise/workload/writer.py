"""Write jobs as a workload file that `read_workload` can read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.events import HostAdded, HostChange, HostDrained
from slotwise.core.files import open_to_write
from slotwise.core.job import Job, Phase
from slotwise.core.resources import Resources
from slotwise.workload.schema import VERSION

MARK = "# Written by slotwise: a file with this line may be replaced by another."


def write_workload(
    jobs: Iterable[Job],
    path: str | Path,
    *,
    cluster: Cluster | None = None,
    replicas: int = 0,
    block_bytes: int = 0,
    changes: Sequence[HostChange] = (),
) -> None:
    """Write a workload file with these jobs, and with the cluster for a simulation.

    `changes` are changes of the hosts of `cluster`, which is then required. `replicas` is the
    number of hosts that hold each block of input, or 0 if input is on every host.
    `block_bytes` is the number of bytes that each task reads. Pools are written by name only,
    without shares. Default values are left out. The file has a line for each host and each
    job; O(size of the file). Raises InputError for no jobs, for a phase without work, and for
    a file that cannot be written.
    """
    jobs = tuple(jobs)
    if not jobs:
        raise InputError(f"{path}: no jobs to write; give at least one")
    if changes and cluster is None:
        raise InputError(f"{path}: changes of the hosts need their cluster; give it, too")
    placement = {"replicas": replicas} if replicas else {}
    if replicas and block_bytes:
        placement["block_bytes"] = block_bytes
    try:
        with TextIOWrapper(open_to_write(path), encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in _lines(jobs, cluster, placement, changes))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a file to write to") from error


def _lines(
    jobs: Sequence[Job],
    cluster: Cluster | None,
    placement: Mapping[str, int],
    changes: Sequence[HostChange],
) -> Iterator[str]:
    yield MARK
    yield f"slotwise: {VERSION}"
    if cluster is not None:
        yield from _cluster_lines(cluster)
    if changes:
        yield "  changes:"
        for change in changes:
            yield f"    - {flow_text(_change(change))}"
    if placement:
        yield f"placement: {flow_text(placement)}"
    pools = dict.fromkeys(job.pool for job in jobs if job.pool != "default")
    if pools:
        yield f"pools: {flow_text([{'name': pool} for pool in pools])}"
    yield "jobs:"
    for job in jobs:
        yield f"  - {flow_text(job_entry(job))}"


def _cluster_lines(cluster: Cluster) -> Iterator[str]:
    yield "cluster:"
    for key, value in _stated(cluster, "hosts").items():
        yield f"  {key}: {flow_text(value)}"
    yield "  hosts:"
    for host in cluster.hosts:
        yield f"    - {flow_text(host_entry(host))}"


def _change(change: HostChange) -> dict[str, Any]:
    if isinstance(change, HostAdded):
        return {"at": change.at, "add": host_entry(change.host)}
    return {
        "at": change.at,
        "drain" if isinstance(change, HostDrained) else "remove": change.host,
    }


def host_entry(host: Host) -> dict[str, Any]:
    """A host as an entry of a workload file."""
    slots: Any = dict(host.slots)
    if list(slots) == [ANY_KIND]:
        slots = slots[ANY_KIND]
    return _stated(host, "slots") | {"slots": slots}


def job_entry(job: Job) -> dict[str, Any]:
    """A job as an entry of a workload file. InputError for a phase without work."""
    entry = _stated(job, "phases", "program", "promised")
    if job.program:
        entry["program_name"] = job.program
    return entry | {"phases": [_phase(phase) for phase in job.phases]}


def _phase(phase: Phase) -> dict[str, Any]:
    tasks = phase.tasks
    entry = _stated(phase, "tasks")
    if isinstance(tasks.work, tuple):
        entry["tasks"] = list(tasks.work)
    elif tasks.work is None:
        raise InputError(f"phase {phase.name!r}: a workload file must state work; give it")
    else:
        entry |= {"work": tasks.work * tasks.count, "tasks": tasks.count}
    if tasks.blocks:
        entry["blocks"] = [sorted(block.hosts) for block in tasks.blocks]
    if tasks.peaks is not None:
        peaks = tasks.peaks
        entry["memory_peak"] = list(peaks) if isinstance(peaks, tuple) else peaks
    return entry


def _stated(value: Any, *excluded: str) -> dict[str, Any]:
    """The fields as keys of the file, without `excluded` fields and default values."""
    return {
        field.name: _plain(part)
        for field in fields(value)
        if field.name not in excluded
        and (part := getattr(value, field.name)) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else None


def _plain(value: Any) -> Any:
    if isinstance(value, Resources):
        return value.stated()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


def flow_text(value: Any) -> str:
    """Format a value as one line of YAML: JSON with quotes around keys only where needed."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {flow_text(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    is_bare = key.isascii() and key.isidentifier() and key not in ("null", "true", "false")
    return key if is_bare else json.dumps(key)
