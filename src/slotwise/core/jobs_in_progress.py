"""The jobs that have arrived and are not over, and which of their phases are ready."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from math import inf
from typing import NamedTuple

from slotwise.core.decisions import Decision, Defer, Launch
from slotwise.core.dependencies import Dependencies
from slotwise.core.events import Event, LaunchDropped, TaskFailed, TaskFinished
from slotwise.core.job import PRIORITIES, Job, Phase, PhaseId
from slotwise.core.needs import PhasesByNeeds
from slotwise.core.phase_state import PhaseState
from slotwise.core.pools import PoolTree
from slotwise.core.ready_phases import ReadyPhases
from slotwise.core.resources import MEMORY
from slotwise.core.retries import RecentStops
from slotwise.core.sizing import LearnedPrograms, MemoryRequest
from slotwise.core.tolerances import SLOTS

MAX_PHASES = 1_000_000
"""More than the phases of any job: phases are numbered by arrival, then by index in the job."""

WAIT_FOR_ONE = frozenset({TaskFinished, Launch, Defer, LaunchDropped})
"""Entries that change the waits for resources of their own phases at most."""


class Jobs:
    """The jobs that are not over, and how those ended that ended in this turn.

    arrived    the number of jobs that have arrived
    phases     the phases of all jobs that are not over
    ready      the ready phases, by kind of slot
    by_needs   the same by what their tasks need beside slots
    wide       those of them that take several slots at once, and those that wait for other
               resources; `has_wide`: whether some ready phase is wide
    waits_changed  those that joined or left these, or began or ended a task meanwhile, since
               the waits were read; None: all of them may have changed
    completed  when each job was done that succeeded in this turn
    failed     why each job has failed that was given up in this turn
    stops      the stops of jobs for pools within the last hour
    """

    def __init__(
        self, kinds: Iterable[str], doomed: dict[str, str], over_most: int, user: str | None
    ) -> None:
        """Jobs that cannot run because one before them has failed are added to `doomed`.

        How the last `over_most` jobs ended is known to jobs that arrive later. Jobs that state
        no user are those of `user`.
        """
        self.arrived = 0
        self.phases: dict[PhaseId, PhaseState] = {}
        self.ready: dict[str, dict[PhaseId, PhaseState]] = {kind: {} for kind in kinds}
        self.wide: dict[str, dict[PhaseId, PhaseState]] = {kind: {} for kind in self.ready}
        self._wide_ready, self.has_wide = 0, False
        self.waits_changed: dict[PhaseState, None] | None = None
        self.by_needs: dict[str, PhasesByNeeds] = {}
        self.completed: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.stops = RecentStops()
        self._doomed = doomed
        self._admission = Admission(user)
        self._learned_memory = LearnedPrograms()
        self._dependencies = Dependencies(over_most)
        self._phases_of: dict[str, dict[str, PhaseState]] = {}
        self._undone: dict[str, set[str]] = {}  # the phases of each job that are not done
        self._given_up: set[str] = set()  # They are not over while they hold slots.
        self._in_order = {kind: ReadyPhases() for kind in self.ready}

    def add_kind(self, kind: str) -> None:
        """Add a kind of slot, if it is new."""
        self.ready.setdefault(kind, {})
        self.wide.setdefault(kind, {})
        self._in_order.setdefault(kind, ReadyPhases())

    def __len__(self) -> int:
        return len(self._phases_of)

    def __contains__(self, name: str) -> bool:
        return name in self._phases_of

    def begin_wait(self, phase: PhaseState) -> None:
        """A ready phase waits from now on for resources that it was not offered."""
        if phase.is_ready and phase.is_wide:
            self.wide[phase.slot_kind][phase.id] = phase
            self.note_wait(phase)

    def note_entry(self, entry: Event | Decision) -> None:
        """An event or a decision happens, which most often may change any wait."""
        if entry.__class__ not in WAIT_FOR_ONE:
            self.waits_changed = None

    def note_end(self, phase: PhaseState) -> None:
        """A task of a wide phase has ended."""
        if phase.id in self.wide[phase.slot_kind]:
            self.note_wait(phase)

    def note_wait(self, phase: PhaseState) -> None:
        """A phase that waits for resources, or did, has changed."""
        if self.waits_changed is not None:
            self.waits_changed[phase] = None

    def end_wait(self, phase: PhaseState) -> None:
        """A phase, after a launch, does not wait for resources."""
        wide = self.wide[phase.slot_kind]
        if phase.unit == 1 and phase.id in wide:
            del wide[phase.id]
            self.note_wait(phase)

    def request_memory(self, phase: PhaseState) -> None:
        """From now on tasks of a phase request what is known of their memory."""
        is_known = self._learned_memory.knows(phase.job.program, phase.id.phase)
        if not is_known and phase.memory is None and not phase.phase.tasks.memory:
            return
        if (memory := self._memory_of(phase)) is None:
            return
        needs = memory.needs(phase.able)
        if needs == phase.needs:
            return
        self.end_wait(phase)
        phase.end_wait()
        if phase.id not in self.ready[phase.slot_kind]:
            phase.set_needs(needs)
            return
        self._remove_needs(phase)
        phase.set_needs(needs)
        self._add_needs(phase)
        self._in_order[phase.slot_kind].refresh(phase)

    def learn_memory(self, phase: PhaseState, task: int, peak: int) -> bool:
        """A task has ended, which used this memory at its peak; whether requests change.

        Those of all phases of its type, each time that the number of such tasks has doubled.
        O(phases) then, with an estimate for each of the type.
        """
        memory = self._memory_of(phase)
        if memory is None:
            return False
        alike = [phase] if memory.finished(task, peak) else []
        if memory.is_due:
            alike = self._alike(phase)
        before = [one.needs for one in alike]
        for one in alike:
            self.request_memory(one)
        return any(one.needs is not needs for one, needs in zip(alike, before, strict=True))

    def _alike(self, phase: PhaseState) -> list[PhaseState]:
        """The phases from whose tasks those of a phase learn."""
        if not phase.job.program:
            return [phase]
        name = phase.job.program, phase.id.phase
        return [one for one in self.phases.values() if (one.job.program, one.id.phase) == name]

    def raise_memory(self, phase: PhaseState, launch: Launch, event: TaskFailed) -> bool:
        """An attempt has failed; if it has used more than it got, the next one gets more.

        Whether its phase now requests another amount.
        """
        if event.peak is None:
            return False
        memory, before = self._memory_of(phase), phase.needs
        got = phase.held(launch).get(MEMORY, 0)
        if memory is not None and memory.failed(launch.task, got, event.peak):
            self.request_memory(phase)
        return phase.needs is not before

    def _memory_of(self, phase: PhaseState) -> MemoryRequest | None:
        """What the tasks of a phase request of memory; None if that never changes.

        Whether a gang of other requests fits on the hosts together is not known here.
        """
        is_limited = phase.job.memory_limit and MEMORY in phase.phase.needs
        if phase.memory is None and not phase.is_gang and not is_limited:
            learned = self._learned_memory.of(phase.job.program, phase.id.phase)
            phase.memory = MemoryRequest(phase.phase.needs, phase.phase.tasks, learned)
        return phase.memory

    def new_turn(self) -> None:
        """Forget how jobs ended before."""
        self.completed.clear()
        self.failed.clear()

    def is_given_up(self, name: str) -> bool:
        """Whether a job was given up and still holds slots."""
        return name in self._given_up

    def may_begin(self, job: Job) -> bool:
        """Whether a job waits for no others, was admitted, and was not given up."""
        if job.id in self._given_up or job.id in self.awaiting_jobs:
            return False
        return not self._admission.awaits(job)

    @property
    def awaiting_jobs(self) -> Mapping[str, Set[str]]:
        """The jobs that wait for others, and for which."""
        return self._dependencies.waits

    @property
    def _outside(self) -> set[str]:
        """The jobs that were not admitted yet."""
        return {*self._dependencies.waits, *self._admission.waiting()}

    @property
    def awaiting_admission(self) -> list[str]:
        """The jobs that wait until their pools run fewer jobs, the next one first."""
        return self._admission.waiting()

    def awaiting_by_pool(self) -> Counter[str]:
        """The number of these jobs in each pool. O(pools and users)."""
        return self._admission.waiting_by_pool()

    def limits_reached(self, job: str, pools: PoolTree) -> list[LimitReached]:
        """The limits of running jobs for which a job waits, from the top down."""
        outside = self._outside
        inside = [self.job(one) for one in self._phases_of if one not in outside]
        return self._admission.reached(self.job(job), inside, pools)

    def job(self, name: str) -> Job:
        """A job that is not over."""
        return next(iter(self._phases_of[name].values())).job

    def phases_of(self, job: str) -> Sequence[PhaseState]:
        """The phases of a job; none if it is over."""
        return [*self._phases_of[job].values()] if job in self._phases_of else []

    def attempts_of(self, job: str) -> Sequence[Launch]:
        """The running attempts of a job."""
        phases = self.phases_of(job)
        return [launch for phase in phases for launch, _, _ in phase.launches.values()]

    def left(self) -> Iterator[Sequence[PhaseState]]:
        """The phases of each admitted job, in topological order; the jobs by arrival."""
        outside = self._outside
        for name, phases in self._phases_of.items():
            if name in outside or name in self._given_up:
                continue
            if len(phases) == 1:
                yield [*phases.values()]
            else:
                yield [phases[phase.name] for phase in self.job(name).topological]

    def in_order(self, slot_kind: str) -> Sequence[PhaseState]:
        """The ready phases that use this kind of slot, in order of arrival."""
        return self._in_order[slot_kind].phases

    def ready_phases(self, slot_kind: str) -> ReadyPhases:
        """The same, as columns."""
        return self._in_order[slot_kind]

    def refresh(self, phases: Iterable[PhaseState]) -> None:
        """Jobs or pools of these phases were replaced."""
        for phase in phases:
            if phase.resource_limits:
                self.request_memory(phase)  # At most what its pools may hold.
            if phase.id in self.ready[phase.slot_kind]:
                self._in_order[phase.slot_kind].refresh(phase)

    def arrive(
        self, job: Job, pools: PoolTree, state_of: Callable[[Job, Phase, int], PhaseState]
    ) -> Iterator[Job]:
        """Add a job, with a state for each phase. The jobs that are admitted now."""
        assert job.id not in self._phases_of, "job ids are unique"
        phases = {}
        for number, phase in enumerate(job.phases):
            state = state_of(job, phase, self.arrived * MAX_PHASES + number)
            phases[phase.name] = self.phases[state.id] = state
        for state in phases.values():
            for name in state.waits_for:
                phases[name].successors.append(state)
        self._phases_of[job.id], self._undone[job.id] = phases, set(phases)
        self.arrived += 1
        if job.predecessors:
            if reason := self._dependencies.arrive(job):
                self._doomed[job.id] = reason
            if job.id in self.awaiting_jobs:
                return iter(())
        return self._admission.arrive(job, pools, self.arrived)

    def change(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Replace a job by one of another priority or pool. The jobs that are admitted now."""
        old = self.job(job.id)
        self.replace(job)
        if job.id in self.awaiting_jobs:
            return iter(())
        return self._admission.change(old, job, pools)

    def is_full(self, job: Job, pools: PoolTree) -> bool:
        """Whether a job that arrives now would wait for admission."""
        return bool(self._admission.reached(job, (), pools))

    def readmit(self, pools: PoolTree) -> Iterator[Job]:
        """Apply new limits of pools. The jobs that are admitted now."""
        outside = self._outside
        inside = [self.job(name) for name in self._phases_of if name not in outside]
        return self._admission.recount(
            [job for job in inside if job.id not in self._given_up], pools
        )

    def replace(self, job: Job) -> None:
        """Replace a job by one with other properties or more tasks."""
        for state in self._phases_of[job.id].values():
            state.job, state.phase = job, job.by_name[state.phase.name]
        self.refresh(self._phases_of[job.id].values())

    def give_up(self, name: str, reason: str, pools: PoolTree) -> Iterator[Job]:
        """Mark a job as failed. The jobs that are admitted now."""
        self.failed[name] = reason
        self._given_up.add(name)
        return self._end(self.job(name), reason, pools)

    def element_done(self, job: Job, name: str, pools: PoolTree) -> Iterator[Job]:
        """A task of `name` is done, for which a job waits task by task; as `arrive`."""
        if self._dependencies.release(job, name):
            return self._admission.arrive(job, pools, self._number(job))
        return iter(())

    def is_over(self, name: str) -> bool:
        """Whether a job has ended, or failed while its tasks may still run."""
        return self._dependencies.is_over(name)

    def waits_for_each(self, name: str) -> list[PhaseState]:
        """The phases of jobs that wait for a job task by task."""
        jobs = self._dependencies.dependents(name)
        return [self.phases_of(job.id)[0] for job in jobs if name in job.after_each]

    def _end(self, job: Job, reason: str, pools: PoolTree) -> Iterator[Job]:
        """A job is done, or has failed for a reason. The jobs that are admitted now."""
        waits = job.id in self.awaiting_jobs
        if job.predecessors:
            self._dependencies.forget(job)
        # A job that waits for others takes no place in its pool.
        admitted = iter(()) if waits else self._admission.give_up(job, pools)
        released = map(self.job, self._dependencies.end(job.id, reason, self._doomed))
        arrive = self._admission.arrive
        return chain(admitted, *[arrive(one, pools, self._number(one)) for one in released])

    def _number(self, job: Job) -> int:
        """The place of a job in the order of arrival, from 1."""
        return self.phases_of(job.id)[0].order // MAX_PHASES + 1

    def phase_done(self, phase: PhaseState, at: float, pools: PoolTree) -> Iterator[Job]:
        """Mark a phase as done, and its job if it was the last. The jobs admitted now."""
        undone = self._undone[phase.job.id]
        undone.discard(phase.id.phase)
        if undone:
            return iter(())
        self.completed[phase.job.id] = at
        # It may still wait for admission, if none of its tasks is needed.
        return self._end(phase.job, "", pools)

    def phase_undone(self, phase: PhaseState) -> None:
        """Mark a phase as not done, because output of it was lost."""
        self._undone[phase.job.id].add(phase.id.phase)

    def forget_if_over(self, job: str) -> None:
        """Drop a job that has ended and holds no slots, to free its memory."""
        if job in self._given_up or not self._undone.get(job, True):
            phases = self._phases_of[job].values()
            if not any(phase.running for phase in phases):
                for phase in phases:
                    phase.job_share = phase.group = None  # Which refer to it: no circle stays.
                    del self.phases[phase.id]
                del self._phases_of[job], self._undone[job]
                self._given_up.discard(job)
                self.stops.forget(job)

    def make_ready(self, phase: PhaseState) -> None:
        """Add a phase to the ready ones."""
        if phase.id not in self.ready[phase.slot_kind]:
            self.ready[phase.slot_kind][phase.id] = phase
            self._in_order[phase.slot_kind].add(phase)
            self._add_needs(phase)
        if phase.unit > 1:
            self.wide[phase.slot_kind][phase.id] = phase
            self.note_wait(phase)
        if phase.job_share is not None and not phase.is_ready:
            phase.job_share.ready += 1
        phase.is_ready = True

    def make_unready(self, phase: PhaseState) -> None:
        """Remove a phase from the ready ones."""
        if self.ready[phase.slot_kind].pop(phase.id, None):
            self._in_order[phase.slot_kind].remove(phase)
            self._remove_needs(phase)
        if self.wide[phase.slot_kind].pop(phase.id, None):
            self.note_wait(phase)
        if phase.job_share is not None and phase.is_ready:
            phase.job_share.ready -= 1
        phase.is_ready = False

    def _add_needs(self, phase: PhaseState) -> None:
        """Count a ready phase by what its tasks need."""
        self._wide_ready += phase.is_wide
        self.has_wide = self._wide_ready > 0
        self.by_needs.setdefault(phase.slot_kind, PhasesByNeeds()).add(phase)

    def _remove_needs(self, phase: PhaseState) -> None:
        self._wide_ready -= phase.is_wide
        self.has_wide = self._wide_ready > 0
        self.by_needs[phase.slot_kind].remove(phase)

    def check(self, slot_kind: str, pools: PoolTree) -> None:
        """Assert that the ready phases are those that may begin. For tests."""
        for phase in self.phases.values():
            if phase.slot_kind == slot_kind:
                ready = phase.id in self.ready[slot_kind]
                assert ready == phase.is_ready
                assert not ready or not phase.waits_for, "only ready phases are offered slots"
        assert self._given_up <= self._phases_of.keys() == self._undone.keys()
        assert self._phases_of.keys() >= set(self.stops.jobs), "others are forgotten"
        in_order = self._in_order[slot_kind]
        in_order.check([*self.ready[slot_kind].values()])
        if slot_kind in self.by_needs:
            self.by_needs[slot_kind].check(in_order.phases)
        assert len(self.phases) == sum(map(len, self._phases_of.values())), "others have left"
        self._admission.check(pools)
        for name in self.awaiting_jobs:
            for phase in self.phases_of(name):
                assert not phase.is_ready, "a job that waits for others claims no slots"
                assert not phase.running, "a job that waits for others holds no slots"


