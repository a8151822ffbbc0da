"""The progress of one phase: its pending, running and done tasks, and their measured times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Launch, Locality
from slotwise.core.events import TaskFailed
from slotwise.core.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.core.phase_work import Learned, PhaseWork
from slotwise.core.pool_state import GroupNode, JobShare, PoolState, ShareNode
from slotwise.core.pools import PoolTree
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import MEMORY, Resources, with_slots
from slotwise.core.retries import delay_of
from slotwise.core.sizing import MemoryRequest
from slotwise.core.task_homes import (
    BLOCKED,
    DELAYED,
    DONE,
    DROPPED,
    PENDING,
    RUNNING,
    TaskHomes,
)

# Where tasks of a phase have failed, and on which hosts it therefore begins nothing.

SUSPECT = 3
"""The number of failures of a phase in a row that make their host suspect.

One less than the attempts of a task by default, so that a task can still run elsewhere.
"""


class PhaseFailures:
    """The failures of the tasks of a phase, by task and by host. Lost attempts are none."""

    __slots__ = ("_hosts_of", "_in_a_row")

    def __init__(self) -> None:
        self._hosts_of: dict[int, set[str]] = {}
        self._in_a_row: Counter[str] = Counter()

    def note(self, task: int, host: str) -> None:
        """A task has failed on a host."""
        self._hosts_of.setdefault(task, set()).add(host)
        self._in_a_row[host] += 1

    def clear(self, host: str) -> None:
        """A task has succeeded on a host."""
        self._in_a_row.pop(host, None)

    def other(self, task: int, hosts: Iterable[str]) -> str | None:
        """The first of these hosts where the task has not failed, if there is one."""
        has_failed = self._hosts_of.get(task, ())
        return next((host for host in hosts if host not in has_failed), None)

    def suspects(self, hosts: Iterable[str]) -> Collection[str]:
        """The suspect hosts; empty if all of these hosts are suspect."""
        suspects = {host for host, count in self._in_a_row.items() if count >= SUSPECT}
        return suspects if suspects and not suspects.issuperset(hosts) else ()


SPARED = 2.0
"""How many times as long as its longest stopped attempt a task runs before it is stopped again
for the share of a pool. Above 1, the number of stops is bounded even if shares oscillate."""

MIN_STOPPED = 1e-3
"""The least seconds that a stopped attempt counts: it may be stopped as soon as it begins."""


class PhaseState(ShareNode):
    """A phase in progress. It changes only through its methods, and each is O(1).

    Each task takes one byte, plus an index from hosts and racks to the tasks with input there.
    The tasks of a phase that continues another are `blocked` until the tasks that they continue
    are done. Then each may run only on the host of the task that it continues. Those of a gated
    phase are blocked until they are released. Failed tasks may be `delayed`: they are not
    pending until a `Retry`, which follows at the instant that is noted for each.

    Each task takes its `request` of one host; `needs` is the part of it beside slots. If its
    `memory` is learned, both change: what a running task has is `held`. `stated` is that part
    as the phase states it.
    `running`, `slots_on_lost_hosts`, `demand` and `max_share` count slots, `width` of them for
    each task. A phase `is_wide` if one free slot does not decide whether it can launch: a task
    takes several or has needs, or it is a gang. A gang launches all of its tasks, or none while
    one runs (`unit`). It is broken (`is_broken`) from the end of an attempt without a result
    until none of its tasks runs. It counts against the
    share of a `pool`; `limits` are the shares above it that have a max share, and the
    `resource_limits` of all of them. Its `job_share`
    has all phases of its job that count against the same share, if there are several; while
    this is the node in which it gets slots, it is its `group`, too.

    It may wait for other free slots than those that it is offered (`Defer`):

    deferred_since  when its wait began (last `Defer`); None without one. For a wait that stood
                    still it is later by that time; None while it stands still
    deferred_until  when it is considered again at the latest; None until it is offered slots
    kept_host       the host that is kept for it while it waits (last `Defer`)
    waited          the seconds of a wait that stands still, as a wait for locality does while
                    slots are offered to other phases only; 0 without one
    estimated       the last `estimate` while no task ran, until its tasks change; as long as
                    nothing is learned from other phases (see `ReadyPhases.estimates`)
    has_passed      whether it skipped all slots that were free when this turn of the loop
                    began: none of them is near its input. A `Defer` sets this, and it stays set
                    when the wait is over, because launches bring no slot nearer. It is reset
                    when tasks become pending again. It is not set where a limit may have
                    excluded the phase, or while other phases wait for several slots at once,
                    for which some may be kept
    level           the locality of its last launch of a task that has a home; NODE before it,
                    and for a gang, which launches all of its tasks together
    """

    __slots__ = (
        *("_bad_ends", "_cluster", "_cursor", "_excusers", "_is_sensitive", "_returned"),
        *("_status", "_stopped_after", "_tries", "blocked", "counted", "deferred_since"),
        *("deferred_until", "delayed", "done", "dropped", "early", "estimated", "failures"),
        *("followers",),
        *("group", "has_homes", "has_passed", "homes", "id", "is_broken", "is_gang"),
        *("is_limited", "is_open", "is_pinned", "is_ready", "is_wide", "job", "job_share"),
        *("kept_host", "memory", "needs"),
        *("lacks_input", "launches", "level", "limits", "max_share", "pending", "phase"),
        *("pool", "request", "resource_limits", "shares", "slot_kind", "stated", "stopping"),
        *("successors",),
        *("waited", "waits_for", "width", "work"),
    )

    def __init__(
        self,
        job: Job,
        phase: Phase,
        order: int,
        pool: PoolState,
        pools: PoolTree,
        cluster: Cluster,
        default_work: float,
        learned: Learned,
    ) -> None:
        super().__init__(order, phase.unit)
        self.end_wait()
        self.estimated: tuple[float, float] | None = None
        self.has_passed = False
        self.level = Locality.NODE
        count = phase.tasks.count
        self.id = PhaseId(job.id, phase.name)
        self.job, self.phase = job, phase
        self.width = phase.slots
        self.is_gang = phase.is_gang
        self.is_broken = False
        self.slot_kind = cluster.slot_kind(phase.kind)
        self.stated = phase.needs
        self.set_needs(self.stated)
        self.memory: MemoryRequest | None = None  # unless it is learned
        self.waits_for = set(phase.waits_for)
        self.is_pinned = phase.continues is not None
        self.is_open = phase.grows
        self._cluster = cluster
        self.max_share = self._most()
        self.work = PhaseWork(job, phase, default_work, learned)
        self.launches: dict[int, tuple[Launch, float, float]] = {}
        self.resource_limits: tuple[ResourceLimit, ...] = ()
        self.enter(pool, pools)
        self.successors: list[PhaseState] = []  # the phases that wait for it
        self.followers: list[PhaseState] = []  # of other jobs, which wait task by task
        is_blocked = self.is_pinned or phase.gated or bool(job.after_each)
        self.pending = 0 if is_blocked else count
        self.blocked = count if is_blocked else 0
        self.done = 0
        self.dropped = 0
        self._cursor = 0
        self.counted = 0  # its demand as counted in the shares above it
        self.is_ready = False
        self.lacks_input = False  # It waits again, because input of it was lost.
        self.stopping: dict[int, PoolState | None] = {}
        self._status = bytearray([BLOCKED] * count if is_blocked else count)
        self._returned: list[int] = []
        self._tries: dict[int, int] = {}
        self._bad_ends: dict[tuple[int, bool], int] = {}
        self.delayed: dict[int, float] = {}
        self._stopped_after: dict[int, float] = {}
        self.failures: PhaseFailures | None = None  # until the first one
        self.has_homes = bool(phase.tasks.blocks) or self.is_pinned
        self.homes = TaskHomes(self._status, phase.tasks.blocks, cluster)

    def enter(self, pool: PoolState, pools: PoolTree) -> None:
        """Count against the share of a pool from now on.

        The caller updates the counts, and then the shares of the job.
        """
        self.pool, self.estimated = pool, None
        self.job_share: JobShare | None = None
        self.group: JobShare | None = None
        self.urgency = -PRIORITIES[self.job.priority]
        self.work.enter(self.job.pool)
        self.shares = pools.shares(self.job.pool, self.phase.kind)
        if self.resource_limits or pool.resource_limits:
            for launch, *_ in self.launches.values():
                self._hold(launch, -1)
            self.resource_limits = pool.resource_limits
            for launch, *_ in self.launches.values():
                self._hold(launch, 1)
        self.limits: tuple[PoolState | ResourceLimit, ...] = pool.limits + pool.resource_limits
        self._excusers, self.is_limited = pool.excusers, bool(self.limits)
        # The effect of a guarantee, or of a weight by size, changes with each of its tasks.
        self._is_sensitive = pool.is_guaranteed or pools[self.job.pool].job_weights == "size"
        self.early = self.phase.slow_start < 1 and self._may_begin_early(pools)

    def _may_begin_early(self, pools: PoolTree) -> bool:
        """Whether it holds neither slots, nor parts of a limit, that predecessors need.

        Of other resources they may learn to need more, so that no limit may be stated for them.
        """
        limited = {share.key for share in self.pool.limits}
        before = [self.job.by_name[name].kind for name in self.phase.after]
        return not self.resource_limits and all(
            self._cluster.slot_kind(kind) != self.slot_kind
            and limited.isdisjoint(pools.shares(self.job.pool, kind))
            for kind in before
        )

    def set_needs(self, needs: Resources) -> None:
        """From now on each task that is launched takes this beside slots."""
        self.needs = needs
        self.request = with_slots(self.slot_kind, self.width, needs)
        self.is_wide = self.unit > 1 or bool(needs) or bool(self.phase.hosts)
        self.has_passed = False

    def held(self, launch: Launch) -> Resources:
        """What an attempt that was launched has of its host beside slots."""
        if not launch.memory:
            return self.stated
        return Resources({**self.stated, MEMORY: launch.memory})

    @property
    def able(self) -> Iterable[Resources]:
        """What each host has that its tasks may run on and that holds what they state.

        Of memory at most what its pools may hold.
        Of tasks that continue others only the least of these: they cannot go to a larger one.
        """
        stated = Resources({self.slot_kind: self.width, **self.stated})
        hosts = [host for host in self._cluster.hosts if self.allows(host.name)]
        found = [host.amounts for host in hosts if host.amounts.holds(stated)]
        limits = [limit.most for limit in self.resource_limits if limit.name == MEMORY]
        if limits and (least := min(limits)) >= self.stated.get(MEMORY, 0):
            found = [
                Resources({**one, MEMORY: min(least, one.get(MEMORY, 0))}) for one in found
            ]
        if self.is_pinned and found:
            return [min(found, key=lambda amounts: amounts.get(MEMORY, 0))]
        return found

    def end_wait(self) -> None:
        """It waits for no other slots, and has not waited."""
        self.deferred_since: float | None = None
        self.deferred_until: float | None = None
        self.kept_host: str | None = None
        self.waited = 0.0

    def pause(self, now: float) -> None:
        """From now on its wait stands still: others are offered slots, but it is not."""
        if self.deferred_since is not None:
            self.waited = now - self.deferred_since
            self.deferred_since = self.deferred_until = None

    def resume(self, now: float) -> None:
        """From now on its wait counts again."""
        self.deferred_since, self.waited = now - self.waited, 0.0

    def grow(self, count: int) -> None:
        """Add pending tasks; `phase` has been replaced by one with their number."""
        assert self.is_open, "only a phase that grows gets more tasks"
        self._status += bytes([PENDING]) * count
        self.pending += count
        self.max_share = self._most()
        self.work.grow(count)
        self.has_passed = False

    def allows(self, host: str) -> bool:
        """Whether its tasks may run on a host."""
        return not self.phase.hosts or host in self.phase.hosts

    def _most(self) -> int:
        """The most slots that it can hold on the hosts where its tasks may run."""
        most = self.phase.slots_most
        if self.phase.hosts:
            stated = with_slots(self.slot_kind, self.width, self.stated)
            hosts = [host for host in self._cluster.hosts if self.allows(host.name)]
            most = min(most, sum(host.amounts.times(stated) for host in hosts) * self.width)
        return most

    @property
    def may_launch(self) -> bool:
        """Whether one more task, or its gang, exceeds neither its max share nor a pool's."""
        if self.running + self.unit > self.max_share:
            return False
        return not self.limits or not self.is_at_limit

    def may_adopt(self, launch: Launch) -> bool:
        """Whether a task that an earlier run has begun can count as launched.

        Limits of pools do not matter, since it runs in any case.
        """
        return (
            self.is_ready
            and not (self.is_gang or self.is_pinned)
            and self.allows(launch.host)
            and self._status[launch.task] == PENDING
            and launch.attempt == self.attempt_of(launch.task)
            and self.running + self.unit <= self.max_share
        )

    def adopted(self, task: int, kept: float) -> None:
        """A task was adopted that has done this work before.

        Its pools may hold what they hold now, even if that is more than their max shares.
        """
        self.work.keep(task, kept)
        for share in self.pool.limits:
            share.excess = max(share.excess, share.running)
        for limit in self.resource_limits:
            limit.excess = max(limit.excess, limit.held)

    @property
    def is_at_limit(self) -> bool:
        """Whether a pool above it has no room for one more of its tasks, or its gang."""
        return any(limit.slots_for(self) < self.unit for limit in self.limits)

    @property
    def yields(self) -> bool:
        """Whether one of its pools, near its limit, should get free slots of another kind.

        Such a phase is served after all others.
        """
        return any(
            share.total is not None and share.total.is_turn_of_others(share, self.unit)
            for share in self.pool.limits
        )

    @property
    def demand(self) -> int:
        """The most slots that it can use now, on any host.

        Pinned tasks count only while they run: a slot that a pool gives up would usually be on
        another host. Tasks on unresponsive hosts use no slots of responsive ones, but count
        against its max share.
        """
        usable = self.running if self.is_pinned else self.running + self.pending * self.width
        return (
            usable if usable < self.max_share else self.max_share
        ) - self.slots_on_lost_hosts

    @property
    def has_shrunk(self) -> bool:
        """Whether its demand is below its allocation or its guarantee."""
        demand = self.pending * self.width + self.running - self.slots_on_lost_hosts
        return demand < self.allocated or demand < self.phase.slots_min or self._is_sensitive

    @property
    def overrides_delay(self) -> bool:
        """Whether one of its pools is overdue, so that it must not wait for locality."""
        return bool(self._excusers) and any(share.is_overdue for share in self._excusers)

    @property
    def overdue(self) -> int:
        """The number of its pools that are overdue."""
        return sum(share.is_overdue for share in self._excusers) if self._excusers else 0

    def attempts(self) -> Iterable[tuple[float, Launch]]:
        """The start and launch of each running attempt, without those asked to stop."""
        for task, (launch, started, _) in self.launches.items():
            if task not in self.stopping:
                yield started, launch

    def spared_until(self, task: int) -> float:
        """Until when a running task is stopped for no pool's share, only for a min share."""
        return self.launches[task][1] + SPARED * self._stopped_after.get(task, 0.0)

    def stops(self) -> Iterable[tuple[str, PoolState | None]]:
        """The host of each running attempt that was asked to stop, and the pool it is for."""
        return [(self.launches[task][0].host, pool) for task, pool in self.stopping.items()]

    def next_task(self) -> tuple[int, int]:
        """The pending task to launch next on any host, and the number of that attempt."""
        status = self._status
        while self._returned:
            if status[self._returned[-1]] == PENDING:
                return self._numbered(self._returned[-1])
            self._returned.pop()
        self._cursor = status.index(PENDING, self._cursor)
        return self._numbered(self._cursor)

    def next_task_for(self, hosts: Iterable[str]) -> tuple[int, int, str]:
        """Like `next_task`, and the one of these hosts, the first one if possible, to take.

        A task takes a host where it has not failed if one of these is such a host.
        """
        return self._on(self.next_task()[0], hosts)

    def next_task_without_home(self, hosts: Iterable[str]) -> tuple[int, int, str] | None:
        """Like `next_task_for`, among the tasks whose input is on no host of the cluster."""
        task = None if self.is_pinned else self.homes.task_without_home()
        return None if task is None else self._on(task, hosts)

    def avoided(self, lost: Collection[str]) -> Collection[str]:
        """The hosts where it begins nothing: its tasks may not run there, or only fail there.

        None for its failures if no other host could run them. `lost` are the hosts where
        nothing can begin. Tasks that must run on one host, take several slots, or begin
        together avoid none.
        """
        if self.is_pinned or self.unit > 1 or self.needs:
            return ()
        barred: list[str] = []
        if self.phase.hosts:
            barred = [host.name for host in self._cluster.hosts if not self.allows(host.name)]
        if self.failures is None:
            return barred
        able = [host for host in self._cluster.hosts if host.amounts.holds(self.request)]
        names = [one.name for one in able if self.allows(one.name) and one.name not in lost]
        return [*barred, *self.failures.suspects(names)]

    def pending_tasks(self) -> Sequence[int]:
        """The numbers of its pending tasks, lowest first. O(tasks)."""
        return [task for task, status in enumerate(self._status) if status == PENDING]

    def attempt_of(self, task: int) -> int:
        """The number of the next attempt of a pending task."""
        return self._tries.get(task, 0) + 1

    def locality(self, task: int, host: str) -> Locality:
        """How far a task would run from its input on this host."""
        return self.homes.locality(task, host) if self.phase.tasks.blocks else Locality.NODE

    def next_task_on(self, hosts: Collection[str]) -> tuple[int, int, str] | None:
        """Like `next_task`, among the tasks with input on one of these hosts; also the host."""
        if not self.has_homes:
            return self.next_task_for(hosts)
        found = self.homes.task_on(hosts)
        return found and (found[0], self._tries.get(found[0], 0) + 1, found[1])

    def next_task_in(self, rack: str) -> tuple[int, int] | None:
        """Like `next_task`, among the tasks with input in this rack."""
        if self.is_pinned:
            return None
        task = self.homes.task_in(rack)
        return None if task is None else self._numbered(task)

    def estimate(self, now: float) -> tuple[float, float]:
        """`work_left`, and the standard deviation of the logarithm of that; 0 once measured."""
        if self.launches:
            left, spread = self.work.estimate(now, self.done, self.launches, self.early)
            return self.width * left, spread
        if self.done:
            left, spread = self.work.estimate_idle(self.done)
        else:
            left, spread = self.work.estimate_unbegun()
        self.estimated = found = self.width * left, spread
        return found

    def work_left(self, now: float) -> float:
        """The first value of `estimate`."""
        return self.estimate(now)[0]

    def attained(self, now: float) -> float:
        """The work that its finished and running tasks have done so far, in slot-seconds."""
        return self.width * self.work.attained(now, self.early)

    def launch(self, launch: Launch, now: float, speed: float) -> None:
        """Mark a pending task as running from `now` on a host of this speed."""
        task = launch.task
        assert self._status[task] == PENDING, "only a pending task is launched"
        assert launch.attempt == self._tries.get(task, 0) + 1, "attempts are numbered in order"
        self._status[task] = RUNNING
        self.launches[task] = (launch, now, speed)
        self.pending -= 1
        self.running += self.width
        if self.resource_limits:
            self._hold(launch, 1)
        if self.ends_wait(task):
            self.end_wait()
            if not self.is_gang:
                self.level = launch.locality
        if self.running >= self.max_share:
            self.has_passed = False  # It is not offered slots until it may launch again.
        self.work.launch(task, now, speed)

    def ends_wait(self, task: int) -> bool:
        """Whether a launch of this task ends the wait of its phase: it has a home."""
        return not self.has_homes or self.homes.has_home(task)

    def end(self, task: int, attempt: int) -> tuple[Launch, float] | None:
        """End a running attempt. Its launch and the speed of its host.

        None if no such attempt runs: the message was late or a duplicate.
        """
        entry = self.launches.get(task)
        if entry is None or entry[0].attempt != attempt:
            return None
        del self.launches[task]
        launch, started, speed = entry
        self.running -= self.width
        if self.resource_limits:
            self._hold(launch, -1)
        if self.running:
            self.work.end(task, started, speed)
        else:
            self.work.end_last()
            self.is_broken = False
        return launch, speed

    def _hold(self, launch: Launch, sign: int) -> None:
        """Count what an attempt has in the limits of its pools, or no more (-1)."""
        held = self.held(launch)
        for limit in self.resource_limits:
            limit.held += sign * held.get(limit.name, 0)

    def count_on_lost(self, lost: Collection[str]) -> None:
        """Count what it holds on these unresponsive hosts. O(running tasks)."""
        on_lost = [launch for launch, *_ in self.launches.values() if launch.host in lost]
        self.slots_on_lost_hosts = len(on_lost) * self.width
        for launch in on_lost if self.resource_limits else ():
            for limit in self.resource_limits:
                limit.lost += self.held(launch).get(limit.name, 0)
        for task in self.stopping if self.resource_limits else ():
            if (launch := self.launches[task][0]).host not in lost:
                self.count_stopping(launch, 1)

    def count_stopping(self, launch: Launch, sign: int) -> None:
        """What this attempt has in the limits of its pools will be free, or no more (-1)."""
        for limit in self.resource_limits:
            limit.stopping += sign * self.held(launch).get(limit.name, 0)

    def move_to(self, cluster: Cluster) -> None:
        """The hosts have changed to these. O(tasks) with input, else O(1)."""
        self._cluster = cluster
        if self.phase.hosts:  # Tasks that run on a host which leaves are not too many.
            self.max_share = max(self.running, self._most())
        if self.has_homes:
            self.homes.move_to(cluster)
            self.has_passed = False  # A task may have lost its last home.

    def unblock(self, task: int, host: str) -> None:
        """Make a blocked task pending: the task that it continues is done on this host."""
        assert self.is_blocked(task), "a task is continued once"
        self._status[task] = PENDING
        self.has_passed = False
        self.blocked -= 1
        self.pending += 1
        self.homes.pin(task, host)

    def finish(self, task: int, work: float) -> None:
        """Mark a task that has ended as done; `work` is what it took, in seconds at speed 1."""
        self._status[task] = DONE
        self.done += 1
        self.work.finish(task, work)

    @property
    def tasks_left(self) -> int:
        """The number of tasks that are needed and not done."""
        return self.phase.tasks.count - self.done - self.dropped

    @property
    def has_tasks(self) -> bool:
        """Whether it has tasks that run or may run."""
        return self.pending > 0 or self.running > 0

    def undo(self, task: int) -> bool:
        """Make a done task, whose output was lost, pending again; the estimates stay."""
        if not self.is_done(task):
            return False
        self.work.undo(task, self.done)
        self.done -= 1
        self.put_back(task)
        return True

    def undo_gang(self) -> list[int]:
        """Make all done tasks of a gang pending again; it is broken while others run."""
        tasks = [task for task, status in enumerate(self._status) if status == DONE]
        for task in tasks:
            self.undo(task)
        self.is_broken = self.running > 0
        return tasks

    def block(self, task: int) -> bool:
        """Make a pending or delayed task blocked: its input is not available any more."""
        if self._status[task] == PENDING:
            self.pending -= 1
        elif self.delayed.pop(task, None) is None:
            return False
        self._status[task] = BLOCKED
        self.blocked += 1
        return True

    def release(self, tasks: Iterable[int]) -> None:
        """Make those of these tasks pending that are blocked, but continue no others."""
        for task in filter(self.is_blocked, tasks):
            self._status[task] = PENDING
            self._cursor = min(self._cursor, task)
            self.blocked -= 1
            self.pending += 1
            self.has_passed = False

    def drop(self, tasks: Iterable[int]) -> None:
        """Forget those of these tasks that are blocked or pending: they are not needed."""
        for task in tasks:
            self.block(task)
            if self.is_blocked(task):
                self._status[task] = DROPPED
                self.blocked -= 1
                self.dropped += 1
                self.work.drop(task)

    def is_blocked(self, task: int) -> bool:
        """Whether a task waits for the one that it continues, or is not runnable yet."""
        return self._status[task] == BLOCKED

    def is_done(self, task: int) -> bool:
        """Whether a task is done and its output is available."""
        return self._status[task] == DONE

    def counts_as_done(self, task: int) -> bool:
        """Whether a task is done or not needed."""
        return self._status[task] in (DONE, DROPPED)

    @property
    def has_more(self) -> bool:
        """Whether tasks have not begun, or begin again."""
        return bool(self.pending or self.blocked or self.delayed)

    def lost_too_often(self, task: int, count: int, reason: str) -> str:
        """Why the job fails: the task, or the gang, has lost its slot or output so often."""
        what, which = f"{self.id.phase} task {task}", "this task"
        if self.is_gang:
            what, which = f"gang {self.id.phase}", "this gang"
        why = f": {reason}" if reason else ""
        lost = f"{which} has lost its slot or its output {count} times"
        return f"the output of {what} was lost; {lost}{why}"

    def note_stopped(self, task: int, attempt: int, now: float) -> None:
        """An attempt ends because it was asked to stop; it matters if that was for a pool."""
        entry = self.launches.get(task)
        if entry and entry[0].attempt == attempt and self.stopping.get(task) is not None:
            longest = self._stopped_after.get(task, MIN_STOPPED)
            self._stopped_after[task] = max(now - entry[1], longest)

    def put_back(self, task: int) -> None:
        """Make a task that has ended without a result pending again."""
        self.end_wait()
        self.has_passed = False
        self._status[task] = PENDING
        self._tries[task] = self._tries.get(task, 0) + 1
        self.pending += 1
        self._returned.append(task)
        if self.has_homes:
            self.homes.put_back(task)
        if self.is_gang and self.delayed:  # The whole gang runs again together.
            self._delay((task,), max(self.delayed.values()))

    def delay(self, event: TaskFailed, failures: int, seed: object) -> float:
        """Let a pending task that has failed, or its whole gang, wait; returns until when."""
        assert self.job.retry_delay is not None
        of = *event.phase, event.task, event.attempt
        until = event.at + delay_of(self.job.retry_delay, failures, seed, *of)
        self._delay(self.pending_tasks() if self.is_gang else (event.task,), until)
        return until

    def _delay(self, tasks: Iterable[int], until: float) -> None:
        for task in tasks:
            if self._status[task] == PENDING:
                self._status[task] = DELAYED
                self.delayed[task] = until
                self.pending -= 1

    def due(self, now: float) -> tuple[int, ...]:
        """The delayed tasks that may run again now."""
        return tuple(sorted(task for task, until in self.delayed.items() if until <= now))

    def retry(self, tasks: Iterable[int]) -> None:
        """Make those of these tasks pending that are delayed."""
        for task in tasks:
            if self.delayed.pop(task, None) is not None:
                self._status[task] = PENDING
                self.pending += 1
                self.has_passed = False
                self._returned.append(task)
                if self.has_homes:
                    self.homes.put_back(task)

    def note_failure(self, task: int, host: str) -> None:
        """A task has failed on a host; another one is better for its next attempt."""
        if self.failures is None:
            self.failures = PhaseFailures()
        self.failures.note(task, host)

    def count_bad_end(self, task: int, is_lost: bool) -> int:
        """How often a task has failed (or lost its slot, if `is_lost`), including now."""
        self._bad_ends[task, is_lost] = self._bad_ends.get((task, is_lost), 0) + 1
        return self._bad_ends[task, is_lost]

    def _on(self, task: int, hosts: Iterable[str]) -> tuple[int, int, str]:
        """A task with its attempt, and the host to take: one where it has not failed."""
        other = self.failures.other(task, hosts) if self.failures else None
        return *self._numbered(task), other or next(iter(hosts))

    def _numbered(self, task: int) -> tuple[int, int]:
        return task, self._tries.get(task, 0) + 1


