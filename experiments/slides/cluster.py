"""The cluster of the delay scheduling slides, simulated, and users that keep it busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random

from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Decision, GiveUp, Launch, Locality, Preempt
from slotwise.core.events import Event, JobArrived, TaskFinished
from slotwise.core.job import Block, Job, Phase, Tasks
from slotwise.core.loop import Backend, turn
from slotwise.core.placement import place_blocks
from slotwise.core.state import State
from slotwise.policy.assignment.assigner import Assigner, Greedy
from slotwise.policy.assignment.delay import DEFAULT_LEVELS, Delay, Levels
from slotwise.policy.scheduler import Scheduler, make_allocator

HOSTS, RACKS, MAP_SLOTS, REDUCE_SLOTS, COPIES = 100, 4, 2, 1, 3
"""The slides state 100 nodes; all other numbers are ours. Slots are those of a host."""

HEARTBEAT = 3.0
"""Seconds between two reports of a host, the least in Hadoop."""

WAITS = (4.5, 5.0)
"""Seconds until a job takes slots in the rack, and any: one and a half heartbeats, as in the
Hadoop Fair Scheduler, and the time in which about five more slots become free."""

BLOCK_BYTES = 256_000_000
MAP_SECONDS = 16.0
"""The input of a map, and its mean duration next to its input."""

NOISE = 0.3
"""Spread of that time: the standard deviation of its logarithm."""

NETWORK = Network(host=125e6, rack=250e6)
"""1 Gbit/s for a host, 2 Gbit/s for the 25 hosts of a rack together; the core is no limit."""

_NEVER = 1e10
"""Later than any trial ends."""


@dataclass(frozen=True, slots=True)
class JobType:
    """Equal jobs. Each user has one at a time, and submits the next one when it is done.

    maps, reduces  tasks of a job
    users          jobs at any time
    map_seconds    mean time of a map next to its input
    pool           the pool of the jobs
    reads          whether maps read blocks; if not, they run equally well on any host
    hot            the number of hosts that hold all blocks; 0: placed as in HDFS
    """

    name: str
    maps: int
    users: int
    map_seconds: float = MAP_SECONDS
    reduces: int = 0
    pool: str = "default"
    reads: bool = True
    hot: int = 0

    def job(self, number: int, arrival: float) -> Job:
        """The job of this number and type."""
        phases = [Phase("map", Tasks(self.maps, self.map_seconds), kind="map")]
        if self.reduces:
            tasks = Tasks(self.reduces, self.map_seconds)
            phases.append(Phase("reduce", tasks, kind="reduce", after=frozenset({"map"})))
        return Job(f"{self.name}-{number}", tuple(phases), arrival, self.pool)

    def jobs_most(self, seconds: float) -> int:
        """Many more jobs than its users can run in that time."""
        at_once = min(self.users, HOSTS * MAP_SLOTS / self.maps)
        return self.users + ceil(2 * at_once * seconds / self.map_seconds) + 10


@dataclass(frozen=True, slots=True)
class Trial:
    """A workload, a scheduler, and the time of observation.

    waits    of delay scheduling; None: no job ever waits for a slot near its input
    seconds  from the end of `warm_up` on; launches and completions in that time are counted.
             Before it, jobs that began together still end together
    levels   where a wait begins after a launch
    """

    types: tuple[JobType, ...]
    scheduler: str = "fair"
    waits: tuple[float, float] | None = None
    seconds: float = 600.0
    warm_up: float = 300.0
    network: Network | None = None
    levels: Levels = DEFAULT_LEVELS


@dataclass(slots=True)
class TaskTimings:
    """The results of jobs of one type in a time: maps launched, by locality, and done.

    `responses` are the seconds from arrival to the end of the jobs that ended.
    """

    launches: Counter[Locality] = field(default_factory=Counter)
    done: int = 0
    responses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def node(self) -> float:
        """The fraction of its maps that ran next to their input."""
        return self.launches[Locality.NODE] / self.launches.total()

    @property
    def rack(self) -> float:
        """The fraction of its maps that ran in a rack that holds their input."""
        return 1.0 - self.launches[Locality.ANY] / self.launches.total()

    @property
    def maps_per_second(self) -> float:
        """Maps done in a second."""
        return self.done / self.seconds


def slides_cluster() -> Cluster:
    """100 hosts in four racks, which report every three seconds."""
    slots = {"map": MAP_SLOTS, "reduce": REDUCE_SLOTS}
    hosts = [Host(f"host-{n}", slots, f"rack-{n * RACKS // HOSTS}") for n in range(HOSTS)]
    return Cluster(tuple(hosts), heartbeat=HEARTBEAT)


def observe(trial: Trial, seed: int, number: int) -> dict[str, TaskTimings]:
    """Run a trial and count the results of the jobs of each type. Deterministic."""
    cluster, end = slides_cluster(), trial.warm_up + trial.seconds
    jobs = _placed(trial, cluster, 1_000_003 * seed + number)
    truth = Simulation(1_000_003 * seed + number, NOISE, network=trial.network)
    backend = Users(SimulatedBackend(cluster, jobs, truth), trial.types, jobs)
    state = State(cluster)
    assigner: Assigner = Delay(*trial.waits, trial.levels) if trial.waits else Greedy()
    scheduler = Scheduler(make_allocator(trial.scheduler), assigner)
    seen = {kind.name: TaskTimings(seconds=trial.seconds) for kind in trial.types}
    arrivals: dict[str, float] = {}

    def count(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        arrivals.update((e.job.id, e.at) for e in events if isinstance(e, JobArrived))
        if trial.warm_up <= now < end:
            count_tasks(seen, events, decisions)
            for job, at in state.completed.items():
                seen[type_of(job)].responses.append(at - arrivals[job])

    while backend.now < end:
        turn(scheduler, backend, state, count, backend.wait(state.next_wakeup()))
    return seen


class Users:
    """A backend in which users submit their next job when one of theirs is done."""

    def __init__(self, backend: Backend, types: Iterable[JobType], jobs: Sequence[Job]) -> None:
        self._backend = backend
        later: dict[str, list[Job]] = {kind.name: [] for kind in types}
        for job in jobs:
            if job.arrival:
                later[type_of(job.id)].append(job)
        self._next = {name: iter(jobs_of) for name, jobs_of in later.items()}
        self._left = {job.id: _tasks(job) for job in jobs if not job.arrival}

    @property
    def now(self) -> float:
        """The clock of the wrapped backend."""
        return self._backend.now

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Perform the decision on the wrapped backend."""
        self._backend.perform(decision)

    def wait(self, until: float | None) -> Sequence[Event]:
        """The events of the wrapped backend, and the jobs submitted in response."""
        events = self._backend.wait(until)
        ended = [event for event in events if isinstance(event, TaskFinished)]
        return [*events, *(job for event in ended for job in self._submit(event))]

    def _submit(self, event: TaskFinished) -> Iterator[JobArrived]:
        name = event.phase.job
        self._left[name] -= 1
        if not self._left[name]:
            job = replace(next(self._next[type_of(name)]), arrival=event.at)
            self._left[job.id] = _tasks(job)
            yield JobArrived(event.at, job)


