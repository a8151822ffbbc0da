"""The current state of a run. Events and decisions change it by `apply`.

The cost of one `apply` is proportional to what it changes (plus a logarithm), not to the size
of the cluster. Free slots, pending tasks by home, and the order of phases by how far they are
below their allocation are updated incrementally. When a host becomes unresponsive or comes
back, which is rare, all shares are recounted. `check` asserts that everything is consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

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
    HostJoined,
    HostLost,
    JobArrived,
    LaunchDropped,
    TaskFailed,
    TaskFinished,
    TaskKilled,
)
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree
from slotwise.model.snapshot import Seen
from slotwise.runtime.admission import Admission
from slotwise.runtime.finished import Finished
from slotwise.runtime.hosts import Hosts
from slotwise.runtime.ordering import ROUNDING
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState
from slotwise.runtime.queues import Queues
from slotwise.runtime.shares import Shares
from slotwise.runtime.totals import Totals, owe

ATTEMPTS_MAX = 4
"""The number of attempts of a task before its job fails."""

LOSSES_MAX = 16
"""The number of times that a task may lose its slot before it is taken to be the cause."""

PHASES_MOST = 1_000_000
"""More than the phases of any job: phases are numbered by arrival, then by index in the job."""


class State:
    """All jobs, phases, slots and waits, as the result of events and decisions."""

    def __init__(
        self,
        cluster: Cluster,
        pools: Iterable[Pool] = (),
        *,
        jobs_expected: int,
        attempts_max: int = ATTEMPTS_MAX,
        losses_max: int = LOSSES_MAX,
        default_work: float = DEFAULT_WORK,
    ) -> None:
        """A task may fail `attempts_max` times and lose its slot `losses_max` times."""
        self.cluster = cluster
        self.pools = PoolTree(pools)
        self.now = 0.0
        self.completed: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.doomed: dict[str, str] = {}
        self.is_stale = self.has_changed = self.has_shrunk = False
        self.epoch_ends = -inf
        self._jobs_expected = jobs_expected
        self._limits = {False: attempts_max, True: losses_max}
        self._default_work = default_work
        self._phases: dict[PhaseId, PhaseState] = {}
        self._jobs: dict[str, dict[str, PhaseState]] = {}
        self._undone: dict[str, set[str]] = {}  # the phases of each job that are not done
        self._arrived = 0
        self._bad_ends: dict[tuple[PhaseId, int, bool], int] = {}
        self._speeds = {host.name: host.speed for host in cluster.hosts}
        kinds = cluster.capacity
        self._hosts = Hosts(cluster)
        self._queues = Queues()
        self._finished = Finished()
        self._ready: dict[str, dict[PhaseId, PhaseState]] = {kind: {} for kind in kinds}
        self._in_order: dict[str, list[PhaseState]] = {}  # of `ready`, until it changes
        totals = Totals(self._hosts.free)
        self._shares: dict[str, Shares] = {}
        for kind in kinds:
            self._shares[kind] = Shares(kind, totals, self._shares)
        self._admission = Admission()
        self._waits: list[tuple[float, PhaseId]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            TaskFinished: self._task_finished,
            TaskFailed: self._task_failed,
            TaskKilled: self._task_killed,
            HostLost: self._host_lost,
            HostJoined: self._host_joined,
            LaunchDropped: self._launch_dropped,
            Reallocate: self._reallocate,
            Enqueue: self._queues.replace,
            Launch: self._launch,
            Defer: self._defer,
            Preempt: self._preempt,
            GiveUp: self._give_up,
        }

    @property
    def awaiting_admission(self) -> list[str]:
        """The jobs that wait until their pools run fewer jobs, the next one first."""
        return self._admission.waiting()

    def full_pools(self, job: str) -> dict[str, list[str]]:
        """The pools of a job that are at their `jobs_max`, with the jobs that they run."""
        outside = set(self.awaiting_admission)
        inside = [one for one in self._jobs if one not in outside]
        return {
            name: [one for one in inside if self.pools[name] in self._path(self._job(one))]
            for name in self._admission.full(self._job(job), self.pools)
        }

    @property
    def is_done(self) -> bool:
        """Whether all expected jobs have arrived and are over."""
        return self._arrived == self._jobs_expected and not self._jobs

    def apply(self, entry: Event | Decision) -> None:
        """Apply an event or a decision. An event for an attempt that is over has no effect."""
        if entry.__class__ is not LaunchDropped:
            self.has_changed = True
        self._handlers[entry.__class__](entry)

    def at(self, now: float) -> State:
        """The state at this instant, for reading only (as a `model.snapshot.Snapshot`)."""
        assert now >= self.now, "time never runs back"
        self.now = now
        self._queues.has_heard = True
        self._hosts.new_turn()
        for shares in self._shares.values():
            shares.now = now
            if shares.alarms:
                shares.ring()
        return self

    def next_wakeup(self) -> float | None:
        """The next instant at which the scheduler must run even without events, if any."""
        wake = inf
        if self.has_changed and self.epoch_ends > self.now and self._phases:
            wake = self.epoch_ends
        waits = self._waits
        while waits:
            until, phase_id = waits[0]
            phase = self._phases.get(phase_id)
            if phase is not None and phase.deferred_until == until and until > self.now:
                wake = min(wake, until)
                break
            heappop(waits)  # The wait is over, or a launch ended it.
        for shares in self._shares.values():
            if shares.alarms:
                wake = min(wake, shares.next_alarm())
        return None if wake == inf else wake

    # The view of policies (model.snapshot.Snapshot).

    def ready(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases that use this kind of slot, in order of arrival."""
        if slot_kind not in self._in_order:
            phases = self._ready[slot_kind].values()
            self._in_order[slot_kind] = sorted(phases, key=lambda phase: phase.order)
        return self._in_order[slot_kind]

    def backlogged(self, slot_kind: str) -> Iterable[PhaseState]:
        """The ready phases with pending tasks, by pool, then within it; largest lack first."""
        return self._shares[slot_kind].whole.walk()

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind, and the number of these slots."""
        return self._hosts.free[slot_kind].by_host

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind became free in this turn."""
        return self._hosts.free[slot_kind].freed

    def overdue(self, slot_kind: str) -> Collection[PoolState]:
        """The shares of pools that have lacked slots for as long as their time-out."""
        return self._shares[slot_kind].overdue

    def shares(self, slot_kind: str) -> Sequence[PoolState]:
        """The shares of all pools in this kind of slot, outer ones first."""
        return self._shares[slot_kind].pools()

    def phases_of(self, job: str) -> Sequence[PhaseState]:
        """The phases of a job that has arrived and is not over."""
        return list(self._jobs.get(job, {}).values())

    def capacity(self, slot_kind: str) -> int:
        """The slots of this kind on responsive hosts."""
        return self._hosts.capacity[slot_kind]

    @property
    def lost(self) -> Collection[str]:
        """The unresponsive hosts."""
        return self._hosts.lost

    @property
    def seen(self) -> Mapping[PhaseId, Mapping[str, Seen]]:
        """Totals of finished tasks by phase and host."""
        return self._finished.by_phase

    @property
    def queues(self) -> Queues:
        """The queue of each host, if the policy plans queues."""
        return self._queues

    def phase(self, name: PhaseId) -> PhaseState:
        """A phase of a job that is not over."""
        return self._phases[name]

    def jobs_left(self) -> Iterable[Sequence[PhaseState]]:
        """The phases of each admitted job that is not over, in topological order.

        The jobs are in order of arrival.
        """
        outside = set(self.awaiting_admission)
        for name, phases in self._jobs.items():
            if name not in outside and name not in self.failed:
                yield [phases[phase.name] for phase in self._job(name).topological]

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        phases = self._jobs.get(job, {}).values()
        return [launch for phase in phases for launch, _, _ in phase.launches.values()]

    # Events.

    def _job_arrived(self, event: JobArrived) -> None:
        job = event.job
        assert job.id not in self._jobs, "job ids are unique"
        if job.pool not in self.pools or job.pool in self.pools.inner:
            self.pools = self.pools.with_pools([job.pool])
        phases = {}
        for number, phase in enumerate(job.phases):
            state = self._phase(job, phase, self._arrived * PHASES_MOST + number)
            phases[phase.name] = self._phases[state.id] = state
        for state in phases.values():
            for name in state.waits_for:
                phases[name].behind.append(state)
        self._jobs[job.id], self._undone[job.id] = phases, set(phases)
        self._arrived += 1
        self._begin(self._admission.arrive(job, self.pools))

    def _begin(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._queues.is_outdated = True
            for state in self._jobs[job.id].values():
                if not state.waits_for:
                    self._make_ready(state)

    def _job(self, name: str) -> Job:
        return next(iter(self._jobs[name].values())).job

    def _path(self, job: Job) -> tuple[Pool, ...]:
        return self.pools.path(job.pool)

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
        elif self.failed:
            self._forget_if_over(phase.job.id)

    def _task_failed(self, event: TaskFailed) -> None:
        phase = self._put_back(event)
        if phase is None:
            return
        key = (event.phase, event.task, event.lost)
        self._bad_ends[key] = count = self._bad_ends.get(key, 0) + 1
        if count >= self._limits[event.lost] and phase.job.id not in self.failed:
            self.doomed[phase.job.id] = event.reason
        self._forget_if_over(phase.job.id)

    def _task_killed(self, event: TaskKilled) -> None:
        phase = self._put_back(event)
        if phase is not None:
            phase.keep(event.task, event.kept)
            self._forget_if_over(phase.job.id)

    def _host_lost(self, event: HostLost) -> None:
        self._hosts.lose(event.host)
        self._hosts_changed()

    def _host_joined(self, event: HostJoined) -> None:
        self._hosts.join(event.host)
        self._hosts_changed()

    def _hosts_changed(self) -> None:
        """Update shares: slots, held ones included, were added or removed."""
        self._queues.is_outdated = self.is_stale = True
        self._recount()

    def _launch_dropped(self, event: LaunchDropped) -> None:
        """No effect."""

    # Decisions.

    def _reallocate(self, decision: Reallocate) -> None:
        assert decision.until > self.now, "every epoch ends in the future"
        for kind, ready in self._ready.items():
            self._shares[kind].reallocate(ready, decision.slots)
        owe([pool for shares in self._shares.values() for pool in shares.inner_first()])
        for shares in self._shares.values():
            shares.line_up()
        self.epoch_ends = decision.until
        self.is_stale = self.has_changed = self.has_shrunk = False

    def _launch(self, launch: Launch) -> None:
        phase = self._phases[launch.phase]
        assert phase.may_launch, "no share is exceeded"
        self._hosts.free[phase.slot_kind].take(launch.host)
        phase.launch(launch, self.now, self._speeds[launch.host])
        if self._queues.by_host:
            self._queues.launched(launch)
        self._shares[phase.slot_kind].settle(phase, 1)

    def _defer(self, decision: Defer) -> None:
        assert decision.until > self.now, "every wake lies ahead"
        phase = self._phases[decision.phase]
        phase.deferred_since, phase.deferred_until = decision.since, decision.until
        phase.has_passed = not phase.is_limited
        heappush(self._waits, (decision.until, decision.phase))

    def _preempt(self, decision: Preempt) -> None:
        """The slot stays held until the backend reports that the attempt has ended."""
        phase = self._phases[decision.phase]
        if decision.task not in phase.stopping:  # Otherwise it was asked before.
            taker = self._taker(decision.pool, phase.slot_kind) if decision.pool else None
            self._shares[phase.slot_kind].tell(phase, decision.task, taker)
            if decision.host in self._hosts.lost:
                self._recount()

    def _taker(self, pool: str, slot_kind: str) -> PoolState | None:
        """The share for which a task of a kind is asked to stop.

        It is an overdue share of the pool, of this kind if possible; otherwise one of another
        kind, which may hold more slots once the task has stopped.
        """
        named = self._shares[slot_kind].named(pool)
        others = [share for shares in self._shares.values() for share in shares.named(pool)]
        overdue = [share for share in (*named, *others) if share.is_overdue]
        return next(iter(overdue or named), None)

    def _give_up(self, decision: GiveUp) -> None:
        self.failed[decision.job] = decision.reason
        self.doomed.pop(decision.job, None)
        self._queues.is_outdated = True
        self._begin(self._admission.leave(self._job(decision.job), self.pools))
        for phase in self._jobs[decision.job].values():
            self._make_unready(phase)
        self._forget_if_over(decision.job)

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
        self._settle_end(phase, ended[0])
        return phase

    def _free_slot(self, phase: PhaseState, launch: Launch) -> None:
        self._hosts.free[phase.slot_kind].give_back(launch.host)
        if phase.stopping:
            self._shares[phase.slot_kind].ended(phase, launch.task)

    def _settle_end(self, phase: PhaseState, launch: Launch) -> None:
        """Update the shares above a phase after one of its attempts has ended."""
        if launch.host in self._hosts.lost:
            self._recount()
            self.has_shrunk = True  # It may use more slots of responsive hosts.
        else:
            self._settle(phase, -1)

    def _recount(self) -> None:
        """Recount what all shares hold and demand."""
        of_kind: dict[str, list[PhaseState]] = {kind: [] for kind in self._shares}
        for phase in self._phases.values():
            of_kind[phase.slot_kind].append(phase)
        for kind, shares in self._shares.items():
            shares.recount(of_kind[kind], self._hosts.lost)
        for shares in self._shares.values():
            shares.line_up()

    def _settle(self, phase: PhaseState, held: int) -> None:
        """Update the shares above a phase that changed and holds `held` more slots."""
        self._shares[phase.slot_kind].settle(phase, held)

    def _make_ready(self, phase: PhaseState) -> None:
        self._ready[phase.slot_kind][phase.id] = phase
        phase.is_ready = True
        self._ready_changed(phase)

    def _make_unready(self, phase: PhaseState) -> None:
        self._ready[phase.slot_kind].pop(phase.id, None)
        phase.is_ready = False
        self._ready_changed(phase)

    def _ready_changed(self, phase: PhaseState) -> None:
        self._in_order.pop(phase.slot_kind, None)
        self._settle(phase, 0)
        self.is_stale = True

    def _tell_followers(self, phase: PhaseState, task: int, host: str) -> None:
        """Update the phases that need not wait for all tasks of this phase."""
        for other in phase.behind:
            if other.is_pinned:
                other.unblock(task, host)
                other.waits_for.clear()
                if other.is_ready:
                    self.has_shrunk = True  # Its demand grew; the next epoch handles it.
                    self._settle(other, 0)
                elif phase.job.id not in self.failed:
                    self._make_ready(other)
            elif other.early and phase.id.phase in other.waits_for:
                needed = other.phase.slow_start * phase.phase.tasks.count
                if phase.done >= max(1, needed - ROUNDING):
                    other.waits_for.remove(phase.id.phase)
                    if not other.waits_for and phase.job.id not in self.failed:
                        self._make_ready(other)

    def _phase_done(self, phase: PhaseState, at: float) -> None:
        self._make_unready(phase)
        if phase.blocked:
            return  # Its other tasks continue tasks that are not done.
        if phase.job.id in self.failed:
            self._forget_if_over(phase.job.id)
            return
        for other in phase.behind:
            if phase.id.phase in other.waits_for:
                other.waits_for.remove(phase.id.phase)
                if not other.waits_for:
                    self._make_ready(other)
        undone = self._undone[phase.job.id]
        undone.discard(phase.id.phase)
        if not undone:
            self.completed[phase.job.id] = at
            self._begin(self._admission.leave(phase.job, self.pools))
            self._forget_if_over(phase.job.id)

    def _forget_if_over(self, job: str) -> None:
        """Drop a job that has ended and holds no slots, to free its memory."""
        if job in self.completed or job in self.failed:
            phases = self._jobs[job].values()
            if not any(phase.running for phase in phases):
                for phase in phases:
                    del self._phases[phase.id]
                del self._jobs[job], self._undone[job]

    def _phase(self, job: Job, phase: Phase, order: int) -> PhaseState:
        kind = self.cluster.slot_kind(phase.kind)
        keys = self.pools.shares(job.pool, phase.kind)
        share = self._shares[kind].share(keys, self.pools)
        by_size = self.pools[job.pool].job_weights == "size"
        return PhaseState(
            job, phase, order, share, self.pools, self.cluster, self._default_work, by_size
        )

    def check(self) -> None:
        """Assert every invariant. O(size of the state); for tests."""
        for phase in self._phases.values():
            phase.check()
        for kind, capacity in self.cluster.capacity.items():
            phases = [phase for phase in self._phases.values() if phase.slot_kind == kind]
            held = sum(phase.running for phase in phases)
            self._hosts.check(kind, held, capacity)
            backlogged = {phase.id for phase in self.backlogged(kind)}
            assert backlogged == {p.id for p in self._ready[kind].values() if p.pending}
            for phase in phases:
                ready = phase.id in self._ready[kind]
                assert ready == phase.is_ready
                assert not ready or not phase.waits_for, "only ready phases are offered slots"
            self._shares[kind].check(phases)
        self._admission.check(self.pools)