# Whether the counters of a phase agree with its tasks; for tests.


def check_phase(phase: PhaseState) -> None:
    """Assert that the counters of a phase agree with its tasks. O(tasks)."""
    status = phase._status
    assert phase.pending == status.count(PENDING)
    assert phase.running == status.count(RUNNING) * phase.width
    assert status.count(RUNNING) == len(phase.launches)
    assert phase.done == status.count(DONE)
    assert phase.blocked == status.count(BLOCKED)
    assert phase.dropped == status.count(DROPPED)
    assert phase.delayed.keys() == {t for t, one in enumerate(status) if one == DELAYED}
    assert phase.stopping.keys() <= phase.launches.keys()
    assert 0 <= phase.slots_on_lost_hosts <= phase.running
    assert phase.running <= phase.max_share, "a phase never exceeds its max share"
    waits = phase.waits_for and not phase.lacks_input
    assert not phase.running or not waits, "no task runs before its phase is ready"
    if phase.is_gang and not phase.is_broken:
        attempts = {phase.attempt_of(task) for task in range(len(status))}
        assert len(attempts) == 1, "a gang runs as a whole"
        assert not phase.done or not phase.pending, "a gang is done as a whole"
    assert not phase.is_broken or (phase.is_gang and phase.running and not phase.done)
    if phase.done and not phase.launches:
        again = phase.work.estimate(0.0, phase.done, {}, phase.early)
        assert phase.work.estimate_idle(phase.done) == again, "what was kept still holds"
    assert phase.waits_for or not phase.lacks_input, "what lacks input waits for it"


