"""Explanations of the slots of a job: the shares of its pools, its demand, its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import exp, inf

from slotwise.core.cluster import ANY_KIND
from slotwise.core.decisions import PromiseCause
from slotwise.core.errors import InputError
from slotwise.core.events import JobArrived, JobChanged
from slotwise.core.jobs_in_progress import LimitReached
from slotwise.core.log import Log, Turn
from slotwise.core.loop import initial_state
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.resources import amount_text
from slotwise.core.state import State
from slotwise.insight.explanation import (
    Estimated,
    Explanation,
    Holding,
    Neighbour,
    PhaseExplained,
    ShareExplained,
)
from slotwise.insight.reasons import Reason
from slotwise.insight.report.text import seconds
from slotwise.insight.why import (
    jobs_named,
    reserved_now,
    rounded_up,
    unknown_job,
    why_now,
)
from slotwise.policy.assignment.preemption import spared_jobs, spared_pools
from slotwise.policy.scheduler import BACKFILLINGS, ESTIMATING, QUEUEINGS
from slotwise.policy.steady import steady_shares

NEIGHBOURS = 5
"""The number of phases served before and after a phase, and of holders, that are named."""

CAUSES: Mapping[PromiseCause, str] = {
    "hosts": "hosts were lost",
    "pools": "pools were changed",
    "min_shares": "min shares came first, or its tasks were stopped for other shares",
    "failures": "attempts failed",
    "estimates": "it takes longer than assumed",
}
"""Why a promise was broken, in words."""


def explain(log: Log, job: str, at: float) -> Explanation:
    """Explain the slots that a job holds at an instant (seconds) of a run.

    The log is read once, and only the state is stored: O(entries). InputError for a job that is
    not in the log, or an instant outside of it.
    """
    pool, last, over = None, 0.0, ""
    state, name = initial_state(log.header), log.header.scheduler["name"]
    for turn in log.turns:
        last = turn.now
        if pool is None or last <= at:  # Later turns still show if the log has the job.
            pool = _pool_of(job, turn) or pool
        if last <= at:
            if name in ESTIMATING:
                state.expect_estimates()
            state.at(last)
            for entry in (*turn.events, *turn.decisions):
                state.apply(entry)
            name = state.scheduler or name
            over = over or _ending(state, job)
    if pool is None:
        arrived = (e.job.id for t in log.turns for e in t.events if isinstance(e, JobArrived))
        raise InputError(unknown_job(job, arrived))
    if not 0 <= at <= last:
        raise InputError(f"instant {at} is not in the log; name one from 0 to {last:.6g} s")
    state.at(at)
    return explain_state(state, job, pool, name, over)


def explain_state(
    state: State,
    job: str,
    pool: str,
    scheduler: str,
    over: str = "",
    now: float | None = None,
) -> Explanation:
    """Explain the slots that a job holds now. O(ready phases).

    over  how it ended before
    now   the present instant, if it is later than that of the state
    """
    now = state.now if now is None else now
    phases = tuple(_phase(state, phase, scheduler) for phase in state.phases_of(job))
    status = over or _ending(state, job) or _status(state, job, now)
    return Explanation(job, now, pool, scheduler, status, phases)


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


def _status(state: State, job: str, now: float) -> str:
    if before := state.awaiting_jobs.get(job):
        return f"waits for {jobs_named(before)}"
    if job in state.awaiting_admission:
        place = state.awaiting_admission.index(job) + 1
        reasons = map(_limit_reached, state.limits_reached(job))
        return f"awaits admission, number {place} in the queue: {'; '.join(reasons)}"
    if not (phases := state.phases_of(job)):
        return "has not arrived yet"
    waits = any(phase.has_more for phase in phases) and not any(one.running for one in phases)
    return f"{'waits' if waits else 'under way'}{_promised(state, job, now)}"


def _promised(state: State, job: str, now: float) -> str:
    """What is promised to a job, or was, as a clause; "" without a promise.

    In seconds from or until now: on a server, seconds since its start mean nothing to a user.
    """
    promises = state.refresh_promises()
    if broken := promises.broken.get(job):
        ago = seconds(max(0.0, now - broken.at))
        return f"; its promised end has passed {ago} ago: {CAUSES[broken.cause]}"
    promise = promises.open.get(job)
    if promise is None:
        return ""
    text = f"; its end is promised within {seconds(max(0.0, promise.decision.at - now))}"
    if not any(phase.has_more for phase in state.phases_of(job)):
        return text  # All its tasks run: nothing is kept for others.
    slots, begins = promise.decision.slots, seconds(max(0.0, promise.begins - now))
    kept = f"{slots} {'slot is' if slots == 1 else 'slots are'}"
    since = "guaranteed now" if promise.is_due else f"kept for it in {begins} at the latest"
    return f"{text}, and {kept} {since}"


def _limit_reached(limit: LimitReached) -> str:
    """A limit of running jobs for which a job waits, as a clause."""
    key = "jobs_max" if limit.user is None else "jobs_max_per_user"
    if not limit.most:
        whom = "" if limit.user is None else f" for user {limit.user}"
        return f"pool {limit.pool!r} is closed{whom} ({key} 0)"
    of_user = "" if limit.user is None else f" of user {limit.user}"
    return f"pool {limit.pool!r} runs {', '.join(limit.jobs)}{of_user} ({key} {limit.most})"


def _phase(state: State, phase: PhaseState, scheduler: str) -> PhaseExplained:
    is_queued = scheduler in QUEUEINGS or scheduler in BACKFILLINGS
    is_estimating = scheduler in ESTIMATING
    before, after = ((), ()) if is_queued else _neighbours(state, phase, is_estimating)
    path = list(path_to(phase.pool)) if phase.is_ready and not is_queued else []
    over = [p for p in state.shares(phase.slot_kind) if path and p.held > rounded_up(p.share)]
    why = why_now(state, phase, scheduler)
    holders = []
    if phase.pending and not phase.waits_for:
        of_resource = why.code is Reason.RESOURCE and why.lacks in phase.needs
        holders = (
            _holders_of(state, phase, why.lacks) if of_resource else _holders(state, phase)
        )
    return PhaseExplained(
        phase=phase.id.phase,
        slot_kind=phase.slot_kind,
        running=phase.running,
        silent=_running_on(state.unresponsive, phase),
        leaving=_running_on(set(state.leaving) - set(state.unresponsive), phase),
        stopping=len(phase.stopping),
        pending=phase.pending + phase.blocked + len(phase.delayed),
        done=phase.done,
        allocated=None if is_queued else phase.allocated,
        most=phase.max_share,
        why=why.sentence,
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


def _holders_of(state: State, phase: PhaseState, resource: str) -> list[Holding]:
    """The other jobs that hold a resource of hosts, the most first. O(running tasks)."""
    running: Counter[tuple[str, str]] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    for other in chain.from_iterable(state.jobs_left()):
        for launch, *_ in other.launches.values() if other.job.id != phase.job.id else ():
            if amount := other.held(launch).get(resource, 0):
                running[other.job.id, other.job.pool] += other.width
                held[other.job.id, other.job.pool] += amount
    largest = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return [
        Holding(*one, running[one], f"{resource} {amount_text(resource, amount)}")
        for one, amount in largest
    ]


def _reserved(state: State, phase: PhaseState) -> dict[str, int]:
    """Slots of the kind of a phase that are, or will be, reserved for pools of other jobs."""
    kept = reserved_now(state, phase)
    for other in state.holding(phase.slot_kind):
        for host, taker in other.stops():
            if taker and taker.slot_kind == phase.slot_kind and host not in state.lost:
                kept[taker.name] += 0 if taker.key in phase.shares else other.width
    return {pool: slots for pool, slots in sorted(kept.items()) if slots}


def _running_on(hosts: Collection[str], phase: PhaseState) -> dict[str, int]:
    """The number of slots that a phase holds on each of some hosts."""
    running = Counter(launch.host for launch, *_ in phase.launches.values())
    return {host: running[host] * phase.width for host in sorted(running.keys() & hosts)}


def _share(state: State, pool: PoolState) -> ShareExplained:
    kind, capacity = pool.slot_kind, state.capacity(pool.slot_kind)
    of_kind = kind if pool.key.kind == ANY_KIND else pool.key.kind
    steady = steady_shares(state.pools, capacity, of_kind, state.cluster)
    return ShareExplained(
        pool.name,
        pool.slot_kind,
        pool.allocated,
        pool.held,
        pool.demand,
        pool.min_share,
        None if pool.max_share == inf else pool.max_share,
        _lacks(state, pool),
        steady.get(pool.key, 0.0),
    )


def _lacks(state: State, pool: PoolState) -> str:
    """A sentence on the slots that a pool lacks, and when it reclaims them."""
    words = []
    for what, due in (("its min share", pool.min_share_due), ("its share", pool.fair_due)):
        if due <= state.now:
            words.append(f"below {what} for too long: it reclaims the missing slots")
            if what == "its share" and _spares(state, pool.slot_kind):
                words.append(
                    "it spares tasks that were stopped before until they have run longer"
                )
            if state.pools.stop_limits and (jobs := spared_jobs(state, pool)):
                words.append(_limited(jobs))
            if state.pools.unpreemptible and (pools := spared_pools(state, pool)):
                words.append(f"preemptible: false spares {_pools_named(pools)}")
        elif due < inf:
            words.append(f"below {what}: it reclaims the missing slots at {due:.6g} s")
    if pool.slots_being_reclaimed:
        are = "slot is" if pool.slots_being_reclaimed == 1 else "slots are"
        words.append(f"{pool.slots_being_reclaimed} {are} being reclaimed for it")
    if words or pool.held >= whole(pool.share):
        return "; ".join(words)
    if pool.preemption is None or pool.preemption.fair_after == inf:
        return "below its share, but it has no time-out after which it reclaims slots"
    return f"below its share, but not below {pool.preemption.fraction:.3g} of it"


def _limited(jobs: Mapping[str, float]) -> str:
    """The jobs that a pool waits for. `jobs`: until when each of them is spared."""
    until, first = min(jobs.values()), ", the first" if len(jobs) > 1 else ""
    when = f"{first} until {until:.6g} s" if until < inf else ""
    return f"stops_per_hour spares {jobs_named(jobs)}{when}"


def _pools_named(pools: Sequence[str]) -> str:
    return f"pool{'s' * (len(pools) > 1)} {', '.join(pools)}"


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
