"""The parameters of a simulation: how it differs from what the scheduler believes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf
from typing import Any

import numpy as np

from slotwise.core.cluster import Cluster, Host, Network
from slotwise.core.decisions import Launch, Locality
from slotwise.core.errors import (
    MAX_NUMBER,
    MAX_TIME,
    InputError,
    check_all,
    check_name,
    check_positive,
    check_range,
    check_string,
    check_time,
    check_type,
    is_number,
    option_name,
    shown,
    suggestion,
)
from slotwise.core.events import (
    HostAdded,
    HostChange,
    TaskFailed,
    TaskFinished,
    check_changes,
    hosts_ever,
    in_order,
)
from slotwise.core.job import Job, PhaseId
from slotwise.core.resources import MEMORY
from slotwise.core.units import size_text


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt fails after the part `after` of its time; `lost` if its slot dies."""

    reason: str
    after: float = 0.5
    lost: bool = False

    def __post_init__(self) -> None:
        check_string("the reason of a fault", self.reason)
        check_range("after of a fault", self.after, 0, 1, "expected a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class Simulation:
    """How the simulated cluster differs from what the scheduler believes.

    seed           the same seed gives the same task durations and the same log
    noise          spread of true durations around the estimates: the standard deviation of
                   the logarithm of a factor whose mean is 1; 0 makes the estimates true
    remote_factor  factor on the time of a task that reads its input from another rack
    rack_factor    the same for another host of its rack; by default remote_factor
    fault          a function that returns the fault of an attempt, or None
    save_seconds   seconds that a task needs to save its work when it is asked to stop, after
                   which it ends; None: it saves nothing and runs until it is done or killed
    network        the network over which a task reads its block before it computes, if its host
                   has no copy; None: reading takes no time apart from the factors above
    speeds         the true speeds of hosts, if they differ from the believed ones
    outages        when hosts are unreachable for the scheduler
    changes        the hosts that are added, drained and removed, and when; by default those of
                   the workload
    hide_work      the scheduler does not get the work of the jobs, only the durations of
                   finished tasks
    repeats        a function that returns the seconds after which a host receives a launch a
                   second time, or None
    loss           a function that returns the seconds from the end of a task to the loss of its
                   output, or None; the task is repeated if other tasks still need the output
    """

    seed: int = 0
    noise: float = 0.0
    remote_factor: float = 1.0
    rack_factor: float | None = None
    fault: Callable[[Launch], Fault | None] | None = None
    save_seconds: float | None = None
    network: Network | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    repeats: Callable[[Launch], float | None] | None = None
    loss: Callable[[TaskFinished], float | None] | None = None
    changes: tuple[HostChange, ...] | None = None
    hide_work: bool = False

    def __post_init__(self) -> None:
        remedy = "expected a whole number >= 0"
        check_range(option_name("seed"), self.seed, 0, inf, remedy, whole=True)
        check_range(option_name("noise"), self.noise, 0, 10, "expected a number from 0 to 10")
        check_type(option_name("hide_work"), self.hide_work, bool, "expected True or False")
        remedy = f"expected a number from 1 to {MAX_NUMBER:g}"
        check_range(option_name("remote_factor"), self.remote_factor, 1, MAX_NUMBER, remedy)
        if self.rack_factor is not None:
            check_range(option_name("rack_factor"), self.rack_factor, 1, MAX_NUMBER, remedy)
        if self.save_seconds is not None:
            check_time(option_name("save_seconds"), self.save_seconds)
        check_type("speeds", self.speeds, Mapping, "expected a mapping of hosts to speeds")
        for host, speed in self.speeds.items():
            check_positive(f"true speed of host {host!r}", speed)
        check_outages(self.outages)
        for name in "fault", "repeats", "loss":
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise InputError(f"{name} is {shown(value)}; expected a function or None")
        remedy = "expected a slotwise.Network or None"
        check_type("network", self.network, Network | None, remedy)
        if self.changes is not None:
            remedy = "expected a list of slotwise.HostAdded, HostDrained and HostRemoved"
            check_all("changes", self.changes, HostChange, remedy)

    def check(self, cluster: Cluster, jobs: Sequence[Job] = ()) -> None:
        """InputError if outages, speeds or changes name unknown hosts.

        Also if a job could wait forever, because no host has slots for it.
        """
        changes = in_order(self.changes or ())
        check_changes(cluster, changes, jobs)
        known_hosts = hosts_ever(cluster, changes).by_name
        for change in changes:
            if isinstance(change, HostAdded):
                self._check_added(change, known_hosts[change.host.name])
        named = [(outage.host, str(outage)) for outage in self.outages]
        named += [(host, f"true speed {host}={speed:g}") for host, speed in self.speeds.items()]
        for host, what in named:
            if host not in known_hosts:
                hint = suggestion(host, known_hosts)
                raise InputError(f"{what}: there is no host {host!r}; {hint}")

    def _check_added(self, change: HostAdded, before: Host) -> None:
        """InputError if a host is added again in another rack of a network, which is fixed."""
        host = change.host
        if self.network is not None and host.rack != before.rack:
            raise InputError(
                f"host {host.name!r} is added again in rack {host.rack!r} at {change.at:g} s,"
                f" but was in rack {before.rack!r}; with a network, give it another name"
            )

    def told(self, job: Job) -> Job:
        """The job as the scheduler and the log get it."""
        return (job.without_work() if self.hide_work else job).without_peaks()

    def slowdown(self, locality: Locality) -> float:
        """The factor on the time of a task that reads its input at this distance."""
        if locality is Locality.NODE:
            return 1.0
        if locality is Locality.RACK and self.rack_factor is not None:
            return self.rack_factor
        return self.remote_factor

    def speed_of(self, host: Host) -> float:
        """The true speed of a host of the cluster."""
        return self.speeds.get(host.name, host.speed)

    def troubles(self, cluster: Cluster, believed_cluster: Cluster) -> dict[str, Any]:
        """The differences from `believed_cluster`, which the scheduler gets, for the log.

        True speeds that differ from the believed ones, outages, whether launches are repeated,
        and whether work is hidden. Empty entries are left out.
        """
        believed = {host.name: host.speed for host in believed_cluster.hosts}
        hosts = hosts_ever(cluster, self.changes or ()).hosts
        true = {host.name: self.speed_of(host) for host in hosts}
        believed = {host.name: host.speed for host in hosts} | believed
        found: dict[str, Any] = {
            "speeds": {name: true[name] for name in true if true[name] != believed[name]},
            "outages": [[one.host, one.at, one.seconds] for one in self.outages],
            "repeats": self.repeats is not None,
            "hide_work": self.hide_work,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Outage:
    """A host is unreachable from the instant `at` for `seconds`.

    Messages between the scheduler and the host, in either direction, are delayed until the end
    of the outage. Its tasks continue, and hosts still exchange the data that tasks read and
    copy. InputError for invalid numbers.
    """

    host: str
    at: float
    seconds: float

    def __post_init__(self) -> None:
        check_name("the host of an outage", self.host)
        place = f"outage {self.host}={shown(self.at)}+{shown(self.seconds)}"
        if not is_number(self.at) or not 0 <= self.at <= MAX_TIME:
            raise InputError(
                f"{place}: it begins at {shown(self.at)}; expected seconds >= 0, at most"
                f" {MAX_TIME:g}"
            )
        if not is_number(self.seconds) or not 0 < self.seconds <= MAX_TIME:
            raise InputError(
                f"{place}: it lasts {shown(self.seconds)} s; expected seconds > 0, at most"
                f" {MAX_TIME:g}"
            )

    @property
    def over(self) -> float:
        """The instant at which the host is reachable again."""
        return self.at + self.seconds

    def __str__(self) -> str:
        return f"outage {self.host}={self.at:g}+{self.seconds:g}"


def check_outages(outages: object) -> None:
    """InputError unless it is a collection of outages, of which none overlap on a host."""
    if not isinstance(outages, Collection) or not all(isinstance(o, Outage) for o in outages):
        raise InputError(f"outages is {outages!r}; expected a tuple of slotwise.Outage")
    earlier: dict[str, Outage] = {}
    for outage in sorted(outages, key=lambda one: (one.host, one.at)):
        before = earlier.get(outage.host)
        if before is not None and outage.at < before.over:
            raise InputError(f"{before} and {outage} overlap; combine them into one")
        earlier[outage.host] = outage


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A time without messages to and from a host, from `cut` until just before `back`.

    It is noticed at the first missing report; `noticed` is None if no report is missing.
    """

    host: str
    cut: float
    noticed: float | None
    back: float


class Reports:
    """When each host reports: once per heartbeat, spread evenly over the hosts; or at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._heartbeat, count = cluster.heartbeat, len(cluster.hosts)
        self._first = {
            host.name: cluster.heartbeat * number / count
            for number, host in enumerate(cluster.hosts)
        }

    def next(self, host: str, at: float) -> float:
        """The first report of a host at the instant `at` or later."""
        if not self._heartbeat:
            return at
        first = self._first[host]
        beats = (at - first) / self._heartbeat
        if beats == inf:
            return at  # The heartbeat is below the resolution of instants.
        return max(at, first + ceil(beats) * self._heartbeat)


class Unreachables:
    """The times in which hosts are unreachable. It is false if there are none."""

    def __init__(self, outages: Iterable[Outage], reports: Reports) -> None:
        self._of: dict[str, list[Unreachable]] = {}
        for host in sorted({outage.host for outage in outages}):
            own = sorted((o for o in outages if o.host == host), key=lambda one: one.at)
            self._of[host] = list(_unreachable(own, reports))

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[Unreachable]:
        for unreachable in self._of.values():
            yield from unreachable

    def through(self, host: str, at: float) -> float:
        """When a message to or from a host arrives if it is sent at the instant `at`."""
        unreachable = self._of.get(host, ())
        place = bisect_right(unreachable, at, key=lambda one: one.cut)
        return max(at, unreachable[place - 1].back) if place else at


def _unreachable(outages: list[Outage], reports: Reports) -> Iterator[Unreachable]:
    """The times in which a host is unreachable, given its outages in order."""
    left = outages[::-1]
    while left:
        host, cut, over = left[-1].host, left[-1].at, left.pop().over
        missing = reports.next(host, cut)
        while True:
            back = reports.next(host, over) if missing < over else over
            if not left or left[-1].at > back:
                break
            over = left.pop().over  # The next outage begins before any report.
        yield Unreachable(host, cut, missing if missing < over else None, back)


class ActualMemory:
    """The memory that attempts use, and which of them run out of it. False if none is stated.

    An attempt uses its peak from its start on, or what it got if no peak is stated. One with a
    limit runs out of memory if its peak is larger. While the attempts on a host use more than
    the host has, the one runs out that is most above what it got, and then counts with that. It
    fails at its end.
    """

    def __init__(self, jobs: Iterable[Job], cluster: Cluster) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._is_stated = any(
            phase.tasks.peaks is not None for job in self._jobs.values() for phase in job.phases
        )
        self._has = {host.name: host.resources.get(MEMORY, 0) for host in cluster.hosts}
        self._on: dict[str, dict[AttemptKey, _Use]] = {}
        self._host: dict[AttemptKey, str] = {}

    def __bool__(self) -> bool:
        return self._is_stated

    def add(self, host: Host) -> None:
        """A host joins, perhaps with the name of an earlier one."""
        self._has[host.name] = host.resources.get(MEMORY, 0)

    def begin(self, launch: Launch) -> None:
        """An attempt begins on its host."""
        job = self._jobs[launch.phase.job]
        phase = job.by_name[launch.phase.phase]
        got = launch.memory or phase.needs.get(MEMORY, 0)
        peak = phase.tasks.peak_of(launch.task)
        use = _Use(got, got if peak is None else peak, peak is not None)
        key = launch.phase, launch.task, launch.attempt
        self._host[key] = launch.host
        self._on.setdefault(launch.host, {})[key] = use
        if job.memory_limit and MEMORY in phase.needs and use.above > 0:
            use.stop(use.peak, f"used {size_text(use.peak)}, limit {size_text(got)}", False)
        self._relieve(launch.host)

    def forget(self, key: AttemptKey) -> _Use | None:
        """An attempt uses nothing any more. What it used, if it ran."""
        host = self._host.pop(key, None)
        return None if host is None else self._on[host].pop(key)

    def end(self, event: TaskFinished | TaskFailed) -> TaskFinished | TaskFailed:
        """The end of an attempt with its peak; its failure if it has run out of memory."""
        where = event.phase, event.task, event.attempt
        use = self.forget(where)
        if use is None or not use.is_known or isinstance(event, TaskFailed):
            return event
        if use.reason:
            return TaskFailed(event.at, *where, use.reason, lost=use.is_lost, peak=use.peak)
        return replace(event, peak=use.peak)

    def _relieve(self, host: str) -> None:
        """Stop attempts on a host, the one most above what it got first, until others fit."""
        uses, has = self._on[host].values(), self._has[host]
        while has and (missing := sum(use.now for use in uses) - has) > 0:
            most = max(uses, key=lambda use: use.above)
            if most.above <= 0:
                return
            used = max(most.got + 1, most.peak - missing)
            reason = (
                f"stopped because host {host} had no memory left: it used {size_text(used)} and"
                f" had got {size_text(most.got)}"
            )
            most.stop(used, reason, True)


@dataclass(slots=True)
class _Use:
    """What an attempt got of memory, its peak, and whether that is stated. In bytes.

    If it has run out of memory, `reason` says so, and `peak` is what it had used.
    """

    got: int
    peak: int
    is_known: bool
    reason: str = ""
    is_lost: bool = False

    @property
    def now(self) -> int:
        return self.got if self.reason else self.peak

    @property
    def above(self) -> int:
        return self.now - self.got

    def stop(self, used: int, reason: str, is_lost: bool) -> None:
        self.peak, self.reason, self.is_lost = used, reason, is_lost


AttemptKey = tuple[PhaseId, int, int]
"""The phase, the task and the number of an attempt."""


class ActualDurations:
    """The true work of all tasks, drawn for a whole phase when first needed.

    It depends only on the seed, the job, the phase and the number of a task, not on the order
    of launches, so that all schedulers in a comparison get the same tasks.
    """

    def __init__(self, jobs: Sequence[Job], simulation: Simulation) -> None:
        self._seed, self._noise = simulation.seed, simulation.noise
        self._phases = {
            PhaseId(job.id, phase.name): (number, place, phase)
            for number, job in enumerate(jobs)
            for place, phase in enumerate(job.phases)
        }
        self._works: dict[PhaseId, list[float]] = {}
        self._kept: dict[tuple[PhaseId, int], float] = {}

    def work_of(self, launch: Launch) -> float:
        """The work of an attempt, in seconds at speed 1, less the kept work of its task."""
        works = self._works.get(launch.phase)
        if works is None:
            works = self._works[launch.phase] = self.draw(launch.phase)
        work = works[launch.task]
        if self._kept:
            work -= self._kept.get((launch.phase, launch.task), 0.0)
        return work

    def draw(self, phase_id: PhaseId) -> list[float]:
        """Draw the work of each task, which must be stated, in seconds at speed 1."""
        number, place, phase = self._phases[phase_id]
        tasks = phase.tasks
        assert tasks.work is not None, "a simulation needs the work of all tasks"
        work = np.broadcast_to(np.asarray(tasks.work, dtype=float), tasks.count)
        if self._noise > 0:
            rng = np.random.default_rng([self._seed, number, place])
            spread = self._noise * rng.standard_normal(tasks.count) - self._noise**2 / 2
            # Not that of numpy, whose last digit depends on the processor.
            work = work * np.array(list(map(exp, spread.tolist())))
        drawn: list[float] = work.tolist()
        return drawn

    def forget(self, phase: PhaseId, task: int) -> None:
        """Forget the kept work of a task, which is repeated as a whole."""
        self._kept.pop((phase, task), None)

    def keep(self, phase: PhaseId, task: int, work: float) -> None:
        """Add to the kept work of a task, which need not be done again."""
        if work:
            self._kept[phase, task] = self._kept.get((phase, task), 0.0) + work
