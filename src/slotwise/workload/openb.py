"""Read the lists of pods and nodes of a cluster trace of Alibaba with GPUs (2023, "openb").

Each list is a CSV file with a heading. A node becomes a host, with a slot for each CPU, memory
and GPUs. A pod becomes a job of one task, which requests what the pod requested. Slots are
whole, so that the CPUs of a pod are rounded up to whole ones, and those of a node down.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, shown
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.resources import GPU, MEMORY, Resources
from slotwise.workload.records import from_first_arrival, opened, read_records

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu")
"""The columns of a list of nodes that are read; it may have others."""

POD_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
"""The columns of a list of pods that are read; it may have others."""

MAX_DIGITS = 12
"""Maximum digits of a number: more are an error."""

MILLI = 1000
"""Thousandths of one CPU or GPU in a list."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Pods:
    """The jobs of a list of pods, and how many pods were left out before the last of them.

    endless  pods that never began, or without an end
    empty    pods that end when they begin, or before
    large    pods that fit no host
    """

    jobs: tuple[Job, ...]
    endless: int = 0
    empty: int = 0
    large: int = 0


def read_nodes(path: str | Path, *, hosts: int | None = None) -> Cluster:
    """Read a list of nodes as a cluster, or a sample of this number of hosts.

    The sample takes hosts at equal distances from all hosts in the order of their size, so
    that each size keeps its part, up to rounding. Raises InputError, with the file, the line
    and the value, for an invalid list. O(nodes log nodes).
    """
    path = Path(path)
    found, _ = read_records(path, _rows(path, NODE_COLUMNS), _host, "sn")
    every = tuple(found.values())
    if not every:
        raise InputError(f"{path}: no nodes; name a list of nodes, with a line for each")
    if hosts is None:
        return Cluster(every)
    if not 1 <= hosts <= len(every):
        raise InputError(f"{path}: hosts is {hosts}; give a number from 1 to {len(every)}")
    by_size = sorted(every, key=lambda host: sorted(host.amounts.pairs))
    places = ((2 * place + 1) * len(every) // (2 * hosts) for place in range(hosts))
    return Cluster(tuple(by_size[place] for place in places))


def read_pods(path: str | Path, cluster: Cluster, *, first: int | None = None) -> Pods:
    """Read the jobs of a list of pods, or its `first` jobs, in the order of its lines.

    A job arrives when its pod was created, counted from the earliest of these jobs. Its work is
    the time from when the pod was scheduled until it was deleted. Its pool is the `qos` of the
    pod. Raises InputError, with the file, the line and the value, for an
    invalid list. O(pods * hosts).
    """
    path = Path(path)
    rows = _rows(path, POD_COLUMNS)
    jobs, left_out = read_records(path, rows, lambda row: _job(row, cluster), "name", first)
    if not jobs:
        raise InputError(f"{path}: no pods that end and fit a host; name a list of pods")
    return Pods(from_first_arrival(jobs), **left_out)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the rows of a list by the names of its columns, with their line numbers."""
    with opened(path, "a list in CSV", newline="") as stream:
        reader = csv.DictReader(stream, restval="")
        try:
            heading = reader.fieldnames or ()
            if missing := [column for column in columns if column not in heading]:
                raise InputError(
                    f"{path}: line 1: no column {missing[0]!r} in {shown(','.join(heading))};"
                    f" expected {', '.join(columns)}"
                )
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{path}: not CSV ({error}); name a list in CSV") from error


def _host(row: Mapping[str, str]) -> tuple[str, Host]:
    resources = {MEMORY: _number(row, "memory_mib") * MIB, GPU: _number(row, "gpu")}
    slots = _number(row, "cpu_milli") // MILLI
    if not slots:
        raise InputError(
            f"cpu_milli is {shown(row['cpu_milli'])}; a host needs at least {MILLI}"
        )
    return row["sn"], Host(row["sn"], {ANY_KIND: slots}, resources=_without_zeros(resources))


def _job(row: Mapping[str, str], cluster: Cluster) -> tuple[str, Job] | str:
    """The job of a pod, or the field of `Pods` that counts why it is left out."""
    created = _number(row, "creation_time")
    slots = max(1, -(-_number(row, "cpu_milli") // MILLI))
    phase = Phase("pod", Tasks(1), slots=slots, resources=_requests(row))
    if not (row["scheduled_time"] and row["deletion_time"]):
        return "endless"
    work = _number(row, "deletion_time") - _number(row, "scheduled_time")
    if work <= 0:
        return "empty"
    request = Resources({ANY_KIND: slots, **phase.needs})
    if not any(host.amounts.holds(request) for host in cluster.hosts):
        return "large"
    phase = replace(phase, tasks=Tasks(1, float(work)))
    name, pool = row["name"], row["qos"] or "default"
    return name, Job(name, (phase,), arrival=float(created), pool=pool)


def _requests(row: Mapping[str, str]) -> dict[str, int | float]:
    """Memory, and whole GPUs or a part of one."""
    devices, part = _number(row, "num_gpu"), _number(row, "gpu_milli")
    if devices == 1 and not 1 <= part <= MILLI:
        raise InputError(
            f"gpu_milli is {shown(row['gpu_milli'])} of one GPU; give 1 to {MILLI}"
        )
    gpus = part / MILLI if devices == 1 and part < MILLI else devices
    return _without_zeros({MEMORY: _number(row, "memory_mib") * MIB, GPU: gpus})


def _without_zeros(amounts: Mapping[str, int | float]) -> dict[str, int | float]:
    return {name: amount for name, amount in amounts.items() if amount}


def _number(row: Mapping[str, str], column: str) -> int:
    """Parse a whole number: digits only."""
    text = row[column]
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        raise InputError(
            f"{column} is {shown(text)}; expected a whole number >= 0 of at most"
            f" {MAX_DIGITS} digits"
        )
    return int(text)
