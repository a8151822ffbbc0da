"""Events that a backend reports. Times are seconds on the clock of arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.decisions import Decision, Launch, Locality, WouldPreempt
from slotwise.core.errors import InputError, check_name, check_time, check_type
from slotwise.core.job import Job, Phase, PhaseId, fast_frozen
from slotwise.core.pools import Pool


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job arrived; it carries all that is known of it beforehand."""

    at: float
    job: Job


@dataclass(frozen=True, slots=True)
class JobsClosed:
    """No more jobs will arrive: the run ends when those that arrived are over."""

    at: float


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A user cancelled a job. It has no effect on a job that is over."""

    at: float
    job: str


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A user changed the priority, weight, pool or deadline of a job; all four are given.

    It has no effect on a job that is over. Tasks that run continue, also if they exceed the max
    share of the new pool: nothing is started there until it is below it.
    """

    at: float
    job: str
    priority: str
    weight: float
    pool: str
    deadline: float | None

    def applied_to(self, job: Job) -> Job:
        """The job with the new values. InputError for a value that no job can have."""
        return replace(
            job,
            priority=self.priority,
            weight=self.weight,
            pool=self.pool,
            deadline=self.deadline,
        )


@dataclass(frozen=True, slots=True)
class TasksAdded:
    """A phase that grows got this number of further tasks, numbered after the earlier ones."""

    at: float
    phase: PhaseId
    count: int


@dataclass(frozen=True, slots=True)
class PhaseClosed:
    """A phase that grows will get no more tasks: it is done when those that it has are done."""

    at: float
    phase: PhaseId


