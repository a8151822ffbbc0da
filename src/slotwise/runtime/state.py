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
from typing import Any, Literal

from slotwise.estimation.extrapolation import DEFAULT_WORK
from slotwise.model.cluster import Cluster
from slotwise.model.decision import (
    Decision,
    Defer,
    Enqueue,
    GiveUp,
    Launch,
    Preempt,
    Reallocate,
)
from slotwise.model.event import (
    Event,
    HostAdded,
    HostDrained,
    HostJoined,
    HostLost,
    HostRemoved,
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
)
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.runtime.finished import Finished
from slotwise.runtime.hosts import Hosts
from slotwise.runtime.jobs import Jobs, hold_followers, release_followers, tell_followers
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState
from slotwise.runtime.queues import Queues
from slotwise.runtime.shares_by_kind import SharesByKind
from slotwise.runtime.state_view import StateView

ATTEMPTS_MAX = 4
"""The number of attempts of a task before its job fails."""

LOSSES_MAX = 16
"""The number of times that a task may lose its slot before it is taken to be the cause."""

CANCELLED = "cancelled"
"""The reason why a cancelled job failed."""

UNSEEN = frozenset({LaunchDropped, JobsClosed})
"""Events after which no policy decides anything else than before."""


class State(StateView):
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
    ) -> None:
        """A task may fail `attempts_max` times and lose its slot `losses_max` times."""
        self.cluster = cluster
        self.pools = PoolTree(pools)
        self.now = 0.0
        self.doomed: dict[str, str] = {}
        self.is_stale = self.has_changed = self.has_shrunk = False
        self.epoch_ends = self.reallocates_from = -inf
        self.objective: tuple[str, Literal["sum", "max"]] | None = None
        self._is_closed = False  # No more jobs arrive.
        self._limits = {False: attempts_max, True: losses_max}
        self._default_work = default_work
        self._hosts = Hosts(cluster)
        self._queues = Queues()
        self._finished = Finished()
        self._jobs = Jobs(cluster.capacity)
        self._phases = self._jobs.phases
        self.completed, self.failed = self._jobs.completed, self._jobs.failed
        self._shares = SharesByKind(self._hosts.free)
        self._of_kind = self._shares.of
        self._waits: list[tuple[float, PhaseId]] = []
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
            HostLost: self._host_lost,
            HostJoined: self._host_joined,
            HostAdded: self._host_added,
            HostDrained: self._host_leaves,
            HostRemoved: self._host_leaves,
            LaunchDropped: lambda event: None,
            Reallocate: self._reallocate,
            Enqueue: self._queues.replace,
            Launch: self._launch,
            Defer: self._defer,
            Preempt: self._preempt,
            GiveUp: self._give_up,
        }

    @property
    def is_done(self) -> bool:
        """Whether no more jobs will arrive and all that arrived are over."""
        return self._is_closed and not self._jobs

    def apply(self, entry: Event | Decision) -> None:
        """Apply an event or a decision. An event for an attempt that is over has no effect."""
        if entry.__class__ not in UNSEEN:
            self.has_changed = True
        self._handlers[entry.__class__](entry)

    def at(self, now: float) -> State:
        """The state at this instant, for reading only (as a `model.snapshot.Snapshot`)."""
        assert now >= self.now, "time never runs back"
        self.now = now
        self._queues.has_heard = True
        self._jobs.new_turn()
        self._hosts.new_turn()
        self._shares.at(now)
        return self

    def next_wakeup(self) -> float | None:
        """The next instant at which the scheduler must run even without events, if any."""
        wake = inf
        if self.has_changed and self.epoch_ends > self.now and self._phases:
            wake = self.epoch_ends
        if self.is_stale and self.reallocates_from > self.now:
            wake = min(wake, self.reallocates_from)
        waits = self._waits
        while waits:
            until, phase_id = waits[0]
            phase = self._phases.get(phase_id)
            if phase is not None and phase.deferred_until == until and until > self.now:
                wake = min(wake, until)
                break
            heappop(waits)  # The wait is over, or a launch ended it.
        wake = min(wake, self._shares.next_alarm())
        return None if wake == inf else wake

    # Events.

    def _job_arrived(self, event: JobArrived) -> None:
        job = event.job
        self._add_pool_of(job)
        self._begin(self._jobs.arrive(job, self.pools, self._phase))

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
        if job.pool != old.pool:
            for phase in self._jobs.phases_of(job.id):
                phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
            self._recount()
        self._queues.is_outdated = True
        self._reallocate_now()
        self._begin(admitted)

    def _tasks_added(self, event: TasksAdded) -> None:
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return  # Its job is over.
        was_idle = not phase.pending and not phase.running
        self._jobs.replace(phase.job.grown(event.phase.phase, event.count))
        phase.grow(event.count)
        self.has_shrunk = self._queues.is_outdated = True  # Its demand grew.
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
        self.pools = PoolTree(event.pools).with_pools(sorted(jobs))
        self._shares = SharesByKind(self._hosts.free)
        self._of_kind = self._shares.of
        for phase in self._phases.values():
            phase.enter(self._share(phase.job, phase.phase, phase.slot_kind), self.pools)
            phase.stopping = dict.fromkeys(phase.stopping)
        self._recount()
        self._reallocate_now()
        self._begin(self._jobs.readmit(self.pools))

    def _objective_changed(self, event: ObjectiveChanged) -> None:
        self.objective = (event.penalty, event.aggregate)
        self._reallocate_now()

    def _reallocate_now(self) -> None:
        self.is_stale, self.reallocates_from = True, -inf

    def _add_pool_of(self, job: Job) -> None:
        if job.pool not in self.pools or job.pool in self.pools.inner:
            self.pools = self.pools.with_pools([job.pool])

    def _begin(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._queues.is_outdated = True
            for phase in self._jobs.phases_of(job.id):
                if not phase.waits_for:
                    self._make_ready(phase)

    def _task_finished(self, event: TaskFinished) -> None:
        phase = self._phases.get(event.phase)
        ended = phase and phase.end(event.task, event.attempt)
        if not phase or not ended:
            return  # A late or repeated message.
        launch, speed = ended
        self._free_slot(phase, launch)
        work = phase.expected(event.task)
        self._finished.note(phase.id, launch.host, work, event.seconds)
        phase.finish(event.task, event.seconds * speed)
        self.has_shrunk = self.has_shrunk or phase.has_shrunk
        self._settle_end(phase, launch)
        if phase.behind:
            self._tell_followers(phase, event.task, launch.host)
        if not phase.pending and not phase.running:
            self._phase_done(phase, event.at)
        else:
            self._jobs.forget_if_over(phase.job.id)

    def _task_failed(self, event: TaskFailed) -> None:
        phase = self._put_back(event)
        if phase is None:
            return
        count = phase.count_bad_end(event.task, event.lost)
        is_given_up = self._jobs.is_given_up(phase.job.id)
        if count >= self._limits[event.lost] and not is_given_up:
            self.doomed[phase.job.id] = event.reason
        self._jobs.forget_if_over(phase.job.id)

    def _task_killed(self, event: TaskKilled) -> None:
        phase = self._put_back(event)
        if phase is not None:
            phase.keep(event.task, event.kept)
            self._jobs.forget_if_over(phase.job.id)

    def _output_lost(self, event: OutputLost) -> None:
        """Make tasks pending again. No effect on tasks that are not done."""
        phase = self._phases.get(event.phase)
        if phase is None or self._jobs.is_given_up(phase.job.id):
            return
        tasks = [task for task in event.tasks if phase.undo(task)]
        if not tasks:
            return
        self._queues.is_outdated = self.is_stale = True
        self._jobs.phase_undone(phase)
        for task in tasks:
            self._block_if_early(phase, task)
        for other in hold_followers(phase, tasks):
            if other.waits_for or not other.has_tasks:
                self._make_unready(other)
            else:
                self._settle(other, 0)
        if phase.waits_for or phase.is_ready or not phase.has_tasks:
            self._settle(phase, 0)
        else:
            self._make_ready(phase)

    def _host_lost(self, event: HostLost) -> None:
        self._hosts.lose(event.host)
        self._hosts_changed()

    def _host_joined(self, event: HostJoined) -> None:
        self._hosts.join(event.host)
        self._hosts_changed()

    def _host_added(self, event: HostAdded) -> None:
        for kind in self._hosts.add(event.host):
            self._jobs.ready[kind] = {}
            self._shares.add(kind, self.now, self.pools)
        self._hosts_changed()

    def _host_leaves(self, event: HostDrained | HostRemoved) -> None:
        """The host leaves now, or when its last attempt has ended.

        Attempts on a removed host are lost: their ends are reported in the same turn.
        """
        self._hosts.leave(event.host)
        self._let_go(event.host)
        self._hosts_changed()
        for phase in self._phases.values():
            if phase.is_pinned and phase.has_pinned_to(event.host):
                self._strand(phase, event.host)

    def _hosts_changed(self) -> None:
        """Update shares: slots, held ones included, were added or removed."""
        self._queues.is_outdated = self.is_stale = True
        if self.cluster is not self._hosts.cluster:
            self.cluster = self._hosts.cluster
            for phase in self._phases.values():
                phase.move_to(self.cluster)
        self._recount()

    # Decisions.

    def _reallocate(self, decision: Reallocate) -> None:
        assert decision.until > self.now, "every epoch ends in the future"
        self._shares.reallocate(self._jobs.ready, decision.slots)
        self.epoch_ends, self.reallocates_from = decision.until, decision.earliest
        self.is_stale = self.has_changed = self.has_shrunk = False

    def _launch(self, launch: Launch) -> None:
        phase = self._phases[launch.phase]
        assert phase.may_launch, "no share is exceeded"
        self._hosts.free[phase.slot_kind].take(launch.host, phase.width)
        phase.launch(launch, self.now, self.cluster.by_name[launch.host].speed)
        if self._queues.by_host:
            self._queues.launched(launch)
        self._of_kind[phase.slot_kind].settle(phase, phase.width)

    def _defer(self, decision: Defer) -> None:
        assert decision.until > self.now, "every wake lies ahead"
        phase = self._phases[decision.phase]
        phase.deferred_since, phase.deferred_until = decision.since, decision.until
        phase.has_passed = not phase.is_limited and phase.width == 1
        heappush(self._waits, (decision.until, decision.phase))

    def _preempt(self, decision: Preempt) -> None:
        """The slot stays held until the backend reports that the attempt has ended."""
        phase = self._phases[decision.phase]
        if decision.task not in phase.stopping:  # Otherwise it was asked before.
            taker = self._shares.taker(decision.pool, phase.slot_kind)
            self._of_kind[phase.slot_kind].tell(phase, decision.task, taker)
            if decision.host in self._hosts.lost:
                self._recount()

    def _give_up(self, decision: GiveUp) -> None:
        self.doomed.pop(decision.job, None)
        self._queues.is_outdated = True
        self._begin(self._jobs.give_up(decision.job, decision.reason, self.pools))
        for phase in self._jobs.phases_of(decision.job):
            self._make_unready(phase)
        self._jobs.forget_if_over(decision.job)

    # Helpers. Each updates one index.

    def _put_back(self, event: TaskFailed | TaskKilled) -> PhaseState | None:
        """End an attempt without a result. Its phase, or None if the message came too late."""
        phase = self._phases.get(event.phase)
        ended = phase and phase.end(event.task, event.attempt)
        if not phase or not ended:
            return None
        self._free_slot(phase, ended[0])
        self._queues.is_outdated = True
        phase.put_back(event.task)
        self._block_if_early(phase, event.task)
        self._settle_end(phase, ended[0])
        if phase.is_ready and not phase.has_tasks:
            self._make_unready(phase)
        if phase.is_pinned and not self._hosts.is_staying(ended[0].host):
            self._strand(phase, ended[0].host)
        return phase

    def _block_if_early(self, phase: PhaseState, task: int) -> None:
        """Block a pending task if the output of the task that it continues was lost."""
        if phase.phase.continues is not None:
            before = self._phases[PhaseId(phase.job.id, phase.phase.continues)]
            if not before.is_done(task):
                phase.block(task)

    def _free_slot(self, phase: PhaseState, launch: Launch) -> None:
        self._hosts.free[phase.slot_kind].give_back(launch.host, phase.width)
        if phase.stopping:
            self._of_kind[phase.slot_kind].ended(phase, launch.task)

    def _settle_end(self, phase: PhaseState, launch: Launch) -> None:
        """Update the shares above a phase after one of its attempts has ended."""
        if launch.host not in self._hosts.lost:
            self._settle(phase, -phase.width)
            return
        if self._let_go(launch.host):
            self._hosts_changed()
        else:
            self._recount()
        self.has_shrunk = True  # It may use more slots of responsive hosts.

    def _let_go(self, host: str) -> bool:
        """Remove a host that is to leave if no attempt runs there; whether it has left now."""
        has_left = self._hosts.forget_if_idle(host)
        if has_left:
            self._finished.forget(host)
        return has_left

    def _strand(self, phase: PhaseState, host: str) -> None:
        """A pending task can only run on a host that leaves: its job cannot succeed."""
        if not self._jobs.is_given_up(phase.job.id):
            reason = f"host {host} leaves, where a task of phase {phase.id.phase} must run"
            self.doomed.setdefault(phase.job.id, reason)

    def _recount(self) -> None:
        self._shares.recount(self._phases.values(), self._hosts.lost)

    def _settle(self, phase: PhaseState, held: int) -> None:
        self._of_kind[phase.slot_kind].settle(phase, held)

    def _make_ready(self, phase: PhaseState) -> None:
        self._jobs.make_ready(phase)
        self._settle(phase, 0)
        self.is_stale = True

    def _make_unready(self, phase: PhaseState) -> None:
        self._jobs.make_unready(phase)
        self._settle(phase, 0)
        self.is_stale = True

    def _tell_followers(self, phase: PhaseState, task: int, host: str) -> None:
        """Update the phases that need not wait for all tasks of this phase."""
        for other in tell_followers(phase, task, host):
            if other.is_pinned and not self._hosts.is_staying(host):
                self._strand(other, host)
            if other.is_ready:
                self.has_shrunk = True  # Its demand grew; the next epoch handles it.
                self._settle(other, 0)
            elif not self._jobs.is_given_up(phase.job.id):
                self._make_ready(other)

    def _phase_done(self, phase: PhaseState, at: float) -> None:
        self._make_unready(phase)
        if phase.blocked or phase.is_open:
            return  # Its other tasks continue tasks that are not done, or were not added yet.
        if not self._jobs.is_given_up(phase.job.id):
            for other in release_followers(phase):
                self._make_ready(other)
            self._begin(self._jobs.phase_done(phase, at, self.pools))
            if phase.job.id in self.completed:
                self.doomed.pop(phase.job.id, None)  # It was cancelled too late.
        self._jobs.forget_if_over(phase.job.id)

    def _phase(self, job: Job, phase: Phase, order: int) -> PhaseState:
        share = self._share(job, phase, self.cluster.slot_kind(phase.kind))
        return PhaseState(
            job, phase, order, share, self.pools, self.cluster, self._default_work
        )

    def _share(self, job: Job, phase: Phase, slot_kind: str) -> PoolState:
        """The share of its pool that a phase counts against."""
        keys = self.pools.shares(job.pool, phase.kind)
        return self._of_kind[slot_kind].share(keys, self.pools)

    def check(self) -> None:
        """Assert every invariant. O(size of the state); for tests."""
        for phase in self._phases.values():
            phase.check()
        assert self.cluster is self._hosts.cluster
        for kind in self.cluster.capacity:
            phases = [phase for phase in self._phases.values() if phase.slot_kind == kind]
            self._hosts.check(kind, sum(phase.running for phase in phases))
            backlogged = {phase.id for phase in self.backlogged(kind)}
            assert backlogged == {p.id for p in self._jobs.ready[kind].values() if p.pending}
            self._jobs.check(kind, self.pools)
            self._of_kind[kind].check(phases)