def phases_below(pool: PoolState) -> Iterator[PhaseState]:
    """The phases below a pool with pending tasks, in the order in which they are served."""
    return pool.walk()  # type: ignore[return-value]  # `PhaseBelow` is what pools see of it.


def sorted_below(pool: PoolState, phases: Iterable[PhaseState]) -> list[PhaseState]:
    """Those of these phases with pending tasks, in the order of `phases_below`."""

    def place(phase: PhaseState) -> list[tuple[float, float, int]]:
        """Its rank among its siblings, and those of the nodes that contain it, outer first."""
        found = [phase.rank]
        node: GroupNode = pool if pool.is_in_turn else phase.group or phase.pool
        while node is not pool:
            assert node.parent is not None, "they are below it"
            found, node = [node.rank, *found], node.parent
        return [rank[:3] for rank in found if rank is not None]

    return sorted((phase for phase in phases if phase.rank is not None), key=place)


def group_phases(phases: Sequence[PhaseState]) -> None:
    """Join the phases of a job that count against the same share of a fair pool."""
    if len(phases) == 1:
        return
    of_pool: dict[PoolState, list[PhaseState]] = {}
    for phase in phases:
        of_pool.setdefault(phase.pool, []).append(phase)
    for pool, members in of_pool.items():
        if len(members) > 1 and not pool.is_in_turn:
            share = JobShare(pool, members)
            for phase in members:
                phase.job_share = share