@dataclass(frozen=True, slots=True)
class TasksRunnable:
    """Blocked tasks of a gated phase may run from now on."""

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TasksBlocked:
    """Pending tasks of a gated phase may not run any more, until they are runnable again.

    It has no effect on tasks that run or are done.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TasksDropped:
    """Tasks are not needed: they count as done, without work.

    Dask does not need their results any more, or an earlier run has done them. The attempts of
    those that run continue until they end.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskAdopted:
    """A task that an earlier run of the scheduler has begun runs on, on this host.

    It holds what a launch there would give it, even if that exceeds the share of its pool. A
    log has those that the state could count there; others stay pending. `devices` are those of
    a `Launch`. `kept` is its work until now, in seconds at speed 1.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    host: str
    devices: tuple[int, ...] = ()
    kept: float = 0.0

    @property
    def launch(self) -> Launch:
        """The launch that has the same effect."""
        where = self.phase, self.task, self.attempt, self.host
        return Launch(*where, Locality.NODE, self.devices)


@dataclass(frozen=True, slots=True)
class PoolsChanged:
    """A user replaced the pools, with their weights and shares; jobs keep theirs by name."""

    at: float
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveChanged:
    """A user replaced the objective: the name of the penalty, and "sum" or "max"."""

    at: float
    penalty: str
    aggregate: Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class SchedulerChanged:
    """A user replaced the allocator, by its name; the other options stay."""

    at: float
    name: str


@fast_frozen
class TaskFinished:
    """An attempt succeeded; it computed for `seconds`.

    It may have held its slot longer, to copy, to read over a network or to wait. `peak` is the
    greatest memory that its processes have used, in bytes; None if it was not measured.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    seconds: float
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt failed: its own code failed, or (`lost`) its slot died.

    If it `lacks_input`, it has found output of other tasks lost that it reads, and this was
    reported as OutputLost. It does not count as a failure of the task, nor as a loss. If it is
    `final`, a further attempt cannot succeed: the job fails. `peak` is that of TaskFinished.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    reason: str
    lost: bool = False
    lacks_input: bool = False
    final: bool = False
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class TaskKilled:
    """An attempt was stopped because the scheduler decided so.

    It kept `kept` seconds of its work (at speed 1): the next attempt need not repeat them.
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    kept: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputLost:
    """The output of these done tasks is lost before all that need it have read it.

    They are to be done again. Nothing is lost of a job that is over. The reason may be empty.
    """

    at: float
    phase: PhaseId
    tasks: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host became unresponsive. Nothing new begins there; its tasks may continue unseen."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host that had become unresponsive is back."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostAdded:
    """A host joined the cluster. Its name may be that of a host that has left."""

    at: float
    host: Host


@dataclass(frozen=True, slots=True)
class HostDrained:
    """A host is to leave: nothing new begins there. It leaves when its last task has ended."""

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostRemoved:
    """A host left at once, permanently.

    The attempts that ran there are lost; the backend reports their ends in the same turn. It
    has no effect on a host that has left already.
    """

    at: float
    host: str


@dataclass(frozen=True, slots=True)
class HostResized:
    """A host has other numbers of slots from now on, of the kinds that it had.

    What runs on it continues. If that is more than its slots, none of them is free until enough
    has ended.
    """

    at: float
    host: str
    slots: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LaunchDropped:
    """A host received a launch of an attempt that it had begun before, or that was over.

    It ignored the launch: messages may arrive late or twice. The end of the attempt is reported
    as if the launch had come once. A new attempt that cannot begin is a TaskFailed (`lost`).
    """

    at: float
    phase: PhaseId
    task: int
    attempt: int
    host: str
    reason: str


TaskEnded = TaskFinished | TaskFailed | TaskKilled
"""The end of an attempt."""

HostChange = HostAdded | HostDrained | HostRemoved
"""A change of the set of hosts."""

TasksChanged = TasksRunnable | TasksBlocked | TasksDropped
"""A change of the tasks of a gated phase."""

Request = (
    JobsClosed
    | JobCancelled
    | JobChanged
    | TasksAdded
    | PhaseClosed
    | PoolsChanged
    | ObjectiveChanged
    | SchedulerChanged
)
"""What users ask for during a run, besides jobs."""

Event = (
    JobArrived
    | Request
    | TaskEnded
    | OutputLost
    | TasksChanged
    | TaskAdopted
    | HostLost
    | HostJoined
    | HostChange
    | HostResized
    | LaunchDropped
)
"""All events that a backend may report."""

UNSEEN = frozenset({LaunchDropped, JobsClosed, WouldPreempt})
"""Events and decisions after which no policy decides anything else than before."""


def launches(events: Iterable[Event], decisions: Iterable[Decision]) -> Iterator[Launch]:
    """The attempts that began in a turn: those that were adopted, and those decided."""
    for event in events:
        if isinstance(event, TaskAdopted):
            yield event.launch
    for decision in decisions:
        if isinstance(decision, Launch):
            yield decision


# Changes of the hosts that are known in advance, as a simulation gets them.


class ChangingHosts:
    """Checks changes of a cluster's hosts one by one, in order of time.

    A host that is drained stays until its tasks have ended, so its name is free again only when
    it is removed.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._drained: set[str] = set()

    def follow(self, change: HostChange) -> None:
        """Take the next change. InputError if it is not possible."""
        verb = type(change).__name__.removeprefix("Host").lower()
        if isinstance(change, HostAdded):
            check_type(f"host that is {verb}", change.host, Host, "give a slotwise.Host")
            name = change.host.name
        else:
            check_name(f"host that is {verb}", change.host)
            name = change.host
        check_time(f"host {name!r} is {verb}: at", change.at)
        what = f"host {name!r} is {verb} at {change.at:g} s"
        if isinstance(change, HostAdded):
            self._add(change.host, what)
        elif name not in self.cluster.by_name:
            known = ", ".join(self.cluster.by_name) or "none"
            raise InputError(f"{what}, but is not there then; hosts then: {known}")
        elif not isinstance(change, HostDrained):
            self.cluster = self.cluster.without(name)
            self._drained.discard(name)
        elif name in self._drained:
            raise InputError(f"{what}, but was drained before; leave one of them out")
        else:
            self._drained.add(name)

    def check_served(self, kinds: Iterable[str]) -> None:
        """InputError if slots of one of these kinds are not there after the last change."""
        staying = self.cluster
        for name in self._drained:
            staying = staying.without(name)
        slots = staying.capacity
        for kind in kinds:
            if not slots[kind]:
                raise InputError(
                    f"no host has slots of kind {kind!r} after the last change of the hosts, so"
                    " jobs may wait forever; add a host with such slots"
                )

    def check_held(self, phases: Iterable[tuple[Job, Phase, str]]) -> None:
        """InputError if the hosts after the last change cannot hold a task or a gang of these.

        Each phase comes with its job and the kind of slots that it uses. Only phases that take
        more than one slot at once are checked.
        """
        staying = self.cluster
        for name in self._drained:
            staying = staying.without(name)
        for job, phase, kind in phases:
            if phase.unit > 1 or phase.needs:
                request = phase.slots, phase.needs
                try:
                    staying.check_task(kind, *request)
                    if phase.gang:
                        staying.check_gang(kind, phase.tasks.count, *request)
                except InputError as error:
                    raise InputError(
                        f"job {job.id!r}, phase {phase.name!r} may wait forever after the last"
                        f" change of the hosts: {error}"
                    ) from None

    def _add(self, host: Host, what: str) -> None:
        if host.name in self._drained:
            raise InputError(
                f"{what}, but may still run tasks since it was drained; remove it before, or"
                " take another name"
            )
        if host.name in self.cluster.by_name:
            raise InputError(f"{what}, but is present already; remove it before, or rename one")
        try:
            self.cluster = self.cluster.with_host(host)
        except InputError as error:
            raise InputError(f"{what}: {error}") from None


