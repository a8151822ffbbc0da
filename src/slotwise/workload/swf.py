"""Read logs of parallel computers in the Standard Workload Format (SWF), as rigid jobs.

A log has a line of 18 numbers for each job; -1 stands for what is not known. Lines that begin
with `;` are comments, and those of the form `; MaxProcs: 100` describe the computer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slotwise.core.cluster import ANY_KIND, MAX_SLOTS, Cluster, Host
from slotwise.core.errors import MAX_TIME, InputError, shown
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.resources import MAX_AMOUNT, MEMORY
from slotwise.workload.records import from_first_arrival, opened, read_records

FIELDS = (
    *("job number", "submit time", "wait time", "run time", "allocated processors"),
    *("average CPU time", "used memory", "requested processors", "requested time"),
    *("requested memory", "status", "user", "group", "executable", "queue", "partition"),
    *("preceding job", "think time"),
)
"""The fields of a line."""

KIB = 1024

_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?", re.ASCII)
_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes|MaxMemory)\s*:\s*(\S*)")


@dataclass(frozen=True, slots=True)
class SwfLog:
    """The jobs of a log, the cluster on which they ran, and how many jobs were left out.

    unknown  jobs without a run time, or without a number of processors
    large    jobs of more processors or memory than the computer has
    """

    jobs: tuple[Job, ...]
    cluster: Cluster
    unknown: int = 0
    large: int = 0


def read_swf(
    path: str | Path,
    *,
    nodes: int = 1,
    processors: int | None = None,
    true_times: bool = False,
    first: int | None = None,
) -> SwfLog:
    """Read the jobs of a log, or its `first` jobs, in the order of its lines.

    A job is one task in as many slots as the processors that it requested, or got if it
    requested none. With several `nodes`, equal hosts that have the processors together, it is
    a gang of equal tasks where one host does not have enough; their slots are rounded up. Its
    work is the run time, and it requests the time that the log states, or with `true_times`
    the run time. It arrives when it was submitted, counted from the first of these jobs. Memory
    counts if the header states `MaxMemory`. `processors` replaces the `MaxProcs` of the header.
    Raises InputError, with the file, the line, the value and the remedy, for an invalid log.
    O(jobs).
    """
    for name, value in (("nodes", nodes), ("processors", processors)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; give a number, at least 1")
    header: dict[str, int] = {} if processors is None else {"MaxProcs": processors}
    hosts: list[Host] = []

    def made(line: str) -> tuple[str, Job] | str:
        if not hosts:
            hosts.append(_host(header, nodes))
        job = _job(_values(line), hosts[0], nodes, true_times)
        return job if isinstance(job, str) else (job.id, job)

    path = Path(path)
    with opened(path, "a log in SWF", errors="replace") as log:
        jobs, left_out = read_records(path, _lines(log, header), made, "job number", first)
    if not jobs:
        raise InputError(f"{path}: no jobs with run time and processors; name a log in SWF")
    return SwfLog(
        from_first_arrival(jobs),
        Cluster(tuple(replace(hosts[0], name=f"n{number}") for number in range(nodes))),
        **left_out,
    )


def _lines(log: Iterable[str], header: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Yield the lines of jobs with their numbers, and note what comments say."""
    for number, line in enumerate(log, start=1):
        line = line.strip()
        if line.startswith(";"):
            _note(line, header)
        elif line:
            yield number, line


def _note(line: str, header: dict[str, int]) -> None:
    """Note what a comment says of the computer; the first one of each name counts."""
    if found := _HEADER.match(line):
        name, value = found.groups()
        if _NUMBER.fullmatch(value) and float(value) >= 1:  # Others are as good as missing.
            header.setdefault(name, int(float(value)))


def _host(header: dict[str, int], nodes: int) -> Host:
    """One of the equal hosts of the computer."""
    total = header.get("MaxProcs", header.get("MaxNodes", 0))
    if not total:
        raise InputError(
            "no comment before it states MaxProcs; add '; MaxProcs: N', or give the number of"
            " processors"
        )
    if nodes > total:
        raise InputError(f"{nodes} nodes for {total} processors; give at most {total} nodes")
    slots = total // nodes
    if slots > MAX_SLOTS:
        raise InputError(f"{slots} processors of a host; give at most {MAX_SLOTS}, or nodes")
    memory = header.get("MaxMemory", 0) * KIB * header.get("MaxNodes", 1) // nodes
    return Host(
        "n", {ANY_KIND: slots}, resources={MEMORY: min(memory, MAX_AMOUNT)} if memory else {}
    )


def _values(line: str) -> dict[str, float]:
    """The numbers of a line, by field."""
    found = line.split()
    if len(found) != len(FIELDS):
        raise InputError(
            f"{len(found)} fields; a line of a log in SWF has {len(FIELDS)} numbers,"
            " separated by blanks"
        )
    for name, text in zip(FIELDS, found, strict=True):
        if not _NUMBER.fullmatch(text):
            raise InputError(f"{name} is {shown(text)}; expected a number, or -1 if unknown")
    return dict(zip(FIELDS, map(float, found), strict=True))


def _job(values: dict[str, float], host: Host, nodes: int, true_times: bool) -> Job | str:
    """The job of a line, or the field of `SwfLog` that counts why it is left out."""
    seconds = values["run time"]
    asked, got = values["requested processors"], values["allocated processors"]
    processors = int(asked if asked > 0 else got)
    submitted = values["submit time"]
    for name in ("submit time", "run time", "requested time"):
        if values[name] > MAX_TIME:
            raise InputError(f"{name} is {values[name]:g}; give seconds, at most {MAX_TIME:g}")
    if submitted < 0:
        raise InputError(f"submit time is {submitted:g}; give seconds >= 0")
    if seconds <= 0 or processors <= 0:
        return "unknown"
    slots = host.slots[ANY_KIND]
    count = -(-processors // slots)
    width = -(-processors // count)
    memory = {}
    if MEMORY in host.amounts and (kib := values["requested memory"]) > 0:
        memory = {MEMORY: int(kib * KIB * width)}
    if count > nodes or memory.get(MEMORY, 0) > host.amounts.get(MEMORY, 0):
        return "large"
    used = int(values["used memory"] * KIB * width) if memory else 0
    tasks = Tasks(count, seconds, peaks=used if used > 0 else None)
    requested = seconds if true_times else values["requested time"]
    user, group = int(values["user"]), int(values["group"])
    executable = int(values["executable"])
    by_user = f"user-{user}-group-{group}" if user >= 0 else ""
    return Job(
        str(int(values["job number"])),
        (Phase("run", tasks, slots=width, gang=count > 1, resources=memory),),
        arrival=submitted,
        time_requested=requested if requested > 0 else None,
        user=f"user-{user}" if user >= 0 else None,
        program=f"program-{executable}" if executable >= 0 else by_user,
    )
