"""The simulated world: a cluster that is a heap of future events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from slotwise.model.cluster import Cluster
from slotwise.model.decision import GiveUp, Launch, Locality, Preempt
from slotwise.model.errors import InputError
from slotwise.model.event import Event, JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.model.job import Job, PhaseId


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt ends badly after a part of its time; `lost` if the slot dies under it."""

    reason: str
    after: float = 0.5
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """How the simulated cluster differs from what the scheduler is told.

    seed           same seed, same truth, same log
    noise          spread of true durations around the estimates: the standard deviation of
                   the logarithm of a factor whose mean is 1; 0 makes the estimates true
    remote_factor  how much longer a task takes that reads its input from another rack
    rack_factor    the same from another host of its rack; None: as remote_factor
    fault          says which attempts end badly; None: none does
    """

    seed: int = 0
    noise: float = 0.0
    remote_factor: float = 1.0
    rack_factor: float | None = None
    fault: Callable[[Launch], Fault | None] | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; it must be >= 0")
        if not 0 <= self.noise <= 10:
            raise InputError(f"noise is {self.noise}; it must be between 0 and 10")
        for name in "remote_factor", "rack_factor":
            value = getattr(self, name)
            if value is not None and not 1 <= value < float("inf"):
                raise InputError(f"{name} is {value}; it must be >= 1")

    def slowdown(self, locality: Locality) -> float:
        """By which factor reading from that far lengthens a task."""
        if locality is Locality.NODE:
            return 1.0
        if locality is Locality.RACK and self.rack_factor is not None:
            return self.rack_factor
        return self.remote_factor


class SimulatedWorld:
    """Runs launches by the clock of a heap. An event costs O(log of what is under way).

    The true time of a task depends on the seed, its job, phase and number only, not on the
    order of launches: every scheduler that is compared meets the same tasks.
    """

    def __init__(
        self, cluster: Cluster, jobs: Sequence[Job], simulation: Simulation | None = None
    ) -> None:
        self.now = 0.0
        self._simulation = simulation or Simulation()
        self._speeds = {host.name: host.speed for host in cluster.hosts}
        self._truths: dict[PhaseId, list[float]] = {}
        self._phases = {
            PhaseId(job.id, phase.name): (number, place, phase)
            for number, job in enumerate(jobs)
            for place, phase in enumerate(job.phases)
        }
        self._slowdown = [self._simulation.slowdown(locality) for locality in Locality]
        self._fault = self._simulation.fault
        self._counter = 0
        self._heap: list[tuple[float, int, Event]] = []
        self._killed: set[tuple[PhaseId, int, int]] = set()
        for job in sorted(jobs, key=lambda job: job.arrival):
            self._tell(job.arrival, JobArrived(job.arrival, job))

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Draw the end of an attempt, or make it end now. A job given up needs nothing."""
        if isinstance(decision, Launch):
            self._launch(decision)
        elif isinstance(decision, Preempt):
            phase, task, attempt = decision.phase, decision.task, decision.attempt
            self._killed.add((phase, task, attempt))
            self._tell(self.now, TaskKilled(self.now, phase, task, attempt))

    def wait(self, until: float | None) -> Sequence[Event]:
        """Move the clock to the next events, or to `until` if they come later."""
        heap = self._heap
        if until is not None and (not heap or until < heap[0][0]):
            self.now = until
            return ()
        assert heap, "jobs wait, but nothing will ever happen"
        self.now = at = heap[0][0]
        events = [heappop(heap)[2]]
        while heap and heap[0][0] == at:
            events.append(heappop(heap)[2])
        return self._without_killed(events) if self._killed else events

    def _launch(self, launch: Launch) -> None:
        truths = self._truths.get(launch.phase)
        if truths is None:
            truths = self._truths[launch.phase] = self._draw(launch.phase)
        work = truths[launch.task] * self._slowdown[launch.locality]
        seconds = work / self._speeds[launch.host]
        event: Event
        fault = self._fault(launch) if self._fault else None
        if fault:
            end = self.now + seconds * fault.after
            event = TaskFailed(
                end, launch.phase, launch.task, launch.attempt, fault.reason, fault.lost
            )
        else:
            end = self.now + seconds
            event = TaskFinished(end, launch.phase, launch.task, launch.attempt, seconds)
        self._tell(end, event)

    def _draw(self, phase_id: PhaseId) -> list[float]:
        """The true work of each task of a phase, in seconds at speed 1."""
        number, place, phase = self._phases[phase_id]
        tasks = phase.tasks
        if tasks.work is None:
            raise InputError(f"phase {phase_id}: a simulation needs the work of its tasks")
        work = np.broadcast_to(np.asarray(tasks.work, dtype=float), tasks.count)
        noise = self._simulation.noise
        if noise > 0:
            rng = np.random.default_rng([self._simulation.seed, number, place])
            work = work * np.exp(noise * rng.standard_normal(tasks.count) - noise**2 / 2)
        drawn: list[float] = work.tolist()
        return drawn

    def _tell(self, at: float, event: Event) -> None:
        self._counter += 1
        heappush(self._heap, (at, self._counter, event))

    def _without_killed(self, events: list[Event]) -> list[Event]:
        """Drop the ends that attempts would have had if they had not been killed before."""
        kept = []
        for event in events:
            if isinstance(event, TaskFinished | TaskFailed):
                key = (event.phase, event.task, event.attempt)
                if key in self._killed:
                    self._killed.remove(key)
                    continue
            kept.append(event)
        return kept
