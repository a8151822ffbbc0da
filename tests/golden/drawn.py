"""Golden logs of drawn runs: any features together, each run from a seed of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from golden.golden import Case
from golden.runs import Faults, Loss, Repeats, Run
from slotwise import (
    Block,
    Cluster,
    Host,
    HostAdded,
    HostDrained,
    HostRemoved,
    Job,
    Network,
    Objective,
    Outage,
    Phase,
    Placement,
    Pool,
    Preemption,
    Shuffle,
    Simulation,
    Tasks,
    Workload,
)
from slotwise.core.job import PRIORITIES
from slotwise.core.objective import PENALTIES
from slotwise.policy.scheduler import ALLOCATORS, ASSIGNERS, QUEUEINGS

PER_ALLOCATOR, PER_FLOWFLEX, PER_QUEUEING = 16, 7, 6
"""How many runs are drawn for each scheduler. Those of FlowFlex take longest."""


def cases() -> dict[str, Case]:
    """The drawn runs of each scheduler."""
    counts = {
        name: PER_FLOWFLEX if name.startswith("flowflex") else PER_ALLOCATOR
        for name in ALLOCATORS
    } | dict.fromkeys(QUEUEINGS, PER_QUEUEING)
    return {
        f"drawn-{name}-{seed}": partial(_write, seed, name)
        for name, count in counts.items()
        for seed in range(count)
    }


def _write(seed: int, name: str, log: Path) -> None:
    """Draw a run and write its log."""
    drawn_run(seed, name)(log)


def drawn_run(seed: int, name: str) -> Run:
    """The run of a seed under a scheduler."""
    rng = Random(f"{name} {seed}")
    if name in QUEUEINGS:
        return _queued_run(rng, name)
    kinds = rng.choice([("task",), ("map", "reduce"), ("map", "task")])
    cluster = Cluster(
        tuple(_hosts(rng, kinds)),
        heartbeat=rng.choice([0.0, 0.0, 0.5]),
        grace=rng.choice([0.5, 2.0, 30.0]),
    )
    pools = tuple(_pools(rng, kinds))
    inner = {pool.parent for pool in pools}
    names = [pool.name for pool in pools if pool.name not in inner] or ["default"]
    jobs = tuple(
        _job(rng, f"j{number}", rng.choice(names), cluster)
        for number in range(rng.randint(3, 6))
    )
    workload = Workload(
        jobs,
        cluster,
        pools,
        placement=rng.choice([None, Placement(2, block_bytes=100), Placement(1, "random")]),
        shuffle=rng.choice(
            [None, Shuffle(0.3), Shuffle(0.4, True, 1), Shuffle(0.2, True, 2, 2)]
        ),
        preemption=rng.choice([None, Preemption(fair_after=2.0)]),
        network=rng.choice([None, None, Network(100.0), Network(80.0, 60.0, 50.0)]),
    )
    options = _options(rng, name)
    return Run(workload, name, _simulation(rng, cluster, kinds), options)


def _queued_run(rng: Random, name: str) -> Run:
    """Plain slots, no pools with shares: what schedulers of queues take."""
    cluster = Cluster(tuple(_hosts(rng, ("task",))))
    jobs = []
    for number in range(rng.randint(2, 5)):
        phases = list(_flow(rng))
        at, weight = rng.choice([0.0, 1.0, 2.5]), rng.choice([1.0, 3.0])
        jobs.append(Job(f"j{number}", tuple(phases), at, weight=weight))
    placement = rng.choice([None, Placement(2)])
    simulation = _simulation(rng, cluster, ("task",))
    return Run(Workload(tuple(jobs), cluster, placement=placement), name, simulation)


def _hosts(rng: Random, kinds: tuple[str, ...]) -> Iterator[Host]:
    """The first host is large enough for gangs and wide tasks."""
    for number in range(rng.randint(1, 5)):
        slots = {kind: rng.randint(1, 3) if number else 4 for kind in kinds}
        rack, speed = f"r{number % 3}", rng.choice([1.0, 1.0, 0.5, 2.0])
        yield Host(f"h{number}", slots, rack, speed)


def _pools(rng: Random, kinds: tuple[str, ...]) -> Iterator[Pool]:
    """No pools, two, or a tree of three levels."""
    tree = rng.choice(
        [
            [],
            [("a", None), ("b", None)],
            [("a", None), ("b", None), ("a1", "a"), ("a2", "a")],
            [("a", None), ("b", None), ("a1", "a"), ("a2", "a"), ("x", "a1"), ("y", "a1")],
        ]
    )
    parents = {parent for _, parent in tree}
    for name, parent in tree:
        is_bottom = name not in parents
        least, most = rng.choice([0, 1, 2]), rng.choice([None, None, 4, 5])
        of_kind = rng.choice([None, None, 1]) if is_bottom and "map" in kinds else None
        yield Pool(
            name,
            weight=rng.choice([1.0, 2.0, 0.3]),
            slots_min={"task": least} | ({} if of_kind is None else {"map": of_kind}),
            slots_max={}
            if most is None
            else {"task": most} | ({} if of_kind is None else {"map": 4}),
            policy=rng.choice(["fair", "fifo"]) if is_bottom else "fair",
            parent=parent,
            jobs_max=rng.choice([None, None, None, 1, 2]),
            job_weights=rng.choice(["stated", "size"]),
            preemption=rng.choice([None, _preemption(rng), _preemption(rng)]),
        )


def _preemption(rng: Random) -> Preemption:
    return Preemption(
        least_after=rng.choice([0.0, 0.5, 2.0]),
        fair_after=rng.choice([0.5, 3.0, None]),
        fraction=rng.choice([None, 0.5, 1.0]),
        grace=rng.choice([0.0, 0.25, 1.0]),
    )


def _job(rng: Random, name: str, pool: str, cluster: Cluster) -> Job:
    """A job of any shape, with a deadline and steps, so that each penalty fits it."""
    shapes = [_flow, _flow, _map_reduce, _map_reduce, _wide, _gang, _continued]
    phases = tuple(rng.choice(shapes)(rng))
    if "task" not in cluster.capacity:
        phases = tuple(replace(p, kind="map") if p.kind == "task" else p for p in phases)
    if rng.random() < 0.4:
        hosts = [*sorted(cluster.by_name), "unknown"]
        phases = tuple(
            phase if phase.waits_for else replace(phase, tasks=_with_input(rng, phase, hosts))
            for phase in phases
        )
    at = rng.choice([0.0, 0.0, 0.5, 1.25, 4.0])
    return Job(
        name,
        phases,
        at,
        pool,
        weight=rng.choice([1.0, 0.3, 5.0]),
        deadline=at + rng.choice([2.0, 5.0, 9.0]),
        steps=((at + 3.0, 1.0), (at + 6.0, 4.0)),
        penalty=rng.choice([None, None, None, "tardiness", "sla", "stretch"]),
        priority=rng.choice(list(PRIORITIES)),
    )


def _with_input(rng: Random, phase: Phase, hosts: Sequence[str]) -> Tasks:
    copies = min(len(hosts), rng.choice([1, 1, 2]))
    blocks = [Block(frozenset(rng.sample(hosts, copies)), 50) for _ in range(phase.tasks.count)]
    return replace(phase.tasks, blocks=blocks)


def _flow(rng: Random) -> Iterator[Phase]:
    """Phases that wait for some of those before them."""
    names: list[str] = []
    for place in range(rng.randint(1, 4)):
        count, work = rng.randint(1, 5), rng.choice([0.3, 1.0, 2.5])
        uneven = tuple(work * (1 + task % 3) for task in range(count))
        after = frozenset(name for name in names if rng.random() < 0.6)
        yield Phase(f"p{place}", Tasks(count, rng.choice([work, uneven])), after=after)
        names.append(f"p{place}")


def _map_reduce(rng: Random) -> Iterator[Phase]:
    least = rng.choice([0, 0, 1])
    work = rng.choice([0.5, 1.0, 2.0])
    yield Phase("map", Tasks(rng.randint(1, 8), work), "map", slots_min=least)
    copy, most = rng.choice([0.0, 0.4]), rng.choice([None, 2])
    count = rng.randint(1, 3)
    yield Phase("reduce", Tasks(count, 1.0), "reduce", "map", slots_max=most, copy=copy)


def _wide(rng: Random) -> Iterator[Phase]:
    count, width = rng.randint(1, 4), rng.choice([2, 3])
    yield Phase("wide", Tasks(count, rng.choice([0.5, 2.0])), "map", slots=width)
    yield Phase("narrow", Tasks(rng.randint(1, 4), 0.5), "map", "wide")


def _gang(rng: Random) -> Iterator[Phase]:
    yield Phase("before", Tasks(2, 0.4), "map")
    count, width = rng.choice([(3, 1), (4, 1), (2, 2), (1, 3)])
    work = rng.choice([1.0, tuple(0.5 + task for task in range(count))])
    yield Phase("gang", Tasks(count, work), "map", "before", slots=width, gang=True)
    yield Phase("after", Tasks(1, 0.5), "map", "gang")


def _continued(rng: Random) -> Iterator[Phase]:
    count = rng.randint(1, 4)
    yield Phase("first", Tasks(count, rng.choice([0.5, 2.0])), "map")
    yield Phase("second", Tasks(count, 1.0), "map", continues="first")


def _options(rng: Random, name: str) -> dict[str, Any]:
    """Options of the scheduler."""
    assigner = rng.choice(list(ASSIGNERS))
    options: dict[str, Any] = {"assigner": assigner}
    if assigner != "greedy":
        options["waits"] = rng.choice([None, (0.0, 0.0), (0.4, 1.1), (0.0, 0.3)])
        options["levels"] = rng.choice([None, "restart"])
    if assigner == "flow":
        options["core_cost"] = rng.choice([None, 1.0, 2.5])
        options["move_within"] = rng.choice([None, 0.5, 100.0])
    options["epoch_seconds"] = rng.choice([0.5, 0.17, 10.0])
    options["attempts_max"] = rng.randint(2, 4)
    penalty = rng.choice(list(PENALTIES))
    aggregate = "max" if penalty == "makespan" else rng.choice(["sum", "max"])
    options["objective"] = Objective(penalty, aggregate)
    return options


def _simulation(rng: Random, cluster: Cluster, kinds: tuple[str, ...]) -> Simulation:
    """Trouble of one sort or two, so that its effect is not lost in that of others."""
    troubles: dict[str, Any] = {
        "noise": rng.choice([0.3, 0.8]),
        "fault": Faults(rng.choice([3, 7]), rng.randrange(9)),
        "save_seconds": rng.choice([0.0, 0.1, 1.0]),
        "speeds": {"h0": 0.6},
        "outages": tuple(_outages(rng, cluster)),
        "changes": tuple(_changes(rng, cluster, kinds)),
        "repeats": Repeats(rng.choice([0.0, 0.75, 5.0])),
        "loss": Loss(rng.choice([0.0, 0.25, 3.0]), rng.choice([1, 2, 3])),
        "hide_work": True,
        "remote_factor": 2.0,
    }
    if rng.random() < 0.3:
        troubles |= {"rack_factor": 1.3}
    chosen = rng.sample(sorted(troubles), rng.randint(1, 3))
    return Simulation(seed=rng.randrange(9), **{name: troubles[name] for name in chosen})


def _outages(rng: Random, cluster: Cluster) -> Iterator[Outage]:
    """Times at which hosts are cut off; some touch."""
    for host in cluster.by_name:
        at = 0.0
        for _ in range(rng.randint(0, 2)):
            at += rng.choice([0.0, 0.25, 1.0, 2.75])
            seconds = rng.choice([0.125, 1.0, 2.5, 9.0])
            yield Outage(host, at, seconds)
            at += seconds


def _changes(
    rng: Random, cluster: Cluster, kinds: tuple[str, ...]
) -> Iterator[HostAdded | HostDrained | HostRemoved]:
    """Hosts come, are drained and leave; a large one comes at the end and stays."""
    present, drained, at = set(cluster.by_name), set[str](), 0.0
    racks = {host.name: host.rack for host in cluster.hosts}
    for _ in range(rng.randint(1, 8)):
        at += rng.choice([0.0, 0.125, 0.5, 1.0])
        name = rng.choice(["h0", "h1", "h2", "h5"])
        if name not in present:
            present.add(name)
            slots = {kind: rng.randint(1, 3) for kind in kinds}
            yield HostAdded(at, Host(name, slots, racks.get(name, "r1")))
        elif name in drained or rng.random() < 0.5:
            present.remove(name)
            drained.discard(name)
            yield HostRemoved(at, name)
        else:
            drained.add(name)
            yield HostDrained(at, name)
    yield HostAdded(12.0, Host("last", dict.fromkeys(kinds, 4), "r0"))
