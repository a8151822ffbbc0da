"""Why a phase holds no more slots: the facts, in words.

`why_now` is the reason at an instant, for explanations, with its code and its remedy.
`cause_of` is the cause of a wait, for the report of waits: it leaves out that others are served
first by their shares. `limit_of` is the cause at an instant in the life of a job, for its
intervals: it always has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from math import ceil

from slotwise.core.errors import suggestion
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState, phases_below
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import GPU, MEMORY, UNIT, Resources, amount_text
from slotwise.core.spare import Spare
from slotwise.core.state import State
from slotwise.core.tolerances import SLOTS
from slotwise.insight.pool_limits import (
    holders_of,
    kept_for_another,
    larger,
    limit_reached,
    room_left,
)
from slotwise.insight.reasons import PhaseReason, Reason
from slotwise.policy.scheduler import BACKFILLINGS, QUEUEINGS

BLOCKED = "wait for the tasks that they continue"

ORDINALS = {2: "second attempt", 3: "third attempt", 4: "fourth attempt"}

FIRST_MAX = 100
"""Up to which place a phase is advised a min share of its pool, which those before it get."""

MAX_NAMES = 3
"""The maximum number of jobs that a sentence names."""


def why_now(state: State, phase: PhaseState, scheduler: str) -> PhaseReason:
    """The first reason that applies for the number of slots that a phase holds."""
    if before := state.awaiting_jobs.get(phase.job.id):
        named = jobs_named(before)
        return PhaseReason(Reason.JOBS_BEFORE, f"its job waits for {named}", _end_of(before))
    if phase.job.id in state.awaiting_admission:
        remedy = _admitting(state, phase.job.id)
        return PhaseReason(Reason.JOBS_MAX, "its job awaits admission", remedy)
    if phase.waits_for:
        names = ", ".join(sorted(phase.waits_for))
        return PhaseReason(Reason.PHASES_BEFORE, f"it waits for {names}", f"the end of {names}")
    if phase.done + phase.dropped == phase.phase.tasks.count:
        if phase.is_open:
            return PhaseReason(Reason.MORE_MAY_COME, "all its tasks are done; more may come")
        return PhaseReason(Reason.DONE, "it is done")
    is_queued, may_differ = scheduler in QUEUEINGS, bool(phase.pending or phase.stopping)
    has_shares = not (is_queued or state.is_stale or scheduler in BACKFILLINGS)
    held = phase.running - phase.slots_on_lost_hosts
    if has_shares and may_differ and held > rounded_up(phase.allocated):
        return _why_more(phase)
    if phase.delayed and not phase.pending:
        return _why_delayed(phase)
    if not phase.pending:
        return _why_all(phase)
    if not state.capacity(phase.slot_kind):
        of_kind = f"slots of kind {phase.slot_kind!r}"
        sentence = f"no host can start tasks on {of_kind} now"
        return PhaseReason(Reason.NO_HOST, sentence, f"a host with {of_kind}", phase.slot_kind)
    if is_queued:
        return _why_queued(state, phase)
    if phase.is_gang and (found := _why_gang_waits(state, phase)):
        return found
    if phase.is_wide and (found := _why_no_host(state, phase)):
        return found
    if phase.phase.hosts and not any(map(state.cluster.at, phase.phase.hosts)):
        hosts = _any_of(phase.phase.hosts)
        return PhaseReason(
            Reason.HOST_ABSENT, f"it waits for {_hosts_of(phase)}", f"host {hosts}", hosts
        )
    if phase.running >= phase.max_share:
        sentence = f"it holds its max share of {phase.max_share}"
        remedy = f"a slots_max of {phase.max_share + phase.unit} for its phase"
        if phase.max_share < phase.phase.slots_most:  # Its hosts limit it.
            remedy = f"more slots on host {_any_of(phase.phase.hosts)}"
        return PhaseReason(Reason.PHASE_SLOTS_MAX, sentence, remedy)
    full = next((pool for pool in path_to(phase.pool) if pool.is_full), None)
    if full is not None:
        return _why_full(state, phase, full)
    if limit := limit_reached(phase):
        return _why_limited(state, phase, limit)
    return _why_less(state, phase, scheduler)


def _end_of(jobs: Collection[str]) -> str:
    return f"the end of {jobs_named(jobs)}"


def _admitting(state: State, job: str) -> str:
    """What would admit a job that awaits admission."""
    reached = state.limits_reached(job)
    if not reached:
        return "the admission of the jobs before it"
    name, user, most, inside = reached[0]
    key = "jobs_max" if user is None else "jobs_max_per_user"
    larger = f"{key} {most + 1} of pool {name!r}"
    return f"{_end_of(inside[:1])}, or {larger}" if inside else larger


def _why_all(phase: PhaseState) -> PhaseReason:
    """Why none of its tasks could start on a free slot."""
    if not phase.blocked:
        return PhaseReason(Reason.ALL_RUN, "all its tasks run: it cannot use more slots")
    others, remedy = BLOCKED, "the end of the tasks that they continue"
    if phase.phase.gated:
        others, remedy = "wait for others of their graph", "the end of others of their graph"
    if phase.job.after_each:
        others = f"wait for the same tasks of {jobs_named(phase.job.after_each)}"
        remedy = f"the end of a task of {jobs_named(phase.job.after_each)}"
    sentence = f"all its tasks run, except {phase.blocked} that {others}"
    return PhaseReason(Reason.TASKS_BEFORE, f"{sentence}: it cannot use more slots", remedy)


def _why_full(state: State, phase: PhaseState, pool: PoolState) -> PhaseReason:
    """Why it gets no more if one of its pools holds its max share."""
    most = pool.running + phase.unit
    if not pool.max_share:
        key = "slots_max" if state.pools[pool.name].weight else "weight"
        sentence = f"pool {pool.name!r} {_closed(state, pool)}"
        remedy = f"{key} {most if key == 'slots_max' else 1} of pool {pool.name!r}"
        return PhaseReason(Reason.POOL_CLOSED, sentence, remedy)
    sentence = f"pool {pool.name!r} holds its max share of {pool.max_share:g}"
    remedy = f"slots_max {most} of pool {pool.name!r}"
    return PhaseReason(Reason.POOL_SLOTS_MAX, sentence, remedy)


def _why_limited(state: State, phase: PhaseState, limit: ResourceLimit) -> PhaseReason:
    """Why it gets no more if one of its pools may hold no more of another resource."""
    amount, holders = amount_text(limit.name, limit.taken_by(phase)), holders_of(state, limit)
    asks = "its gang requests" if phase.is_gang else "each of its tasks requests"
    return PhaseReason(
        Reason.POOL_RESOURCES_MAX,
        f"{asks} {limit.name} {amount}, and pool {limit.pool!r} holds {room_left(limit)}"
        f"{_by(holders)}",
        larger(limit, phase),
        limit.name,
    )


def _by(holders: Sequence[str]) -> str:
    """The jobs that hold what is limited, in parentheses."""
    return f" (jobs {_listed(holders)})" if holders else ""


def _closed(state: State, pool: PoolState) -> str:
    """Why a pool may hold no slot."""
    has_weight = state.pools[pool.name].weight
    return f"is closed ({'slots_max' if has_weight else 'weight'} 0)"


def _why_delayed(phase: PhaseState) -> PhaseReason:
    count, until = len(phase.delayed), min(phase.delayed.values())
    tasks = "a failed task waits" if count == 1 else f"{count} failed tasks wait, the first"
    sentence = f"{tasks} until {until:.6g} s for its next attempt (retry_delay)"
    return PhaseReason(Reason.RETRY_DELAY, sentence, "a shorter retry_delay")


def _why_more(phase: PhaseState) -> PhaseReason:
    takers = sorted({pool.name for pool in phase.stopping.values() if pool is not None})
    if takers:
        return PhaseReason(
            Reason.STOPPING,
            f"it was allocated more before, and {len(phase.stopping)} of its tasks were asked"
            f" to stop for {', '.join(takers)}",
        )
    sentence = "it was allocated more before, and running tasks are not stopped"
    return PhaseReason(Reason.ABOVE_SHARE, sentence)


def _why_less(state: State, phase: PhaseState, scheduler: str) -> PhaseReason:
    """Why a backlogged phase below its limits holds no more slots."""
    if scheduler in BACKFILLINGS:
        free, remedy = sum(state.free(phase.slot_kind).values()), "a shorter time_requested"
        sentence = f"{scheduler} serves jobs before it first, and it would delay one of these"
        if free < phase.unit:
            remedy = _free(phase.unit)
            sentence = f"it needs {remedy} at once; free now: {free}"
        return PhaseReason(Reason.BACKFILLING, sentence, remedy)
    if _is_promised(state, phase):
        named = jobs_named(state.promises.open)
        sentence = f"free slots are kept for what is promised to {named}"
        return PhaseReason(Reason.PROMISED, sentence, f"the end of {named}")
    if phase.allocated > 0 and (lack := _lack(state, phase)):
        begun = phase.deferred_since
        waits = "it waits" if begun is None else f"it has waited since {begun:.6g} s"
        is_kept = begun is not None and phase.kept_host is not None
        kept = f"; host {phase.kept_host} is kept for it until tasks end there"
        sentence = f"{waits} for {lack.what}{lack.but}{kept if is_kept else ''}"
        return PhaseReason(lack.code, sentence, lack.remedy, lack.resource)
    is_near_enough = bool(phase.needs) and not phase.has_homes
    if (
        phase.deferred_until is not None
        and phase.deferred_until > state.now
        and not is_near_enough
    ):
        return _why_deferred(state, phase)
    if phase.allocated <= 0 and state.is_stale:
        return PhaseReason(
            Reason.NEXT_ALLOCATION,
            "it arrived after the last allocation and is served after others until the next"
            f" one, at {state.reallocates_from:.6g} s",
            "the next allocation",
        )
    if phase.allocated <= 0:
        sentence = f"it is allocated no slots: {scheduler} gives them to other phases now"
        return PhaseReason(Reason.SERVED_LATER, sentence, _sooner(state, phase))
    held = phase.running - phase.slots_on_lost_hosts
    if phase.width > 1 and (found := _why_too_few(state, phase)):
        return found
    if sentence := why_avoided(state, phase):
        remedy = f"{_free(phase.width)} of another host"
        return PhaseReason(Reason.HOSTS_AVOIDED, sentence, remedy)
    lacks = whole(phase.allocated) - held
    if lacks > 0:
        sentence = f"it lacks {lacks} of its allocated slots: other phases still hold them"
        remedy = _free(phase.unit)
        if slots := sum(reserved_now(state, phase).values()):
            sentence += f", and {slots} free slots are reserved for other pools"
            return PhaseReason(Reason.SLOTS_RESERVED, sentence, f"{remedy} beside them")
        return PhaseReason(Reason.SLOTS_HELD, sentence, remedy)
    remedy = _sooner(state, phase)
    if held < phase.allocated - SLOTS:
        sentence = "its allocation is a part of a slot, which it gets in turns"
        if phase.allocated >= 1:
            sentence = "it holds the whole slots of its allocation, and gets the rest in turns"
        return PhaseReason(Reason.PART_OF_A_SLOT, sentence, f"its turn, or {remedy}")
    return PhaseReason(Reason.SHARE_HELD, "it holds its allocation", remedy)


def _is_promised(state: State, phase: PhaseState) -> bool:
    """Whether slots are free, but leave no room beside what is promised to other jobs."""
    free, promises = state.free(phase.slot_kind), state.promises
    return any(free.values()) and bool(promises.open) and not promises.permits(phase)


def _sooner(state: State, phase: PhaseState) -> str:
    """What would let a phase be served before those that are served now."""
    pool, (*_, whole_kind) = phase.pool, path_to(phase.pool)
    if whole_kind.is_in_turn or pool.is_in_turn:
        return "a higher priority"
    first = list(islice(phases_below(pool), FIRST_MAX))
    if phase in first and pool.held < whole_kind.held:  # Other pools hold slots.
        ahead = sum(one.pending * one.width for one in first[: first.index(phase)])
        least = pool.held + ahead + phase.unit
        if pool.min_share < least <= min(pool.usable, state.capacity(phase.slot_kind)):
            return f"slots_min {least} of pool {pool.name!r}"
    return "a larger weight"


def _free(count: int) -> str:
    return "a free slot" if count == 1 else f"{count} free slots"


def _why_deferred(state: State, phase: PhaseState) -> PhaseReason:
    """Why it skips slots that are free: it waits for others until an instant."""
    assert phase.deferred_since is not None
    since, until = f"{phase.deferred_since:.6g} s", f"{phase.deferred_until:.6g} s"
    if phase.width > 1:
        sentence = f"it has waited since {since} for {phase.width} free slots of one host"
        return PhaseReason(Reason.SLOTS_ON_ONE_HOST, sentence, _more_slots(state, phase))
    if phase.phase.hosts:
        hosts = _any_of(phase.phase.hosts)
        sentence = f"it has waited since {since} for a slot of {_hosts_of(phase)}"
        return PhaseReason(Reason.SLOT_OF_HOST, sentence, f"a free slot of host {hosts}", hosts)
    waited = f"{state.now - phase.deferred_since:.6g} s"
    near = f"it has waited {waited} for a slot near its input"
    sentence = f"{near}, and waits until {until} at the latest"
    return PhaseReason(Reason.LOCALITY, sentence, "a free slot near its input")


def _any_of(hosts: Collection[str]) -> str:
    return " or ".join(sorted(hosts))


def _hosts_of(phase: PhaseState) -> str:
    """The hosts on which its tasks may run."""
    return f"host {_any_of(phase.phase.hosts)}, where its tasks must run"


def _why_no_host(state: State, phase: PhaseState) -> PhaseReason | None:
    """Why a phase waits if no host has what one task requests, or None."""
    hosts = [host for host in state.cluster.hosts if host.name not in state.lost]
    if phase.needs:
        if any(host.amounts.holds(phase.request) for host in hosts):
            return None
        return PhaseReason(
            Reason.TASK_TOO_LARGE,
            f"each of its tasks requests {phase.needs} and {_slots(phase.width)} of one host,"
            " and no host that can start tasks now has all of it: it waits for another one",
            f"a host with {phase.needs} and {_slots(phase.width)}",
            ", ".join(phase.needs),
        )
    most = max((host.slots.get(phase.slot_kind, 0) for host in hosts), default=0)
    if most >= phase.width:
        return None
    return PhaseReason(
        Reason.TASK_TOO_LARGE,
        f"each of its tasks occupies {phase.width} slots of one host, and the largest host that"
        f" can start tasks now has {most}: it waits for a larger one",
        f"a host with {_slots(phase.width)}",
        phase.slot_kind,
    )


@dataclass(frozen=True, slots=True)
class _Lack:
    """What no host has for a task although slots are free: in words, and the resource."""

    resource: str
    what: str
    but: str
    remedy: str
    code: Reason = Reason.RESOURCE


def _lack(state: State, phase: PhaseState) -> _Lack | None:
    """The resource beside slots for which a phase waits, or the host that is kept from it.

    None if it requests none, or no slot is free for it, or it could launch. O(hosts with free
    slots + waiting phases).
    """
    if not phase.needs or phase.is_gang:
        return None
    slots, spare = state.free(phase.slot_kind), state.spare
    hosts = [host for host, n in slots.items() if n >= phase.width and phase.allows(host)]
    able = [host for host in hosts if spare.holds(host, phase.needs)]
    if able:
        if kept := kept_for_another(state, phase):
            limit, keeper = kept[0], f"job {kept[1]}"
            what = f"room for {limit.name} in pool {limit.pool!r}"
            remedy, code = f"the start or the end of {keeper}", Reason.POOL_RESOURCES_MAX
            return _Lack(limit.name, what, f": {keeper} keeps it", remedy, code)
        keepers = _keepers(state, phase)
        if not all(host in keepers for host in able):
            return None
        host = min(able)
        keeper = f"job {keepers[host]}"
        remedy = f"the start or the end of {keeper}"
        return _Lack(host, f"host {host}", f": {keeper} keeps it", remedy, Reason.HOST_KEPT)
    beside = "beside a free slot" if phase.width == 1 else f"beside {phase.width} free slots"
    for name, amount in phase.needs.pairs:
        one = Resources({name: amount})
        if not hosts or any(spare.holds(host, one) for host in hosts):
            continue
        text = amount_text(name, amount)
        if name == GPU and amount < UNIT:
            what = f"{text} of a device"
            return _Lack(name, what, ", and no device has it free", f"{what} {beside}")
        most = max(_whole(spare, host, name) for host in hosts)
        least = "a whole one" if name == GPU else "any"
        more = f"more than {amount_text(name, most)}" if most else least
        but = f"; no host has {more} free {beside}"
        what = f"{text} of {name}" if name == MEMORY else f"{name} {text}"
        if name == MEMORY and amount != phase.phase.needs.get(MEMORY):
            what += " (learned)"
        what = f"{what} on one host"
        return _Lack(name, what, but, f"{what} {beside}")
    if not hosts:
        return None
    what = f"{phase.needs} on one host"
    but = f"; no host has all of it free {beside}"
    return _Lack("all", what, but, f"{what} {beside}")


def _keepers(state: State, phase: PhaseState) -> dict[str, str]:
    """The jobs for which hosts are kept from a phase, by host."""
    return {
        other.kept_host: other.job.id
        for kind in state.cluster.capacity
        for other in state.wide(kind)
        if other.kept_host is not None
        and other.deferred_since is not None
        and other.pending
        and other.may_launch
        and other.id != phase.id
    }


def _whole(spare: Spare, host: str, name: str) -> int:
    """The free amount of a resource on a host; of devices, those that are wholly free."""
    if name == GPU:
        return UNIT * spare.times(host, Resources({GPU: UNIT}))
    return spare.free(host).get(name, 0)


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _why_too_few(state: State, phase: PhaseState) -> PhaseReason | None:
    """Why a phase waits if no host has the slots of one task free, or None."""
    most = _most_free(state, phase)
    if most >= phase.width:
        return None
    sentence = (
        f"it waits for {phase.width} free slots of one host; at most {most} are free on one"
    )
    return PhaseReason(Reason.SLOTS_ON_ONE_HOST, sentence, _more_slots(state, phase))


def _most_free(state: State, phase: PhaseState) -> int:
    return max(state.free(phase.slot_kind).values(), default=0)


def _more_slots(state: State, phase: PhaseState) -> str:
    """The slots that a wide task lacks on the host with most of them free."""
    lacks = phase.width - _most_free(state, phase)
    return f"{lacks} more slot{'s' * (lacks != 1)} on one host"


def reserved_now(state: State, phase: PhaseState) -> Counter[str]:
    """Free slots of the kind of a phase that are reserved for pools of other jobs."""
    kept: Counter[str] = Counter()
    for by_pool in state.reserved(phase.slot_kind).values():
        for pool, slots in by_pool.items():
            kept[pool.name] += 0 if pool.key in phase.shares else slots
    return kept


def rounded_up(share: float) -> int:
    """Round a share up to slots: a pool or phase that holds no more is not above it."""
    return ceil(share - SLOTS)


# Reasons of several forms of phases: gangs, wide tasks, avoided hosts, queues.


def why_avoided(state: State, phase: PhaseState) -> str:
    """The reason if the only free slots are on hosts that the phase avoids, or ""."""
    avoided, free = phase.avoided(state.lost), state.free(phase.slot_kind)
    if not free or not avoided or not free.keys() <= set(avoided):
        return ""
    hosts = ", ".join(sorted(free))
    return f"its last attempts on {hosts} have failed: it waits for slots on other hosts"


def _why_gang_waits(state: State, phase: PhaseState) -> PhaseReason | None:
    """The first reason that keeps the pending tasks of a gang from starting, or None."""
    count = phase.pending
    if phase.running:
        return PhaseReason(
            Reason.GANG_STOPS,
            "an attempt of its gang has ended without a result: its running tasks are stopped,"
            " then all tasks of the gang start again together",
            "the end of its running tasks",
        )
    if (most := _places_in_all(state, phase)) < count:
        return PhaseReason(
            Reason.GANG_TOO_LARGE,
            f"the {count} tasks of its gang start together, and the hosts that can start tasks"
            f" now have slots for {most} of them",
            f"hosts for {_tasks(count - most)} more",
        )
    for pool in path_to(phase.pool):
        if pool.room < phase.unit:
            return PhaseReason(
                Reason.GANG_EXCEEDS_POOL,
                f"the tasks of its gang hold {phase.unit} slots together, and pool"
                f" {pool.name!r} may hold {max(0, int(pool.room))} more",
                f"slots_max {pool.running + phase.unit} of pool {pool.name!r}",
            )
    free = _free_places(state, phase)
    if free >= count or limit_reached(phase):
        return None
    since = phase.deferred_since
    verb = "it waits" if since is None else f"it has waited since {since:.6g} s"
    each = "" if phase.width == 1 else f", {phase.width} on one host for each task"
    each += f", and {phase.needs} for each task" if phase.needs else ""
    return PhaseReason(
        Reason.GANG_SLOTS,
        f"{verb} for {phase.unit} free slots on the hosts together{each}; there are free slots"
        f" for {free} of the {count} tasks of its gang",
        f"free slots for {_tasks(count - free)} more",
    )


def _places_in_all(state: State, phase: PhaseState) -> int:
    """How many tasks of a gang could run together on the hosts that can start tasks now."""
    hosts = (host for host in state.cluster.hosts if host.name not in state.lost)
    return sum(host.amounts.times(phase.request) for host in hosts)


def _free_places(state: State, phase: PhaseState) -> int:
    """How many tasks of a gang fit together into what is free."""
    places = {host: count // phase.width for host, count in state.free(phase.slot_kind).items()}
    if phase.needs:
        fit = {host: state.spare.times(host, phase.needs) for host in places}
        places = {host: min(count, fit[host]) for host, count in places.items()}
    return sum(places.values())


def _why_queued(state: State, phase: PhaseState) -> PhaseReason:
    """The queues that hold the pending tasks of a phase, and how many tasks are before them."""
    queues = state.queues
    waiting, places_first = [], list[int]()
    for host, queue in queues.by_host.items():
        places = [place for place, (name, _) in enumerate(queue) if name == phase.id]
        if places:
            others = f"after {_tasks(places[0])}" if places[0] else "first"
            idle = _kept_idle(state, queue[0][0])
            waiting.append(f"{_tasks(len(places))} on {host}, {others}{idle}")
            places_first.append(places[0])
    if not waiting:
        silent = ", ".join(sorted(state.unresponsive)) or "none"
        sentence = f"its tasks are in no queue; unresponsive hosts: {silent}"
        return PhaseReason(Reason.IN_NO_QUEUE, sentence, "the return of a host")
    place = queues.jobs.index(phase.job.id) + 1
    before = min(places_first)
    return PhaseReason(
        Reason.QUEUED,
        f"its job was placed as number {place} of {len(queues.jobs)}, and its tasks wait in"
        f" queues: {'; '.join(waiting)}",
        f"the start of {_tasks(before)} before it" if before else "the end of a running task",
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


# Causes of waits.


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a phase waits, if not because others are served first by their shares.

    Causes with the same `kind` and `place` (a pool) are one cause even if the sentences differ.
    """

    kind: str = ""
    place: str = ""
    reason: str = ""
    remedy: str = ""


