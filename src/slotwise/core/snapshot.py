"""The read-only view of the whole state that a policy gets; it is not a copy.

It holds estimates only: no policy can see how long a task will really take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from heapq import heappop
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

from slotwise.core.changes import Changes
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Launch, VirtualTime
from slotwise.core.host_state import Finished, Hosts, Queues, TaskTimings
from slotwise.core.job import Job, PhaseId
from slotwise.core.jobs_in_progress import Jobs, LimitReached
from slotwise.core.needs import PhasesByNeeds
from slotwise.core.phase_state import PhaseState, phases_below, sorted_below
from slotwise.core.phase_work import Learned, PhaseWork
from slotwise.core.pool_state import PoolState
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.promises import OpenPromises
from slotwise.core.ready_phases import ReadyPhases
from slotwise.core.resources import Resources
from slotwise.core.shares import SharesByKind
from slotwise.core.spare import Spare
from slotwise.core.turns import LaunchOrder, turns_of
from slotwise.core.unbegun import Unbegun, UnbegunColumns

_RESERVED = attrgetter("reserved.by_host")  # of shares


class TaskOnHost(NamedTuple):
    """A task that runs: since when, until when by its estimate, and what it holds."""

    started: float
    ends: float
    kind: str
    slots: int
    needs: Resources
    phase: PhaseState
    task: int


class TasksOnHost:
    """The tasks that run on a host, in two orders, until others do.

    known  what was found from them, and from what else is in the keys
    """

    def __init__(self, tasks: Iterable[TaskOnHost]) -> None:
        self.by_start = sorted(tasks, key=itemgetter(0))
        self.by_end = sorted(tasks, key=itemgetter(1))
        self.known: dict[Any, Any] = {}


class Snapshot:
    """The whole state at one instant, for reading: only the engine changes it (`State`).

    now               the instant, in seconds on the clock of arrivals
    cluster           the hosts that are present now, with their racks and slots
    pools             the pools; every job's pool is among them
    user              whose jobs those are that state no user
    is_stale          whether jobs or phases came or went since the last `Reallocate`
    changes           what came or left since the last allocation
    has_changed       whether any event or decision was applied since the last `Reallocate`
    has_shrunk        whether the demand of a phase fell below its allocation or guarantee, or
                      increased. While this is False, the jobs and phases are the same, and so
                      is the result of an allocator that depends on shares and demand but not
                      on work
    reallocates_from  the earliest instant at which a stale allocation may be replaced
    objective         the penalty and the aggregate that a user set; None: those of the
                      beginning
    scheduler         the name of the allocator that a user set; None: that of the beginning
    epoch_ends        when the epoch of the last `Reallocate` ends
    virtual           what the last `Reallocate` remembers of a reference system, if it has
                      one
    doomed            the jobs that can no longer succeed and were not given up yet, with the
                      reason
    delays            the instants at which failed tasks of a phase may run again, as a heap
    broken            the gangs to stop: an attempt has ended without a result, and others
                      still run
    lost              the hosts where nothing can begin: unresponsive ones, and those that will
                      leave
    unresponsive      the unresponsive hosts
    leaving           the hosts that leave when no attempt runs there
    queues            the queue of each host, if the policy plans queues
    promises          the promises of dates that were asked for, and those that are open
    """

    def __init__(
        self, cluster: Cluster, pools: Iterable[Pool], over_most: int, user: str | None
    ) -> None:
        self.cluster = cluster
        self.pools, self.user = PoolTree(pools), user
        self.now = 0.0
        self.doomed: dict[str, str] = {}
        self.delays: list[tuple[float, PhaseId]] = []
        self.broken: dict[PhaseId, None] = {}
        self.is_stale = self.has_changed = self.has_shrunk = False
        self.epoch_ends = self.reallocates_from = -inf
        self.objective: tuple[str, Literal["sum", "max"]] | None = None
        self.scheduler: str | None = None
        self.virtual: VirtualTime | None = None
        self.changes = Changes()
        self._hosts = hosts = Hosts(cluster)
        self.lost: Collection[str] = hosts.lost
        self.unresponsive: Collection[str] = hosts.unresponsive
        self.leaving: Collection[str] = hosts.leaving
        self.queues = Queues()
        self._finished = Finished()
        self._jobs = Jobs(cluster.capacity, self.doomed, over_most, user)
        self._unbegun = UnbegunColumns(self._jobs.left)
        self._shares = SharesByKind(hosts.free)
        self.promises = OpenPromises(self._jobs.phases_of)
        self._waits_kept: Any = None

    _learned: Learned
    _default_work: float

    def works(self, job: Job) -> Sequence[PhaseWork]:
        """What is known of the work of the phases of a job, which need not have arrived."""
        if phases := self.phases_of(job.id):
            return [phase.work for phase in phases]
        learned = self._learned.peek()
        works = [PhaseWork(job, p, self._default_work, learned) for p in job.phases]
        for work in works:
            work.enter(job.pool)
        return works

    def refresh_promises(self) -> OpenPromises:
        """The promises, with the latest starts and the room of this instant."""
        held = self.holding, self.capacity
        self.promises.refresh(self.now, self.cluster, self.lost, *held)
        return self.promises

    def next_retry(self) -> tuple[PhaseId, tuple[int, ...]] | None:
        """A phase with failed tasks whose delays are over, and these tasks.

        Instants that do not matter any more are dropped as they are read.
        """
        delays = self.delays
        while delays and delays[0][0] <= self.now:
            name = delays[0][1]
            phase = self._jobs.phases.get(name)
            if phase and not self._jobs.is_given_up(name.job) and (due := phase.due(self.now)):
                return name, due
            heappop(delays)
        return None

    def ready(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases that use this kind of slot, in order of arrival."""
        return self._jobs.in_order(slot_kind)

    def ready_phases(self, slot_kind: str) -> ReadyPhases:
        """The same as columns, which are kept while they do not change."""
        return self._jobs.ready_phases(slot_kind)

    def holding(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases, then those that hold such slots but are ready no longer.

        These wait again because input was lost, while their running tasks continue. O(phases of
        admitted jobs).
        """
        waiting_again = (
            phase
            for phases in self.jobs_left()
            for phase in phases
            if phase.running and not phase.is_ready and phase.slot_kind == slot_kind
        )
        return [*self.ready(slot_kind), *waiting_again]

    def wide(self, slot_kind: str) -> Collection[PhaseState]:
        """Those of them that take several slots at once, or wait for other resources."""
        return self._jobs.wide[slot_kind].values()

    def kept_waits(self) -> tuple[Any, Collection[PhaseState]]:
        """What `keep_waits` has kept, and the phases whose waits have changed since.

        None and no phase if any wait may have changed.
        """
        changed = self._jobs.waits_changed
        return (None, ()) if changed is None else (self._waits_kept, changed)

    def keep_waits(self, read: Any, changed: Iterable[PhaseState] = ()) -> None:
        """Keep what was read of the waits, but for those of the `changed` phases.

        Decisions are the same with and without it: it only saves reading them again.
        """
        self._waits_kept, self._jobs.waits_changed = read, dict.fromkeys(changed)

    def by_needs(self, slot_kind: str) -> PhasesByNeeds:
        """The ready phases by what their tasks need beside slots."""
        return self._jobs.by_needs.get(slot_kind) or PhasesByNeeds()

    def has_requests(self, slot_kind: str) -> bool:
        """Whether a ready phase of this kind needs more than slots."""
        return any(self._jobs.by_needs.get(slot_kind, ()))  # Only no needs are false.

    @property
    def totals(self) -> Resources:
        """What the hosts where tasks can begin have of all resources, free and held."""
        if not self.lost:
            return self.cluster.totals
        usable = [host for host in self.cluster.hosts if host.name not in self.lost]
        return Cluster(tuple(usable), kinds=frozenset(self.cluster.capacity)).totals

    def backlogged(self, slot_kind: str) -> Iterable[PhaseState]:
        """The ready phases with pending tasks, by pool, then within it; largest lack first."""
        return phases_below(self._shares.of[slot_kind].whole)

    def in_order(self, slot_kind: str, phases: Iterable[PhaseState]) -> Sequence[PhaseState]:
        """Those of these phases that are backlogged, in that order. O(phases log phases)."""
        return sorted_below(self._shares.of[slot_kind].whole, phases)

    def turns(self, slot_kind: str, most: Callable[[PhaseState], int]) -> LaunchOrder:
        """The turns of phases for the free slots if each launches a task at each of its turns.

        That is the order of `backlogged` after each launch, within all limits. `most` gives the
        number of tasks that a phase launches; it is called at the first turn of each phase.
        """
        slots = sum(self._hosts.free[slot_kind].by_host.values())
        return turns_of(self._shares.of[slot_kind].whole, slots, most)

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind for all, and the number of these slots."""
        return self._hosts.free[slot_kind].by_host

    @property
    def spare(self) -> Spare:
        """What is free on each host of the resources beside slots, for reading only."""
        return self._hosts.spare

    def reserved(self, slot_kind: str) -> Mapping[str, Mapping[PoolState, int]]:
        """The other free slots of each host: those reserved for pools that took them back."""
        return self._shares.of[slot_kind].reserved.by_host

    @property
    def has_reserved(self) -> bool:
        """Whether free slots of any kind are reserved."""
        return any(map(_RESERVED, self._shares.of.values()))

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind became free since the last turn of the loop."""
        return self._hosts.free[slot_kind].freed

    def overdue(self, slot_kind: str) -> Collection[PoolState]:
        """The shares of pools that have lacked slots for as long as their time-out."""
        return self._shares.of[slot_kind].overdue

    def overdue_jobs(self, slot_kind: str) -> Mapping[PoolState, int]:
        """The pools with jobs that may take slots back from other jobs there, and how many."""
        return self._shares.of[slot_kind].overdue_jobs()

    @property
    def is_settled(self) -> bool:
        """Whether no slot is free, not even reserved, nobody is overdue and no phase is wide.

        Then nothing can be launched, taken back or kept for others.
        """
        if self._jobs.has_wide:
            return False
        shares = self._shares.of
        for kind, free in self._hosts.free.items():
            if free.by_host or shares[kind].reserved.by_host or shares[kind].overdue:
                return False
            if shares[kind].overdue_jobs():
                return False
        return True

    def shares(self, slot_kind: str) -> Sequence[PoolState]:
        """The shares of all pools in this kind of slot, outer ones first."""
        return self._shares.of[slot_kind].pools()

    def tasks_on(self, host: str) -> TasksOnHost:
        """The tasks that run on a host with resources. They are read once until others do."""
        spare = self._hosts.spare
        if host not in spare.tasks_read:
            found = []
            for (_, task), phase in spare.tasks(host):
                assert isinstance(phase, PhaseState)
                launch, started, speed = phase.launches[task]
                ends = started + phase.work.expected(task) / speed
                held = phase.slot_kind, phase.width, phase.held(launch)
                found.append(TaskOnHost(started, ends, *held, phase, task))
            spare.tasks_read[host] = TasksOnHost(found)
        known: TasksOnHost = spare.tasks_read[host]
        return known

    def phases_of(self, job: str) -> Sequence[PhaseState]:
        """The phases of a job that is not over, in its order."""
        return self._jobs.phases_of(job)

    def capacity(self, slot_kind: str) -> int:
        """The slots of this kind, held and free, on hosts that can begin tasks."""
        return self._hosts.capacity[slot_kind]

    @property
    def has_wide(self) -> bool:
        """Whether a ready phase is wide: one free slot does not decide whether it launches."""
        return self._jobs.has_wide

    @property
    def seen(self) -> TaskTimings:
        """Totals of finished tasks by phase and host; only for the phases begun last.

        They count the tasks that finished since they were first asked for: a policy that needs
        them asks at its first decision.
        """
        return self._finished.seen

    @property
    def unbegun(self) -> Unbegun:
        """The tasks that have not begun, of all admitted jobs, as columns.

        A policy that plans all tasks reads it at each decision: it costs less than O(tasks) in
        Python, because most of it is kept from one reading to the next.
        """
        return self._unbegun.read()

    def phase(self, name: PhaseId) -> PhaseState:
        """A phase of a job that is not over."""
        return self._jobs.phases[name]

    @property
    def awaiting_admission(self) -> list[str]:
        """The jobs that wait for admission, the next one first."""
        return self._jobs.awaiting_admission

    def waits_for_admission(self, job: Job) -> bool:
        """Whether a job waits for admission, or would if it arrived now."""
        if job.id in self._jobs:
            return job.id in self.awaiting_admission
        return self._jobs.is_full(job, self.pools.with_pools([job.pool]))

    @property
    def awaiting_by_pool(self) -> Mapping[str, int]:
        """The number of these jobs in each pool. O(pools and users)."""
        return self._jobs.awaiting_by_pool()

    @property
    def awaiting_jobs(self) -> Mapping[str, Set[str]]:
        """The jobs that wait for other jobs, and for which."""
        return self._jobs.awaiting_jobs

    @property
    def not_admitted(self) -> list[str]:
        """The jobs that wait for others, then those that wait for admission."""
        return [*self.awaiting_jobs, *self.awaiting_admission]

    def is_over(self, job: str) -> bool:
        """Whether a job was among the last to end. A failed one may still hold slots."""
        return self._jobs.is_over(job)

    def limits_reached(self, job: str) -> list[LimitReached]:
        """The limits of running jobs for which a job waits, from the top down."""
        return self._jobs.limits_reached(job, self.pools)

    def jobs_left(self) -> Iterable[Sequence[PhaseState]]:
        """The phases of each admitted job that is not over, in topological order.

        The jobs are in order of arrival.
        """
        return self._jobs.left()

    @property
    def phases_left(self) -> Sequence[PhaseState]:
        """The phases of `jobs_left`, and of jobs that are over since jobs or tasks came, in a
        row. It is kept from one reading to the next."""
        return self._unbegun.phases_left

    def stops_left(self, job: Job) -> float:
        """How many tasks or gangs of a job may be stopped now; inf without a limit."""
        stops_max = self.pools.stop_limits.get(job.pool)
        return inf if stops_max is None else self._jobs.stops.left(job.id, stops_max, self.now)

    def more_stops_from(self, *names: str) -> float:
        """The next instant from which one of these jobs may be stopped more often.

        inf if there is none. By default of all jobs that were stopped: O(these).
        """
        stops, limits = self._jobs.stops, self.pools.stop_limits
        jobs = map(self._jobs.job, names or stops.jobs)
        limited = [(job.id, limits[job.pool]) for job in jobs if job.pool in limits]
        return min([stops.more_from(*one, self.now) for one in limited], default=inf)

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        return self._jobs.attempts_of(job)
