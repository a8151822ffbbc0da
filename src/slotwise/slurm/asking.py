"""The commands that ask the server and change jobs: squeue, sacct, scancel, scontrol, sinfo."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from math import inf
from typing import Any

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.insight.report.text import printable
from slotwise.service.clients.transport import Transport, job_path
from slotwise.slurm.jobs import (
    LIVE,
    OVER,
    SlurmJob,
    asked_states,
    elapsed,
    found_jobs,
    instant,
    listed,
    states_named,
)
from slotwise.slurm.listing import (
    ACCOUNTING,
    ACCOUNTING_BRIEF,
    ACCOUNTING_DEFAULT,
    HOST,
    QUEUE,
    QUEUE_DEFAULT,
    QUEUE_LONG,
    Column,
    accounting_lines,
    letters_shown,
)
from slotwise.slurm.options import OptionTable, Words, parse

RECENT_SECONDS = 3600
"""For how long squeue shows jobs that are over, if it is asked for them: MinJobAge."""

AT_ONCE = 16
"""How many jobs are changed at once."""

DEFAULT_POOL = "default"

SQUEUE = OptionTable.of(
    "O:Format= A:account= a:all r:array M:clusters= o:format= j:jobs= l:long me n:name="
    " w:nodelist= h:noheader p:partition= P:priority q:qos= R:reservation= S:sort= start"
    " t:states= s:steps= u:user= v:verbose",
    Format="write --format with letters, as in -o '%i %T'",
    steps="a job has no steps of its own; leave it out",
)

SACCT = OptionTable.of(
    "A:accounts= L:allclusters X:allocations a:allusers array b:brief M:clusters= delimiter="
    " D:duplicates E:endtime= o:format= e:helpformat j:jobs= local name= noconvert n:noheader"
    " N:nodelist= p:parsable P:parsable2 r:partition= q:qos= S:starttime= s:state= T:truncate"
    " units= u:user= v:verbose W:wckeys="
)

SCANCEL = OptionTable.of(
    "A:account= b:batch M:clusters= f:full H:hurry i:interactive jobname= me n:name="
    " w:nodelist= p:partition= q:qos= Q:quiet R:reservation= s:signal= t:state= u:user="
    " v:verbose wckey=",
    interactive="`slotwise cancel` asks on a terminal",
)

SCONTROL = OptionTable.of("a:all M:clusters= d:details o:oneliner Q:quiet v:verbose")

SINFO = OptionTable.of(
    "a:all M:clusters= o:format= l:long N:Node n:nodes= h:noheader p:partition= S:sort="
    " t:states= s:summarize v:verbose"
)


def squeue(arguments: Sequence[str]) -> int:
    """Print the jobs that wait or run, or those in `--states`."""
    words = parse(arguments, SQUEUE)
    long, format = words.has("long"), os.environ.get("SQUEUE_FORMAT", QUEUE_DEFAULT)
    title, row = letters_shown(words.last("format", QUEUE_LONG if long else format), QUEUE)
    stated = words.listed("states")
    states = {"PENDING", "RUNNING"} if stated is None else states_named("--states", stated)
    transport = Transport()
    if words.has("me"):
        words = _as_own(transport, words)
    named = _named(transport, words.listed("jobs"), "slurm_load_jobs error")
    jobs = _queued(transport, states, _single_user(words)) if named is None else named
    if not words.has("noheader"):
        print(title)
    for job in _chosen(jobs, words, states):
        print(row(job))
    return 0


def _queued(
    transport: Transport, states: set[str] | None, user: str | None
) -> Iterable[SlurmJob]:
    """The jobs in the queue, and those in these states that have ended lately."""
    over = asked_states(states or ()) if states is not None else ",".join(OVER)
    ended = ",".join(name for name in over.split(",") if name in OVER)
    since = time.time() - RECENT_SECONDS
    if ended:
        recent = listed(transport, state=ended, user=user)
        yield from (job for job in recent if job.plain["ended"] >= since)
    yield from listed(transport, state=",".join(LIVE), user=user)


def _named(
    transport: Transport, names: Sequence[str] | None, error: str
) -> list[SlurmJob] | None:
    """The jobs that are named, or None if none is. InputError if the only one is unknown."""
    if names is None:
        return None
    found = found_jobs(transport, names)
    if len(found) == 1 and not any(found.values()):
        raise InputError(f"{error}: Invalid job id specified")
    jobs = {job.number: job for some in found.values() for job in some}
    return list(jobs.values())


def _as_own(transport: Transport, words: Words) -> Words:
    """The words with `--user` and the name of who asks."""
    me = str(transport.get("/v1/whoami")["user"])
    return Words({**words.options, "user": [me]}, words.rest)


def _single_user(words: Words) -> str | None:
    users = words.listed("user")
    return users[0] if users and len(users) == 1 else None


def _chosen(jobs: Iterable[SlurmJob], words: Words, states: set[str] | None) -> list[SlurmJob]:
    """The jobs that users, names, partitions and states choose, by number."""
    users, names = words.listed("user"), words.listed("name")
    pools = words.listed("partition")
    return sorted(
        (
            job
            for job in jobs
            if (users is None or job.user in users)
            and (names is None or job.name in names)
            and (pools is None or job.pool in pools)
            and (states is None or job.state in states)
        ),
        key=lambda job: job.number,
    )


def sacct(arguments: Sequence[str]) -> int:
    """Print jobs, also those that are over; without `--jobs` one's own of today."""
    words = parse(arguments, SACCT)
    if words.has("helpformat"):
        print("\n".join(column.title for column in ACCOUNTING.values()))
        return 0
    default = ACCOUNTING_BRIEF if words.has("brief") else ACCOUNTING_DEFAULT
    format = ",".join(words.options.get("format", [os.environ.get("SACCT_FORMAT", default)]))
    stated = words.listed("state")
    states = None if stated is None else states_named("--state", stated)
    jobs = _accounted(Transport(), words)
    is_parsable = words.has("parsable") or words.has("parsable2")
    between = words.last("delimiter", "|") if is_parsable else ""
    ends = between if words.has("parsable") else ""
    lines = accounting_lines(
        [job for job in jobs if states is None or job.state in states],
        format,
        between=between,
        ends=ends,
        has_title=not words.has("noheader"),
    )
    print("\n".join(lines), end="\n" if lines else "")
    return 0