def cause_of(state: State, phase: PhaseState, scheduler: str, may_defer: bool) -> Cause:
    """The cause for which pending tasks of a phase wait now, in the past tense.

    `may_defer`: whether the assigner skips slots far from the input.
    """
    kind, pool = phase.slot_kind, state.pools[phase.job.pool]
    if before := state.awaiting_jobs.get(phase.job.id):
        return Cause("waits for jobs", "", f"it waited for {jobs_named(before)}")
    if phase.job.id in state.awaiting_admission:
        return _not_admitted(state, phase.job.id)
    if phase.delayed and not phase.pending:
        return _delayed(state, phase)
    if scheduler in QUEUEINGS:
        reason = f"{scheduler} had planned tasks of other jobs before its own"
        return Cause("queued", "", reason)
    free = state.free(kind)
    if phase.is_gang and (most := _places_in_all(state, phase)) < phase.pending:
        reason = (
            f"the {phase.pending} tasks of its gang start together, and the hosts present"
            f" had slots for {most} of them"
        )
        return Cause("too few hosts for a gang", str(phase.unit), reason)
    if phase.is_gang and _free_places(state, phase) < phase.pending:
        reason = (
            f"it waited for {phase.unit} free slots on the hosts together, for all"
            f" {phase.pending} tasks of its gang"
        )
        reason += f", and for {phase.needs} for each" if phase.needs else ""
        return Cause("too few slots for a gang", str(phase.unit), reason)
    if phase.is_wide and _why_no_host(state, phase):
        needs = f"{phase.needs} and " if phase.needs else ""
        reason = f"no host that could start tasks had {needs}{_slots(phase.width)} for a task"
        return Cause("no host for a task", "", reason)
    runs = any(one.running for one in state.phases_of(phase.job.id))
    waiter = "its other tasks" if runs else "it"
    if limit := limit_reached(phase):
        by = _by(holders_of(state, limit))
        reason = f"pool {limit.pool} held {room_left(limit)}{by}"
        larger_one = f"a larger resources_max for pool {limit.pool} would let it run more"
        return Cause("limited", f"{limit.pool} {limit.name}", reason, larger_one)
    if lack := _lack(state, phase):
        reason = f"{waiter} waited for {lack.what} while slots were free"
        if lack.but.endswith("keeps it"):
            reason = f"{waiter} waited for {lack.what}, which was kept for another job"
        return Cause("too little of a resource", lack.resource, reason)
    if phase.width > 1 and free and all(n < phase.width for n in free.values()):
        reason = f"{waiter} waited for {phase.width} free slots of one host"
        return Cause("too few slots on a host", str(phase.width), reason)
    if reason := why_avoided(state, phase):
        return Cause("its tasks fail on free hosts", "", reason)
    # A phase without homes is deferred until several slots are free.
    near = may_defer and phase.has_homes
    if near and phase.deferred_until is not None and phase.deferred_until > state.now:
        reason = "it skipped slots far from its input (delay scheduling)"
        return Cause("deferred", "", reason, "shorter waits for locality would let it use them")
    full = next((pool for pool in path_to(phase.pool) if pool.is_full), None)
    if full is not None:
        if not full.max_share:
            return Cause("closed", full.name, f"pool {full.name} {_closed(state, full)}")
        reason = f"pool {full.name} held its max share of {full.max_share:g}"
        if not any(state.free(kind).values()):
            return Cause("full", full.name, reason)
        return Cause(
            "full with free slots",
            full.name,
            f"{reason} while slots were free",
            f"a larger slots_max for pool {full.name} would let it use these slots",
        )
    if scheduler == "fifo":
        reason = "fifo serves jobs in order of priority and arrival, regardless of pools"
        remedy = "fair and flex share the slots among jobs and pools"
        return Cause("fifo", "", reason, remedy)
    if scheduler == "fair" and pool.policy == "fifo" and phase.pool.running:
        reason = f"pool {pool.name} serves its jobs one after the other (policy fifo)"
        remedy = "policy fair would share its slots among them"
        return Cause("fifo in its pool", pool.name, reason, remedy)
    return Cause()


