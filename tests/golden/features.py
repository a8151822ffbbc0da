"""Golden logs of single features: what users ask for, many jobs, histories, jobs that fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from golden.documented import write_books
from golden.golden import Case
from golden.runs import Requested, Run
from slotwise import (
    Block,
    Cluster,
    Dataflow,
    DataflowJob,
    Fault,
    Host,
    HostAdded,
    HostDrained,
    HostRemoved,
    Job,
    Phase,
    PhaseId,
    Pool,
    Preemption,
    Simulation,
    Tasks,
    Workload,
    mapreduce,
)
from slotwise.core.decisions import Launch
from slotwise.core.events import (
    Event,
    HostResized,
    JobCancelled,
    JobChanged,
    JobsClosed,
    ObjectiveChanged,
    OutputLost,
    PhaseClosed,
    PoolsChanged,
    TasksAdded,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.history import append_history
from slotwise.core.job import Observation
from slotwise.policy.scheduler import ALLOCATORS, ASSIGNERS, QUEUEINGS

HOSTS = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1}, speed=0.5)))
TAKES = Preemption(least_after=0.2, fair_after=0.5, grace=0.0)
POOLS = (
    Pool("p", slots_min={"task": 1}, preemption=TAKES),
    Pool("q", slots_max={"task": 1}),
    Pool("r", weight=2.0, jobs_max=1),
)
OTHER_POOLS = (
    Pool("p", slots_max={"task": 1}),
    Pool("q", weight=3.0, preemption=TAKES),
    Pool("r", jobs_max=2),
    Pool("s", parent="t"),
    Pool("t", slots_min={"task": 1}),
)


def cases() -> dict[str, Case]:
    """The cases by name."""
    return dict(
        [*_requests(), *_gated(), *_many(), *_inputs(), *_failing(), *_later(), *_together()]
    )


def _requests() -> Iterator[tuple[str, Case]]:
    """Jobs are cancelled, changed and grow, and pools and the objective change."""
    for name in ALLOCATORS:
        for seed in range(3):
            rng = Random(f"{name} {seed}")
            jobs = [_growing_job(rng, number) for number in range(5)]
            requests = [event for job in jobs for event in _asked_of(rng, job)]
            for _ in range(2):
                pools = rng.choice([POOLS, OTHER_POOLS, ()])
                requests.append(PoolsChanged(rng.randrange(40) / 8, pools))
            aim = rng.choice([("stretch", "max"), ("response", "sum"), ("makespan", "max")])
            requests.append(ObjectiveChanged(rng.randrange(40) / 8, *aim))
            scheduler = {"name": name, "rest_seconds": rng.choice([0.0, 0.05, 3.0])}
            case = Requested(jobs, requests, HOSTS, POOLS, scheduler)
            yield f"requests-{name}-{seed}", case
    yield "requests-none", Requested([], [JobsClosed(7.0)], HOSTS)


def _growing_job(rng: Random, number: int) -> Job:
    work = rng.choice([0.25, 1.0, 2.0])
    first = Phase("first", Tasks(rng.randint(1, 4), work), grows=rng.random() < 0.5)
    last = Phase("last", Tasks(2, 0.5), after="first")
    phases = (first, last) if rng.random() < 0.5 else (first,)
    return Job(f"j{number}", phases, rng.randrange(20) / 8, rng.choice("pqr"))


def _asked_of(rng: Random, job: Job) -> Iterator[Event]:
    at, first = job.arrival, PhaseId(job.id, "first")
    if job.phases[0].grows:
        for _ in range(rng.randint(0, 3)):
            at += rng.choice([0.0, 0.5, 4.0])
            yield TasksAdded(at, first, rng.randint(1, 3))
        yield PhaseClosed(at + rng.choice([0.0, 5.0]), first)
    for _ in range(rng.randint(0, 2)):
        when = job.arrival + rng.randrange(20) / 8
        priority, pool = rng.choice(["normal", "high"]), rng.choice(["p", "q", "r", "new"])
        yield JobChanged(when, job.id, priority, 2.0, pool, 9.0)
    if rng.random() < 0.25:
        yield JobCancelled(job.arrival + rng.randrange(20) / 8, job.id)


def _gated() -> Iterator[tuple[str, Case]]:
    """Tasks become runnable one by one, are blocked, dropped and lost; a host is resized."""
    for name in ALLOCATORS:
        jobs = [
            Job(f"j{number}", (Phase("p", Tasks(6, work), gated=True),), number / 2, pool)
            for number, (work, pool) in enumerate([(1.0, "p"), (0.5, "r"), (2.0, "r")])
        ]
        events: list[Event] = []
        for place, job in enumerate(jobs):
            at, phase = job.arrival, PhaseId(job.id, "p")
            events += [
                TasksRunnable(at, phase, (4, 1)),
                TasksRunnable(at + 0.5, phase, (0, 2, 3)),
                TasksBlocked(at + 0.75, phase, (3,)),
                TasksDropped(at + 1.0, phase, (5,)),
                TasksRunnable(at + 4.0, phase, (3,)),
            ]
            if place == 0:
                events += [
                    OutputLost(at + 3.125, phase, (4,), "its host is full"),
                    TasksRunnable(at + 3.5, phase, (4,)),
                ]
        events.append(HostAdded(2.0, Host("late", {"other": 1})))
        events += [HostResized(1.25, "a", {"task": 1}), HostResized(3.0, "a", {"task": 4})]
        scheduler = {"name": name, "adjusts": True}
        yield f"gated-{name}", Requested(jobs, events, HOSTS, POOLS, scheduler)


def _many() -> Iterator[tuple[str, Case]]:
    """More than a hundred phases wait: allocations of what changed (`Adjust`)."""
    pools = (
        Pool("a", weight=2.0),
        Pool("b", policy="fifo"),
        Pool("c", parent="b2"),
        Pool("b2"),
    )
    for name in ("fifo", "fair", "flex"):
        rng = Random(name)
        jobs = tuple(_small_job(rng, number) for number in range(150))
        plain = tuple(replace(job, pool="default") for job in jobs)
        slots = Cluster.of_slots(12)
        hidden = Simulation(hide_work=True, noise=0.5)
        yield f"many-{name}", Run(Workload(plain, slots), name)
        yield f"many-hidden-{name}", Run(Workload(plain, slots), name, hidden)
        yield f"many-pools-{name}", Run(Workload(jobs, slots, pools), name)


def _small_job(rng: Random, number: int) -> Job:
    phases = [Phase("map", Tasks(rng.randint(1, 2), rng.choice([0.5, 1.0, 2.0])))]
    if number % 10 == 0:
        phases.append(Phase("reduce", Tasks(1, 0.5), after="map"))
    at = 0.0 if number < 120 else 0.25 + number % 30 / 10
    pool = rng.choice("bc") if number % 8 == 7 else "a"
    return Job(f"j{number}", tuple(phases), at, pool, rng.choice([1.0, 2.0, 0.5]))


@dataclass(frozen=True)
class FromInput:
    """A case of jobs that read files, perhaps with a history of earlier runs."""

    scheduler: str
    seen: Sequence[Observation] = ()
    hide_work: bool = False

    def __call__(self, log: Path) -> None:
        """Write the log."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_books(folder)
            history = folder / "history.db"
            append_history(history, self.seen)
            workload = Workload((_words(), _flow()), HOSTS, folder=folder)
            simulation = Simulation(hide_work=self.hide_work, noise=0.2, speeds={"b": 0.4})
            Run(workload, self.scheduler, simulation, {"history": history})(log)