def _accounted(transport: Transport, words: Words) -> list[SlurmJob]:
    """The jobs that are named, or those of users, in a range of time."""
    names, first = words.listed("jobs"), "today"
    if names is not None:
        found, first = found_jobs(transport, names), ""
        jobs = list({job.number: job for some in found.values() for job in some}.values())
    else:
        if not words.has("allusers") and not words.has("user"):
            words = _as_own(transport, words)
        jobs = list(listed(transport, user=_single_user(words)))
    since = _instant(words.last("starttime", first), "--starttime") or 0.0
    until = _instant(words.last("endtime", ""), "--endtime") or inf
    within = [
        job
        for job in jobs
        if job.plain["submitted"] <= until and (job.plain["ended"] or inf) >= since
    ]
    return _chosen(within, words, None)


_RELATIVE = re.compile(r"now(?:([+-])(\d+)(second|minute|hour|day|week)?s?)?")


def _instant(text: str, option: str) -> float | None:
    """Unix seconds of a date, of `today`, or of `now-2days`; None of empty text. InputError."""
    if not text:
        return None
    now = datetime.now()
    if found := _RELATIVE.fullmatch(text.lower()):
        shift = timedelta(**{f"{found[3] or 'second'}s": int(found[2] or 0)})
        return (now - shift if found[1] == "-" else now + shift).timestamp()
    if text.lower() in ("today", "midnight"):
        return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    try:
        is_time = re.fullmatch(r"\d\d:\d\d(:\d\d)?", text)
        return datetime.fromisoformat(f"{now:%Y-%m-%d}T{text}" if is_time else text).timestamp()
    except ValueError:
        raise InputError(
            f"{option} is {text!r}; expected a date as in 2024-05-31T12:00, today or now-2days"
        ) from None


