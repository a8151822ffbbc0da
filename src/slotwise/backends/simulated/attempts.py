"""Attempts on simulated hosts: they read their blocks, copy other input, and compute."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from slotwise.backends.simulated.network import FlowNetwork, Traffic
from slotwise.backends.simulated.simulation import (
    ActualDurations,
    ActualMemory,
    AttemptKey,
    Fault,
    Reports,
    Simulation,
    Unreachables,
)
from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Locality, Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import Event, OutputLost, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import Block, Job, Phase, PhaseId
from slotwise.core.retries import exceeded


class Attempts:
    """Runs attempts, and passes the end of each to `schedule` as soon as it is certain.

    durations  the true work of all tasks
    memory     the memory that they really use
    reading    the attempts that read their blocks over a network; None without a network
    copies     whether any phase copies the output of others; in most workloads none does
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        simulation: Simulation,
        span: Unreachables,
        schedule: Callable[[float, Event], None],
        order: Callable[[float, Order], None],
        absent: Collection[str] = (),
    ) -> None:
        """`cluster` has all hosts that are ever present, `absent` those not present now."""
        self._schedule, self._order, self._unreachable = schedule, order, span
        self._limits = {job.id: job.time_limit for job in jobs if job.time_limit is not None}
        self._expires: dict[AttemptKey, float] = {}  # until they compute
        self.durations = ActualDurations(jobs, simulation)
        self.memory = ActualMemory(jobs, cluster)
        self._speed_of = simulation.speed_of
        self._speeds = {host.name: self._speed_of(host) for host in cluster.hosts}
        self._slowdown = [simulation.slowdown(locality) for locality in Locality]
        self._fault = simulation.fault
        self._reports = Reports(cluster) if cluster.heartbeat else None
        self._sources: dict[PhaseId, CopySource] = {}  # by the phase that copies
        self._fed_by: dict[PhaseId, list[CopySource]] = {}  # by a phase that it copies from
        for job in jobs:
            for phase in job.phases:
                if phase.copy > 0 or phase.slow_start < 1:
                    self._add_source(job, phase)
        self.copies = bool(self._sources)
        self.reading: BlockReads | None = None
        if simulation.network is not None:
            phases = {PhaseId(job.id, p.name): p for job in jobs for p in job.phases}
            self.reading = BlockReads(
                cluster, simulation.network, phases, simulation.seed, absent
            )

    def add(self, host: Host) -> None:
        """Add a host, perhaps with the name of an earlier host and another speed."""
        self._speeds[host.name] = self._speed_of(host)
        self.memory.add(host)

    def begin(self, launch: Launch, now: float) -> None:
        """Begin an attempt on its host."""
        if self.memory:
            self.memory.begin(launch)
        limit = self._limits.get(launch.phase.job)
        if limit is not None:
            self._expires[key_of(launch)] = now + limit
        if self.reading and self.reading.begin(now, launch):
            self._await(launch)
            return
        if self.copies:
            self._copy(launch, now)
        else:
            self._compute(launch, now, now)

    def read(self, reading: BlockReads, now: float) -> None:
        """Continue the attempts that have read their blocks by `now`."""
        for launch in reading.ended(now):
            self._copy(launch, now)

    def start_copiers(self, events: Iterable[object], now: float) -> None:
        """Compute the attempts whose input is complete after the task ends among `events`."""
        for event in events:
            if isinstance(event, TaskFinished):
                fed = self._fed_by.get(event.phase, ())
                for source in [one for one in fed if one.part_done(event.at)]:
                    for begun, launch in source.waiting:
                        begins = source.copied_at(begun)
                        assert begins is not None
                        known_at = self._unreachable.through(launch.host, now)
                        self._compute(launch, max(begins, known_at), now)
                    source.waiting.clear()

    def is_waiting(self, key: AttemptKey) -> bool:
        """Whether an attempt still reads, or copies incomplete input, so that it has no end."""
        if self.reading and self.reading.has(key):
            return True
        source = self._sources.get(key[0])
        return source is not None and any(key_of(one) == key for _, one in source.waiting)

    def give_up(self, key: AttemptKey, now: float) -> bool:
        """Stop an attempt that is waiting; False if it computes."""
        self._expires.pop(key, None)
        self.memory.forget(key)
        if self.reading and self.reading.give_up(now, key):
            return True
        if not self.is_waiting(key):
            return False
        source = self._sources.get(key[0])
        assert source is not None
        source.waiting = [one for one in source.waiting if key_of(one[1]) != key]
        return True

    def computed(self, end: TaskFinished, host: str, now: float) -> float:
        """The work that an attempt with this end has done by `now`, in seconds at speed 1."""
        whole = self.durations.work_of(Launch(*key_of(end), host, Locality.NODE))
        begun = end.at - end.seconds
        part = (now - begun) / end.seconds if end.seconds else 1.0
        return whole * min(1.0, max(0.0, part))

    def lose(self, phase: PhaseId, task: int) -> None:
        """Record that the output of a done task is lost."""
        self.durations.forget(phase, task)
        for source in self._fed_by.get(phase, ()):
            source.part_lost()

    def fails(self, launch: Launch) -> bool:
        """Whether the attempt has a fault."""
        return self._fault is not None and self._fault(launch) is not None

    def _add_source(self, job: Job, phase: Phase) -> None:
        parts = sum(job.by_name[name].tasks.count for name in phase.after)
        self._sources[PhaseId(job.id, phase.name)] = source = CopySource(parts, phase.copy)
        for name in phase.after:
            self._fed_by.setdefault(PhaseId(job.id, name), []).append(source)

    def expired(self, key: AttemptKey, now: float) -> TaskFailed | None:
        """The failure of an attempt that exceeds its limit while it reads or waits."""
        if key not in self._expires or not self.is_waiting(key):
            return None
        return TaskFailed(now, *key, exceeded(self._limits[key[0].job]))

    def _await(self, launch: Launch) -> None:
        """Let an attempt whose end is not known yet fail when it exceeds its time limit."""
        key = key_of(launch)
        if key in self._expires:
            self._order(self._expires[key], Expire(key, launch.host))

    def _copy(self, launch: Launch, begun: float) -> None:
        """Copy the output of other phases from `begun` on if needed, else compute."""
        source = self._sources.get(launch.phase)
        if source is None:
            self._compute(launch, begun, begun)
            return
        begins = source.copied_at(begun)
        if begins is None:
            source.waiting.append((begun, launch))
            self._await(launch)
        else:
            self._compute(launch, begins, begun)

    def _compute(self, launch: Launch, begins: float, now: float) -> None:
        """Schedule the end of an attempt that has all of its input at `begins`."""
        work = self.durations.work_of(launch) * self._slowdown[launch.locality]
        seconds = work / self._speeds[launch.host]
        fault = self._fault(launch) if self._fault else None
        if fault is not None and not isinstance(fault, Fault):
            raise InputError(
                f"fault returns {fault!r:.80} for {launch}; expected a slotwise.Fault or None"
            )
        end = begins + (seconds * fault.after if fault else seconds)
        phase, task, attempt = launch.phase, launch.task, launch.attempt
        expires = self._expires.pop((phase, task, attempt), inf) if self._limits else inf
        is_late = end > expires
        end = min(end, max(expires, now))
        if self._reports:
            end = self._reports.next(launch.host, end)
        if is_late:
            reason = exceeded(self._limits[phase.job])
            self._schedule(end, TaskFailed(end, phase, task, attempt, reason))
        elif fault:
            failed = TaskFailed(end, phase, task, attempt, fault.reason, fault.lost)
            self._schedule(end, failed)
        else:
            self._schedule(end, TaskFinished(end, phase, task, attempt, seconds))