def unblock_successors(phase: PhaseState, task: int, host: str) -> Iterator[PhaseState]:
    """Update the phases that need not wait for all tasks of this one: a task is done.

    Yields those that have a new pending task or nothing left to wait for.
    """
    for other in phase.successors:
        if other.is_pinned:
            if other.is_blocked(task):  # Otherwise this task was done before, and lost.
                other.unblock(task, host)
                other.waits_for.clear()
                yield other
        elif phase.id.phase in other.waits_for and _has_enough(other, phase):
            yield from _release(other, phase)


def release_successors(phase: PhaseState) -> Iterator[PhaseState]:
    """Update the phases that wait for this one, which is done; yields those that may begin."""
    for other in phase.successors:
        if phase.id.phase in other.waits_for:
            yield from _release(other, phase)


def block_successors(phase: PhaseState, tasks: Sequence[int]) -> Iterator[PhaseState]:
    """Let the successors of a phase wait again, because the output of these tasks is lost.

    Yields those whose pending tasks may not begin. Their running tasks continue, because
    they may have read all that they need.
    """
    for other in phase.successors:
        if other.is_pinned:
            if sum(map(other.block, tasks)) and other.is_ready:
                yield other
        elif other.done == other.phase.tasks.count:
            continue  # If it is undone later, it waits again, too.
        elif wait_for_lost(other, phase) and other.is_ready:
            yield other


