"""Conversion of events, decisions and their parts to plain JSON values and back.

Each entry is an object with its class name under "is". Numbers are written so that reading
them gives the same float again. Fields that older logs lack get their defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from itertools import starmap
from json.encoder import encode_basestring_ascii as _string
from math import inf
from operator import attrgetter, is_
from typing import Any

from slotwise.core.cluster import GRACE_SECONDS, Cluster, Host
from slotwise.core.decisions import (
    AcceptPromise,
    Adjust,
    BreakPromise,
    Decision,
    Defer,
    Enqueue,
    GiveUp,
    GuaranteePromise,
    Launch,
    Locality,
    Preempt,
    Queue,
    Reallocate,
    RefusePromise,
    Release,
    Retry,
    VirtualEnd,
    VirtualJob,
    VirtualTime,
    VirtualUser,
    WouldPreempt,
)
from slotwise.core.errors import NUMBER, WHOLE
from slotwise.core.events import (
    Event,
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    HostResized,
    JobArrived,
    JobCancelled,
    JobChanged,
    JobsClosed,
    LaunchDropped,
    ObjectiveChanged,
    OutputLost,
    PhaseClosed,
    PoolsChanged,
    SchedulerChanged,
    TaskAdopted,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import PER_USER, Pool, Preemption
from slotwise.core.resources import NOTHING, Resources

Plain = dict[str, Any]

OMITTED = {
    TaskFinished: ("peak",),
    TaskFailed: ("lacks_input", "final", "peak"),
    OutputLost: ("reason",),
    TaskAdopted: ("devices", "kept"),
    Launch: ("devices", "memory"),
    Defer: ("host",),
}
"""Keys that are left out if they are false, empty or null, as they usually are."""

IF_STATED = ("attempts", "retry_delay", "time_limit", "time_requested", "user", "promise")
"""Keys of a job that are left out if it does not state them."""


def encode(entry: Event | Decision) -> Plain:
    """An event or decision as a JSON object."""
    if isinstance(entry, JobArrived):
        return {"is": "JobArrived", "at": entry.at, "job": encode_job(entry.job)}
    if isinstance(entry, HostAdded):
        return {"is": "HostAdded", "at": entry.at, "host": _encode_host(entry.host)}
    if isinstance(entry, PoolsChanged):
        pools = [encode_pool(pool) for pool in entry.pools]
        return {"is": "PoolsChanged", "at": entry.at, "pools": pools}
    if isinstance(entry, Reallocate):
        slots = [[*phase, share] for phase, share in entry.slots.items()]
        earliest = {} if entry.earliest == -inf else {"earliest": entry.earliest}
        virtual = {} if entry.virtual is None else {"virtual": _encode_virtual(entry.virtual)}
        in_turn = {"in_turn": True} if entry.in_turn else {}
        first: Plain = {}
        if entry.next is not None:
            first = {
                "next": [list(phase) for phase in entry.next],
                "behind": dict(entry.behind),
            }
        whole = {"is": "Reallocate", "slots": slots, "until": entry.until}
        return whole | earliest | virtual | in_turn | first
    if isinstance(entry, Adjust):
        slots = [[*phase, share] for phase, share in entry.slots.items()]
        earliest = {} if entry.earliest == -inf else {"earliest": entry.earliest}
        return {"is": "Adjust", "slots": slots, "until": entry.until} | earliest
    if isinstance(entry, Enqueue):
        queues = {host: _encode_queue(queue) for host, queue in entry.queues.items()}
        whole = {"is": "Enqueue", "queues": queues, "jobs": list(entry.jobs)}
        starts = [[*phase, start] for phase, start in entry.starts.items()]
        return whole | ({"starts": starts} if starts else {})
    plain = {
        "is": type(entry).__name__,
        **{field.name: getattr(entry, field.name) for field in fields(entry)},
    }
    for omitted in OMITTED.get(type(entry), ()):
        if not plain[omitted]:
            del plain[omitted]
    return plain


def _number(value: object) -> float:
    """A number of another type, such as one of NumPy, as it is written in JSON."""
    if isinstance(value, WHOLE):
        return int(value)
    if isinstance(value, NUMBER):
        return float(value)
    raise TypeError(f"a log cannot hold {value!r}")


dumped = json.JSONEncoder(separators=(",", ":"), default=_number).encode
"""A plain value as it is in a log."""


def to_json(entry: Event | Decision) -> str:
    """An entry as it is in a log; fast for the kinds of which each task or call has one."""
    if type(entry) is TaskFinished and type(entry.at) is type(entry.seconds) is float:
        job, phase = entry.phase
        where = f'"phase":[{_string(job)},{_string(phase)}],"task":{entry.task}'
        ended = f'"attempt":{entry.attempt},"seconds":{entry.seconds!r}'
        ended += "}" if entry.peak is None else f',"peak":{entry.peak}}}'
        return f'{{"is":"TaskFinished","at":{entry.at!r},{where},{ended}'
    if type(entry) is Launch:
        job, phase = entry.phase
        where = f'"phase":[{_string(job)},{_string(phase)}],"task":{entry.task}'
        host = f'"host":{_string(entry.host)},"locality":{int(entry.locality)}'
        devices = f',"devices":{list(entry.devices)}' if entry.devices else ""
        memory = f',"memory":{entry.memory}' if entry.memory else ""
        return f'{{"is":"Launch",{where},"attempt":{entry.attempt},{host}{devices}{memory}}}'
    if type(entry) is JobArrived and type(entry.at) is type(entry.job.arrival) is float:
        arrived, rest = entry.job, _LIKE_OTHERS.text(entry.job)
        named = f'"id":{_string(arrived.id)},"arrival":{arrived.arrival!r}'
        return f'{{"is":"JobArrived","at":{entry.at!r},"job":{{{named},{rest}}}'
    return dumped(encode(entry))


KEPT_CHARACTERS = 10_000
"""The longest text of a job that is kept for the next one."""


class _LikeOthers:
    """A job as JSON, without its id and arrival, faster if only these differ from the last."""

    def __init__(self) -> None:
        names = {field.name for field in fields(Job)} - {"id", "arrival", "program"}
        self._properties = attrgetter(*sorted(names))
        self._last: tuple[str, tuple[object, ...], str] = "", (), ""

    def text(self, job: Job) -> str:
        properties, (program, last, text) = self._properties(job), self._last
        # The same objects, because equal ones such as 1 and 1.0 are written differently.
        if program != job.program or not last or not all(map(is_, properties, last)):
            plain = encode_job(job)
            del plain["id"], plain["arrival"]
            text = dumped(plain)[1:]
            if len(text) <= KEPT_CHARACTERS:
                self._last = job.program, properties, text  # Other threads see all or nothing.
        return text


_LIKE_OTHERS = _LikeOthers()


def decode(plain: Mapping[str, Any]) -> Event | Decision:
    """The inverse of `encode`. KeyError if the object is not an event or a decision."""
    entry: Event | Decision = _DECODERS[plain["is"]](plain)
    return entry


def _plainly(cls: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    def make(plain: Mapping[str, Any]) -> Any:
        values = {key: value for key, value in plain.items() if key != "is"}
        if "phase" in values:
            values["phase"] = PhaseId(*values["phase"])
        for key in values.keys() & {"tasks", "devices"}:
            values[key] = tuple(values[key])
        if "locality" in values:
            values["locality"] = Locality(values["locality"])
        return cls(**values)

    return make


_DECODERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    cls.__name__: _plainly(cls)
    for cls in (
        *(JobsClosed, JobCancelled, JobChanged, TasksAdded, PhaseClosed, ObjectiveChanged),
        SchedulerChanged,
        *(TaskFinished, TaskFailed, TaskKilled, OutputLost, LaunchDropped),
        *(TasksRunnable, TasksBlocked, TasksDropped, TaskAdopted),
        *(HostLost, HostJoined, HostDrained, HostRemoved, HostResized),
        *(Launch, Defer, Preempt, WouldPreempt, Release, GiveUp, Retry),
        *(AcceptPromise, RefusePromise, GuaranteePromise, BreakPromise),
    )
} | {
    "JobArrived": lambda plain: JobArrived(plain["at"], decode_job(plain["job"])),
    "HostAdded": lambda plain: HostAdded(plain["at"], Host(**plain["host"])),
    "PoolsChanged": lambda plain: PoolsChanged(
        plain["at"], tuple(map(decode_pool, plain["pools"]))
    ),
    "Reallocate": lambda plain: Reallocate(
        {PhaseId(job, phase): slots for job, phase, slots in plain["slots"]},
        plain["until"],
        plain.get("earliest", -inf),
        _decode_virtual(plain["virtual"]) if "virtual" in plain else None,
        plain.get("in_turn", False),
        tuple(starmap(PhaseId, plain["next"])) if "next" in plain else None,
        plain.get("behind", {}),
    ),
    "Adjust": lambda plain: Adjust(
        {PhaseId(job, phase): slots for job, phase, slots in plain["slots"]},
        plain["until"],
        plain.get("earliest", -inf),
    ),
    "Enqueue": lambda plain: Enqueue(
        {host: _decode_queue(queue) for host, queue in plain["queues"].items()},
        tuple(plain["jobs"]),
        {PhaseId(job, phase): start for job, phase, start in plain.get("starts", ())},
    ),
}


def _encode_queue(queue: Queue) -> list[list[Any]]:
    """Consecutive tasks of one phase form one list: job, phase, task numbers."""
    runs: list[list[Any]] = []
    for (job, phase), task in queue:
        if not runs or runs[-1][:2] != [job, phase]:
            runs.append([job, phase])
        runs[-1].append(task)
    return runs


def _decode_queue(plain: list[list[Any]]) -> Queue:
    return tuple((PhaseId(job, phase), task) for job, phase, *tasks in plain for task in tasks)


def _encode_virtual(virtual: VirtualTime) -> Plain:
    return {
        "at": virtual.at,
        "slots": virtual.slots,
        "now": virtual.now,
        "users": [
            [user.name, user.begun, user.clock, [list(one) for one in user.jobs]]
            for user in virtual.users
        ],
        "late": [[job, *end] for job, end in virtual.late.items()],
    }


def _decode_virtual(plain: Plain) -> VirtualTime:
    users = tuple(
        VirtualUser(name, begun, clock, tuple(VirtualJob(*one) for one in jobs))
        for name, begun, clock, jobs in plain["users"]
    )
    late = {job: VirtualEnd(*end) for job, *end in plain["late"]}
    return VirtualTime(plain["at"], plain["slots"], plain["now"], users, late)


def encode_job(job: Job) -> Plain:
    """A job as a JSON object."""
    return {
        "id": job.id,
        "arrival": job.arrival,
        "pool": job.pool,
        "weight": job.weight,
        "deadline": job.deadline,
        "steps": [list(step) for step in job.steps],
        "penalty": job.penalty,
        "priority": job.priority,
        **({"program": job.program} if job.program else {}),
        **({"after": sorted(job.after)} if job.after else {}),
        **({"after_each": sorted(job.after_each)} if job.after_each else {}),
        **({} if job.after_failed == "cancel" else {"after_failed": job.after_failed}),
        **{key: value for key in IF_STATED if (value := getattr(job, key)) is not None},
        **({"memory_limit": True} if job.memory_limit else {}),
        **({"promised": True} if job.promised else {}),
        "phases": [_encode_phase(phase) for phase in job.phases],
    }


def decode_job(plain: Mapping[str, Any]) -> Job:
    """The inverse of `encode_job`."""
    return Job(
        id=plain["id"],
        phases=tuple(_decode_phase(phase) for phase in plain["phases"]),
        arrival=plain["arrival"],
        pool=plain["pool"],
        weight=plain["weight"],
        deadline=plain["deadline"],
        steps=tuple((at, cost) for at, cost in plain["steps"]),
        penalty=plain["penalty"],
        priority=plain.get("priority", "normal"),
        program=plain.get("program", ""),
        after=frozenset(plain.get("after", ())),
        after_each=frozenset(plain.get("after_each", ())),
        after_failed=plain.get("after_failed", "cancel"),
        **{key: plain[key] for key in IF_STATED if key in plain},
        memory_limit=plain.get("memory_limit", False),
        promised=plain.get("promised", False),
    )


def _encode_phase(phase: Phase) -> Plain:
    return {
        "name": phase.name,
        "kind": phase.kind,
        "after": sorted(phase.after),
        "slots_min": phase.slots_min,
        "slots_max": phase.slots_max,
        "slow_start": phase.slow_start,
        "copy": phase.copy,
        "continues": phase.continues,
        "count": phase.tasks.count,
        "work": phase.tasks.work,
        "blocks": [[sorted(block.hosts), block.size_bytes] for block in phase.tasks.blocks],
        **({"grows": True} if phase.grows else {}),
        **({} if phase.slots == 1 else {"slots": phase.slots}),
        **({"gang": True} if phase.gang else {}),
        **({"gated": True} if phase.gated else {}),
        **_encode_resources(phase.resources),
        **({} if phase.tasks.memory is None else {"memory": phase.tasks.memory}),
        **({} if phase.tasks.sizes is None else {"sizes": phase.tasks.sizes}),
        **({"hosts": sorted(phase.hosts)} if phase.hosts else {}),
    }


def _decode_phase(plain: Mapping[str, Any]) -> Phase:
    work, sizes = plain["work"], plain.get("sizes")
    blocks = tuple(Block(frozenset(hosts), size) for hosts, size in plain["blocks"])
    return Phase(
        name=plain["name"],
        tasks=Tasks(
            plain["count"],
            tuple(work) if isinstance(work, list) else work,
            blocks,
            plain.get("memory"),
            sizes=tuple(sizes) if isinstance(sizes, list) else sizes,
        ),
        kind=plain["kind"],
        after=frozenset(plain["after"]),
        slots_min=plain["slots_min"],
        slots_max=plain["slots_max"],
        slow_start=plain.get("slow_start", 1.0),
        copy=plain.get("copy", 0.0),
        continues=plain.get("continues"),
        grows=plain.get("grows", False),
        slots=plain.get("slots", 1),
        gang=plain.get("gang", False),
        gated=plain.get("gated", False),
        hosts=frozenset(plain.get("hosts", ())),
        resources=plain.get("resources", NOTHING),
    )


def _encode_resources(resources: Mapping[str, Any], key: str = "resources") -> Plain:
    assert isinstance(resources, Resources)
    return {key: resources.stated()} if resources else {}


def encode_cluster(cluster: Cluster) -> list[Plain]:
    """A cluster as JSON objects, one for each host."""
    return [_encode_host(host) for host in cluster.hosts]


def _encode_host(host: Host) -> Plain:
    slots = dict(host.slots)
    known = {"name": host.name, "rack": host.rack, "slots": slots, "speed": host.speed}
    return known | _encode_resources(host.resources)


def decode_cluster(
    plain: list[Plain],
    heartbeat: float = 0.0,
    grace: float = GRACE_SECONDS,
    kinds: Iterable[str] = (),
) -> Cluster:
    """The inverse of `encode_cluster`; the other arguments are those of `Cluster`."""
    return Cluster(tuple(Host(**host) for host in plain), heartbeat, grace, frozenset(kinds))


def encode_pool(pool: Pool) -> Plain:
    """A pool as a JSON object."""
    return {
        "name": pool.name,
        "weight": pool.weight,
        "slots_min": dict(pool.slots_min),
        "slots_max": dict(pool.slots_max),
        "policy": pool.policy,
        "parent": pool.parent,
        "jobs_max": pool.jobs_max,
        "job_weights": pool.job_weights,
        "preemption": pool.preemption and _encode_preemption(pool.preemption),
        **{key: dict(limits) for key in PER_USER if (limits := getattr(pool, key))},
        **({} if pool.preemptible else {"preemptible": False}),
        **({} if pool.stops_per_hour is None else {"stops_per_hour": pool.stops_per_hour}),
        **_encode_resources(pool.resources_max, "resources_max"),
    }


def decode_pool(plain: Plain) -> Pool:
    """The inverse of `encode_pool`."""
    preemption = plain.get("preemption")
    stated = None if preemption is None else _decode_preemption(preemption)
    return Pool(**{**plain, "preemption": stated})


def _encode_preemption(preemption: Preemption) -> Plain:
    """What a preemption states; null stands for infinity (never), which JSON lacks."""
    return {k: None if value == inf else value for k, value in preemption.stated().items()}


def _decode_preemption(plain: Plain) -> Preemption:
    stated: Plain = {key: inf if value is None else value for key, value in plain.items()}
    return Preemption(**stated)