# Heap entries of the simulated backend that are not events: actions that are delayed.


@dataclass(frozen=True, slots=True)
class Deliver:
    """A decision reaches its host: it was unreachable before, or gets a launch repeatedly."""

    host: str
    decision: Launch | Preempt
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt that still runs is stopped; it has kept `kept` seconds of its work."""

    key: AttemptKey
    host: str
    kept: float


@dataclass(frozen=True, slots=True)
class Expire:
    """An attempt reaches its time limit; it fails if it still reads or waits for input."""

    key: AttemptKey
    host: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The grace of an unresponsive host is over: its attempts are lost."""

    host: str


@dataclass(frozen=True, slots=True)
class Lose:
    """The output of a done task is lost, on whichever host it is."""

    phase: PhaseId
    task: int


Order = Deliver | Stop | Expire | Abandon | Lose


def key_of(one: Launch | Preempt | TaskFinished | TaskFailed) -> AttemptKey:
    """The key of the attempt of a decision or event."""
    return one.phase, one.task, one.attempt


class LaunchDeduplicator:
    """Detects repeated launches by the last attempt of each task: attempts come in order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._counts = {
            PhaseId(job.id, phase.name): phase.tasks.count
            for job in jobs
            for phase in job.phases
        }
        self._latest: dict[PhaseId, array[int]] = {}
        self._taken_back: set[tuple[PhaseId, int]] = set()

    def is_new(self, launch: Launch) -> bool:
        """Record a launch; returns whether it is not a repetition. O(1)."""
        latest = self._latest.get(launch.phase)
        if latest is None:
            latest = array("I", [0]) * self._counts[launch.phase]
            self._latest[launch.phase] = latest
        task = launch.task
        if launch.attempt <= latest[task]:
            return False
        latest[task] = launch.attempt
        if self._taken_back:
            self._taken_back.discard((launch.phase, task))
        return True

    def take_back(self, phase: PhaseId, task: int) -> None:
        """Record that the last attempt of a task was killed or given up."""
        self._taken_back.add((phase, task))

    def was_taken_back(self, launch: Launch) -> bool:
        """Whether an attempt that is over was killed or given up."""
        is_latest = launch.attempt == self._latest[launch.phase][launch.task]
        return not is_latest or (launch.phase, launch.task) in self._taken_back


class Gangs:
    """The gangs of a simulation: their done tasks, and the attempts that do not count.

    A gang is broken when one of its attempts ends without a result. The output of its done
    tasks is then reported as lost. Its attempts that still run count as killed when they end.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._done: dict[PhaseId, dict[int, int]] = {
            PhaseId(job.id, phase.name): {}
            for job in jobs
            for phase in job.phases
            if phase.is_gang
        }
        self._broken: dict[PhaseId, int] = {}  # the last attempt that does not count

    def __bool__(self) -> bool:
        return bool(self._done)

    def __contains__(self, phase: object) -> bool:
        return phase in self._done

    def is_done(self, phase: PhaseId, task: int) -> bool:
        """Whether a task of a gang is done."""
        return task in self._done[phase]

    def is_void(self, event: TaskFinished | TaskFailed) -> bool:
        """Whether an attempt belongs to a gang that was broken after it began."""
        return event.attempt <= self._broken.get(event.phase, 0)

    def give_up(self, job: str) -> None:
        """Drop the gangs of a job that was given up: they are not repeated."""
        for phase in [phase for phase in self._done if phase.job == job]:
            del self._done[phase]

    def follow(self, event: Event) -> Sequence[Event]:
        """An event, as killed if its attempt does not count, and the output lost by it."""
        if not isinstance(event, TaskFinished | TaskFailed | TaskKilled | OutputLost):
            return (event,)
        done = self._done.get(event.phase)
        if done is None:
            return (event,)
        if isinstance(event, OutputLost):
            self._broken[event.phase] = max(done.values())
            return (self._lost(event.at, event.phase, event.reason),)
        if isinstance(event, TaskFinished):
            if self.is_void(event):
                return (TaskKilled(event.at, event.phase, event.task, event.attempt),)
            done[event.task] = event.attempt
            return (event,)
        self._broken[event.phase] = max(event.attempt, self._broken.get(event.phase, 0))
        return (event, self._lost(event.at, event.phase, "")) if done else (event,)

    def _lost(self, at: float, phase: PhaseId, reason: str) -> OutputLost:
        tasks = tuple(sorted(self._done[phase]))
        self._done[phase].clear()
        return OutputLost(at, phase, tasks, reason)


