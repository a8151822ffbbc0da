"""Hammr, Table 1, and placement by minimum cost flow beside other assigners, simulated.

The paper states 26 maps with a block of 512 MB each, 8 reduces, 4 hosts with 2 slots, one copy
of each block, and the times of whole runs. It states neither the network nor the times of
tasks. Our assumptions, chosen before any run: the links of a host carry 1 Gbit/s; all tasks
take the same time on average, so that four waves of maps and one of reduces take the 8m21s of
the paper's run with locality (100 s each); the logarithm of durations has a standard deviation
of 0.1; reduces get their input in no time. Hosts report at once.

The 100 hosts are those of the figures of delay scheduling (`experiments/slides/cluster.py`):
4 racks, 2 slots, 3 copies of blocks of 256 MB, maps of 16 s with a spread of 0.3, a report
every 3 s. Twenty jobs of 10 to 200 maps arrive at random in the first minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from random import Random

from experiments.slides import cluster as slides
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Decision, Launch, Locality
from slotwise.core.events import Event
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.placement import place_blocks
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.insight.metrics import bytes_read
from slotwise.policy.assignment.assigner import Assigner, Greedy, waiting
from slotwise.policy.assignment.delay import Delay
from slotwise.policy.assignment.flow import Flow
from slotwise.policy.scheduler import Scheduler, make_allocator

MAPS, REDUCES, BLOCK_BYTES, SECONDS, NOISE = 26, 8, 512_000_000, 100.0, 0.1
NETWORK = Network(host=125e6)
JOBS, MIN_MAPS, MAX_MAPS, ARRIVE = 20, 10, 200, 60.0

GREEDY, DELAY, FLOW = "greedy", "delay", "flow"
WITH_WAITS, WITH_RACKS, WITH_MOVES = "flow with waits", "flow with racks", "flow with moves"
NO_COSTS = "all costs 0"
PAPER_HOSTS, MANY_HOSTS = "4 hosts, 1 copy", "100 hosts, 3 copies"


@dataclass(frozen=True, slots=True)
class NoCosts:
    """Placement that ignores where input is: the next task on the first free host.

    With costs of 0, every placement has the least cost, and the paper does not say which one
    its solver finds. Blocks are placed at random, so this one is as good as any.
    """

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next launch, if a slot is free and a phase may use it."""
        for _, phase, free in waiting(snapshot):
            host, (task, attempt) = next(iter(free)), phase.next_task()
            return (Launch(phase.id, task, attempt, host, phase.locality(task, host)),)
        return ()


SCHEMES: dict[str, Callable[[float], Assigner]] = {
    GREEDY: lambda heartbeat: Greedy(),
    DELAY: lambda heartbeat: Delay.of_heartbeat(heartbeat or slides.HEARTBEAT),
    FLOW: lambda heartbeat: Flow(),
    WITH_WAITS: lambda heartbeat: Flow(
        *(factor * (heartbeat or slides.HEARTBEAT) for factor in (1.5, 3.0))
    ),
    WITH_RACKS: lambda heartbeat: Flow(core_cost=2),
    WITH_MOVES: lambda heartbeat: Flow(move_within=MOVE_WITHIN),
    NO_COSTS: lambda heartbeat: NoCosts(),
}
"""Assigners by name, made for the time between two reports of a host. Waits are those of the
Hadoop Fair Scheduler: one and a half and three times that, at least 3 s."""


MOVE_WITHIN = 5.0
"""Seconds for which a task that reads remotely may move."""


@dataclass
class Moved:
    """What a run did; it records the run.

    local, maps       maps beside their input, and all
    rack, core        bytes read from the same rack, and through the core
    seconds, response until the last task ended; mean of the jobs
    deciding, turns   processor time of all decisions, and the number of turns with a launch
    """

    local: int = 0
    maps: int = 0
    rack: int = 0
    core: int = 0
    seconds: float = 0.0
    response: float = 0.0
    deciding: float = 0.0
    turns: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Count the maps that begin."""
        launches = [one for one in decisions if isinstance(one, Launch)]
        self.turns += bool(launches)
        self.seconds = now
        for launch in launches:
            if launch.phase.phase == "map":
                size = bytes_read(self.jobs[launch.phase.job], launch)
                self.maps += 1
                self.local += launch.locality is Locality.NODE
                self.rack += size if launch.locality is Locality.RACK else 0
                self.core += size if launch.locality is Locality.ANY else 0


@dataclass
class Timed:
    """A scheduler whose processor time is measured."""

    inner: Scheduler
    moved: Moved

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The decisions of the scheduler."""
        began = time.process_time()
        decisions = self.inner.decide(snapshot)
        self.moved.deciding += time.process_time() - began
        return decisions


def placement_run(hosts: str, scheme: str, seed: int) -> Moved:
    """One run under fair shares. Deterministic except for the time of decisions."""
    import_module("ortools.graph.python.min_cost_flow")  # Its loading is no part of decisions.
    import_module("ortools.graph.python.max_flow")
    cluster, jobs, network, noise = SETTINGS[hosts](seed)
    moved = Moved(jobs={job.id: job for job in jobs})
    state = State(cluster)
    ended: dict[str, float] = {}

    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        moved(now, events, decisions)
        ended.update(state.completed)

    scheduler = Scheduler(make_allocator("fair"), SCHEMES[scheme](cluster.heartbeat))
    backend = SimulatedBackend(cluster, jobs, Simulation(seed, noise, network=network))
    run(Timed(scheduler, moved), backend, state, record)
    moved.response = sum(ended[job.id] - job.arrival for job in jobs) / len(jobs)
    moved.jobs = {}
    return moved


Setting = tuple[Cluster, tuple[Job, ...], Network, float]


def paper_hosts(seed: int) -> Setting:
    """The word count of the paper on its four hosts."""
    cluster = Cluster(tuple(Host(f"h{number}", {"task": 2}) for number in range(4)))
    maps = Phase("map", Tasks(MAPS, SECONDS), "map")
    reduces = Phase("reduce", Tasks(REDUCES, SECONDS), "reduce", frozenset({"map"}))
    jobs = place_blocks(
        (Job("words", (maps, reduces)),), cluster, 1, seed, block_bytes=BLOCK_BYTES
    )
    return cluster, jobs, NETWORK, NOISE


def many_hosts(seed: int) -> Setting:
    """Twenty jobs on the hosts of the slides."""
    cluster, random = slides.slides_cluster(), Random(seed)
    arrivals = sorted(random.uniform(0, ARRIVE) for _ in range(JOBS))
    jobs = tuple(
        Job(
            f"j{number}",
            (
                Phase(
                    "map",
                    Tasks(random.randint(MIN_MAPS, MAX_MAPS), slides.MAP_SECONDS),
                    "map",
                ),
            ),
            arrival,
        )
        for number, arrival in enumerate(arrivals)
    )
    size = slides.BLOCK_BYTES
    placed = place_blocks(jobs, cluster, slides.COPIES, seed, block_bytes=size)
    return cluster, placed, slides.NETWORK, slides.NOISE


SETTINGS: dict[str, Callable[[int], Setting]] = {
    PAPER_HOSTS: paper_hosts,
    MANY_HOSTS: many_hosts,
}
"""Cluster, jobs, network and spread of durations, by name, each made from a seed."""
