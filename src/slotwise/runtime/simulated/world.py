"""The simulated world: a cluster that is a heap of future events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

import numpy as np

from slotwise.model.cluster import Cluster
from slotwise.model.decision import GiveUp, Launch, Locality, Preempt
from slotwise.model.errors import InputError
from slotwise.model.event import Event, JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.model.job import Job, PhaseId
from slotwise.model.network import Network
from slotwise.runtime.simulated.copying import Copying
from slotwise.runtime.simulated.reading import Reading


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
    save_seconds   what a task that is told to stop needs to save what it has done, after which
                   it ends; None: it saves nothing and goes on until it is done or killed
    network        what tasks read their blocks over where their host holds no copy, before they
                   compute; None: reading takes no time beside the factors above
    """

    seed: int = 0
    noise: float = 0.0
    remote_factor: float = 1.0
    rack_factor: float | None = None
    fault: Callable[[Launch], Fault | None] | None = None
    save_seconds: float | None = None
    network: Network | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; it must be >= 0")
        if not 0 <= self.noise <= 10:
            raise InputError(f"noise is {self.noise}; it must be between 0 and 10")
        for name in "remote_factor", "rack_factor":
            value = getattr(self, name)
            if value is not None and not 1 <= value < float("inf"):
                raise InputError(f"{name} is {value}; it must be >= 1")
        if self.save_seconds is not None and not 0 <= self.save_seconds < float("inf"):
            raise InputError(f"save_seconds is {self.save_seconds}; give seconds >= 0")

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
        self._kept: dict[tuple[PhaseId, int], float] = {}
        self._copying = Copying(jobs)
        self._copies = bool(self._copying)  # Asked twice a task; most workloads never copy.
        self._reading = self._make_reading(cluster)
        self._beats = _beats(cluster)
        self._heartbeat = cluster.heartbeat
        self._counter = 0
        self._heap: list[tuple[float, int, Event | _Deadline]] = []
        self._killed: set[tuple[PhaseId, int, int]] = set()
        self._told: set[tuple[PhaseId, int, int]] = set()
        self._deadlines = 0  # those in the heap, of attempts that have ended, too
        for job in sorted(jobs, key=lambda job: job.arrival):
            self._tell(job.arrival, JobArrived(job.arrival, job))

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Begin an attempt, or tell one to stop. A job given up needs nothing."""
        if isinstance(decision, Launch):
            self._launch(decision)
        elif isinstance(decision, Preempt):
            self._preempt(decision)

    def wait(self, until: float | None) -> Sequence[Event]:
        """Move the clock to the next events, or to `until` if they come later."""
        heap = self._heap
        if self._reading:
            self._read(self._reading, until)
        if until is not None and (not heap or until < heap[0][0]):
            self.now = until
            return ()
        assert heap, "jobs wait, but nothing will ever happen"
        self.now = at = heap[0][0]
        events = [heappop(heap)[2]]
        while heap and heap[0][0] == at:
            events.append(heappop(heap)[2])
        if self._killed or self._deadlines:
            events = self._without_killed(events)
        if self._copies:
            self._tell_copiers(events)
        return events  # type: ignore[return-value]  # Deadlines have become kills.

    def _launch(self, launch: Launch) -> None:
        if not self._reading or not self._reading.begin(self.now, launch):
            begin = self._copy if self._copies else self._compute
            begin(launch, self.now)

    def _read(self, reading: Reading, until: float | None) -> None:
        """Let attempts have their blocks that get them before anything else happens."""
        while (at := reading.next_end()) is not None:
            if (until is not None and until < at) or (self._heap and self._heap[0][0] < at):
                return
            for launch in reading.ended(at):
                self._copy(launch, at)

    def _copy(self, launch: Launch, begun: float) -> None:
        """From then on the attempt copies what other phases wrote for it, if any did."""
        source = self._copying.source(launch.phase)
        if source is None:
            self._compute(launch, begun)
            return
        begins = source.copied_at(begun)
        if begins is None:
            source.waiting.append((begun, launch))
        else:
            self._compute(launch, begins)

    def _tell_copiers(self, events: Sequence[Event | _Deadline]) -> None:
        """Some tasks have ended, so others may have all of their input now."""
        for event in events:
            if isinstance(event, TaskFinished):
                for source in self._copying.ended(event.at, event.phase):
                    for begun, launch in source.waiting:
                        begins = source.copied_at(begun)
                        assert begins is not None
                        self._compute(launch, max(begins, self.now))
                    source.waiting.clear()

    def _compute(self, launch: Launch, begins: float) -> None:
        """The attempt has what it needs at that instant; draw its end."""
        work = self._work_of(launch) * self._slowdown[launch.locality]
        seconds = work / self._speeds[launch.host]
        phase, task, attempt = launch.phase, launch.task, launch.attempt
        event: Event
        fault = self._fault(launch) if self._fault else None
        if fault:
            end = begins + seconds * fault.after
            if self._heartbeat:
                end = self._told_at(launch.host, end)
            event = TaskFailed(end, phase, task, attempt, fault.reason, fault.lost)
        else:
            end = begins + seconds
            if self._heartbeat:
                end = self._told_at(launch.host, end)
            event = TaskFinished(end, phase, task, attempt, seconds)
        self._tell(end, event)

    def _work_of(self, launch: Launch) -> float:
        """The true work that this attempt has to do, in seconds at speed 1."""
        truths = self._truths.get(launch.phase)
        if truths is None:
            truths = self._truths[launch.phase] = self._draw(launch.phase)
        work = truths[launch.task]
        if self._kept:
            work -= self._kept.get((launch.phase, launch.task), 0.0)
        return work

    def _told_at(self, host: str, end: float) -> float:
        """When the end of a task is known: with the next report of its host, if it reports."""
        passed = ceil((end - self._beats[host]) / self._heartbeat)
        return max(end, self._beats[host] + passed * self._heartbeat)

    def _preempt(self, decision: Preempt) -> None:
        """Stop an attempt: now, when it has saved what it did, or when its grace is over.

        One that is done by then ends as if nothing had been.
        """
        key = (decision.phase, decision.task, decision.attempt)
        if key in self._told:
            return
        kept, at = 0.0, self.now
        if decision.until is not None:
            at, saves = decision.until, self._simulation.save_seconds
            computed = self._computed(decision)
            if saves is not None and self.now + saves <= at and computed is not None:
                at, kept = self.now + saves, computed
        self._told.add(key)
        self._counter += 1
        self._deadlines += 1
        heappush(self._heap, (at, self._counter, _Deadline(at, key, kept)))

    def _computed(self, decision: Preempt) -> float | None:
        """The work that a running attempt has done, at speed 1; None if it will not end well.

        It is looked for among all ends to come: few attempts are ever told to stop.
        """
        key = (decision.phase, decision.task, decision.attempt)
        for _, _, event in self._heap:
            if isinstance(event, TaskFinished) and _key(event) == key:
                launch = Launch(*key, decision.host, Locality.NODE)
                whole = self._work_of(launch)
                begun = event.at - event.seconds
                part = (self.now - begun) / event.seconds if event.seconds else 1.0
                return whole * min(1.0, max(0.0, part))
        return None

    def _make_reading(self, cluster: Cluster) -> Reading | None:
        network = self._simulation.network
        if network is None:
            return None
        phases = {name: phase for name, (_, _, phase) in self._phases.items()}
        return Reading(cluster, network, phases, self._simulation.seed)

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

    def _without_killed(self, events: list[Event | _Deadline]) -> list[Event | _Deadline]:
        """Kill whose grace is over; drop the ends of those that were killed before."""
        told: list[Event | _Deadline] = []
        for event in events:
            if isinstance(event, _Deadline):
                self._deadlines -= 1
                if event.key in self._told:
                    told.append(self._kill(event))
                continue
            if isinstance(event, TaskFinished | TaskFailed):
                key = _key(event)
                if key in self._killed:
                    self._killed.remove(key)
                    continue
                self._told.discard(key)
            told.append(event)
        return told

    def _kill(self, deadline: _Deadline) -> TaskKilled:
        phase, task, attempt = key = deadline.key
        self._told.remove(key)
        source = self._copying.source(phase)
        if self._reading and self._reading.give_up(deadline.at, key):
            pass  # No end of it is among those to come.
        elif source is not None and any(_key(launch) == key for _, launch in source.waiting):
            source.waiting = [w for w in source.waiting if _key(w[1]) != key]
        else:
            self._killed.add(key)
        if deadline.kept:
            self._kept[phase, task] = self._kept.get((phase, task), 0.0) + deadline.kept
        return TaskKilled(deadline.at, phase, task, attempt, deadline.kept)


@dataclass(frozen=True, slots=True)
class _Deadline:
    """An attempt that still runs then is stopped, and has kept so much of its work."""

    at: float
    key: tuple[PhaseId, int, int]
    kept: float


def _key(one: Launch | TaskFinished | TaskFailed) -> tuple[PhaseId, int, int]:
    return one.phase, one.task, one.attempt


def _beats(cluster: Cluster) -> dict[str, float]:
    """When each host reports first: evenly spread over the interval between two reports."""
    count = len(cluster.hosts)
    return {
        host.name: cluster.heartbeat * number / count
        for number, host in enumerate(cluster.hosts)
    }
