"""One draw: a stream of small jobs with some of large memory, with and without waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from experiments.endings import Endings
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Decision, Locality
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State
from slotwise.policy.assignment.assigner import Assigner, Greedy, local, remote
from slotwise.policy.assignment.free_slots import free_for
from slotwise.policy.scheduler import Scheduler, make_scheduler

GIB = 2**30
HOSTS, SLOTS, MEMORY = 4, 8, 32 * GIB
"""The hosts, and the slots and bytes of each."""

SMALL, LARGE = 4 * GIB, 24 * GIB
"""What a task requests: eight small ones fill a host, in slots and in bytes."""

JOBS, PART = 1000, 0.05
"""Jobs of one task in a draw, and the part of them that are large."""

SECONDS = (5.0, 15.0)
"""The range of the seconds of a task."""


@dataclass(frozen=True, slots=True)
class WithoutWaits:
    """`Greedy` without waits: a phase launches in its turn if its request fits at that time."""

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next launch."""
        for kind in snapshot.cluster.capacity:
            for phase in snapshot.backlogged(kind):
                if phase.may_launch and (free := free_for(snapshot, phase)):
                    launch = local(phase, free) or remote(phase, snapshot, free, Locality.ANY)
                    assert launch is not None, "no task is bound to hosts"
                    return (launch,)
        return ()


ASSIGNERS: Mapping[str, Assigner] = {"with": Greedy(), "without": WithoutWaits()}
"""The assigners, by whether tasks wait."""


@dataclass(frozen=True, slots=True)
class WaitsDraw:
    """Responses of one draw in seconds, by whether tasks wait.

    large, small  their means
    longest       the longest of a large job
    """

    allocator: str
    load: float
    large: Mapping[str, float]
    small: Mapping[str, float]
    longest: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WaitsRow:
    """Mean responses in seconds over the draws of an allocator at a load.

    waits    "with" or "without"
    longest  the longest response of a large job: the mean over the draws
    """

    allocator: str
    load: float
    waits: str
    draws: int
    large: float
    small: float
    longest: float


def experiment(allocator: str, load: float, seed: int, number: int) -> WaitsDraw:
    """One draw, with and without waits. The same for the same numbers."""
    jobs = drawn(load, (seed, number))
    large = [job for job in jobs if job.phases[0].needs["memory"] == LARGE]
    small = [job for job in jobs if job not in large]
    found = {name: responses(allocator, one, jobs) for name, one in ASSIGNERS.items()}
    return WaitsDraw(
        allocator,
        load,
        {name: fmean(by_job[job.id] for job in large) for name, by_job in found.items()},
        {name: fmean(by_job[job.id] for job in small) for name, by_job in found.items()},
        {name: max(by_job[job.id] for job in large) for name, by_job in found.items()},
    )


def drawn(load: float, numbers: Sequence[int]) -> list[Job]:
    """Jobs that arrive at random, and use that part of the memory on average.

    The same at every load but for the times of arrivals.
    """
    rng = np.random.default_rng(numbers)
    memory = np.where(rng.random(JOBS) < PART, LARGE, SMALL)
    memory[JOBS // 2] = LARGE  # There is one.
    seconds, gaps = rng.uniform(*SECONDS, JOBS), rng.exponential(1.0, JOBS)
    span = float(memory @ seconds) / (HOSTS * MEMORY * load)
    arrivals = np.cumsum(gaps) * span / gaps.sum()
    rows = zip(memory.tolist(), seconds.tolist(), arrivals.tolist(), strict=True)
    return [
        Job(
            f"j{number}",
            (Phase("run", Tasks(1, time), resources={"memory": request}),),
            arrival=at,
        )
        for number, (request, time, at) in enumerate(rows)
    ]


def responses(allocator: str, assigner: Assigner, jobs: Sequence[Job]) -> dict[str, float]:
    """The response of each job, in seconds."""
    hosts = (Host(f"h{n}", {"task": SLOTS}, resources={"memory": MEMORY}) for n in range(HOSTS))
    state = State(cluster := Cluster(tuple(hosts)))
    endings, scheduler = Endings(state), make_scheduler(allocator)
    assert isinstance(scheduler, Scheduler)
    scheduler = replace(scheduler, assigner=assigner)
    run(scheduler, SimulatedBackend(cluster, jobs), state, endings)
    return {job.id: endings.completed[job.id] - job.arrival for job in jobs}