def scancel(arguments: Sequence[str]) -> int:
    """Cancel jobs by id, or those of a user, with a name, in a partition or state."""
    words = parse(arguments, SCANCEL)
    number = words.last("signal").upper().removeprefix("SIG")
    if number not in ("", "KILL", "TERM", "INT", "9", "15", "2"):
        raise InputError(
            f"--signal={words.last('signal')} is not supported; leave it out to cancel the"
            " jobs, or let a job send signals to its own processes"
        )
    if words.has("jobname"):
        words = words.below({"name": words.options["jobname"]})
    is_chosen = any(words.has(one) for one in ("user", "me", "name", "partition", "state"))
    if not words.rest and not is_chosen:
        raise InputError("No job identification provided")
    transport, failed = Transport(), 0
    if words.has("me") or not (words.rest or words.has("user")):
        words = _as_own(transport, words)  # Nobody means the jobs of others by a name.
    stated = words.listed("state")
    states = None if stated is None else states_named("--state", stated)
    names = [name for word in words.rest for name in re.split(r",(?![^\[]*\])", word)]
    if names:
        found = found_jobs(transport, names)
        for name in [name for name, jobs in found.items() if not jobs]:
            text = f"Kill job error on job id {name}: Invalid job id specified"
            print(f"scancel: error: {text}", file=sys.stderr)
            failed = 1
        jobs: Iterable[SlurmJob] = [job for some in found.values() for job in some]
    else:
        jobs = listed(transport, state=",".join(LIVE), user=_single_user(words))
    chosen = [job for job in _chosen(jobs, words, states) if not job.is_over]
    return max(failed, _each(transport, chosen, "cancel", "scancel"))


def _each(transport: Transport, jobs: Iterable[SlurmJob], what: str, command: str) -> int:
    """Change each job, also after one that cannot be changed; the exit code."""

    def change(job: SlurmJob) -> str:
        try:
            transport.post(job_path(str(job.plain["id"]), what))
        except SlotwiseError as error:
            return f"{command}: error: job {job.id}: {printable(str(error))}"
        return ""

    with ThreadPoolExecutor(AT_ONCE) as threads:  # Their changes share commits of the store.
        faults = list(filter(None, threads.map(change, jobs)))
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


def scontrol(arguments: Sequence[str]) -> int:
    """`show job`, `partition`, `config` or `hostnames`; `hold` and `release`."""
    words = parse(arguments, SCONTROL)
    verb, *rest = [*words.rest, ""]
    if verb == "show" and rest[0].rstrip("s") in _SHOWN:
        between = " " if words.has("oneliner") else "\n   "
        _SHOWN[rest[0].rstrip("s")]([one for one in rest[1:] if one], between)
        return 0
    if verb in ("hold", "release", "uhold") and rest[0]:
        transport = Transport()
        names = [name for word in rest for name in word.split(",") if name]
        jobs = _named(transport, names, verb) or []
        return _each(transport, jobs, "hold" if verb == "uhold" else verb, "scontrol")
    if verb == "requeue":
        raise InputError(
            "requeue is not supported: a job of slotwise that has begun ends; submit it again"
        )
    shown = ", ".join(f"show {name}" for name in _SHOWN)
    known = f"{shown}, hold ID, release ID"
    raise InputError(f"invalid entity or action: {' '.join(words.rest)}; known: {known}")


def _show_config(rest: Sequence[str], between: str) -> None:
    print("Configuration data")
    for name, value in {
        "AccountingStorageType": "accounting_storage/slotwise",
        "ClusterName": "slotwise",
        "MaxArraySize": "10000",
        "MinJobAge": f"{RECENT_SECONDS} sec",
    }.items():
        print(f"{name:<23} = {value}")


def _show_hostnames(rest: Sequence[str], between: str) -> None:
    for name in (rest[0] if rest else os.environ.get("SLURM_JOB_NODELIST", "")).split(","):
        print(name)


