"""Explanations of the slots of a job: the shares of its pools, its demand, its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import ceil, exp, inf

from slotwise.core.errors import InputError
from slotwise.core.events import JobArrived, JobChanged
from slotwise.core.job import PhaseId
from slotwise.core.log import Log, Turn
from slotwise.core.loop import initial_state
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.state import State
from slotwise.core.tolerances import SLOTS
from slotwise.insight.explanation import (
    Estimated,
    Explanation,
    Holding,
    Neighbour,
    PhaseExplained,
    ShareExplained,
)
from slotwise.insight.waits import unknown_job, why_avoided, why_gang_waits
from slotwise.policy.scheduler import ESTIMATING, QUEUEINGS

NEIGHBOURS = 5
"""The number of phases served before and after a phase, and of holders, that are named."""

BLOCKED = "wait for the tasks that they continue"


def explain(log: Log, job: str, at: float) -> Explanation:
    """Explain the slots that a job holds at an instant (seconds) of a run.

    The log is read once, and only the state is stored: O(entries). InputError for a job that is
    not in the log, or an instant outside of it.
    """
    pool, last, over = None, 0.0, ""
    state = initial_state(log.header)
    if log.header.scheduler["name"] in ESTIMATING:
        state.expect_estimates()
    for turn in log.turns:
        last = turn.now
        if pool is None or last <= at:  # Later turns still show if the log has the job.
            pool = _pool_of(job, turn) or pool
        if last <= at:
            state.at(last)
            for entry in (*turn.events, *turn.decisions):
                state.apply(entry)
            over = over or _ending(state, job)
    if pool is None:
        arrived = (e.job.id for t in log.turns for e in t.events if isinstance(e, JobArrived))
        raise InputError(unknown_job(job, arrived))
    if not 0 <= at <= last:
        raise InputError(f"instant {at} is not in the log; name one from 0 to {last:.6g} s")
    state.at(at)
    return explain_state(state, job, pool, log.header.scheduler["name"], over)


def explain_state(
    state: State, job: str, pool: str, scheduler: str, over: str = ""
) -> Explanation:
    """Explain the slots that a job holds now. O(ready phases). `over`: how it ended before."""
    phases = tuple(_phase(state, phase, scheduler) for phase in state.phases_of(job))
    status = over or _ending(state, job) or _status(state, job)
    return Explanation(job, state.now, pool, scheduler, status, phases)


def _pool_of(job: str, turn: Turn) -> str | None:
    """The pool of a job if it arrives or is changed in this turn, else None."""
    pool = None
    for event in turn.events:
        if isinstance(event, JobArrived) and event.job.id == job:
            pool = event.job.pool
        elif isinstance(event, JobChanged) and event.job == job:
            pool = event.pool
    return pool


def _ending(state: State, job: str) -> str:
    """How a job ended in the current turn, or ""."""
    if job in state.completed:
        return f"completed at {state.completed[job]:.6g} s"
    return f"failed: {state.failed[job]}" if job in state.failed else ""


def _status(state: State, job: str) -> str:
    if job in state.awaiting_admission:
        place = state.awaiting_admission.index(job) + 1
        reasons = [
            f"pool {name!r} runs {', '.join(inside)} (jobs_max {state.pools[name].jobs_max})"
            for name, inside in state.full_pools(job).items()
        ]
        return f"awaits admission, number {place} in the queue: {'; '.join(reasons)}"
    if not state.phases_of(job):
        return "has not arrived yet"
    return "under way"


def _phase(state: State, phase: PhaseState, scheduler: str) -> PhaseExplained:
    is_queued = scheduler in QUEUEINGS
    is_estimating = scheduler in ESTIMATING
    before, after = ((), ()) if is_queued else _neighbours(state, phase, is_estimating)
    path = list(path_to(phase.pool)) if phase.is_ready and not is_queued else []
    over = [p for p in state.shares(phase.slot_kind) if path and p.held > _up(p.share)]
    holders = _holders(state, phase) if phase.pending and not phase.waits_for else []
    return PhaseExplained(
        phase=phase.id.phase,
        slot_kind=phase.slot_kind,
        running=phase.running,
        silent=_running_on(state.unresponsive, phase),
        leaving=_running_on(set(state.leaving) - set(state.unresponsive), phase),
        stopping=len(phase.stopping),
        pending=phase.pending + phase.blocked,
        done=phase.done,
        allocated=None if is_queued else phase.allocated,
        most=phase.max_share,
        why=_why(state, phase, scheduler),
        shares=tuple(_share(state, pool) for pool in path if pool.parent is not None),
        over=tuple(_share(state, pool) for pool in over if pool not in path),
        before=before,
        after=after,
        holders=tuple(holders[:NEIGHBOURS]),
        holders_more=max(0, len(holders) - NEIGHBOURS),
        reserved=_reserved(state, phase) if phase.pending and not phase.waits_for else {},
        estimate=_estimate(state, phase) if is_estimating else None,
    )


def _estimate(state: State, phase: PhaseState) -> Estimated | None:
    """The work left of a phase, as the allocator estimates it."""
    if phase.done + phase.dropped == phase.phase.tasks.count:
        return None
    work, spread = phase.estimate(state.now)
    return Estimated(work, exp(spread), phase.work.origin(phase.done))


def _holders(state: State, phase: PhaseState) -> list[Holding]:
    """The other jobs that hold slots of the kind of a phase, most slots first."""
    running: Counter[tuple[str, str]] = Counter()
    for other in state.ready(phase.slot_kind):
        if other.running and other.job.id != phase.job.id:
            running[other.job.id, other.job.pool] += other.running
    largest = sorted(running.items(), key=lambda item: (-item[1], item[0]))
    return [Holding(job, pool, count) for (job, pool), count in largest]


def _reserved(state: State, phase: PhaseState) -> dict[str, int]:
    """Slots of the kind of a phase that are, or will be, reserved for pools of other jobs."""
    kept = _reserved_now(state, phase)
    for other in state.holding(phase.slot_kind):
        for host, taker in other.stops():
            if taker and taker.slot_kind == phase.slot_kind and host not in state.lost:
                kept[taker.name] += 0 if taker.key in phase.shares else other.width
    return {pool: slots for pool, slots in sorted(kept.items()) if slots}


def _reserved_now(state: State, phase: PhaseState) -> Counter[str]:
    """Free slots of the kind of a phase that are reserved for pools of other jobs."""
    kept: Counter[str] = Counter()
    for by_pool in state.reserved(phase.slot_kind).values():
        for pool, slots in by_pool.items():
            kept[pool.name] += 0 if pool.key in phase.shares else slots
    return kept


def _running_on(hosts: Collection[str], phase: PhaseState) -> dict[str, int]:
    """The number of slots that a phase holds on each of some hosts."""
    running = Counter(launch.host for launch, *_ in phase.launches.values())
    return {host: running[host] * phase.width for host in sorted(running.keys() & hosts)}


def _why(state: State, phase: PhaseState, scheduler: str) -> str:
    """The first reason that applies for the number of slots that a phase holds."""
    if phase.job.id in state.awaiting_admission:
        return "its job awaits admission"
    if phase.waits_for:
        return f"it waits for {', '.join(sorted(phase.waits_for))}"
    if phase.done + phase.dropped == phase.phase.tasks.count:
        return "all its tasks are done; more may come" if phase.is_open else "it is done"
    is_queued = scheduler in QUEUEINGS
    if phase.running - phase.slots_on_lost_hosts > _up(phase.allocated) and not (
        is_queued or state.is_stale
    ):
        return _why_more(phase)
    if not phase.pending:
        others = "wait for others of their graph" if phase.phase.gated else BLOCKED
        rest = f", except {phase.blocked} that {others}" if phase.blocked else ""
        return f"all its tasks run{rest}: it can use no more slots"
    if not state.capacity(phase.slot_kind):
        return f"no host can begin tasks on slots of kind {phase.slot_kind!r} now"
    if is_queued:
        return why_queued(state, phase)
    if phase.is_gang and (reason := why_gang_waits(state, phase)):
        return reason
    if phase.width > 1 and (reason := _why_no_host(state, phase)):
        return reason
    if phase.running >= phase.max_share:
        return f"it holds its max share of {phase.max_share}"
    for pool in path_to(phase.pool):
        if pool.is_full:
            return f"pool {pool.name!r} holds its max share of {pool.max_share:g}"
    return _why_less(state, phase, scheduler)


def _why_more(phase: PhaseState) -> str:
    takers = sorted({pool.name for pool in phase.stopping.values() if pool is not None})
    if takers:
        return (
            f"it was allocated more before, and {len(phase.stopping)} of its tasks were asked"
            f" to stop for {', '.join(takers)}"
        )
    return "it was allocated more before, and running tasks are not stopped"


def _why_less(state: State, phase: PhaseState, scheduler: str) -> str:
    """Why a backlogged phase below its limits holds no more slots."""
    if phase.deferred_until is not None and phase.deferred_until > state.now:
        assert phase.deferred_since is not None
        since, until = f"{phase.deferred_since:.6g} s", f"{phase.deferred_until:.6g} s"
        if phase.width > 1:
            return f"it has waited since {since} for {phase.width} free slots of one host"
        waited = f"{state.now - phase.deferred_since:.6g} s"
        return (
            f"it has waited {waited} for a slot near its input, and waits until {until} at most"
        )
    if phase.allocated <= 0 and state.is_stale:
        return (
            "it arrived after the last allocation and is served after others until the next"
            f" one, at {state.reallocates_from:.6g} s"
        )
    if phase.allocated <= 0:
        return f"it is allocated no slots: {scheduler} gives them to other phases now"
    held = phase.running - phase.slots_on_lost_hosts
    if phase.width > 1 and (reason := why_too_few(state, phase)):
        return reason
    if reason := why_avoided(state, phase):
        return reason
    lacks = whole(phase.allocated) - held
    if lacks > 0:
        kept = sum(_reserved_now(state, phase).values())
        free = f", and {kept} free slots are reserved for other pools" if kept else ""
        return f"it lacks {lacks} of its allocated slots: other phases still hold them{free}"
    if held < phase.allocated - SLOTS:
        return "it holds the whole slots of its allocation; the fraction is shared in turns"
    return "it holds its allocation"


def _why_no_host(state: State, phase: PhaseState) -> str:
    """Why a phase waits if no host has the slots of one task, or ""."""
    hosts = [host for host in state.cluster.hosts if host.name not in state.lost]
    most = max((host.slots.get(phase.slot_kind, 0) for host in hosts), default=0)
    if most >= phase.width:
        return ""
    return (
        f"each of its tasks occupies {phase.width} slots of one host, and the largest host that"
        f" can begin tasks now has {most}: it waits for a larger one"
    )


def why_too_few(state: State, phase: PhaseState) -> str:
    """Why a phase waits if no host has the slots of one task free, or ""."""
    free = state.free(phase.slot_kind)
    if any(count >= phase.width for count in free.values()):
        return ""
    most = max(free.values(), default=0)
    return f"it waits for {phase.width} free slots of one host; at most {most} are free on one"


def _up(share: float) -> int:
    """Round a share up to slots: a pool or phase that holds no more is not above it."""
    return ceil(share - SLOTS)


def _share(state: State, pool: PoolState) -> ShareExplained:
    return ShareExplained(
        pool.name,
        pool.slot_kind,
        pool.allocated,
        pool.held,
        pool.demand,
        pool.min_share,
        None if pool.max_share == inf else pool.max_share,
        _lacks(state, pool),
    )


def _lacks(state: State, pool: PoolState) -> str:
    """A sentence on the slots that a pool lacks, and when it reclaims them."""
    words = []
    for what, due in (("its min share", pool.min_share_due), ("its share", pool.fair_due)):
        if due <= state.now:
            words.append(f"below {what} for too long: it takes the missing slots back")
            if what == "its share" and _spares(state, pool.slot_kind):
                words.append(
                    "it leaves tasks that were stopped before until they have run longer"
                )
        elif due < inf:
            words.append(f"below {what}: it takes the missing slots back at {due:.6g} s")
    if pool.slots_being_reclaimed:
        are = "slot is" if pool.slots_being_reclaimed == 1 else "slots are"
        words.append(f"{pool.slots_being_reclaimed} {are} being taken back for it")
    if words or pool.held >= whole(pool.share):
        return "; ".join(words)
    if pool.preemption is None or pool.preemption.fair_after == inf:
        return "below its share, but it has no time-out after which it takes slots back"
    return f"below its share, but not below {pool.preemption.fraction:.3g} of it"


def _spares(state: State, slot_kind: str) -> bool:
    """Whether a task on such slots may be stopped only for a min share."""
    return any(
        phase.spared_until(launch.task) > state.now
        for phase in state.holding(slot_kind)
        for _, launch in phase.attempts()
    )


def _neighbours(
    state: State, phase: PhaseState, is_estimating: bool
) -> tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]:
    """The nearest phases of its pool that are served before it and after it."""
    order: Sequence[PhaseState] = list(phases_below(phase.pool))
    if phase not in order:  # It has no backlog.
        return (), ()
    place = order.index(phase)
    before = order[max(0, place - NEIGHBOURS) : place]
    after = order[place + 1 : place + 1 + NEIGHBOURS]

    def neighbour(other: PhaseState) -> Neighbour:
        held, work = other.running - other.slots_on_lost_hosts, None
        if is_estimating:
            work = sum(one.work_left(state.now) for one in state.phases_of(other.job.id))
        return Neighbour(other.job.id, other.id.phase, held, other.allocated, work)

    return tuple(map(neighbour, before)), tuple(map(neighbour, after))


# Explanations for policies that plan queues: why tasks wait in the queues of hosts.


def why_queued(state: State, phase: PhaseState) -> str:
    """The queues that hold the pending tasks of a phase, and how many tasks are before them."""
    queues = state.queues
    waiting = []
    for host, queue in queues.by_host.items():
        places = [place for place, (name, _) in enumerate(queue) if name == phase.id]
        if places:
            others = f"behind {_tasks(places[0])}" if places[0] else "first"
            idle = _kept_idle(state, queue[0][0])
            waiting.append(f"{_tasks(len(places))} on {host}, {others}{idle}")
    if not waiting:
        silent = ", ".join(sorted(state.unresponsive)) or "none"
        return f"its tasks are in no queue; unresponsive hosts: {silent}"
    place = queues.jobs.index(phase.job.id) + 1
    return (
        f"its job was placed as number {place} of {len(queues.jobs)}, and its tasks wait in"
        f" queues: {'; '.join(waiting)}"
    )


def _kept_idle(state: State, first: PhaseId) -> str:
    """The phases that the first task of a queue waits for, or "" if it only needs a slot."""
    waits_for = state.phase(first).waits_for
    if not waits_for:
        return ""
    return (
        f" (next is {first.job}/{first.phase}, which waits for {', '.join(sorted(waits_for))})"
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