def chained(*streams: Iterator[int]) -> Iterator[int]:
    """The records of all streams."""
    return chain(*streams)


def _words() -> object:
    return mapreduce("wordcount", "text/*.txt", "out/words", split_bytes=300, reducers=2)


def _flow() -> DataflowJob:
    """A dataflow in three stages, the second a group of nodes."""
    flow = Dataflow()
    numbers = flow.values(range(40), copies=3)
    one = flow.node(chained, numbers.file(), name="one", copies=3, work=2.0)
    other = flow.node(chained, one.shm(), name="other", copies=3, work=1.0)
    flow.write(flow.node(chained, other.file(), name="last", copies=1))
    return DataflowJob("flow", flow, "out/flow")


def _inputs() -> Iterator[tuple[str, Case]]:
    """Programs and dataflows, whose work is estimated from their input or from a history."""
    rates = {"a": 0.004, "b": 0.02}
    seen = [
        Observation("wordcount", phase, size, host, HOSTS.by_name[host].speed, size * rate)
        for host, rate in rates.items()
        for phase in ("map", "reduce")
        for size in (100, 300, 1000, 1000)
    ]
    for name in ("fair", "flex", "las", "uwfq", "flowflex-fast"):
        yield f"history-{name}", FromInput(name, seen)
        yield f"history-hidden-{name}", FromInput(name, seen, hide_work=True)
        yield f"input-{name}", FromInput(name)


