"""Why a phase holds no more slots: the facts, in words.

`why_now` is the reason at an instant, for explanations. `cause_of` is the cause of a wait, for
the report of waits: it leaves out that others are served first by their shares. `limit_of` is
the cause at an instant in the life of a job, for its intervals: it always has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import ceil

from slotwise.core.errors import suggestion
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState, path_to, whole
from slotwise.core.resources import GPU, MEMORY, UNIT, Resources, amount_text
from slotwise.core.spare import Spare
from slotwise.core.state import State
from slotwise.core.tolerances import SLOTS
from slotwise.policy.scheduler import BACKFILLINGS, QUEUEINGS

BLOCKED = "wait for the tasks that they continue"

ORDINALS = {2: "second attempt", 3: "third attempt", 4: "fourth attempt"}

MAX_NAMES = 3
"""The maximum number of jobs that a sentence names."""


def why_now(state: State, phase: PhaseState, scheduler: str) -> str:
    """The first reason that applies for the number of slots that a phase holds."""
    if before := state.awaiting_jobs.get(phase.job.id):
        return f"its job waits for {jobs_named(before)}"
    if phase.job.id in state.awaiting_admission:
        return "its job awaits admission"
    if phase.waits_for:
        return f"it waits for {', '.join(sorted(phase.waits_for))}"
    if phase.done + phase.dropped == phase.phase.tasks.count:
        return "all its tasks are done; more may come" if phase.is_open else "it is done"
    is_queued = scheduler in QUEUEINGS
    if phase.running - phase.slots_on_lost_hosts > rounded_up(phase.allocated) and not (
        is_queued or state.is_stale
    ):
        return _why_more(phase)
    if phase.delayed and not phase.pending:
        return _why_delayed(phase)
    if not phase.pending:
        others = "wait for others of their graph" if phase.phase.gated else BLOCKED
        if phase.job.after_each:
            others = f"wait for the same tasks of {jobs_named(phase.job.after_each)}"
        rest = f", except {phase.blocked} that {others}" if phase.blocked else ""
        return f"all its tasks run{rest}: it cannot use more slots"
    if not state.capacity(phase.slot_kind):
        return f"no host can start tasks on slots of kind {phase.slot_kind!r} now"
    if is_queued:
        return _why_queued(state, phase)
    if phase.is_gang and (reason := _why_gang_waits(state, phase)):
        return reason
    if phase.is_wide and (reason := _why_no_host(state, phase)):
        return reason
    if phase.phase.hosts and not any(map(state.cluster.at, phase.phase.hosts)):
        return f"it waits for {_hosts_of(phase)}"
    if phase.running >= phase.max_share:
        return f"it holds its max share of {phase.max_share}"
    for pool in path_to(phase.pool):
        if pool.is_full:
            held = f"pool {pool.name!r} holds its max share of {pool.max_share:g}"
            return held if pool.max_share else f"pool {pool.name!r} {_closed(state, pool)}"
    return _why_less(state, phase, scheduler)


def _closed(state: State, pool: PoolState) -> str:
    """Why a pool may hold no slot."""
    has_weight = state.pools[pool.name].weight
    return f"is closed ({'slots_max' if has_weight else 'weight'} 0)"


def _why_delayed(phase: PhaseState) -> str:
    count, until = len(phase.delayed), min(phase.delayed.values())
    tasks = "a failed task waits" if count == 1 else f"{count} failed tasks wait, the first"
    return f"{tasks} until {until:.6g} s for its next attempt (retry_delay)"


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
    if scheduler in BACKFILLINGS:
        return f"{scheduler} serves jobs before it first, and it would delay one of these"
    if phase.allocated > 0 and (lack := _lack(state, phase)):
        begun = phase.deferred_since
        waits = "it waits" if begun is None else f"it has waited since {begun:.6g} s"
        is_kept = begun is not None and phase.kept_host is not None
        kept = f"; host {phase.kept_host} is kept for it until tasks end there"
        return f"{waits} for {lack.what}{lack.but}{kept if is_kept else ''}"
    is_near_enough = bool(phase.needs) and not phase.has_homes
    if (
        phase.deferred_until is not None
        and phase.deferred_until > state.now
        and not is_near_enough
    ):
        assert phase.deferred_since is not None
        since, until = f"{phase.deferred_since:.6g} s", f"{phase.deferred_until:.6g} s"
        if phase.width > 1:
            return f"it has waited since {since} for {phase.width} free slots of one host"
        if phase.phase.hosts:
            return f"it has waited since {since} for a slot of {_hosts_of(phase)}"
        waited = f"{state.now - phase.deferred_since:.6g} s"
        near = f"it has waited {waited} for a slot near its input"
        return f"{near}, and waits until {until} at the latest"
    if phase.allocated <= 0 and state.is_stale:
        return (
            "it arrived after the last allocation and is served after others until the next"
            f" one, at {state.reallocates_from:.6g} s"
        )
    if phase.allocated <= 0:
        return f"it is allocated no slots: {scheduler} gives them to other phases now"
    held = phase.running - phase.slots_on_lost_hosts
    if phase.width > 1 and (reason := _why_too_few(state, phase)):
        return reason
    if reason := why_avoided(state, phase):
        return reason
    lacks = whole(phase.allocated) - held
    if lacks > 0:
        slots = sum(reserved_now(state, phase).values())
        free = f", and {slots} free slots are reserved for other pools" if slots else ""
        return f"it lacks {lacks} of its allocated slots: other phases still hold them{free}"
    if held < phase.allocated - SLOTS:
        return "it holds the whole slots of its allocation; the fraction is shared in turns"
    return "it holds its allocation"


def _hosts_of(phase: PhaseState) -> str:
    """The hosts on which its tasks may run."""
    return f"host {' or '.join(sorted(phase.phase.hosts))}, where its tasks must run"


def _why_no_host(state: State, phase: PhaseState) -> str:
    """Why a phase waits if no host has what one task requests, or ""."""
    hosts = [host for host in state.cluster.hosts if host.name not in state.lost]
    if phase.needs:
        if any(host.amounts.holds(phase.request) for host in hosts):
            return ""
        return (
            f"each of its tasks requests {phase.needs} and {_slots(phase.width)} of one host,"
            " and no host that can start tasks now has all of it: it waits for another one"
        )
    most = max((host.slots.get(phase.slot_kind, 0) for host in hosts), default=0)
    if most >= phase.width:
        return ""
    return (
        f"each of its tasks occupies {phase.width} slots of one host, and the largest host that"
        f" can start tasks now has {most}: it waits for a larger one"
    )


@dataclass(frozen=True, slots=True)
class _Lack:
    """What no host has for a task although slots are free: in words, and the resource."""

    resource: str
    what: str
    but: str


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
        keepers = _keepers(state, phase)
        if not all(host in keepers for host in able):
            return None
        host = min(able)
        return _Lack(host, f"host {host}", f": job {keepers[host]} keeps it")
    beside = "beside a free slot" if phase.width == 1 else f"beside {phase.width} free slots"
    for name, amount in phase.needs.pairs:
        one = Resources({name: amount})
        if not hosts or any(spare.holds(host, one) for host in hosts):
            continue
        text = amount_text(name, amount)
        if name == GPU and amount < UNIT:
            return _Lack(name, f"{text} of a device", ", and no device has it free")
        most = max(_whole(spare, host, name) for host in hosts)
        more = f"more than {amount_text(name, most)}" if most else "any"
        but = f"; no host has {more} free {beside}"
        what = f"{text} of {name}" if name == MEMORY else f"{name} {text}"
        if name == MEMORY and amount != phase.phase.needs.get(MEMORY):
            what += " (learned)"
        return _Lack(name, f"{what} on one host", but)
    if not hosts:
        return None
    return _Lack("all", f"{phase.needs} on one host", f"; no host has all of it free {beside}")


def _keepers(state: State, phase: PhaseState) -> dict[str, str]:
    """The jobs for which hosts are kept from a phase, by host."""
    return {
        other.kept_host: other.job.id
        for kind in state.cluster.capacity
        for other in state.wide(kind)
        if other.kept_host is not None
        and other.deferred_since is not None
        and other.pending
        and other.id != phase.id
    }


def _whole(spare: Spare, host: str, name: str) -> int:
    """The free amount of a resource on a host; of devices, those that are wholly free."""
    if name == GPU:
        return UNIT * spare.times(host, Resources({GPU: UNIT}))
    return spare.free(host).get(name, 0)


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _why_too_few(state: State, phase: PhaseState) -> str:
    """Why a phase waits if no host has the slots of one task free, or ""."""
    free = state.free(phase.slot_kind)
    if any(count >= phase.width for count in free.values()):
        return ""
    most = max(free.values(), default=0)
    return f"it waits for {phase.width} free slots of one host; at most {most} are free on one"


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


def _why_gang_waits(state: State, phase: PhaseState) -> str:
    """The first reason that keeps the pending tasks of a gang from starting, or ""."""
    count = phase.pending
    if phase.running:
        return (
            "an attempt of its gang has ended without a result: its running tasks are stopped,"
            " then all tasks of the gang start again together"
        )
    if (most := _places_in_all(state, phase)) < count:
        return (
            f"the {count} tasks of its gang start together, and the hosts that can start tasks"
            f" now have slots for {most} of them"
        )
    for pool in path_to(phase.pool):
        if pool.room < phase.unit:
            return (
                f"the tasks of its gang hold {phase.unit} slots together, and pool"
                f" {pool.name!r} may hold {max(0, int(pool.room))} more"
            )
    free = _free_places(state, phase)
    if free >= count:
        return ""
    since = phase.deferred_since
    verb = "it waits" if since is None else f"it has waited since {since:.6g} s"
    each = "" if phase.width == 1 else f", {phase.width} on one host for each task"
    each += f", and {phase.needs} for each task" if phase.needs else ""
    return (
        f"{verb} for {phase.unit} free slots on the hosts together{each}; there are free slots"
        f" for {free} of the {count} tasks of its gang"
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


def _why_queued(state: State, phase: PhaseState) -> str:
    """The queues that hold the pending tasks of a phase, and how many tasks are before them."""
    queues = state.queues
    waiting = []
    for host, queue in queues.by_host.items():
        places = [place for place, (name, _) in enumerate(queue) if name == phase.id]
        if places:
            others = f"after {_tasks(places[0])}" if places[0] else "first"
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

ALONE = frozenset({"waits for jobs", "not admitted", "max share"})
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