def _show_jobs(rest: Sequence[str], between: str) -> None:
    transport = Transport()
    names = [name for word in rest for name in word.split(",")] or None
    jobs = _named(transport, names, "slurm_load_jobs error")
    for job in listed(transport, state=",".join(LIVE)) if jobs is None else jobs:
        array = f"ArrayJobId={job.array[0]} ArrayTaskId={job.array[1]} " if job.array else ""
        plain = job.plain
        lines = [
            f"JobId={job.number} {array}JobName={job.name}",
            f"UserId={job.user} Account={job.pool} Partition={job.pool} QOS=normal",
            f"JobState={job.state} Reason={job.why} Priority={plain['priority']}"
            f" Dependency={printable(','.join(plain['after'])) or '(null)'}",
            f"ExitCode={job.exit_code} Restarts={plain['restarts']}",
            f"RunTime={elapsed(job.seconds)} TimeLimit=UNLIMITED",
            f"SubmitTime={instant(plain['submitted'], 'Unknown')}"
            f" StartTime={instant(plain['begun'], 'Unknown')}"
            f" EndTime={instant(plain['ended'], 'Unknown')}",
            f"NodeList={HOST if plain['begun'] else ''} NumNodes=1 NumCPUs={plain['slots']}",
        ]
        print(between.join(lines), end="\n" if between == " " else "\n\n")


def _show_partitions(rest: Sequence[str], between: str) -> None:
    transport = Transport()
    known = _pools(transport)
    wanted = [name for word in rest for name in word.split(",")] or known
    for name in wanted:
        if name not in known:
            raise InputError(f"Partition {name} not found; known: {', '.join(known)}")
    workers = transport.get("/v1/workers")["workers"]
    for name in wanted:
        lines = [
            f"PartitionName={name}",
            "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
            f"Default={'YES' if name == DEFAULT_POOL else 'NO'} MaxTime=UNLIMITED State=UP",
            f"Nodes={','.join(one['host'] for one in workers)}",
            f"TotalCPUs={sum(one['slots'] for one in workers)} TotalNodes={len(workers)}",
        ]
        print(between.join(lines), end="\n" if between == " " else "\n\n")


_SHOWN: dict[str, Callable[[Sequence[str], str], None]] = {
    "job": _show_jobs,
    "config": _show_config,
    "partition": _show_partitions,
    "hostname": _show_hostnames,
}


def _pools(transport: Transport) -> list[str]:
    """The names of the pools, that of jobs without one first."""
    names = [str(pool["name"]) for pool in transport.get("/v1/pools")["pools"]]
    return [DEFAULT_POOL, *(printable(one) for one in names if one != DEFAULT_POOL)]


def sacctmgr(arguments: Sequence[str]) -> int:
    """Print the names of the pools, which are the accounts; of `list` and `show` only."""
    if not {"list", "show"} & {*arguments}:
        raise InputError("only `list` and `show` are supported; pools are in slotwise.toml")
    print("\n".join(_pools(Transport())))
    return 0


def sinfo(arguments: Sequence[str]) -> int:
    """Print the pools as partitions, each with the hosts of all."""
    words = parse(arguments, SINFO)
    title, row = letters_shown(words.last("format", SINFO_DEFAULT), PARTITIONS)
    transport = Transport()
    workers = transport.get("/v1/workers")["workers"]
    wanted = words.listed("partition")
    if not words.has("noheader"):
        print(title)
    for name in _pools(transport):
        if wanted is None or name in wanted:
            lines = {row({**one, "pool": name}): None for one in workers}
            print("\n".join(lines))
    return 0


def _cpus(one: Any) -> str:
    total = one["slots"]
    return f"{one['busy']}/{total - one['busy']}/0/{total}"


def _state(one: Any) -> str:
    if one["state"] != "present":
        return "down" if one["state"] == "lost" else "drain"
    if one["busy"] == 0:
        return "idle"
    return "alloc" if one["busy"] >= one["slots"] else "mix"


SINFO_DEFAULT = "%9P %5a %10l %6D %6t %N"

PARTITIONS: dict[str, Column[Any]] = {
    "P": Column("PARTITION", lambda one: one["pool"] + "*" * (one["pool"] == DEFAULT_POOL)),
    "R": Column("PARTITION", lambda one: one["pool"]),
    "a": Column("AVAIL", lambda one: "up"),
    "l": Column("TIMELIMIT", lambda one: "infinite"),
    "D": Column("NODES", lambda one: "1"),
    "t": Column("STATE", _state),
    "T": Column("STATE", _state),
    "N": Column("NODELIST", lambda one: one["host"]),
    "c": Column("CPUS", lambda one: str(one["slots"])),
    "C": Column("CPUS(A/I/O/T)", _cpus),
}
"""The columns of sinfo by the letter of its format."""
