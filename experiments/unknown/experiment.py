"""One draw: the mean response of its jobs, by allocator and by what it knows of the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import numpy as np

from experiments.endings import Endings
from experiments.unknown.workloads import SLOTS, WORKLOADS, drawn
from slotwise.backends.simulated.backend import SimulatedBackend, Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.events import Event, JobArrived
from slotwise.core.job import Job
from slotwise.core.loop import run
from slotwise.core.state import State
from slotwise.policy.scheduler import make_scheduler

Knowledge = Literal["stated", "history", "none", "wrong"]
"""What is known of the work: the mean of the tasks of each phase, that of an earlier run of the
same program, nothing, or ten times more or less than the mean, by job."""

FACTOR = 10.0
"""By which stated work is wrong, either way."""

RERUN = 0.5
"""The standard deviation of the logarithm of the work of a phase by that of an earlier run: one
of six is wrong by a factor of 2 or more, as 8 to 23 % are on the traces of 3Sigma (EuroSys
2018)."""

NOISE = 0.3
"""The standard deviation of the logarithm of the true work of a task, around its mean."""

CANDIDATES: Mapping[str, tuple[Knowledge, ...]] = {
    "fair": ("none",),
    "fifo": ("none",),
    "las": ("none",),
    "uwfq": ("stated", "none"),
    "flex": ("stated", "history", "none", "wrong"),
}
"""Allocators to compare, and what they know. FAIR, FIFO and LAS do not use the work."""


@dataclass(frozen=True, slots=True)
class Knower:
    """An allocator, and what it knows of the work."""

    allocator: str
    knowledge: Knowledge

    def __str__(self) -> str:
        return f"{self.allocator}, {self.knowledge}"


@dataclass(frozen=True, slots=True)
class UnknownDraw:
    """The mean response of one draw under each allocator, in seconds."""

    workload: str
    load: float
    number: int
    response: Mapping[Knower, float]


def knowers() -> tuple[Knower, ...]:
    """What is compared: an allocator that does not read the work has nothing to know."""
    return tuple(Knower(name, one) for name, known in CANDIDATES.items() for one in known)


def experiment(workload: str, load: float, seed: int, number: int) -> UnknownDraw:
    """One draw under all allocators. The same for the same numbers."""
    numbers = (seed, number, list(WORKLOADS).index(workload))
    jobs = drawn(workload, load, numbers)
    response = {knower: mean_response(knower, jobs, numbers) for knower in knowers()}
    return UnknownDraw(workload, load, number, response)


def mean_response(knower: Knower, jobs: Sequence[Job], numbers: Sequence[int]) -> float:
    """The mean response of these jobs, in seconds. The true tasks depend on `numbers` only."""
    cluster = Cluster.of_slots(SLOTS)
    hides = knower.knowledge == "none"
    truth = Simulation(seed=1000 * numbers[0] + numbers[1], noise=NOISE, hide_work=hides)
    backend = SimulatedBackend(cluster, jobs, truth)
    told = told_of(knower.knowledge, jobs, numbers)
    state = State(cluster)
    endings = Endings(state)
    run(make_scheduler(knower.allocator), Misinforming(backend, told), state, endings)
    return fmean(endings.completed[job.id] - job.arrival for job in jobs)


def told_of(
    knowledge: Knowledge, jobs: Sequence[Job], numbers: Sequence[int]
) -> dict[str, Job]:
    """The jobs by id as the scheduler is told of them, where that differs from the truth."""
    rng = np.random.default_rng([*numbers, 1])
    if knowledge == "wrong":
        highs = rng.random(len(jobs)) < 0.5
        factors = np.where(highs, FACTOR, 1 / FACTOR).tolist()
        return {
            job.id: _scaled(job, [factor] * len(job.phases))
            for job, factor in zip(jobs, factors, strict=True)
        }
    if knowledge == "history":
        return {
            job.id: _scaled(job, rng.lognormal(0, RERUN, len(job.phases)).tolist())
            for job in jobs
        }
    return {}


def _scaled(job: Job, factors: Sequence[float]) -> Job:
    def scaled(factor: float, work: object) -> float:
        assert isinstance(work, float), "all tasks of a phase are equal here"
        return factor * work

    phases = (
        replace(phase, tasks=replace(phase.tasks, work=scaled(factor, phase.tasks.work)))
        for phase, factor in zip(job.phases, factors, strict=True)
    )
    return replace(job, phases=tuple(phases))


class Misinforming:
    """A backend that tells of other jobs of the same ids than those that it runs."""

    def __init__(self, backend: SimulatedBackend, told: Mapping[str, Job]) -> None:
        self._backend, self._told = backend, told
        self.perform: Callable[[Launch | Preempt | GiveUp], None] = backend.perform

    @property
    def now(self) -> float:
        """The clock of the wrapped backend."""
        return self._backend.now

    def wait(self, until: float | None) -> Sequence[Event]:
        """The events of the wrapped backend, with jobs as they are told of."""
        return [
            JobArrived(event.at, self._told.get(event.job.id, event.job))
            if isinstance(event, JobArrived)
            else event
            for event in self._backend.wait(until)
        ]