@dataclass(frozen=True)
class Breaks:
    """All attempts of one phase of one job fail, or those on one host."""

    phase: PhaseId | None = None
    host: str = ""
    lost: bool = False

    def __call__(self, launch: Launch) -> Fault | None:
        """The fault of this attempt."""
        breaks = launch.phase == self.phase or launch.host == self.host
        return Fault("out of\nmemory", 0.5, self.lost) if breaks else None


def _failing() -> Iterator[tuple[str, Case]]:
    """Jobs fail, gangs fail, and hosts on which everything fails are avoided."""
    gang = (Phase("gang", Tasks(3, 1.0), gang=True), Phase("rest", Tasks(2, 1.0), after="gang"))
    jobs = [
        Job("gang", gang, 0.5),
        *(Job(f"j{number}", (Phase("map", Tasks(5, 1.0)),), number) for number in range(3)),
    ]
    faults = {
        "job": Breaks(PhaseId("j1", "map")),
        "lost": Breaks(PhaseId("j1", "map"), lost=True),
        "gang": Breaks(PhaseId("gang", "gang")),
        "host": Breaks(host="b"),
    }
    for name in (*ALLOCATORS, *QUEUEINGS):
        for title, fault in faults.items():
            if title != "job" and name not in ("fifo", "fair", "flex", "uwfq", "dmrs"):
                continue
            # Schedulers of queues take no gangs.
            workload = Workload(jobs[1:] if name in QUEUEINGS else jobs, HOSTS)
            case = Run(workload, name, Simulation(fault=fault), {"attempts_max": 3})
            yield f"failing-{title}-{name}", case


def _later() -> Iterator[tuple[str, Case]]:
    """Slots of further kinds come with later hosts; hosts come back with others."""
    maps, reduces = Tasks(6, 1.0), Tasks(2, 1.0)
    phases = (Phase("map", maps, "map"), Phase("reduce", reduces, "reduce", "map"))
    pools = (
        Pool("a", slots_min=2, slots_max=3, preemption=TAKES),
        Pool("b", slots_min={"map": 1}, slots_max={"map": 2, "reduce": 2}),
        Pool("c", parent="d", slots_max=2, preemption=TAKES),
        Pool("d", slots_max=4),
    )
    jobs = [Job(f"j{number}", phases, number / 4, "abcabc"[number]) for number in range(6)]
    hosts = (Host("m1", {"map": 2}, "r1"), Host("m2", {"map": 1}, "r2"))
    changes = (
        HostAdded(1.0, Host("r1", {"reduce": 1})),
        HostDrained(1.5, "m1"),
        HostAdded(2.0, Host("both", {"map": 1, "reduce": 2}, speed=2.0)),
        HostRemoved(2.5, "m1"),
        HostAdded(3.0, Host("m1", {"map": 3}, "r3")),
        HostRemoved(3.5, "both"),
        HostAdded(4.0, Host("any", {"task": 2, "reduce": 1})),
    )
    for name in ALLOCATORS:
        workload = Workload(jobs, Cluster(hosts), pools, changes=changes)
        yield f"later-{name}", Run(workload, name)
        # One number for several kinds of slots, over pools within pools.
        kinds = Cluster(tuple(Host(f"h{n}", {"map": 2, "reduce": 2}) for n in range(2)))
        yield f"kinds-{name}", Run(Workload(jobs, kinds, pools), name)


def _together() -> Iterator[tuple[str, Case]]:
    """Gangs and wide tasks near their input, for which slots are taken back."""
    hosts = tuple(Host(f"h{number}", {"task": 3}, f"r{number % 2}") for number in range(4))
    homes = [("h0",), ("h1", "h3"), ("h1",), ("h2", "unknown"), ("h0", "h2")]
    tasks = Tasks(5, 2.0, [Block(frozenset(home), 100) for home in homes])
    pools = (Pool("long"), Pool("short", slots_min=7, preemption=TAKES))
    gang, wide = Phase("gang", tasks, gang=True), Phase("wide", tasks, slots=3)
    jobs = [
        *(Job(f"long{n}", (Phase("p", Tasks(20, 4.0 + n)),), 0.0, "long") for n in range(2)),
        Job("gang", (gang,), 1.0, "short"),
        Job("wide", (wide,), 3.0, "short"),
        Job("two", (Phase("gang", Tasks(3, 1.0), gang=True, slots=2),), 4.0, "short"),
    ]
    for assigner in ASSIGNERS:
        for name in ("fifo", "fair", "flex"):
            options: dict[str, Any] = {"assigner": assigner}
            if assigner != "greedy":
                options["waits"] = (0.5, 1.0)
            workload = Workload(jobs, Cluster(hosts), pools)
            yield f"together-{name}-{assigner}", Run(workload, name, None, options)