def _not_admitted(state: State, job: str) -> Cause:
    """The limit of running jobs for which a job waits."""
    reached = state.limits_reached(job)
    if not reached:
        return Cause("not admitted")
    name, user, most, inside = reached[0]
    key = "jobs_max" if user is None else "jobs_max_per_user"
    remedy = f"a larger {key} for pool {name} would admit it sooner"
    whose = "" if user is None else f" of user {user}"
    if most:
        reason = f"pool {name} ran {_listed(inside)}, its maximum number of jobs{whose} ({key})"
    else:
        reason = f"pool {name} runs no jobs{whose} ({key} 0)"
    return Cause("not admitted", name if user is None else f"{name} {user}", reason, remedy)


NOT_LIMITED = frozenset({"all", "last task", "unresponsive", "idle", "blocked", "all slots"})
"""The kinds of causes of `limit_of` for which a job holds all slots that it can use."""

ALONE = frozenset({"waits for jobs", "not admitted", "max share", "limited"})
"""The kinds of causes that do not depend on who holds the slots."""


def limit_of(
    state: State, job: str, scheduler: str, may_defer: bool
) -> tuple[Cause, PhaseState]:
    """What keeps a job that is not over from holding more slots now, and the phase meant.

    It may hold some. The sentences are in the past tense. O(phases of the job).
    """
    phases = state.phases_of(job)
    if job in state.awaiting_admission or job in state.awaiting_jobs:
        return cause_of(state, phases[0], scheduler, may_defer), phases[0]
    short = next((phase for phase in phases if could_start(phase)), None)
    if short is None:
        delayed = next((phase for phase in phases if phase.delayed and not phase.running), None)
        if delayed is not None:
            return _delayed(state, delayed), delayed
        return _why_no_more(phases)
    kind, held = short.slot_kind, short.running - short.slots_on_lost_hosts
    if not state.capacity(kind):
        reason = f"no host could start tasks on slots of kind {kind!r}"
        return Cause("no host", kind, reason), short
    if short.running and short.running + short.width > short.max_share:
        return _max_share(short), short
    own = sum(p.running - p.slots_on_lost_hosts for p in phases if p.slot_kind == kind)
    if own >= state.capacity(kind):
        return Cause("all slots", kind, "it held all slots of its kind"), short
    cause = cause_of(state, short, scheduler, may_defer)
    return cause if cause.kind else _by_shares(state, short, held, scheduler), short