def wait_for_lost(other: PhaseState, phase: PhaseState) -> bool:
    """Let a phase wait for one before it if that lacks tasks. Whether it lacks too many."""
    if phase.done == phase.phase.tasks.count or _has_enough(other, phase):
        return False
    other.waits_for.add(phase.id.phase)
    other.lacks_input = True
    return True


def _has_enough(other: PhaseState, phase: PhaseState) -> bool:
    """Whether a phase need not wait for more tasks of this one, which is not done."""
    needed = other.phase.slow_start * phase.phase.tasks.count
    return other.early and phase.done >= max(1, needed - SLOTS)


def _release(other: PhaseState, phase: PhaseState) -> Iterator[PhaseState]:
    other.waits_for.remove(phase.id.phase)
    if not other.waits_for:
        other.lacks_input = False
        if other.has_tasks:
            yield other


# Admission: each pool runs a limited number of jobs at once; the others wait.


class LimitReached(NamedTuple):
    """A limit of running jobs that is reached.

    user  whose jobs it limits (`jobs_max_per_user`); None for those of all (`jobs_max`)
    most  the limit
    jobs  the jobs that count against it and run
    """

    pool: str
    user: str | None
    most: int
    jobs: Sequence[str]


_Limit = tuple[str, str | None]
"""The name of a limit: a pool, and a user or None for the jobs of all users."""


