"""The current state of a run. Events and decisions change it by `apply`.

What policies see of it is in `state_view.py`. It joins the jobs (`jobs.py`), the hosts
(`hosts.py`), the shares of the pools (`shares_by_kind.py`) and the queues. The cost of one
`apply` is proportional to what it changes (plus a logarithm), not to the size of the cluster.
When hosts come, go, become unresponsive or are back, which is rare, all shares are recounted.
`check` asserts that everything is consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf
from typing import Any

from slotwise.estimation.extrapolation import DEFAULT_WORK
from slotwise.model.cluster import Cluster
from slotwise.model.decision import (
    Adjust,
    Decision,
    Defer,
    Enqueue,
    GiveUp,
    Launch,
    Preempt,
    Reallocate,
    Release,
)
from slotwise.model.event import (
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
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    TasksBlocked,
    TasksDropped,
    TasksRunnable,
)
from slotwise.model.job import PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import ShareKey
from slotwise.runtime.offers import LocalityWaitTimer
from slotwise.runtime.phase_check import check_phase
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.state_gates import StateGates
from slotwise.runtime.state_hosts import StateHosts
from slotwise.runtime.state_requests import StateRequests

ATTEMPTS_MAX = 4
"""The number of attempts of a task before its job fails."""

LOSSES_MAX = 16
"""The number of times that a task may lose its slot, or its output, before its job fails."""

UNSEEN = frozenset({LaunchDropped, JobsClosed})
"""Events after which no policy decides anything else than before."""


class State(StateRequests, StateHosts, StateGates):
    """All jobs, phases, slots and waits, as the result of events and decisions.

    A job that is over leaves it: it grows with what is alive, not with what has been.
    `completed` and `failed` tell how jobs ended in the current turn: at what time, or why.
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
    ) -> None:
        """A task may fail `attempts_max` times and lose slot or output `losses_max` times.

        `reserves`: slots that are taken back are reserved for the pool that takes them.
        """
        limits = {False: attempts_max, True: losses_max}
        super().__init__(cluster, pools, default_work, limits, reserves)
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
            ObjectiveChanged: self._objective_changed,
            TaskFinished: self._task_finished,
            TaskFailed: self._task_failed,
            TaskKilled: self._task_killed,
            OutputLost: self._output_lost,
            TasksRunnable: self._tasks_runnable,
            TasksBlocked: self._tasks_blocked,
            TasksDropped: self._tasks_dropped,
            HostLost: self._host_lost,
            HostJoined: self._host_joined,
            HostAdded: self._host_added,
            HostDrained: self._host_leaves,
            HostRemoved: self._host_leaves,
            HostResized: self._host_resized,
            LaunchDropped: lambda event: None,
            Reallocate: self._reallocate,
            Adjust: self._adjust,
            Enqueue: self._queues.replace,
            Launch: self._launch,
            Defer: self._defer,
            Preempt: self._preempt,
            Release: self._release,
            GiveUp: self._give_up,
        }

    @property
    def is_done(self) -> bool:
        """Whether no more jobs will arrive and all that arrived are over."""
        return self._is_closed and not self._phases

    def apply(self, entry: Event | Decision) -> None:
        """Apply an event or a decision. An event for an attempt that is over has no effect."""
        if entry.__class__ not in UNSEEN:
            self.has_changed = True
        self._handlers[entry.__class__](entry)

    def expect_estimates(self) -> None:
        """Keep what tasks took from now on, as an allocator that asks for estimates does."""
        self._learned.keep_all()

    def at(self, now: float) -> State:
        """The state at this instant, for reading only (as a `model.snapshot.Snapshot`)."""
        assert now >= self.now, "time never runs back"
        free_of_kind = self._hosts.free
        for kind, offers in self._offers.items():
            offers.end_turn(self.now, has_free=bool(free_of_kind[kind].by_host))
        self.now = now
        self._queues.has_heard = True
        if self.completed or self.failed:
            self._jobs.new_turn()
        for free in free_of_kind.values():
            free.freed.clear()
        self._shares.at(now)
        return self

    def next_wakeup(self) -> float | None:
        """The next instant at which the scheduler must run even without events, if any."""
        wake, now = self._shares.next_alarm(), self.now
        if self.has_changed and now < self.epoch_ends < wake and self._phases:
            wake = self.epoch_ends
        if self.is_stale and now < self.reallocates_from < wake:
            wake = self.reallocates_from
        waits = self._waits
        while waits:
            until, phase_id = waits[0]
            phase = self._phases.get(phase_id)
            if phase is not None and phase.deferred_until == until and until > now:
                if until < wake:
                    wake = until
                break
            heappop(waits)  # The wait is over, or a launch ended it.
        spared = self._spared
        while spared and spared[0] <= now:
            heappop(spared)
        if spared and spared[0] < wake and self._shares.has_overdue:
            wake = spared[0]
        return None if wake == inf else wake

    # Events.

    def _job_arrived(self, event: JobArrived) -> None:
        job = event.job
        self._add_pool_of(job)
        admitted = self._jobs.arrive(job, self.pools, self._phase)
        self._group(job.id)
        self._begin(admitted)

    def _task_finished(self, event: TaskFinished) -> None:
        phase, task = self._phases.get(event.phase), event.task
        if phase is None:
            return  # A late or repeated message.
        if phase.is_broken:
            self._end_of_broken(event)
            return
        ended = phase.end(task, event.attempt)
        if ended is None:
            return
        launch, speed = ended
        self._free_slot(phase, launch)
        if self._finished.is_read:
            self._finished.note(phase.id, launch.host, phase.expected(task), event.seconds)
        phase.finish(task, event.seconds * speed)
        if phase.failures is not None:
            phase.failures.clear(launch.host)
        done = phase.done
        if not done & (done - 1) or done == phase.phase.tasks.count:
            phase.work.learn(done)  # Not after each task: the mean changes less and less.
        if (not self.has_shrunk or self.changes.is_slight) and phase.has_shrunk:
            self._demand_changed(phase)
        self._settle_end(phase, launch)
        if phase.successors:
            self._unblock_successors(phase, task, launch.host)
        if not phase.pending and not phase.running:
            self._phase_done(phase, event.at)
        else:
            self._forget_if_over(phase.job.id)

    def _task_failed(self, event: TaskFailed) -> None:
        before = self._phases.get(event.phase)
        was_broken = before is not None and before.is_broken
        phase = self._put_back(event)
        if phase is None:
            return
        if not event.lacks_input and not was_broken:  # One start of a gang counts once.
            task = 0 if phase.is_gang else event.task
            count = phase.count_bad_end(task, event.lost)
            is_given_up = self._jobs.is_given_up(phase.job.id)
            is_over = event.final or count >= self._limits[event.lost]
            if is_over and not is_given_up:
                self.doomed[phase.job.id] = event.reason
        self._forget_if_over(phase.job.id)

    def _task_killed(self, event: TaskKilled) -> None:
        stopped = self._phases.get(event.phase)
        if stopped is not None:
            stopped.note_stopped(event.task, event.attempt, event.at)
        phase = self._put_back(event)
        if phase is not None:
            if not phase.is_gang:
                phase.keep(event.task, event.kept)
            self._forget_if_over(phase.job.id)

    def _end_of_broken(self, event: TaskFinished) -> None:
        """A task of a broken gang has finished: its result does not count."""
        phase = self._put_back(event)
        if phase is not None:
            self._forget_if_over(phase.job.id)

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
        phase, now = self._phases[launch.phase], self.now
        kind, width = phase.slot_kind, phase.width
        # After its first task, a gang may launch the others.
        assert phase.may_launch or phase.is_gang, "no share is exceeded"
        free, shares = self._hosts.free[kind], self._of_kind[kind]
        offers = self._offers.get(kind)
        was_reserved = shares.reserved.take(phase, launch.host)
        if offers is not None:
            # Phases before it were not offered slots that were reserved for a pool.
            before = () if was_reserved else shares.whole.walk()
            offers.skip(before, phase, now, phase.ends_wait(launch.task))
        if offers is not None and not free.by_host:
            offers.take_last(now)
        phase.launch(launch, now, self.cluster.by_name[launch.host].speed)
        if launch.attempt > 1:
            heappush(self._spared, phase.spared_until(launch.task))
        if self._queues.by_host:
            self._queues.launched(launch)
        shares.settle(phase, width)

    def _defer(self, decision: Defer) -> None:
        assert decision.until > self.now, "every wake lies ahead"
        phase = self._phases[decision.phase]
        phase.deferred_since, phase.deferred_until = decision.since, decision.until
        phase.waited = 0.0
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
            self._of_kind[phase.slot_kind].tell(phase, decision.task, taker)
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
        self._forget_if_over(decision.job)

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
        for phase in self._phases.values():
            check_phase(phase)
        assert self.cluster is self._hosts.cluster
        for kind in self.cluster.capacity:
            phases = [phase for phase in self._phases.values() if phase.slot_kind == kind]
            of_hosts = self.reserved(kind).values()
            reserved = sum(slots for pools in of_hosts for slots in pools.values())
            self._hosts.check(kind, sum(phase.running for phase in phases) + reserved)
            backlogged = {phase.id for phase in self.backlogged(kind)}
            assert backlogged == {p.id for p in self._jobs.ready[kind].values() if p.pending}
            self._jobs.check(kind, self.pools)
            self._of_kind[kind].check(phases)
        self._shares.check_coming(self._phases.values(), self._hosts.lost)
        for offers in self._offers.values():
            offers.check()
