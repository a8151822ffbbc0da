"""The state of a run: what is known at this moment. Events and decisions change it by `apply`.

One `apply` costs what it changes (plus a logarithm), not the size of the cluster: free slots,
pending tasks by home, and the order of phases by how far they are below their allocation are
kept up to date as things change. `check` asserts that all of it agrees.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from math import inf
from typing import Any

from slotwise.model.cluster import Cluster
from slotwise.model.decision import Decision, Defer, GiveUp, Launch, Preempt, Reallocate
from slotwise.model.event import Event, JobArrived, TaskFailed, TaskFinished, TaskKilled
from slotwise.model.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.model.pool import Pool
from slotwise.model.pool_tree import PoolTree, ShareKey
from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PoolState, path_to
from slotwise.runtime.turns import ROUNDING, Sharer

DEFAULT_WORK = 10.0
"""Seconds that a task is taken to need when nobody has said and none has finished."""

ATTEMPTS_MAX = 4
"""How often a task is tried before its job fails."""

WHOLE = ShareKey("", "")
"""All slots of one kind: what the shares of the pools at the top lie in."""

LOSSES_MAX = 16
"""How often the slot may die under a task before the task is taken to be the cause."""

PHASES_MOST = 1_000_000
"""More phases than any job has: phases are numbered by arrival, then by their place in it."""


class State:
    """All jobs, phases, slots and waits, as events and decisions have made them."""

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
        """A task may fail `attempts_max` times, lose its slot `losses_max` times."""
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
        self._arrived = 0
        self._bad_ends: dict[tuple[PhaseId, int, bool], int] = {}
        self._speeds = {host.name: host.speed for host in cluster.hosts}
        kinds = cluster.capacity
        self._free = {
            k: {h.name: h.slots[k] for h in cluster.hosts if h.slots.get(k)} for k in kinds
        }
        self._freed: dict[str, list[str]] = {kind: [] for kind in kinds}
        self._ready: dict[str, dict[PhaseId, PhaseState]] = {kind: {} for kind in kinds}
        self._in_order: dict[str, list[PhaseState]] = {}  # of `ready`, until it changes
        # The shares of pools, each behind the one that it lies in; the first is the whole.
        self._shares: dict[str, dict[ShareKey, PoolState]] = {
            kind: {WHOLE: PoolState(WHOLE, kind, 0, None, 0, inf, None)} for kind in kinds
        }
        self._overdue: dict[str, dict[PoolState, None]] = {kind: {} for kind in kinds}
        self._alarms: list[tuple[float, int, str, PoolState]] = []
        self._running_jobs: Counter[str] = Counter()  # by pool, those below it included
        # Jobs that wait until their pool runs fewer, by pool, the next one first.
        self._kept_out: dict[str, list[tuple[float, int, str]]] = {}
        self._waits: list[tuple[float, PhaseId]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            TaskFinished: self._task_finished,
            TaskFailed: self._task_failed,
            TaskKilled: self._task_killed,
            Reallocate: self._reallocate,
            Launch: self._launch,
            Defer: self._defer,
            Preempt: self._preempt,
            GiveUp: self._give_up,
        }

    @property
    def kept_out(self) -> list[str]:
        """The jobs that wait until their pools run fewer, the next one first."""
        return [job for *_, job in sorted(chain(*self._kept_out.values()))]

    def full_pools(self, job: str) -> dict[str, list[str]]:
        """Of the pools of a job those that run as many jobs as they may, and these jobs."""
        outside = set(self.kept_out)
        inside = [other for other in self._jobs if other not in outside]
        return {
            pool.name: [other for other in inside if pool in self._pools_of(other)]
            for pool in self._pools_of(job)
            if pool.jobs_max is not None and self._running_jobs[pool.name] >= pool.jobs_max
        }

    @property
    def is_done(self) -> bool:
        """Whether every job that was to come has come and is over."""
        return self._arrived == self._jobs_expected and not self._jobs

    def apply(self, entry: Event | Decision) -> None:
        """Take in an event or a decision. News of an attempt that is over changes nothing."""
        self.has_changed = True
        self._handlers[entry.__class__](entry)

    def at(self, now: float) -> State:
        """Everything at this instant, to be read only (as a `model.snapshot.Snapshot`)."""
        assert now >= self.now, "time never runs back"
        self.now = now
        for freed in self._freed.values():
            freed.clear()
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            *_, pool = heappop(alarms)
            if pool.least_due <= now or pool.fair_due <= now:
                self._note_overdue(pool)
                self._rerank(pool)
        return self

    def take_wake(self) -> float | None:
        """The instant at which the scheduler wants to be asked even if nothing happens."""
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
        alarms = self._alarms
        while alarms:
            due, _, _, pool = alarms[0]
            if due in (pool.least_due, pool.fair_due):
                wake = min(wake, due)
                break
            heappop(alarms)  # The pool has got what it lacked.
        return None if wake == inf else wake

    # What policies see (model.snapshot.Snapshot).

    def ready(self, slot_kind: str) -> Sequence[PhaseState]:
        """Ready phases that draw on this kind of slot, in order of arrival."""
        if slot_kind not in self._in_order:
            phases = self._ready[slot_kind].values()
            self._in_order[slot_kind] = sorted(phases, key=lambda phase: phase.order)
        return self._in_order[slot_kind]

    def hungry(self, slot_kind: str) -> Iterable[PhaseState]:
        """Those with pending tasks: by pools, then within them, who lacks most first."""
        return self._shares[slot_kind][WHOLE].walk()

    def free(self, slot_kind: str) -> Mapping[str, int]:
        """The hosts with free slots of this kind, and how many."""
        return self._free[slot_kind]

    def freed(self, slot_kind: str) -> Sequence[str]:
        """The hosts on which slots of this kind came free in this turn."""
        return self._freed[slot_kind]

    def overdue(self, slot_kind: str) -> Sequence[PoolState]:
        """The shares of pools that have lacked slots for as long as they put up with."""
        return list(self._overdue[slot_kind])

    def shares(self, slot_kind: str) -> Sequence[PoolState]:
        """How the shares of all pools in this kind of slot stand, the outer ones first."""
        return [pool for key, pool in self._shares[slot_kind].items() if key != WHOLE]

    def phases_of(self, job: str) -> Sequence[PhaseState]:
        """The phases of a job that has arrived and is not over."""
        return list(self._jobs.get(job, {}).values())

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        phases = self._jobs.get(job, {}).values()
        return [launch for phase in phases for launch, _, _ in phase.launches.values()]

    # What changes it: events.

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
            after = [other for other in phases.values() if state.id.phase in other.waits_for]
            state.followers = tuple(other for other in after if other.early or other.is_pinned)
        self._jobs[job.id] = phases
        place = (-PRIORITIES[job.priority], self._arrived, job.id)
        insort(self._kept_out.setdefault(job.pool, []), place)
        self._arrived += 1
        self._admit()

    def _admit(self) -> None:
        """Begin the jobs that their pools have room for, by priority, then by arrival.

        Jobs of one pool wait for the same: the first of each pool is all that is looked at.
        """
        while fit := [jobs[0] for pool, jobs in self._kept_out.items() if self._has_room(pool)]:
            *_, job = min(fit)
            path = self._pools_of(job)
            self._running_jobs.update(pool.name for pool in path)
            waiting = self._kept_out[path[-1].name]
            del waiting[0]
            if not waiting:
                del self._kept_out[path[-1].name]
            for state in self._jobs[job].values():
                if not state.waits_for:
                    self._make_ready(state)

    def _has_room(self, name: str) -> bool:
        """Whether a pool, and all that it lies in, may run one more job."""
        running = self._running_jobs
        return all(
            pool.jobs_max is None or running[pool.name] < pool.jobs_max
            for pool in self.pools.path(name)
        )

    def _leave(self, job: str) -> None:
        """A job is over: its pools have room for another."""
        self._running_jobs.subtract(pool.name for pool in self._pools_of(job))
        if self._kept_out:
            self._admit()

    def _pools_of(self, job: str) -> tuple[Pool, ...]:
        """The pool of a job and those that it lies in, from the top down."""
        return self.pools.path(next(iter(self._jobs[job].values())).job.pool)

    def _task_finished(self, event: TaskFinished) -> None:
        phase = self._phases.get(event.phase)
        ended = phase and phase.end(event.task, event.attempt)
        if not phase or not ended:
            return  # A late or repeated message.
        launch, speed = ended
        self._free_slot(phase, launch)
        phase.finish(event.task, event.seconds * speed)
        self.has_shrunk = self.has_shrunk or phase.has_shrunk
        self._settle(phase, -1)
        if phase.followers:
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

    # What changes it: decisions.

    def _reallocate(self, decision: Reallocate) -> None:
        assert decision.until > self.now, "every epoch ends in the future"
        slots = decision.slots
        for kind, ready in self._ready.items():
            pools = self._shares[kind].values()
            for pool in pools:
                pool.allocated = pool.owed = 0.0
                pool.hungry = []
                pool.rank = None
            for phase_id, phase in ready.items():
                phase.allocated = share = slots.get(phase_id, 0.0)
                phase.owed = min(share, phase.phase.slots_min)
                pool = phase.pool
                pool.allocated += share
                pool.owed += phase.owed
                if phase.pending:
                    phase.rank = rank = phase.ranked()
                    pool.hungry.append(rank)
            for pool in reversed(pools):  # Each before the one that it lies in.
                self._reallocate_pool(pool)
        self.epoch_ends = decision.until
        self.is_stale = self.has_changed = self.has_shrunk = False

    def _reallocate_pool(self, pool: PoolState) -> None:
        """Sum up what is below a pool's share, and tell the one that it lies in."""
        pool.owed = min(max(pool.owed, pool.least), pool.allocated)
        if pool.preemption is not None:
            self._watch(pool)
        pool.hungry.sort()
        if pool.parent is not None:
            pool.parent.allocated += pool.allocated
            pool.parent.owed += pool.owed
            if pool.hungry:
                pool.rank = rank = pool.ranked()
                pool.parent.hungry.append(rank)

    def _launch(self, launch: Launch) -> None:
        phase = self._phases[launch.phase]
        assert phase.may_launch, "no share is exceeded"
        free = self._free[phase.slot_kind]
        left = free[launch.host] - 1
        if left:
            free[launch.host] = left
        else:
            del free[launch.host]
        phase.launch(launch, self.now, self._speeds[launch.host])
        self._settle(phase, 1)

    def _defer(self, decision: Defer) -> None:
        assert decision.until > self.now, "every wake lies ahead"
        phase = self._phases[decision.phase]
        phase.deferred_since, phase.deferred_until = decision.since, decision.until
        phase.has_passed = not phase.is_limited
        heappush(self._waits, (decision.until, decision.phase))

    def _preempt(self, decision: Preempt) -> None:
        """The slot stays held until the world says that the attempt has ended."""
        phase = self._phases[decision.phase]
        if decision.task in phase.stopping:
            return  # It was told before.
        taker = self._taker(phase.slot_kind, decision.pool)
        phase.stopping[decision.task] = taker
        for pool in path_to(phase.pool):
            pool.stopping += 1
        for pool in path_to(taker):
            pool.coming += 1

    def _taker(self, kind: str, name: str | None) -> PoolState | None:
        """The share of a pool for whose sake an attempt is stopped: one that is overdue."""
        shares = [pool for pool in self._shares[kind].values() if pool.name == name]
        overdue = [pool for pool in shares if pool.is_overdue]
        return next(iter(overdue or shares), None)

    def _give_up(self, decision: GiveUp) -> None:
        self.failed[decision.job] = decision.reason
        self.doomed.pop(decision.job, None)
        self._leave(decision.job)
        for phase in self._jobs[decision.job].values():
            self._make_unready(phase)
        self._forget_if_over(decision.job)

    # Helpers, each keeping one index up to date.

    def _put_back(self, event: TaskFailed | TaskKilled) -> PhaseState | None:
        """End an attempt without a result; its phase, or None if the message came too late."""
        phase = self._phases.get(event.phase)
        ended = phase and phase.end(event.task, event.attempt)
        if not phase or not ended:
            return None
        self._free_slot(phase, ended[0])
        phase.put_back(event.task)
        self._settle(phase, -1)
        return phase

    def _free_slot(self, phase: PhaseState, launch: Launch) -> None:
        free = self._free[phase.slot_kind]
        free[launch.host] = free.get(launch.host, 0) + 1
        self._freed[phase.slot_kind].append(launch.host)
        if phase.stopping and launch.task in phase.stopping:
            taker = phase.stopping.pop(launch.task)
            for pool in path_to(phase.pool):
                pool.stopping -= 1
            for pool in path_to(taker):
                pool.coming -= 1

    def _settle(self, phase: PhaseState, held: int) -> None:
        """Tell the shares above a phase what has changed: so many more slots are held.

        Each, from its pool upwards, gets its place in the order, or none if nothing waits. A
        share without siblings keeps its place while something waits, and takes no turns.
        """
        is_hungry = bool(phase.pending) and phase.is_ready
        demand = phase.demand if phase.is_ready else 0
        more, phase.counted = demand - phase.counted, demand
        child: Sharer = phase
        pool = phase.parent
        while pool is not None:
            pool.running += held
            if more:
                before, pool.demand = pool.demand, pool.demand + more
                if pool.most < max(before, pool.demand):
                    more = int(min(pool.demand, pool.most) - min(before, pool.most))
            order, old, is_alone = pool.hungry, child.rank, pool.below == 1
            if held > 0 and not is_alone:
                pool.service = child.serve(pool.service)
            if not is_alone or is_hungry != (old is not None):
                if old is not None:
                    del order[bisect_left(order, old)]
                    child.rank = None
                if is_hungry:
                    child.rank = rank = child.ranked()
                    insort(order, rank)
            if pool.preemption is not None:
                self._watch(pool)
            is_hungry = bool(order)
            child, pool = pool, pool.parent

    def _watch(self, pool: PoolState) -> None:
        """Look whether a pool's shortages have begun, are over, or have lasted too long."""
        for due in pool.watch(self.now):
            if self.now < due < inf:
                heappush(self._alarms, (due, pool.order, pool.slot_kind, pool))
        self._note_overdue(pool)

    def _note_overdue(self, pool: PoolState) -> None:
        """Take down whether a pool may take slots back now, and whether it is starving."""
        is_starving = pool.least_due <= self.now
        if is_starving != pool.is_starving:
            pool.is_starving = is_starving
            for above in path_to(pool):
                above.starving += 1 if is_starving else -1
        is_overdue = is_starving or pool.fair_due <= self.now
        if is_overdue != pool.is_overdue:
            pool.is_overdue = is_overdue
            if is_overdue:
                self._overdue[pool.slot_kind][pool] = None
            else:
                del self._overdue[pool.slot_kind][pool]

    def _rerank(self, pool: PoolState) -> None:
        """Put a pool, and those that it lies in, where they belong in the order of each."""
        for child in path_to(pool):
            if child.rank is not None and child.parent is not None:
                order = child.parent.hungry
                del order[bisect_left(order, child.rank)]
                child.rank = rank = child.ranked()
                insort(order, rank)

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
        """Let those begin that need not wait for all of a phase."""
        for other in phase.followers:
            if other.is_pinned:
                other.unblock(task, host)
                other.waits_for.clear()
                if other.is_ready:
                    self.has_shrunk = True  # It can use more: the next epoch sees to that.
                    self._settle(other, 0)
                elif phase.job.id not in self.failed:
                    self._make_ready(other)
            elif phase.id.phase in other.waits_for:
                needed = other.phase.slow_start * phase.phase.tasks.count
                if phase.done >= max(1, needed - ROUNDING):
                    other.waits_for.remove(phase.id.phase)
                    if not other.waits_for and phase.job.id not in self.failed:
                        self._make_ready(other)

    def _phase_done(self, phase: PhaseState, at: float) -> None:
        self._make_unready(phase)
        if phase.blocked:
            return  # The rest of its tasks follow on others that are not done.
        if phase.job.id in self.failed:
            self._forget_if_over(phase.job.id)
            return
        siblings = self._jobs[phase.job.id].values()
        for other in siblings:
            if phase.id.phase in other.waits_for:
                other.waits_for.remove(phase.id.phase)
                if not other.waits_for:
                    self._make_ready(other)
        if all(other.done == other.phase.tasks.count for other in siblings):
            self.completed[phase.job.id] = at
            self._leave(phase.job.id)
            self._forget_if_over(phase.job.id)

    def _forget_if_over(self, job: str) -> None:
        """Drop a job that has ended and holds nothing any more, so that memory stays small."""
        if job in self.completed or job in self.failed:
            phases = self._jobs[job].values()
            if not any(phase.running for phase in phases):
                for phase in phases:
                    del self._phases[phase.id]
                del self._jobs[job]

    def _phase(self, job: Job, phase: Phase, order: int) -> PhaseState:
        kind = self.cluster.slot_kind(phase.kind)
        keys = self.pools.shares(job.pool, phase.kind)
        shares = self._shares[kind]
        above = shares[WHOLE]
        for key, pool in zip(keys, self.pools.path(job.pool), strict=True):
            if key not in shares:
                least = pool.slots_min.get(key.kind, 0)
                most = pool.slots_max.get(key.kind, inf)
                preemption = self.pools.preemption(pool.name)
                shares[key] = PoolState(key, kind, len(shares), above, least, most, preemption)
                if above.below == 2:  # Its sibling was without one, and out of order.
                    for sibling in [p for p in shares.values() if p.parent is above]:
                        self._rerank(sibling)
            above = shares[key]
        by_size = self.pools[job.pool].job_weights == "size"
        return PhaseState(
            job, phase, order, above, keys, self.cluster, self._default_work, by_size
        )

    def check(self) -> None:
        """Assert every invariant. O(everything); for tests."""
        for phase in self._phases.values():
            phase.check()
        for kind, capacity in self.cluster.capacity.items():
            phases = [phase for phase in self._phases.values() if phase.slot_kind == kind]
            held = sum(phase.running for phase in phases)
            assert held + sum(self._free[kind].values()) == capacity, (
                "each slot is held or free"
            )
            assert all(count > 0 for count in self._free[kind].values())
            hungry = {phase.id for phase in self.hungry(kind)}
            assert hungry == {p.id for p in self._ready[kind].values() if p.pending}
            for phase in phases:
                ready = phase.id in self._ready[kind]
                assert ready == phase.is_ready
                assert not ready or not phase.waits_for, "only ready phases are offered slots"
            for pool in self._shares[kind].values():
                below = [other for other in self._shares[kind].values() if other.parent is pool]
                pool.check(below, [p for p in phases if pool in path_to(p.pool)])
                assert pool.is_overdue == (pool in self._overdue[kind])
                assert pool.starving == pool.is_starving + sum(p.starving for p in below)
        for name, count in self._running_jobs.items():
            most = self.pools[name].jobs_max
            assert most is None or 0 <= count <= most, "no pool runs too many jobs"
