"""The current state of a run. Events and decisions change it by `apply`.

Policies see its base class, `Snapshot`. It joins jobs (`jobs_in_progress.py`), hosts and queues
(`host_state.py`) and shares of pools (`shares.py`). An `apply` costs what it changes (plus a
logarithm). When hosts come, go or do not respond, which is rare, all shares are recounted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf
from typing import Any

from slotwise.core.cluster import Cluster
from slotwise.core.decisions import (
    Adjust,
    Decision,
    Defer,
    Enqueue,
    GiveUp,
    Launch,
    Preempt,
    Reallocate,
    Release,
    Retry,
    WouldPreempt,
)
from slotwise.core.dependencies import CANCELLED, MAX_OVER
from slotwise.core.estimation import DEFAULT_WORK
from slotwise.core.events import (
    UNSEEN,
    Event,
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
    HostResized,
    JobArrived,
    JobCancelled,
    JobChanged,
    JobsClosed,
    LaunchDropped,
    ObjectiveChanged,
    OutputLost,
    PhaseClosed,
    PoolsChanged,
    SchedulerChanged,
    TaskAdopted,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.jobs_in_progress import (
    block_successors,
    release_successors,
    unblock_successors,
    wait_for_lost,
)
from slotwise.core.phase_state import PhaseState, group_phases, phases_below
from slotwise.core.phase_work import Learned
from slotwise.core.pool_state import PoolState
from slotwise.core.pools import Pool, PoolTree, ShareKey
from slotwise.core.promises import promise_handlers
from slotwise.core.retries import ATTEMPTS_MAX, LOSSES_MAX
from slotwise.core.shares import SharesByKind
from slotwise.core.snapshot import Snapshot
from slotwise.core.state_check import check_state
from slotwise.core.turns import LocalityWaitTimer, first_wait


class State(Snapshot):
    """All jobs, phases, slots and waits, as the result of events and decisions.

    A job that is over leaves it: it grows with what is alive, not with what has been.
    `completed` and `failed` hold how jobs ended in the current turn: at what time, or why.
    `adopted` says of each task that an earlier run had begun whether it counts as running.
    """

    def __init__(
        self,
        cluster: Cluster,
        pools: Iterable[Pool] = (),
        *,
        attempts_max: int = ATTEMPTS_MAX,
        losses_max: int = LOSSES_MAX,
        default_work: float = DEFAULT_WORK,
        reserves: bool = True,
        over_most: int = MAX_OVER,
        seed: object = 0,
        user: str | None = None,
    ) -> None:
        """A task may fail `attempts_max` times and lose slot or output `losses_max` times.

        `reserves`: slots that are taken back are reserved for the pool that takes them.
        `seed`: what the jitter of the delays of failed tasks is drawn from.
        `user`: whose jobs those are that state no user.
        `over_most`: the number of jobs that are over and known to those that wait for them.
        """
        super().__init__(cluster, pools, over_most, user)
        self._is_closed = False  # No more jobs arrive.
        self._left: set[str] = set()  # the hosts that have left, or will
        self._default_work, self._limits = default_work, {False: attempts_max, True: losses_max}
        self._reserves, self._seed = reserves, seed
        # Of the kinds of slots for which phases waited:
        self._offers: dict[str, LocalityWaitTimer] = {}
        self._learned = Learned(default_work)
        self._phases = self._jobs.phases
        self.completed, self.failed = self._jobs.completed, self._jobs.failed
        self.adopted: dict[TaskAdopted, bool] = {}
        self._of_kind = self._shares.of
        self._waits: list[tuple[float, PhaseId]] = []
        self._spared: list[float] = []  # when tasks may be stopped again for a pool's share
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            JobsClosed: self._jobs_closed,
            JobCancelled: self._job_cancelled,
            JobChanged: self._job_changed,
            TasksAdded: self._tasks_added,
            PhaseClosed: self._phase_closed,
            PoolsChanged: self._pools_changed,
            ObjectiveChanged: self._aim_changed,
            SchedulerChanged: self._aim_changed,
            TaskFinished: self._task_finished,
            TaskFailed: self._task_failed,
            TaskKilled: self._task_killed,
            OutputLost: self._output_lost,
            TasksRunnable: self._tasks_runnable,
            TasksBlocked: self._tasks_blocked,
            TasksDropped: self._tasks_dropped,
            TaskAdopted: self._task_adopted,
            HostLost: self._host_responds,
            HostJoined: self._host_responds,
            HostAdded: self._host_added,
            HostDrained: self._host_leaves,
            HostRemoved: self._host_leaves,
            HostResized: self._host_resized,
            LaunchDropped: lambda event: None,
            Reallocate: self._reallocate,
            Adjust: self._adjust,
            Enqueue: self.queues.replace,
            Launch: self._launch,
            Defer: self._defer,
            Preempt: self._preempt,
            WouldPreempt: lambda decision: self._shares.note_dry_run(decision.pool),
            Release: self._release,
            GiveUp: self._give_up,
            Retry: self._retry,
            **promise_handlers(self),
        }

    @property
    def is_done(self) -> bool:
        """Whether no more jobs will arrive and all that arrived are over."""
        return self._is_closed and not self._phases

    def apply(self, entry: Event | Decision) -> None:
        """Apply an event or a decision. An event for an attempt that is over has no effect."""
        self.has_changed = self.has_changed or entry.__class__ not in UNSEEN
        if self._jobs.waits_changed is not None:
            self._jobs.note_entry(entry)
        if self.promises.open:
            self.promises.note(entry)
        self._handlers[entry.__class__](entry)

    def expect_estimates(self) -> None:
        """Keep what tasks took from now on, as an allocator that asks for estimates does."""
        self._learned.keep_all()

    def at(self, now: float) -> State:
        """The state at this instant, for reading only (as a `Snapshot`)."""
        assert now >= self.now, "time never runs back"
        for kind, offers in self._offers.items():
            offers.end_turn(self.now, has_free=bool(self._hosts.free[kind].by_host))
        self.now = now
        self.queues.has_time_passed = True
        self.adopted.clear()
        if self.completed or self.failed:
            self._jobs.new_turn()
        for free in self._hosts.free.values():
            free.freed.clear()
        self._shares.at(now)
        return self

    def next_wakeup(self) -> float | None:
        """The next instant at which the scheduler must run even without events, if any."""
        wake, now = self.promises.next_wakeup(self.now) if self.promises.open else inf, self.now
        if self.has_changed and now < self.epoch_ends < wake and self._phases:
            wake = self.epoch_ends
        if self.is_stale and now < self.reallocates_from < wake:
            wake = self.reallocates_from
        if self.delays and now < self.delays[0][0] < wake:
            wake = self.delays[0][0]
        first = first_wait(self._waits, self._phases, now) if self._waits else inf
        wake = min(wake, self._shares.next_alarm(), first)
        while (spared := self._spared) and spared[0] <= now:
            heappop(spared)
        if (spared or self.pools.stop_limits) and self._shares.has_overdue:
            wake = min([wake, *spared[:1], self.more_stops_from()])
        return None if wake == inf else wake

    # Events of jobs and tasks.

    def _job_arrived(self, event: JobArrived) -> None:
        job = event.job
        self._add_pool_of(job)
        if self.promises.arrive(job):
            self._learned.keep_all()
        admitted = self._jobs.arrive(job, self.pools, self._phase)
        group_phases(self._jobs.phases_of(job.id))
        for phase in self._jobs.phases_of(job.id):
            if phase.phase.hosts and phase.phase.hosts <= self._left:
                self._strand(phase, min(phase.phase.hosts))
        self._begin(admitted)
        if job.after_each:
            for name in sorted(job.after_each):
                for before in self._jobs.phases_of(name):
                    before.followers.append(self._jobs.phases_of(job.id)[0])
            self._feed(self._jobs.phases_of(job.id)[0])
        for follower in self._jobs.waits_for_each(job.id):
            self._jobs.phases_of(job.id)[0].followers.append(follower)

    def _task_finished(self, event: TaskFinished) -> None:
        phase, task = self._phases.get(event.phase), event.task
        if phase is None:
            return  # A late or repeated message.
        if phase.is_broken:
            if self._put_back(event):  # A task of a broken gang: its result does not count.
                self._forget_if_over(phase.job.id)
            return
        ended = phase.end(task, event.attempt)
        if ended is None:
            return
        launch, speed = ended
        self._free_slot(phase, launch)
        if self._finished.is_read:
            self._finished.note(phase.id, launch.host, phase.work.expected(task), event.seconds)
        phase.finish(task, event.seconds * speed)
        if phase.failures is not None:
            phase.failures.clear(launch.host)
        done = phase.done
        if event.peak is not None and self._jobs.learn_memory(phase, task, event.peak):
            self.is_stale = self.has_shrunk = True  # What it requests has changed.
        if not done & (done - 1) or done == phase.phase.tasks.count:
            phase.work.learn(done)  # Not after each task: the mean changes less and less.
        if (not self.has_shrunk or self.changes.is_slight) and phase.has_shrunk:
            self._demand_changed(phase)
        self._settle_end(phase, launch)
        if phase.is_wide:
            self._jobs.note_end(phase)
        if phase.successors:
            self._unblock_successors(phase, task, launch.host)
        for follower in phase.followers:
            self._feed(follower, (task,))
        if not phase.pending and not phase.running:
            self._phase_done(phase, event.at)
        else:
            self._forget_if_over(phase.job.id)

    def _task_failed(self, event: TaskFailed) -> None:
        before = self._phases.get(event.phase)
        was_broken = before is not None and before.is_broken
        if (phase := self._put_back(event)) is None:
            return
        if not event.lacks_input and not was_broken:  # One start of a gang counts once.
            count = phase.count_bad_end(0 if phase.is_gang else event.task, event.lost)
            is_given_up = self._jobs.is_given_up(phase.job.id)
            stated = None if event.lost else phase.job.attempts
            is_over = event.final or count >= (stated or self._limits[event.lost])
            if is_over and not is_given_up:
                self.doomed[phase.job.id] = event.reason
            elif phase.job.retry_delay and not event.lost:
                heappush(self.delays, (phase.delay(event, count, self._seed), phase.id))
                self._demand_changed(phase)
                self._settle_gated(phase)
        self._forget_if_over(phase.job.id)

    def _task_killed(self, event: TaskKilled) -> None:
        if stopped := self._phases.get(event.phase):
            stopped.note_stopped(event.task, event.attempt, event.at)
        if (phase := self._put_back(event)) is not None:
            if not phase.is_gang:
                phase.work.keep(event.task, event.kept)
            self._forget_if_over(phase.job.id)

    # Requests of users.

    def _jobs_closed(self, event: JobsClosed) -> None:
        self._is_closed = True

    def _job_cancelled(self, event: JobCancelled) -> None:
        if event.job in self._jobs and not self._jobs.is_given_up(event.job):
            self.doomed[event.job] = CANCELLED

    def _job_changed(self, event: JobChanged) -> None:
        if event.job not in self._jobs or self._jobs.is_given_up(event.job):
            return
        old = self._jobs.job(event.job)
        job = event.applied_to(old)
        self._add_pool_of(job)
        admitted = self._jobs.change(job, self.pools)
        phases = self._jobs.phases_of(job.id)
        if job.pool == old.pool and not any(phase.job_share for phase in phases):
            for phase in phases:
                self._of_kind[phase.slot_kind].set_priority(phase)
        elif (job.pool, job.priority) != (old.pool, old.priority):
            for phase in phases:
                phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
            group_phases(phases)
            self._jobs.refresh(phases)
            self._recount()
        self._outdate_queues()
        self._reallocate_now()
        self._begin(admitted)

    def _tasks_added(self, event: TasksAdded) -> None:
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return  # Its job is over.
        was_idle = not phase.pending and not phase.running
        self._jobs.replace(phase.job.grown(event.phase.phase, event.count))
        phase.grow(event.count)
        self._demand_changed(phase)
        self._outdate_queues()
        if was_idle:
            self._make_ready(phase)
        else:
            self._settle(phase, 0)

    def _phase_closed(self, event: PhaseClosed) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            phase.is_open = False
            if not phase.pending and not phase.running:
                self._phase_done(phase, event.at)

    def _pools_changed(self, event: PoolsChanged) -> None:
        """Replace the pools. The turns of pools and the clocks of their shortages restart."""
        jobs = {phase.job.pool for phase in self._phases.values()}
        self.pools, old = PoolTree(event.pools).with_pools(sorted(jobs)), self._shares
        self._shares = SharesByKind(self._hosts.free)
        self._shares.at(self.now)
        self._of_kind = self._shares.of
        for phase in self._phases.values():
            phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
        for job in dict.fromkeys(phase.job.id for phase in self._phases.values()):
            group_phases(self._jobs.phases_of(job))
        self._jobs.refresh(self._phases.values())
        old.hand_over(self._shares, self._phases.values())
        self._recount()
        self._reallocate_now()
        self._begin(self._jobs.readmit(self.pools))

    def _aim_changed(self, event: ObjectiveChanged | SchedulerChanged) -> None:
        if isinstance(event, ObjectiveChanged):
            self.objective = (event.penalty, event.aggregate)
        else:
            self.scheduler, self.virtual = event.name, None
        self._reallocate_now()

    # Hosts, and output that is lost with them.

    def _host_responds(self, event: HostLost | HostJoined) -> None:
        """A host does not respond any more, or again."""
        if isinstance(event, HostLost):
            self._shares.release_host(event.host)
            self._hosts.lose(event.host)
        else:
            self._hosts.join(event.host)
        self._hosts_changed()

    def _host_added(self, event: HostAdded) -> None:
        self._left.discard(event.host.name)
        for kind in self._hosts.add(event.host):
            self._jobs.add_kind(kind)
            self._shares.add(kind, self.now, self.pools)
        self._hosts_changed()

    def _host_resized(self, event: HostResized) -> None:
        self._shares.release_host(event.host)
        self._hosts.resize(event.host, event.slots)
        self._hosts_changed()

    def _host_leaves(self, event: HostDrained | HostRemoved) -> None:
        """The host leaves now, or when its last attempt has ended.

        Attempts on a removed host are lost: their ends are reported in the same turn.
        """
        self._shares.release_host(event.host)
        self._left.add(event.host)
        self._hosts.leave(event.host)
        self._let_go(event.host)
        self._hosts_changed()
        for phase in self._phases.values():
            if phase.is_pinned and phase.homes.has_pinned_to(event.host):
                self._strand(phase, event.host)
            hosts = phase.phase.hosts
            leaves = event.host in hosts and not any(map(self._hosts.is_staying, hosts))
            ends = phase.running and isinstance(event, HostRemoved)
            if leaves and (phase.has_more or ends):
                self._strand(phase, event.host)

    def _output_lost(self, event: OutputLost) -> None:
        """Make tasks pending again. No effect on tasks that are not done."""
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return
        if not phase.is_gang:
            tasks = [task for task in event.tasks if phase.undo(task)]
        else:  # All of them are done again.
            tasks = self._break(phase) if any(map(phase.is_done, event.tasks)) else []
        if not tasks:
            return
        self.is_stale = True
        self.changes.invalidate()
        self._outdate_queues()
        self._jobs.phase_undone(phase)
        for task in tasks:
            self._block_if_early(phase, task)
        for task in (0,) if phase.is_gang else tasks:
            count = phase.count_bad_end(task, is_lost=True)
            if count >= self._limits[True]:
                self.doomed[phase.job.id] = phase.lost_too_often(task, count, event.reason)
        for name in phase.phase.after:  # It did not wait for them while it was done.
            wait_for_lost(phase, self._phases[PhaseId(phase.job.id, name)])
        for other in block_successors(phase, tasks):
            if other.waits_for or not other.has_tasks:
                self._make_unready(other)
            else:
                self._settle(other, 0)
        if phase.waits_for or phase.is_ready or not phase.has_tasks:
            self._settle(phase, 0)
        else:
            self._make_ready(phase)

    # Changes of the tasks of gated phases. Those of jobs that are over have no effect.

    def _tasks_runnable(self, event: TasksRunnable) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            phase.release(event.tasks)
            self._demand_changed(phase)
            self._outdate_queues()
            self._settle_gated(phase)

    def _tasks_blocked(self, event: TasksBlocked) -> None:
        phase = self._phases.get(event.phase)
        if phase is not None:
            for task in event.tasks:
                phase.block(task)
            self._settle_gated(phase)

    def _tasks_dropped(self, event: TasksDropped) -> None:
        phase = self._phases.get(event.phase)
        if phase is None:
            return
        phase.drop(event.tasks)
        for follower in phase.followers:
            self._feed(follower, event.tasks)
        if phase.has_tasks or phase.blocked:
            self._settle_gated(phase)
        else:
            self._phase_done(phase, event.at)

    def _task_adopted(self, event: TaskAdopted) -> None:
        """Count a task as launched, unless it cannot begin or its host has no room for it."""
        phase, launch, self.adopted[event] = self._phases.get(event.phase), event.launch, False
        if phase and phase.may_adopt(launch) and self._hosts.has_room(launch, phase):
            self.adopted[event] = True
            self._begin_attempt(phase, launch)
            phase.adopted(event.task, event.kept)

    def _settle_gated(self, phase: PhaseState) -> None:
        """Update the shares above a phase; it is ready while it has tasks that may run."""
        self._outdate_queues()
        waits = not self._jobs.may_begin(phase.job) or (phase.waits_for and not phase.is_ready)
        if waits or phase.is_ready == phase.has_tasks:
            self._settle(phase, 0)
        elif phase.is_ready:
            self._make_unready(phase)
        else:
            self._make_ready(phase)

    # Decisions.

    def _reallocate(self, decision: Reallocate) -> None:
        assert decision.until > self.now, "every epoch ends in the future"
        self._shares.reallocate(self._jobs.ready, decision.slots, decision.in_turn)
        self.epoch_ends, self.reallocates_from = decision.until, decision.earliest
        self.virtual = decision.virtual
        self.changes.reallocated(decision, self._phases, self.cluster.capacity)
        self.is_stale = self.has_changed = self.has_shrunk = False

    def _adjust(self, decision: Adjust) -> None:
        assert decision.until > self.now, "every epoch ends in the future"
        ended = self.changes.ended
        assert ended.keys() <= decision.slots.keys(), "phases that left hold no slots"
        self._shares.adjust(self._phases, decision.slots, ended)
        self.epoch_ends, self.reallocates_from = decision.until, decision.earliest
        self.changes.adjusted()
        self.is_stale = self.has_changed = self.has_shrunk = False

    def _launch(self, launch: Launch) -> None:
        phase = self._phases[launch.phase]
        # After its first task, a gang may launch the others.
        assert phase.may_launch or phase.is_gang, "no share is exceeded"
        self._begin_attempt(phase, launch)

    def _begin_attempt(self, phase: PhaseState, launch: Launch) -> None:
        now, kind, width = self.now, phase.slot_kind, phase.width
        free, shares = self._hosts.free[kind], self._of_kind[kind]
        offers = self._offers.get(kind)
        reserved, host = shares.reserved, launch.host
        was_reserved = host in reserved.by_host and reserved.release_for(phase, host)
        self._hosts.take(launch, phase)
        if offers is not None:
            # Phases before it were not offered slots that were reserved for a pool.
            before = () if was_reserved else phases_below(shares.whole)
            offers.skip(before, phase, now, phase.ends_wait(launch.task))
        if offers is not None and not free.by_host:
            offers.take_last(now)
        phase.launch(launch, now, self.cluster.by_name[launch.host].speed)
        if phase.is_wide and phase.deferred_since is None:
            self._jobs.end_wait(phase)
        if launch.attempt > 1:
            heappush(self._spared, phase.spared_until(launch.task))
        if self.queues.by_host:
            self.queues.launched(launch)
        shares.settle(phase, width)

    def _defer(self, decision: Defer) -> None:
        assert decision.until > self.now, "every wake lies ahead"
        phase = self._phases[decision.phase]
        phase.deferred_since, phase.deferred_until = decision.since, decision.until
        phase.waited, phase.kept_host = 0.0, decision.host
        if phase.is_wide:
            self._jobs.begin_wait(phase)
        if phase.slot_kind not in self._offers:
            self._offers[phase.slot_kind] = LocalityWaitTimer()
        self._offers[phase.slot_kind].defer(phase)
        # While phases wait for several slots at once, some may be kept from it.
        phase.has_passed = not phase.is_limited and not self.has_wide
        heappush(self._waits, (decision.until, decision.phase))

    def _preempt(self, decision: Preempt) -> None:
        """The slot stays held until the backend reports that the attempt has ended."""
        phase = self._phases[decision.phase]
        self.broken.pop(decision.phase, None)
        if decision.task not in phase.stopping:  # Otherwise it was asked before.
            taker = self._shares.taker(decision.pool, phase.slot_kind)
            if decision.pool and not (phase.is_gang and phase.stopping):
                self._jobs.stops.note(phase.job.id, self.now)  # A gang stops once.
            self._of_kind[phase.slot_kind].ask_to_stop(phase, decision.task, taker)
            if decision.host in self._hosts.lost:
                self._recount()

    def _release(self, decision: Release) -> None:
        shares = self._of_kind.get(decision.slot_kind)
        share = shares and shares.get(ShareKey(decision.pool, decision.kind))
        if shares and share:  # Otherwise somebody has changed the log.
            shares.reserved.release(decision.host, share, decision.slots)

    def _give_up(self, decision: GiveUp) -> None:
        self.doomed.pop(decision.job, None)
        self._outdate_queues()
        self._begin(self._jobs.give_up(decision.job, decision.reason, self.pools))
        for phase in self._jobs.phases_of(decision.job):
            self._make_unready(phase)
            self.broken.pop(phase.id, None)
            for follower in phase.followers:
                self._feed(follower)
        self._forget_if_over(decision.job)

    def _retry(self, decision: Retry) -> None:
        phase = self._phases[decision.phase]
        phase.retry(decision.tasks)
        self._demand_changed(phase)
        self._settle_gated(phase)

    # Changes that involve several parts.

    def _feed(self, follower: PhaseState, tasks: Iterable[int] | None = None) -> None:
        """Let those of these tasks begin for which the same tasks of other jobs are done.

        The tasks of jobs that are over are done. By default, all tasks are examined.
        """
        job = follower.job
        if follower.id not in self._phases or self._jobs.is_given_up(job.id):
            return
        alive = []
        for other in job.after_each:
            if not self._jobs.is_over(other):
                phases = self._jobs.phases_of(other)
                if not phases:
                    return  # It has not arrived.
                alive.append(phases[0])
        if tasks is None:
            tasks = range(job.phases[0].tasks.count)
        fed = [task for task in tasks if all(before.counts_as_done(task) for before in alive)]
        if fed:
            follower.release(fed)
            for before in alive:
                self._begin(self._jobs.element_done(job, before.job.id, self.pools))
            self._demand_changed(follower)
            self._settle_gated(follower)

    def _put_back(self, event: TaskFailed | TaskKilled | TaskFinished) -> PhaseState | None:
        """End an attempt without a result. Its phase, or None if the message came too late."""
        phase = self._phases.get(event.phase)
        ended = phase and phase.end(event.task, event.attempt)
        if not phase or not ended:
            return None
        self._free_slot(phase, ended[0])
        self._outdate_queues()
        phase.put_back(event.task)
        if isinstance(event, TaskFailed) and not event.lost:
            phase.note_failure(event.task, ended[0].host)
        if isinstance(event, TaskFailed) and self._jobs.raise_memory(phase, ended[0], event):
            self.is_stale = self.has_shrunk = True
        if phase.is_gang:
            self._break(phase)
        self._block_if_early(phase, event.task)
        self._settle_end(phase, ended[0])
        if phase.is_ready and not phase.has_tasks:
            self._make_unready(phase)
        if phase.is_pinned and not self._hosts.is_staying(ended[0].host):
            self._strand(phase, ended[0].host)
        return phase

    def check(self) -> None:
        """Assert every invariant. O(size of the state); for tests."""
        check_state(self)

    def _outdate_queues(self) -> None:
        """Jobs, tasks or hosts that the queues do not cover came or went."""
        self.queues.is_outdated = True
        self._unbegun.outdate()

    def _add_pool_of(self, job: Job) -> None:
        if job.pool not in self.pools or job.pool in self.pools.inner:
            self.pools = self.pools.with_pools([job.pool])

    def _begin(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._outdate_queues()
            for phase in self._jobs.phases_of(job.id):
                if not phase.waits_for and phase.has_tasks:
                    self._make_ready(phase)

    def _hosts_changed(self) -> None:
        """Update shares: slots, held ones included, were added or removed.

        The next allocation does not wait for the end of a rest: meanwhile the old one would
        give new slots to phases that hold their shares.
        """
        self._outdate_queues()
        self._reallocate_now()
        if self.cluster is not self._hosts.cluster:
            self.cluster = self._hosts.cluster
            for phase in self._phases.values():
                phase.move_to(self.cluster)
                self._jobs.request_memory(phase)
        self._recount()

    def _reallocate_now(self) -> None:
        self.is_stale, self.reallocates_from = True, -inf
        self.changes.invalidate()

    def _block_if_early(self, phase: PhaseState, task: int) -> None:
        """Block a pending task if the output of the task that it continues was lost.

        The tasks of a gated phase are blocked until they are reported as runnable again.
        """
        if phase.phase.gated:
            phase.block(task)
        if phase.phase.continues is not None:
            before = self._phases[PhaseId(phase.job.id, phase.phase.continues)]
            if not before.is_done(task):
                phase.block(task)

    def _break(self, phase: PhaseState) -> list[int]:
        """Make the done tasks of a gang pending again, and let the running ones be stopped.

        An attempt has ended without a result, or output was lost. Returns the done tasks.
        """
        was_broken = phase.is_broken
        tasks = phase.undo_gang()
        if tasks:
            self.is_stale = True
            self.changes.invalidate()
        if not phase.is_broken:
            self.broken.pop(phase.id, None)
        elif not was_broken and not self._jobs.is_given_up(phase.job.id):
            self.broken[phase.id] = None
        return tasks

    def _free_slot(self, phase: PhaseState, launch: Launch) -> None:
        self._hosts.give_back(launch, phase)
        if phase.stopping:
            shares = self._of_kind[phase.slot_kind]
            taker = shares.ended(phase, launch)
            if taker is not None and self._reserves:
                shares.reserved.add(launch.host, taker, phase.width)

    def _settle_end(self, phase: PhaseState, launch: Launch) -> None:
        """Update the shares above a phase after one of its attempts has ended."""
        if launch.host not in self._hosts.lost:
            self._of_kind[phase.slot_kind].settle(phase, -phase.width)
            return
        self._jobs.waits_changed = None
        if self._let_go(launch.host):
            self._hosts_changed()
        else:
            self._recount()
        self._demand_changed(phase)  # It may use more slots of responsive hosts.

    def _let_go(self, host: str) -> bool:
        """Remove a host that is to leave if no attempt runs there; whether it has left now."""
        if has_left := self._hosts.forget_if_idle(host):
            self._finished.forget(host)
        return has_left

    def _strand(self, phase: PhaseState, host: str) -> None:
        """A pending task can only run on a host that leaves: its job cannot succeed."""
        if not self._jobs.is_given_up(phase.job.id):
            reason = f"host {host} leaves, where a task of phase {phase.id.phase} must run"
            self.doomed.setdefault(phase.job.id, reason)

    def _recount(self) -> None:
        self.changes.invalidate()
        self._shares.recount(self._phases.values(), self._hosts.lost)

    def _settle(self, phase: PhaseState, held: int) -> None:
        self._of_kind[phase.slot_kind].settle(phase, held)

    def _demand_changed(self, phase: PhaseState) -> None:
        self.has_shrunk = True
        if phase.is_ready:
            self.changes.note(phase)

    def _make_ready(self, phase: PhaseState) -> None:
        self._jobs.make_ready(phase)
        self.changes.note(phase)
        self._settle(phase, 0)
        self.is_stale = True

    def _make_unready(self, phase: PhaseState) -> None:
        self._jobs.make_unready(phase)
        self.changes.leave(phase)
        if phase.slot_kind in self._offers:
            self._offers[phase.slot_kind].leave(phase, self.now)
        self._settle(phase, 0)
        self.is_stale = True

    def _unblock_successors(self, phase: PhaseState, task: int, host: str) -> None:
        """Update the phases that need not wait for all tasks of this phase."""
        for other in unblock_successors(phase, task, host):
            if other.is_pinned and not self._hosts.is_staying(host):
                self._strand(other, host)
            if other.is_ready:
                self._demand_changed(other)  # The next epoch handles it.
                self._settle(other, 0)
            elif not self._jobs.is_given_up(phase.job.id):
                self._make_ready(other)

    def _phase_done(self, phase: PhaseState, at: float) -> None:
        self._make_unready(phase)
        if phase.blocked or phase.delayed or phase.is_open:
            return  # Its other tasks continue tasks that are not done, or come later.
        if not self._jobs.is_given_up(phase.job.id):
            for other in release_successors(phase):
                self._make_ready(other)
            self._begin(self._jobs.phase_done(phase, at, self.pools))
            if phase.job.id in self.completed:
                self.doomed.pop(phase.job.id, None)  # It was cancelled too late.
        self._forget_if_over(phase.job.id)

    def _forget_if_over(self, job: str) -> None:
        """Drop a job that has ended and holds no slots, and after the last one its phases."""
        self._jobs.forget_if_over(job)
        if not self._phases:
            self.changes.adjusted()

    def _phase(self, job: Job, phase: Phase, order: int) -> PhaseState:
        share = self._share(job, phase, self.cluster.slot_kind(phase.kind))
        learned, default = self._learned, self._default_work
        made = PhaseState(job, phase, order, share, self.pools, self.cluster, default, learned)
        self._jobs.request_memory(made)
        return made

    def _share(self, job: Job, phase: Phase, slot_kind: str) -> PoolState:
        """The share of its pool that a phase counts against."""
        keys = self.pools.shares(job.pool, phase.kind)
        return self._of_kind[slot_kind].share(keys, self.pools)