class Losses:
    """The losses of the output of done tasks.

    Only output that a later phase reads can be lost, and only until that phase is done. The
    final output of a job is never lost.
    """

    def __init__(
        self, jobs: Iterable[Job], loss: Callable[[TaskFinished], float | None]
    ) -> None:
        self._loss = loss
        self._left: dict[PhaseId, int] = {}
        self._readers: dict[PhaseId, list[PhaseId]] = {}
        self._given_up: set[str] = set()
        for job in jobs:
            for phase in job.phases:
                reader = PhaseId(job.id, phase.name)
                self._left[reader] = phase.tasks.count
                for name in phase.waits_for:
                    self._readers.setdefault(PhaseId(job.id, name), []).append(reader)

    def seconds_after(self, event: TaskFinished) -> float | None:
        """Count the end of a task; the seconds until its output is lost, or None."""
        self._left[event.phase] -= 1
        return self._loss(event) if event.phase in self._readers else None

    def give_up(self, job: str) -> None:
        """Ignore further losses of a job that was given up."""
        self._given_up.add(job)

    def matters(self, phase: PhaseId) -> bool:
        """Whether the output of a phase is still needed."""
        return phase.job not in self._given_up and any(
            self._left[reader] for reader in self._readers[phase]
        )

    def undo(self, phase: PhaseId, tasks: int) -> None:
        """Count `tasks` tasks of a phase as not done any more."""
        self._left[phase] += tasks