def _delayed(state: State, phase: PhaseState) -> Cause:
    """The cause of a phase whose failed tasks may not run again yet."""
    until, task = min((until, task) for task, until in phase.delayed.items())
    attempt = phase.attempt_of(task)
    number = ORDINALS.get(attempt, f"attempt {attempt}")
    reason = f"waited {until - state.now:.3g} s for its {number}: retry_delay"
    remedy = "a shorter retry_delay would start it sooner"
    return Cause("delayed", f"{task}.{attempt}", reason, remedy)


def could_start(phase: PhaseState) -> int:
    """The slots of its tasks that wait for nothing but slots.

    Tasks of a phase may run while it waits again, because input of it was lost.
    """
    return 0 if phase.waits_for else phase.pending * phase.width


def _why_no_more(phases: Sequence[PhaseState]) -> tuple[Cause, PhaseState]:
    """The cause for a job without tasks that could start."""
    running = [phase for phase in phases if phase.running]
    if not running:
        phase = next((phase for phase in phases if phase.blocked), None)
        if phase is None:
            return Cause("idle", "", "all its tasks were done; more could come"), phases[0]
        return Cause("blocked", "", "its tasks waited for others"), phase
    phase = running[0]
    if all(one.running == one.slots_on_lost_hosts for one in running):
        return Cause("unresponsive", "", "its tasks ran on unresponsive hosts"), phase
    if phase.running >= phase.max_share < phase.phase.tasks.count * phase.width:
        return _max_share(phase), phase
    if len(running) == len(phase.launches) == 1 < phase.phase.tasks.count:
        ((task, (launch, _, _)),) = phase.launches.items()
        reason = f"only the last task of {phase.id.phase} ran: task {task} on {launch.host}"
        return Cause("last task", f"{phase.id.phase} {task}", reason), phase
    return Cause("all", "", "all its tasks that could start ran"), phase