class Admission:
    """Admits jobs by priority, then by arrival, while no limit of their pools is reached.

    A pool also counts the jobs of the pools below it. `user` has the jobs that state none.
    """

    def __init__(self, user: str | None) -> None:
        self._user = user
        self._running: Counter[_Limit] = Counter()
        # The waiting jobs by pool and user, the next one first.
        self._waiting: dict[_Limit, list[tuple[float, int, Job]]] = {}
        # Those of a pool and user are looked at only if what they wait for may have changed.
        self._open: set[_Limit] = set()
        self._parked: dict[_Limit, set[_Limit]] = {}  # by the limit that they wait for
        # More than a limit only where jobs moved to a pool, or its limit was lowered.
        self._excess: Counter[_Limit] = Counter()

    def arrive(self, job: Job, pools: PoolTree, number: int) -> Iterator[Job]:
        """Add the job that arrived as the n-th. The jobs that may begin now."""
        if not self._limits(job, pools):
            return iter((job,))
        self._wait((-PRIORITIES[job.priority], number, job))
        return self._admit(pools)

    def give_up(self, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Remove a job that is over, perhaps while it waits. The jobs that may begin now."""
        if place := self._place(job):
            self._drop(place)
            return iter(())  # It took no room.
        self._free(job, pools)
        return self._admit(pools) if self._waiting else iter(())

    def change(self, old: Job, job: Job, pools: PoolTree) -> Iterator[Job]:
        """Replace a job by one of another priority or pool. The jobs that may begin now."""
        if place := self._place(old):
            self._drop(place)
            self._wait((-PRIORITIES[job.priority], place[1], job))
        else:
            self._free(old, pools)
            self._running.update(self._limits(job, pools).keys())
            self._excess |= self._running
        return self._admit(pools)

    def recount(self, admitted: Iterable[Job], pools: PoolTree) -> Iterator[Job]:
        """Count the admitted jobs in new pools. The jobs that may begin now."""
        self._running = Counter(key for job in admitted for key in self._limits(job, pools))
        self._excess = self._running.copy()
        self._open = set(self._waiting)
        self._parked.clear()
        return self._admit(pools)

    def awaits(self, job: Job) -> bool:
        """Whether a job awaits admission. O(jobs of its pool that do)."""
        return self._place(job) is not None

    def waiting(self) -> list[str]:
        """The jobs that await admission, the next one first."""
        return [job.id for *_, job in sorted(chain(*self._waiting.values()))]

    def waiting_by_pool(self) -> Counter[str]:
        """The number of jobs that await admission, by pool. O(pools and users)."""
        found = Counter[str]()
        for (pool, _), places in self._waiting.items():
            found[pool] += len(places)
        return found

    def reached(self, job: Job, inside: Sequence[Job], pools: PoolTree) -> list[LimitReached]:
        """The limits of a job that are reached, with those of the running jobs that count."""
        return [
            LimitReached(
                *limit, most, [one.id for one in inside if limit in self._limits(one, pools)]
            )
            for limit, most in self._limits(job, pools).items()
            if self._running[limit] >= most
        ]

    def check(self, pools: PoolTree) -> None:
        """Assert that no pool runs too many jobs. For tests."""
        for (name, user), count in self._running.items():
            pool = pools[name]
            limit = pool.jobs_max if user is None else pool.jobs_max_of(user)
            most = inf if limit is None else max(limit, self._excess[name, user])
            assert 0 <= count <= most, "no pool runs too many jobs"

    def _free(self, job: Job, pools: PoolTree) -> None:
        """Count an admitted job no more, and look at those that wait for its place."""
        limits = self._limits(job, pools).keys()
        self._running.subtract(limits)
        for limit in limits:
            if not self._running[limit]:  # There may be thousands of users, one after another.
                del self._running[limit], self._excess[limit]
        for limit in limits & self._parked.keys():
            self._open |= self._parked.pop(limit)

    def _admit(self, pools: PoolTree) -> Iterator[Job]:
        """Admit what fits. Of the jobs of a pool and user, only the first is checked."""
        while fit := [place for key in tuple(self._open) if (place := self._fits(key, pools))]:
            first = min(fit)
            job = first[2]
            self._running.update(self._limits(job, pools).keys())
            self._drop(first)
            yield job

    def _fits(self, key: _Limit, pools: PoolTree) -> tuple[float, int, Job] | None:
        """The first waiting job of a pool and user if it fits; otherwise they are parked."""
        if key in self._waiting:
            limits = self._limits(self._waiting[key][0][2], pools).items()
            full = next((limit for limit, most in limits if self._running[limit] >= most), None)
            if full is None:
                return self._waiting[key][0]
            self._parked.setdefault(full, set()).add(key)
        self._open.discard(key)
        return None

    def _limits(self, job: Job, pools: PoolTree) -> dict[_Limit, int]:
        """The limits of running jobs that a job counts against; only these are counted."""
        found: dict[_Limit, int] = {}
        user = job.user or self._user
        for pool in pools.path(job.pool):
            if pool.jobs_max is not None:
                found[pool.name, None] = pool.jobs_max
            if pool.jobs_max_per_user and (most := pool.jobs_max_of(user)) is not None:
                found[pool.name, user] = most
        return found

    def _wait(self, place: tuple[float, int, Job]) -> None:
        job = place[2]
        key = job.pool, job.user or self._user
        if key not in self._waiting:
            self._open.add(key)
        insort(self._waiting.setdefault(key, []), place)

    def _place(self, job: Job) -> tuple[float, int, Job] | None:
        """The place of a waiting job; None for one that was admitted."""
        waiting = self._waiting.get((job.pool, job.user or self._user), ())
        return next((place for place in waiting if place[2].id == job.id), None)

    def _drop(self, place: tuple[float, int, Job]) -> None:
        """Remove a waiting job."""
        key = place[2].pool, place[2].user or self._user
        self._waiting[key].remove(place)
        if not self._waiting[key]:
            del self._waiting[key]