def in_order(changes: Iterable[HostChange]) -> list[HostChange]:
    """The changes in order of time; those of one instant in the given order."""
    return sorted(changes, key=lambda change: change.at)


def hosts_ever(cluster: Cluster, changes: Sequence[HostChange]) -> Cluster:
    """All hosts that are ever there, each name once, as it is first."""
    hosts = dict(cluster.by_name)
    for change in in_order(changes):
        if isinstance(change, HostAdded):
            hosts.setdefault(change.host.name, change.host)
    return replace(cluster, hosts=tuple(hosts.values()))


def with_kinds(cluster: Cluster, changes: Iterable[HostChange]) -> Cluster:
    """The cluster for jobs of every kind that it or a later host has slots for.

    Without plain slots it knows the kinds of slots of later hosts from the beginning, so that
    jobs that arrive before these hosts can wait for them.
    """
    if ANY_KIND in cluster.capacity:
        return cluster
    later = {
        kind
        for change in changes
        if isinstance(change, HostAdded)
        for kind, count in change.host.slots.items()
        if count
    }
    return replace(cluster, kinds=cluster.kinds | later) if later else cluster


def check_changes(
    cluster: Cluster, changes: Iterable[HostChange], jobs: Iterable[Job] = ()
) -> None:
    """InputError for changes that are not possible, or that let jobs wait forever.

    A phase uses the kind of slots that it gets by the hosts that have come before its job.
    """
    hosts = ChangingHosts(cluster)
    expected = sorted(jobs, key=lambda job: -job.arrival)
    phases: list[tuple[Job, Phase, str]] = []
    changes = in_order(changes)
    for change in [*changes, None]:
        while expected and (change is None or expected[-1].arrival <= change.at):
            job, kind_of = expected.pop(), hosts.cluster.slot_kind
            phases.extend((job, phase, kind_of(phase.kind)) for phase in job.phases)
        if change is not None:
            hosts.follow(change)
    if changes:
        hosts.check_served(dict.fromkeys(kind for _, _, kind in phases))
        hosts.check_held(phases)