def type_of(job: str) -> str:
    """The name of the type of a job, by its id."""
    return job.rsplit("-", 1)[0]


def _placed(trial: Trial, cluster: Cluster, seed: int) -> list[Job]:
    """All jobs, the first ones of the users at 0, and the placement of their input."""
    end = trial.warm_up + trial.seconds
    drawn: dict[bool, list[Job]] = {True: [], False: []}
    for kind in trial.types:
        drawn[kind.reads] += [
            kind.job(number, 0.0 if number < kind.users else _NEVER)
            for number in range(kind.jobs_most(end))
        ]
    reading = tuple(drawn[True])
    placed = place_blocks(reading, cluster, COPIES, seed, block_bytes=BLOCK_BYTES)
    hot = {kind.name: kind.hot for kind in trial.types if kind.hot}
    random = Random(seed)
    return [
        *(_heated(job, hot[type_of(job.id)], random) if hot else job for job in placed),
        *drawn[False],
    ]


def _heated(job: Job, hot: int, random: Random) -> Job:
    """A job with all blocks on the first hosts of the racks, as many hosts as stated."""
    names = [f"host-{n * HOSTS // hot}" for n in range(hot)]
    (phase,) = job.phases
    blocks = tuple(
        Block(frozenset(random.sample(names, COPIES)), BLOCK_BYTES)
        for _ in range(phase.tasks.count)
    )
    return replace(job, phases=(replace(phase, tasks=replace(phase.tasks, blocks=blocks)),))


def _tasks(job: Job) -> int:
    return sum(phase.tasks.count for phase in job.phases)


def count_tasks(
    seen: Mapping[str, TaskTimings], events: Sequence[Event], decisions: Sequence[Decision]
) -> None:
    """Count the maps that are launched and done in a turn of the loop."""
    for decision in decisions:
        if isinstance(decision, Launch) and decision.phase.phase == "map":
            seen[type_of(decision.phase.job)].launches[decision.locality] += 1
    for event in events:
        if isinstance(event, TaskFinished) and event.phase.phase == "map":
            seen[type_of(event.phase.job)].done += 1
