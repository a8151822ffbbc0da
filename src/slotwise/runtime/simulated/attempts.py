"""Attempts on simulated hosts, from launch to end: they read, copy and compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from slotwise.model.cluster import Cluster, Host
from slotwise.model.decision import Launch, Locality
from slotwise.model.errors import InputError
from slotwise.model.event import Event, TaskFailed, TaskFinished
from slotwise.model.job import Job, PhaseId
from slotwise.runtime.simulated.copying import Copying
from slotwise.runtime.simulated.durations import ActualDurations
from slotwise.runtime.simulated.host_commands import AttemptKey, key_of
from slotwise.runtime.simulated.outages import Reports, Unreachables
from slotwise.runtime.simulated.reading import Reading
from slotwise.runtime.simulated.simulation import Fault, Simulation


class Attempts:
    """Runs attempts, and schedules the end of each by `tell` as soon as it is certain.

    reading  the attempts that read their blocks over a network, None without a network
    copies   whether any phase copies the output of others; in most workloads none does
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        simulation: Simulation,
        span: Unreachables,
        tell: Callable[[float, Event], None],
        absent: Collection[str] = (),
    ) -> None:
        """`cluster` has all hosts that are ever there, `absent` those not there now."""
        self._tell, self._unreachable = tell, span
        self._truths = ActualDurations(jobs, simulation)
        self._speed_of = simulation.speed_of
        self._speeds = {host.name: self._speed_of(host) for host in cluster.hosts}
        self._slowdown = [simulation.slowdown(locality) for locality in Locality]
        self._fault = simulation.fault
        self._reports = Reports(cluster) if cluster.heartbeat else None
        self._copying = Copying(jobs)
        self.copies = bool(self._copying)
        self.reading: Reading | None = None
        if simulation.network is not None:
            phases = {PhaseId(job.id, p.name): p for job in jobs for p in job.phases}
            self.reading = Reading(cluster, simulation.network, phases, simulation.seed, absent)

    def add(self, host: Host) -> None:
        """A host joined; it may be another one than before by the same name."""
        self._speeds[host.name] = self._speed_of(host)

    def begin(self, launch: Launch, now: float) -> None:
        """A host begins an attempt."""
        if self.reading and self.reading.begin(now, launch):
            return
        if self.copies:
            self._copy(launch, now)
        else:
            self._compute(launch, now)

    def read(self, reading: Reading, now: float) -> None:
        """Continue the attempts that have read their blocks by now."""
        for launch in reading.ended(now):
            self._copy(launch, now)

    def tell_copiers(self, events: Iterable[object], now: float) -> None:
        """Start to compute the attempts that have all of their input after these task ends."""
        for event in events:
            if isinstance(event, TaskFinished):
                for source in self._copying.ended(event.at, event.phase):
                    for begun, launch in source.waiting:
                        begins = source.copied_at(begun)
                        assert begins is not None
                        heard_at = self._unreachable.through(launch.host, now)
                        self._compute(launch, max(begins, heard_at))
                    source.waiting.clear()

    def is_waiting(self, key: AttemptKey) -> bool:
        """Whether an attempt still reads or copies incomplete input, so has no end yet."""
        if self.reading and self.reading.has(key):
            return True
        source = self._copying.source(key[0])
        return source is not None and any(key_of(one) == key for _, one in source.waiting)

    def give_up(self, key: AttemptKey, now: float) -> bool:
        """Stop an attempt that is waiting; False if it computes instead."""
        if self.reading and self.reading.give_up(now, key):
            return True
        if not self.is_waiting(key):
            return False
        source = self._copying.source(key[0])
        assert source is not None
        source.waiting = [one for one in source.waiting if key_of(one[1]) != key]
        return True

    def computed(self, end: TaskFinished, host: str, now: float) -> float:
        """The work that an attempt with this end has done by now, in seconds at speed 1."""
        whole = self._truths.work_of(Launch(*key_of(end), host, Locality.NODE))
        begun = end.at - end.seconds
        part = (now - begun) / end.seconds if end.seconds else 1.0
        return whole * min(1.0, max(0.0, part))

    def keep(self, phase: PhaseId, task: int, work: float) -> None:
        """Add to the kept work of a task, which need not be done again."""
        self._truths.keep(phase, task, work)

    def lose(self, phase: PhaseId, task: int) -> None:
        """The output of a done task is lost."""
        self._truths.forget(phase, task)
        self._copying.lost(phase)

    def fails(self, launch: Launch) -> bool:
        """Whether the attempt has a fault."""
        return self._fault is not None and self._fault(launch) is not None

    def _copy(self, launch: Launch, begun: float) -> None:
        """From `begun` on the attempt copies the output of other phases, if it needs any."""
        source = self._copying.source(launch.phase)
        if source is None:
            self._compute(launch, begun)
            return
        begins = source.copied_at(begun)
        if begins is None:
            source.waiting.append((begun, launch))
        else:
            self._compute(launch, begins)

    def _compute(self, launch: Launch, begins: float) -> None:
        """The attempt has all of its input at `begins`; schedule its end."""
        work = self._truths.work_of(launch) * self._slowdown[launch.locality]
        seconds = work / self._speeds[launch.host]
        fault = self._fault(launch) if self._fault else None
        if fault is not None and not isinstance(fault, Fault):
            raise InputError(
                f"fault gives {fault!r:.80} for {launch}; let it give a slotwise.Fault, or None"
            )
        end = begins + (seconds * fault.after if fault else seconds)
        if self._reports:
            end = self._reports.next(launch.host, end)
        phase, task, attempt = launch.phase, launch.task, launch.attempt
        if fault:
            failed = TaskFailed(end, phase, task, attempt, fault.reason, fault.lost)
            self._tell(end, failed)
        else:
            self._tell(end, TaskFinished(end, phase, task, attempt, seconds))
