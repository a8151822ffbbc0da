"""What a forecast needs of the present state: a copy that another thread may read.

`situation_of` costs O(phases and running tasks) in the thread of the loop, some 4 us for each
job; all else of a forecast costs nothing there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import NamedTuple

from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.errors import InputError, shown, suggestion
from slotwise.core.estimation import DEFAULT_WORK
from slotwise.core.job import PRIORITIES, Job, Phase
from slotwise.core.phase_state import PhaseState
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.promises import OpenPromise
from slotwise.core.resources import Resources, with_slots
from slotwise.core.snapshot import Snapshot


class PhaseNow(NamedTuple):
    """A phase that is not done.

    waits_for  the phases of its job that are not done and must be
    pending    the tasks that have not begun, or the gangs; `width` slots each, at most `room`
               at once, and each takes `takes` of all hosts together
    base       the seconds that are stated for a task, or assumed; `is_stated` says which
    expected   the seconds that the scheduler estimates now for a task
    measured   the mean seconds of the `done` tasks, if there are some
    begun      when each running task, or gang, began
    """

    name: str
    waits_for: Sequence[str]
    pending: int
    width: int
    room: int
    takes: Resources
    base: float
    is_stated: bool
    expected: float
    measured: float = 0.0
    done: int = 0
    begun: Sequence[float] = ()


class PromiseNow(NamedTuple):
    """What is reserved for a job whose date is promised: slots, from one instant to another."""

    begins: float
    until: float
    slots: int


class JobNow(NamedTuple):
    """A job that is not over, with its phases that are not done.

    user    whose it is; its pool if it names nobody
    after   the jobs that are not over and must be
    began   when its first task began; infinity before
    first   whether the scheduler has allocated slots to it
    promise if its date is promised
    """

    id: str
    user: str
    program: str
    pool: str
    weight: float
    priority: float
    arrival: float
    deadline: float
    longest: float
    phases: Sequence[PhaseNow]
    after: Iterable[str] = ()
    began: float = inf
    first: bool = False
    promise: PromiseNow | None = None


class PoolNow(NamedTuple):
    """A pool that holds jobs: what it gets of all slots, with the pools around it.

    weight  the part of the slots that its weight gives it if all pools are busy
    limits  the most of other resources, with the pool that states it: its own, and of those
            around it
    """

    name: str
    weight: float
    slots_min: float
    slots_max: float
    in_turn: bool
    limits: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Situation:
    """The present state: hosts, pools, jobs, and by which scheduler they are served."""

    now: float
    scheduler: str
    penalty: str
    hosts: tuple[Host, ...]
    kinds: tuple[str, ...]
    pools: Mapping[str, PoolNow]
    jobs: tuple[JobNow, ...]

    @property
    def totals(self) -> dict[str, int]:
        """What the hosts have together, slots first."""
        found = dict.fromkeys(self.kinds, 0)
        for host in self.hosts:
            for name, amount in host.amounts.pairs:
                found[name] = found.get(name, 0) + amount
        return found

    @property
    def slots(self) -> int:
        """Those of all kinds together."""
        totals = self.totals
        return sum(totals[kind] for kind in self.kinds)


def situation_of(
    state: Snapshot, scheduler: str, penalty: str, before: Situation | None = None
) -> Situation:
    """A copy of what forecasts need, by the thread of the loop.

    scheduler, penalty  as the run began; a change by the user goes before them
    before              an earlier situation; jobs that have not changed are shared with it,
                        since thousands of new objects cost as much as what is read
    """
    awaiting, now, promises = state.awaiting_jobs, state.now, state.promises.open
    kept = {} if before is None else {job.id: job for job in before.jobs}
    jobs = []
    for phases in chain(state.jobs_left(), map(state.phases_of, state.not_admitted)):
        if phases:
            job = _job_now(phases, now, awaiting)
            if (promise := promises.get(job.id)) is not None:
                job = job._replace(promise=_promise_now(promise))
            old = kept.get(job.id)
            jobs.append(old if old == job else job)
    hosts = tuple(host for host in state.cluster.hosts if host.name not in state.lost)
    return Situation(
        now=state.now,
        scheduler=state.scheduler or scheduler,
        penalty=penalty if state.objective is None else state.objective[0],
        hosts=hosts,
        kinds=tuple(state.cluster.capacity),
        pools=pools_now(state.pools, {job.pool for job in jobs}, hosts),
        jobs=tuple(jobs),
    )


def _promise_now(promise: OpenPromise) -> PromiseNow:
    decision = promise.decision
    return PromiseNow(min(promise.begins, decision.until), decision.until, decision.slots)


def _job_now(
    phases: Sequence[PhaseState], now: float, awaiting: Mapping[str, Iterable[str]]
) -> JobNow:
    job = phases[0].job
    found, began, first = [], inf, False
    for phase in phases:
        first = first or phase.allocated > 0
        if phase.done or phase.launches:
            begun = [at for at, _ in phase.attempts()]
            began = min([began, now, *begun])
        count = phase.tasks_left
        if count > 0:
            found.append(_phase_now(phase, now, count))
    after = tuple(awaiting[job.id]) if job.id in awaiting else ()
    return _job(job, found, after, began, first)


def _job(
    job: Job,
    phases: Sequence[PhaseNow],
    after: Sequence[str],
    began: float = inf,
    first: bool = False,
) -> JobNow:
    deadline = inf if job.deadline is None else job.deadline
    return JobNow(
        job.id, job.user or job.pool, job.program, job.pool, job.share_weight,
        PRIORITIES[job.priority], job.arrival, deadline, job.time_limit or inf,
        phases, after, began, first,
    )  # fmt: skip


def _phase_now(phase: PhaseState, now: float, count: int) -> PhaseNow:
    """A phase of which this number of tasks is not done."""
    work, done, unit = phase.work, phase.done, phase.unit
    base, is_stated = _base(phase.job, work.stated)
    expected, measured = base, 0.0
    begun = tuple([at for at, _ in phase.attempts()]) if phase.launches else ()
    # A question that would be the first one changes what the state keeps.
    if work.learned.is_read and phase.job.time_requested is None:
        expected = phase.work_left(now) / phase.width / count
    if done:
        elapsed = sum([now - at for at in begun])
        measured = max(0.0, phase.attained(now) / phase.width - elapsed) / done
    gang = phase.phase.tasks.count if phase.is_gang else 1
    return PhaseNow(
        phase.id.phase, tuple(phase.waits_for), max(0, count - len(begun)) // gang, unit,
        max(1, phase.max_share // unit), _taken(phase.request, gang), base, is_stated,
        expected, measured, done, begun[::gang],
    )  # fmt: skip


def _taken(request: Resources, gang: int) -> Resources:
    return request if gang == 1 else request.scaled(gang)


def base_of(job: Job, phase: Phase) -> tuple[float, bool]:
    """The seconds that are stated for a task of a phase, else the default; and whether."""
    total = phase.tasks.work_total()
    return _base(job, None if total is None else total / phase.tasks.count)


def _base(job: Job, stated: float | None) -> tuple[float, bool]:
    if job.time_requested is not None:
        return job.time_requested, True
    return (DEFAULT_WORK, False) if stated is None else (stated, True)


def job_now(job: Job, cluster: Cluster) -> JobNow:
    """A job that has not arrived."""
    phases = []
    for phase in job.phases:
        gang = phase.tasks.count if phase.is_gang else 1
        base, is_stated = base_of(job, phase)
        kind = (
            phase.kind if phase.kind in cluster.capacity else ANY_KIND
        )  # Of a host that left.
        phases.append(
            PhaseNow(
                name=phase.name,
                waits_for=tuple(phase.waits_for),
                pending=phase.tasks.count // gang,
                width=phase.unit,
                room=max(1, phase.slots_most // phase.unit),
                takes=_taken(with_slots(kind, phase.slots, phase.needs), gang),
                base=base,
                is_stated=is_stated,
                expected=base,
            )
        )
    return _job(job, phases, tuple(job.predecessors))


def pools_now(
    tree: PoolTree, names: Iterable[str], hosts: Sequence[Host]
) -> dict[str, PoolNow]:
    """The pools of these jobs; shares of kinds of slots count together. O(pools)."""
    slots = float(sum(sum(host.slots.values()) for host in hosts))
    found = {}
    among = defaultdict[str | None, float](float)
    for pool in tree.values():
        among[pool.parent] += pool.weight
    for name in sorted(names):
        weight, most, limits = 1.0, inf, dict[tuple[str, str], int]()
        for pool in tree.path(name):
            limits |= {(pool.name, one): amount for one, amount in pool.resources_max.items()}
            weight *= pool.weight / (among[pool.parent] or 1.0)
            most = min(most, _slots(pool.slots_max, slots, inf))
            most = 0.0 if not pool.weight and not pool.slots_min else most
        own = tree[name]
        least = min(_slots(own.slots_min, slots, 0.0), most)
        is_fifo = own.policy == "fifo"
        found[name] = PoolNow(name, max(weight, 1e-9), least, most, is_fifo, limits)
    return found


def _slots(stated: Mapping[str, int | str], slots: float, none: float) -> float:
    """The slots of a share, of all kinds together."""
    parts = [
        slots * float(one[:-1]) / 100 if isinstance(one, str) else float(one)
        for one in stated.values()
    ]
    return sum(parts) if parts else none


# What if: the situation after a change.


@dataclass(frozen=True, slots=True)
class Change:
    """What may be asked about: jobs that arrive now, other pools, scheduler or hosts.

    pools  all pools, as after a change of pools; None: as they are
    """

    jobs: tuple[Job, ...] = ()
    pools: tuple[Pool, ...] | None = None
    scheduler: str | None = None
    hosts: tuple[Host, ...] = ()
    without_hosts: tuple[str, ...] = ()


def changed(
    situation: Situation, change: Change, cluster: Cluster, tree: PoolTree
) -> Situation:
    """The situation after a change. InputError for hosts that are not present, or already are.

    cluster, tree  the present ones
    """
    names = {host.name for host in situation.hosts}
    for name in change.without_hosts:
        if name not in names:
            raise InputError(
                f"without_hosts: unknown host {shown(name)}; {suggestion(name, sorted(names))}"
            )
    for host in change.hosts:
        if host.name in names - set(change.without_hosts):
            raise InputError(f"hosts: {shown(host.name)} is present already; give another name")
    hosts = [host for host in situation.hosts if host.name not in change.without_hosts]
    hosts += change.hosts
    jobs = [*situation.jobs, *(job_now(job, cluster) for job in change.jobs)]
    tree = tree if change.pools is None else PoolTree(change.pools)
    named = {job.pool for job in jobs}
    return replace(
        situation,
        hosts=tuple(hosts),
        jobs=tuple(job._replace(arrival=max(job.arrival, 0.0)) for job in jobs),
        pools=pools_now(tree.with_pools(sorted(named)), named, hosts),
        scheduler=change.scheduler or situation.scheduler,
    )
