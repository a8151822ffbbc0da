"""One draw: the mean response of its jobs, by allocator and by what it knows of the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import numpy as np

from experiments.unknown.workloads import SLOTS, WORKLOADS, drawn
from slotwise.model.cluster import Cluster
from slotwise.model.decision import GiveUp, Launch, Preempt
from slotwise.model.event import Event, JobArrived
from slotwise.model.job import Job
from slotwise.runtime.endings import Endings
from slotwise.runtime.loop import run
from slotwise.runtime.simulated.backend import SimulatedBackend, Simulation
from slotwise.runtime.state import State
from slotwise.scheduler import ALLOCATORS, make_allocator, make_scheduler

Knowledge = Literal["none", "stated", "wrong"]
"""What is known of the work: nothing, the mean of the tasks of each phase, or ten times more or
less than that, by job."""

FACTOR = 10.0
"""By which stated work is wrong, either way."""

NOISE = 0.3
"""The standard deviation of the logarithm of the true work of a task, around its mean."""

CANDIDATES = ("fair", "fifo", "las", "uwfq", "flex")
"""Allocators to compare; those that slotwise does not have are left out."""


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
    found: list[Knower] = []
    for name in CANDIDATES:
        if name in ALLOCATORS:
            reads = make_allocator(name).reads_work
            kinds: tuple[Knowledge, ...] = ("stated", "none", "wrong") if reads else ("none",)
            found += (Knower(name, knowledge) for knowledge in kinds)
    return tuple(found)


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
    told = misstated(jobs, numbers) if knower.knowledge == "wrong" else {}
    state = State(cluster)
    endings = Endings(state)
    run(make_scheduler(knower.allocator), Misinforming(backend, told), state, endings)
    return fmean(endings.completed[job.id] - job.arrival for job in jobs)


def misstated(jobs: Sequence[Job], numbers: Sequence[int]) -> dict[str, Job]:
    """The jobs by id, with stated work that is ten times too high or too low, by job."""
    highs = np.random.default_rng([*numbers, 1]).random(len(jobs)) < 0.5
    factors = np.where(highs, FACTOR, 1 / FACTOR).tolist()
    return {job.id: _scaled(job, factor) for job, factor in zip(jobs, factors, strict=True)}


def _scaled(job: Job, factor: float) -> Job:
    def scaled(work: object) -> float:
        assert isinstance(work, float), "all tasks of a phase are equal here"
        return factor * work

    phases = (
        replace(phase, tasks=replace(phase.tasks, work=scaled(phase.tasks.work)))
        for phase in job.phases
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