OUTSIDE = ""
"""The source of a block that no host of the cluster has."""


class BlockReads:
    """The attempts that now read a block over the network, in their slots.

    The whole block is read before the task computes, from a copy in the rack of the reader if
    there is one. Among several copies, the host with the fewest outgoing flows at that moment
    is chosen; ties are broken by the seed and the number of the task. A block is read to its
    end even if its source leaves meanwhile.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        phases: Mapping[PhaseId, Phase],
        seed: int,
        absent: Collection[str] = (),
    ) -> None:
        """`absent` has the hosts of the cluster that are not present now; it may change."""
        self._flows: FlowNetwork[AttemptKey] = FlowNetwork(cluster, network)
        self._rack_of = cluster.rack_of
        self._phases, self._seed = phases, seed
        self._absent = absent
        self._launches: dict[AttemptKey, Launch] = {}

    def begin(self, now: float, launch: Launch) -> bool:
        """Begin to read the block of an attempt; False if it is local or there is none."""
        blocks = self._phases[launch.phase].tasks.blocks
        if launch.locality is Locality.NODE or not blocks:
            return False
        block = blocks[launch.task]
        if not block.size_bytes or launch.host in block.hosts:
            return False
        key = (launch.phase, launch.task, launch.attempt)
        self._launches[key] = launch
        self._flows.start(now, key, self._copy(block, launch), launch.host, block.size_bytes)
        return True

    def next_end(self) -> float | None:
        """When the next block is complete if no further reading begins."""
        upcoming = self._flows.next_end()
        return None if upcoming is None else upcoming[0]

    def ended(self, now: float) -> list[Launch]:
        """The attempts that have their block by `now`, in order of completion."""
        return [self._launches.pop(key) for key in self._flows.advance(now)]

    def has(self, key: AttemptKey) -> bool:
        """Whether an attempt reads now."""
        return key in self._launches

    def give_up(self, now: float, key: AttemptKey) -> bool:
        """Stop the reading of a killed attempt; returns whether it was still reading."""
        if self._launches.pop(key, None) is None:
            return False
        self._flows.stop(now, key)
        return True

    def traffic(self) -> Traffic:
        """The traffic so far, including partial blocks of killed attempts."""
        return self._flows.traffic()

    def _copy(self, block: Block, launch: Launch) -> str:
        """The host from which to read a block."""
        rack_of = self._rack_of
        hosts = sorted(
            host for host in block.hosts if host in rack_of and host not in self._absent
        )
        rack = rack_of[launch.host]
        near = [host for host in hosts if rack_of[host] == rack] or hosts
        if not near:
            return OUTSIDE
        first = (self._seed + launch.task) % len(near)
        return min(near[first:] + near[:first], key=self._flows.leaving)


# Copying between phases: tasks that start early wait in their slots for missing input.
#
# A task of phase P copies equal parts from the M tasks that P waits for. If these end at t_1 <=
# ... <= t_M and copying all parts takes c seconds, a task that began at b has all of them at
# max(b + c, max over k of (t_k + c (M - k + 1) / M)): part k cannot be copied before t_k, and
# the parts from k on take c (M - k + 1) / M seconds.


class CopySource:
    """The input that the tasks of one phase copy. O(1) for each end of a source task.

    `waiting` holds the attempts that copy incomplete input, and when each began.
    """

    __slots__ = ("_copy", "_done", "_latest", "_parts", "waiting")

    def __init__(self, parts: int, copy: float) -> None:
        self._parts, self._copy = parts, copy
        self._done, self._latest = 0, -inf
        self.waiting: list[tuple[float, Launch]] = []

    def part_done(self, at: float) -> bool:
        """Count the end of a source task; returns whether all have ended now."""
        left = self._parts - self._done
        self._latest = max(self._latest, at + self._copy * left / self._parts)
        self._done += 1
        return self._done == self._parts

    def part_lost(self) -> None:
        """Count a source task as not done any more."""
        self._done -= 1

    def copied_at(self, begun: float) -> float | None:
        """When a task that began at `begun` has all of its input; None while it is missing."""
        if self._done < self._parts:
            return None
        return max(begun + self._copy, self._latest)