def _max_share(phase: PhaseState) -> Cause:
    name = phase.id.phase
    return Cause("max share", name, f"phase {name} held its max share of {phase.max_share}")


def _by_shares(state: State, phase: PhaseState, held: int, scheduler: str) -> Cause:
    """The cause if others are served first, or still hold the slots."""
    if phase.allocated > 0 and whole(phase.allocated) <= held:
        if held:
            return Cause("shares", "", "it held its share, and others had theirs")
        return Cause("part of a slot", "", "its share was less than a slot: others had turns")
    if sum(reserved_now(state, phase).values()):
        return Cause("reserved", "", "free slots were reserved for other pools")
    if whole(phase.allocated) > held:
        return Cause("others hold", "", "other jobs still held slots that it was allocated")
    if not any(state.free(phase.slot_kind).values()):
        return Cause("others hold all", "", "other jobs held the slots")
    return Cause("served later", "", f"{scheduler} served other jobs first")


def jobs_named(names: Collection[str]) -> str:
    """Jobs in a sentence: "job a", "jobs a, b"."""
    return f"job{'s' * (len(names) > 1)} {_listed(sorted(names))}"


def _listed(jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - MAX_NAMES} more" if len(jobs) > MAX_NAMES else ""
    return ", ".join(jobs[:MAX_NAMES]) + more


def unknown_job(job: str, known: Iterable[str]) -> str:
    """Return the message for a job that is not in the log; it names some that are."""
    names = list(known)
    few = f"it has, among others: {', '.join(nsmallest(8, names))}"
    return f"job {job!r} is not in the log; {suggestion(job, names, few)}"
