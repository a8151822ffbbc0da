"""Phases for which one free slot is not enough: how others are served beside them.

A phase of wide tasks needs several slots of one host, a gang slots for all of its tasks, and
tasks may need memory or devices. While each phase takes one slot at a time, nothing of this
applies. Such a phase waits while it holds less than its allocation and no host has what a task,
or the gang, requests. Its wait begins with a `Defer`. When the wait is due, the phase has the
first right to the slots that it can use, and it keeps some hosts: no other phase launches
there. So what is free on these hosts only becomes more until there is enough.

docs/algorithms/wide-tasks.md and docs/algorithms/gangs.md have the rules, their reasons, and
the proofs that each wait ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from math import inf
from typing import NamedTuple

from slotwise.core.cluster import MAX_SLOTS
from slotwise.core.decisions import Defer, Launch, Locality
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState
from slotwise.core.resources import GPU, NOTHING, Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS

LOOK_AT = 100
"""The number of phases whose waits may begin while no host has what any phase needs."""

LOOK_AT_HOSTS = 16
"""The number of hosts among which one is chosen for a phase that waits: those with most free of
the resource of which it needs the greatest part."""

HOSTS_A_WAIT = 4
"""At most one host in as many is kept for tasks that wait for memory or other resources, but
one at least: waits in turn are enough, and fewer hosts idle in part."""

LOOK_SECONDS = 1.0
"""The least wait of a `Defer` that needs no wake-up, since the phase keeps slots already."""


class WideTaskReservations:
    """The waits of wide phases at one instant, and the hosts that they keep.

    due  the phases whose waits are due: first those with the most overdue pools, so that a pool
         takes slots before others within the same one, then by the instant from which they have
         been due

    O(such phases + hosts with free slots + running wide tasks + different requests); for each
    gang that is due also O(hosts log hosts + running tasks). A wait for resources that begins
    costs O(hosts + tasks on `LOOK_AT_HOSTS` of them).
    """

    def __init__(
        self, snapshot: Snapshot, near_after: Callable[[PhaseState], float] = lambda phase: 0.0
    ) -> None:
        """`near_after`: seconds for which a phase waits for slots near its input."""
        self._snapshot, self._near_after = snapshot, near_after
        self._wide = [
            phase
            for kind in snapshot.cluster.capacity
            for phase in snapshot.wide(kind)
            if not (phase.is_gang and phase.running)  # Such a gang runs, or is being stopped.
        ]
        found = [
            (-phase.overdue, self._due(phase), phase.order, phase)
            for phase in self._wide
            if phase.pending
        ]
        self.due: list[PhaseState] = [
            phase
            for _, due, _, phase in sorted(found, key=lambda one: one[:3])
            if due <= snapshot.now
        ]
        self._place = {phase.id: place for place, phase in enumerate(self.due)}
        self._noted: list[PhaseState] = []
        waiting = [one for _, due, _, one in found if due < inf and one.unit == 1]
        self._waits_left = max(1, len(snapshot.cluster.hosts) // HOSTS_A_WAIT) - len(waiting)
        self._running: dict[str, list[_Running]] = {}
        self._open: dict[tuple[str, Resources, int], Mapping[str, int]] = {}
        self._beside: dict[tuple[str, str], tuple[int, Resources]] = {}
        self._keepers: dict[tuple[str, str], PhaseState] = {}
        for phase in self.due:
            if phase.may_launch:
                self._keep(phase)

    def in_order(self, slot_kind: str) -> Iterable[PhaseState]:
        """The phases that may launch: of overdue pools, then those that are due, then all.

        If no host has what any phase that is not due needs, only the first ones, whose waits
        may begin.
        """
        backlogged = self._snapshot.backlogged(slot_kind)
        if not self._snapshot.overdue(slot_kind):  # As `sorted` below, but lazily.
            first = [p for p in self.due if p.pool.slot_kind == slot_kind]
            rest = (p for p in backlogged if p.id not in self._place)
            most = None
            if self._fits_none(slot_kind):
                most = LOOK_AT if self._waits_left > 0 else 0
            return (p for p in chain(first, islice(rest, most)) if p.may_launch)
        phases = [p for p in backlogged if p.may_launch]
        return sorted(phases, key=lambda p: (-p.overdue, self._turn(p.id)))

    def note(self, phase: PhaseState) -> None:
        """A phase in its turn is offered no host that has what its tasks need.

        Its wait begins if it holds less than its allocation, and if waits do not keep too many
        hosts already (`HOSTS_A_WAIT`).
        """
        if (
            (phase.needs or phase.phase.hosts)
            and len(self._noted) < self._waits_left
            and phase.unit == 1
            and phase.deferred_until is None
            and (_lacks(phase) > SLOTS or self._near_after(phase))
        ):
            self._noted.append(phase)

    def offered(self, slot_kind: str, phase: PhaseState) -> Mapping[str, int]:
        """The hosts with enough free slots for a task that are not kept from its phase.

        For a gang these hosts hold all of its tasks, or there are none.
        """
        if self.is_barred(phase):
            return {}
        if self._is_like_others(phase):
            return self._open_for(phase)
        hosts = free_for(self._snapshot, phase, self if self._keepers else None)
        if phase.width > 1:
            hosts = {host: count for host, count in hosts.items() if count >= phase.width}
        if phase.is_gang and places(phase, hosts.values()) < phase.pending:
            return {}
        return hosts

    def _fits_none(self, slot_kind: str) -> bool:
        """Whether no phase of a kind that is not due is offered any host."""
        if self._snapshot.reserved(slot_kind):
            return False
        for phases in self._snapshot.by_needs(slot_kind).values():
            for phase in islice(phases, LOOK_AT):
                if phase.id not in self._place:
                    if not self._is_like_others(phase) or self._open_for(phase):
                        return False
                    break
            else:
                return False
        return True

    def _is_like_others(self, phase: PhaseState) -> bool:
        """Whether it is offered the same hosts as others that are not due and need the same."""
        return (
            phase.unit == 1
            and not phase.phase.hosts
            and phase.id not in self._place
            and not phase.overdue
            and not self._snapshot.reserved(phase.pool.slot_kind)
        )

    def _open_for(self, phase: PhaseState) -> Mapping[str, int]:
        """The hosts that are offered to all such phases."""
        key = phase.pool.slot_kind, phase.needs, phase.width
        if key not in self._open:
            self._open[key] = free_for(self._snapshot, phase, self if self._keepers else None)
        return self._open[key]

    def is_barred(self, phase: PhaseState) -> bool:
        """Whether its launches would take room in a pool that a phase before it needs."""
        return phase.is_limited and any(self._needs_room_of(one, phase) for one in self.due)

    def kept_from(self, phase: PhaseState) -> set[str]:
        """The hosts whose free slots are kept from a phase."""
        return {
            host
            for _, host in self._keepers
            if self.keeper(phase, host) is not None and not self.left(phase, host, MAX_SLOTS)
        }

    def keeper(self, phase: PhaseState, host: str) -> PhaseState | None:
        """The phase that keeps a host from a phase, if one does."""
        keeper = self._keepers.get((phase.pool.slot_kind, host))
        if keeper is None and phase.needs:  # Resources are for tasks of all kinds.
            kinds = self._snapshot.cluster.capacity
            every = (self._keepers.get((kind, host)) for kind in kinds)
            keeper = next((one for one in every if one is not None and one.needs), None)
        return keeper if keeper is not None and self._precedes(keeper, phase) else None

    def keeps(self, phase: PhaseState, host: str) -> bool:
        """Whether a phase keeps the free slots of a host from others."""
        return self._keepers.get((phase.pool.slot_kind, host)) is phase

    def defer(self) -> list[Defer]:
        """The decisions with which waits begin, and with which they continue until due."""
        return self._defer((*self._wide, *self._noted))

    def begin(self) -> list[Defer]:
        """The decisions with which the waits of phases begin that were noted.

        Before a launch of another phase: these come before it in the order of service.
        """
        return self._defer(self._noted) if self._noted else []

    def _defer(self, phases: Iterable[PhaseState]) -> list[Defer]:
        now, decisions = self._snapshot.now, []
        for phase in phases:
            due, until = self._due(phase), phase.deferred_until
            since = now if phase.deferred_since is None else phase.deferred_since
            if due == inf and (near_after := self._near_after(phase)):
                due = since + near_after  # It may use slots that nobody else does.
            if not phase.pending or due == inf:
                continue
            host = None
            if due <= now and _keeps_one(phase) and not self._kept(phase):
                host = self._first_to_fit(phase)
            if until is None or until <= now < due or host is not None:
                later = now + max(LOOK_SECONDS, self._mean(phase))
                decisions.append(Defer(phase.id, since, due if due > now else later, host))
        return decisions

    def _due(self, phase: PhaseState) -> float:
        """When its wait is due; inf if it holds its allocation.

        At once if it lacks the slots of a whole task, or gang, or its pool is overdue. If it
        lacks a part of these slots, after the time in which that part adds up to a task, or
        gang, of usual length.
        """
        lacks = _lacks(phase)
        if lacks <= SLOTS:
            return inf
        wait = 0.0
        if not phase.overrides_delay:
            if lacks < phase.unit - SLOTS and phase.unit > 1:  # Otherwise it is its turn.
                wait = self._mean(phase) * (phase.unit / lacks - 1)
            wait = max(wait, self._near_after(phase))
        since = phase.deferred_since
        return (self._snapshot.now if since is None else since) + wait

    def _mean(self, phase: PhaseState) -> float:
        """The estimated seconds that each of its tasks still takes."""
        slots = phase.running + phase.pending * phase.width
        return phase.work_left(self._snapshot.now) / slots

    def _keep(self, phase: PhaseState) -> None:
        """Keep the hosts with the most free slots: as many hosts as it lacks tasks.

        It keeps none while a task of another phase runs that will free enough slots at once. A
        phase that keeps one host (`_keeps_one`) keeps that which its `Defer` names.
        """
        kind = phase.pool.slot_kind
        if phase.is_gang:
            for host in self._hosts_for_gang(phase, kind):
                self._keepers[kind, host] = phase
            return
        if _keeps_one(phase):
            if phase.kept_host is not None and self._kept(phase):
                self._keepers[kind, phase.kept_host] = phase
            return
        free = free_for(self._snapshot, phase)
        hosts = [host for host in free if (kind, host) not in self._keepers]
        hosts = [host for host in hosts if self._could_use(phase, host)]
        if hosts and not self._will_come(phase, kind):
            reclaimed, position = (
                reclaimed_for(self._snapshot, phase),
                self._snapshot.cluster.position,
            )
            hosts.sort(key=lambda host: (-reclaimed[host], position[host]))
            for host in hosts[: max(1, int(_lacks(phase) / phase.width + SLOTS))]:
                self._keepers[kind, host] = phase

    def _hosts_for_gang(self, phase: PhaseState, kind: str) -> list[str]:
        """The hosts that a gang keeps: those where the newest task has run for longest.

        As many as will hold the gang when the tasks that were asked to stop have ended there
        or, if all hosts together will not, as many as hold it when no task runs there. None if
        the hosts that no phase before it keeps do not hold it even then.
        """
        all_reclaimed = reclaimed_for(self._snapshot, phase)
        position, lost = self._snapshot.cluster.position, self._snapshot.lost
        most = {
            host.name: host.slots.get(kind, 0)
            for host in self._snapshot.cluster.hosts
            if host.name not in lost
            and (kind, host.name) not in self._keepers
            and phase.allows(host.name)
        }
        reclaimed = {host: all_reclaimed[host] for host in most}
        newest = _newest_starts(self._snapshot, kind)
        order = sorted(
            most, key=lambda host: (newest.get(host, -inf), -reclaimed[host], position[host])
        )
        for slots in (reclaimed, most):
            if places(phase, slots.values()) >= phase.pending:
                return _first_that_hold(phase, order, slots)
        return []

    def _will_come(self, phase: PhaseState, slot_kind: str) -> bool:
        """Whether a task of another phase holds enough slots of a host that it could use."""
        return any(
            launch.host not in self._snapshot.lost and self._could_use(phase, launch.host)
            for other in self._snapshot.wide(slot_kind)
            if other.width >= phase.width and other.id != phase.id
            for _, launch in other.attempts()
        )

    def _kept(self, phase: PhaseState) -> bool:
        """Whether the host that its last `Defer` named is kept for it, or can be."""
        host, kind = phase.kept_host, phase.pool.slot_kind
        return (
            host is not None
            and host in self._snapshot.cluster.by_name
            and host not in self._snapshot.lost
            and self._keepers.get((kind, host), phase) is phase
            and self._snapshot.cluster.by_name[host].amounts.holds(phase.request)
        )

    def _first_to_fit(self, phase: PhaseState) -> str | None:
        """The host where a task fits first by the estimated ends of the tasks there.

        It is kept from now on. None if other phases keep all that it could use.
        """
        snapshot, kind = self._snapshot, phase.pool.slot_kind
        position = snapshot.cluster.position
        able = [
            host.name
            for host in snapshot.cluster.hosts
            if (kind, host.name) not in self._keepers
            and host.name not in snapshot.lost
            and self.keeper(phase, host.name) is None
            and self._could_use(phase, host.name)
        ]
        if phase.needs and len(able) > LOOK_AT_HOSTS:
            most = max(phase.needs, key=lambda n: phase.needs[n] / snapshot.totals[n])
            able.sort(key=lambda host: (-snapshot.spare.amount(host, most), position[host]))
        found: list[tuple[float, int, str]] = []
        for host in able[:LOOK_AT_HOSTS]:
            running = sorted(self._on(host), key=lambda one: one.ends)
            last = self._enough(phase, host, running)
            if last is not None:
                ends = running[last - 1].ends if last else snapshot.now
                found.append((ends, position[host], host))
        if not found:
            return None
        self._keepers[kind, min(found)[2]] = phase
        return min(found)[2]

    def _enough(self, phase: PhaseState, host: str, running: Sequence[_Running]) -> int | None:
        """How many of these tasks on a host must end, in order, until a task fits there.

        None if it does not fit even then.
        """
        snapshot, kind = self._snapshot, phase.pool.slot_kind
        slots = snapshot.free(kind).get(host, 0) + reserved_for(snapshot, phase, host, None)
        free = snapshot.spare.free(host) if phase.needs else NOTHING
        lacks = {name: amount - free.get(name, 0) for name, amount in phase.needs.pairs}
        for count, one in enumerate((None, *running)):
            if one is not None:
                slots += one.slots if one.kind == kind else 0
                for name in lacks.keys() & one.needs.keys():
                    lacks[name] -= one.needs[name]
            if slots >= phase.width and all(amount <= 0 for amount in lacks.values()):
                ended = [one.needs for one in running[:count]]
                if GPU not in lacks or snapshot.spare.times(host, phase.needs, ended):
                    return count
        return None

    def left(self, phase: PhaseState, host: str, slots: int) -> int:
        """Those of the free slots of a host that a phase may use beside one that keeps it.

        A phase with needs leaves what it will not need when the oldest tasks on the host, as
        many as must end for its request to fit, have ended. So others never delay it.
        """
        keeper = self.keeper(phase, host)
        if keeper is None:
            return slots
        if not _keeps_one(keeper):
            return 0
        kind = keeper.pool.slot_kind
        if (kind, host) not in self._beside:
            self._beside[kind, host] = self._room_beside(keeper, host)
        left, needs = self._beside[kind, host]
        if phase.needs and not needs.holds(phase.needs):
            return 0
        return min(slots, left) if phase.pool.slot_kind == kind else slots

    def _room_beside(self, keeper: PhaseState, host: str) -> tuple[int, Resources]:
        """The slots of its kind, and the other resources, that a keeper leaves on a host."""
        snapshot, kind = self._snapshot, keeper.pool.slot_kind
        oldest = sorted(self._on(host), key=lambda one: one.started)
        count = self._enough(keeper, host, oldest)
        if count is None:
            return 0, NOTHING
        slots = snapshot.free(kind).get(host, 0) - keeper.width
        amounts = Counter(snapshot.spare.free(host))
        for one in oldest[:count]:
            slots += one.slots if one.kind == kind else 0
            amounts.update(one.needs)
        amounts.subtract(keeper.needs)
        if GPU in keeper.needs:
            amounts[GPU] = 0  # It is not known which devices will be free together.
        return max(0, slots), Resources({name: max(0, n) for name, n in amounts.items()})

    def _on(self, host: str) -> list[_Running]:
        """The tasks that run on a host with resources."""
        if host not in self._running:
            now = self._snapshot.now
            self._running[host] = [
                _Running(
                    started,
                    now if task in phase.stopping else max(now, ends),
                    phase.slot_kind,
                    phase.width,
                    phase.held(phase.launches[task][0]),
                )
                for phase, task, started, ends in self._snapshot.tasks_on(host)
            ]
        return self._running[host]

    def _could_use(self, phase: PhaseState, host: str) -> bool:
        """Whether one more of its tasks could run on a host if all other phases left it."""
        count = self._snapshot.cluster.by_name[host].amounts.times(phase.request)
        if (
            not count
            or not phase.allows(host)
            or (phase.is_pinned and not phase.next_task_on((host,)))
        ):
            return False
        own = [launch.host for _, launch in phase.attempts()]
        own += [where for where, _ in phase.stops()]
        return own.count(host) < count

    def _needs_room_of(self, keeper: PhaseState, phase: PhaseState) -> bool:
        """Whether a launch would take room in a pool that a phase before it needs."""
        if not keeper.is_limited or not self._precedes(keeper, phase):
            return False
        keys = {pool.key for pool in path_of(keeper.pool)}
        return self._has_host(keeper) and any(
            pool.key in keys and pool.room - phase.unit < keeper.unit
            for pool in path_of(phase.pool)
        )

    def _precedes(self, keeper: PhaseState, phase: PhaseState) -> bool:
        """Whether a phase that is due comes before another one, which may be due, too."""
        if phase.overdue > keeper.overdue:
            return False
        return self._turn(keeper.id) < self._turn(phase.id)

    def _turn(self, phase: PhaseId) -> int:
        return self._place.get(phase, len(self._place))

    def _has_host(self, phase: PhaseState) -> bool:
        """Whether the responsive hosts have slots for one of its tasks, or for its gang."""
        lost, needed = self._snapshot.lost, phase.pending if phase.is_gang else 1
        hosts = [
            host
            for host in self._snapshot.cluster.hosts
            if host.name not in lost and phase.allows(host.name)
        ]
        return sum(host.amounts.times(phase.request) for host in hosts) >= needed


class _Running(NamedTuple):
    """A task that runs: since when, until when it is estimated to, and what it holds."""

    started: float
    ends: float
    kind: str
    slots: int
    needs: Resources


def places(phase: PhaseState, slots: Iterable[int]) -> int:
    """The tasks of a phase for which hosts with these numbers of slots have room together."""
    return sum(count // phase.width for count in slots)


def free_for(
    snapshot: Snapshot, phase: PhaseState, waits: WideTaskReservations | None = None
) -> Mapping[str, int]:
    """The free slots of each host for a phase: for all, or reserved for a pool that it is in.

    Only hosts that have what a task needs; for a gang, the slots of the tasks that fit there.

    waits  some hosts are kept from this phase: their free slots are then left out, and
           reserved ones that the keeper may use, too
    """
    spare, needs = snapshot.spare, phase.needs
    able = spare.hosts_for(needs) if needs else frozenset()
    kind = phase.pool.slot_kind
    if needs and able.isdisjoint(snapshot.free(kind)) and not snapshot.reserved(kind):
        return {}
    slots = _free_slots(snapshot, phase, waits, able if needs else None)
    if phase.phase.hosts:
        slots = {host: count for host, count in slots.items() if phase.allows(host)}
    if needs and phase.is_gang:
        return {
            host: min(count, spare.times(host, needs) * phase.width)
            for host, count in slots.items()
        }
    return slots


def _free_slots(
    snapshot: Snapshot,
    phase: PhaseState,
    waits: WideTaskReservations | None,
    able: Set[str] | None = None,
) -> Mapping[str, int]:
    """The free slots of each host, or of these hosts, for a phase."""
    kind = phase.pool.slot_kind
    free, reserved = snapshot.free(kind), snapshot.reserved(kind)
    if able is not None:
        free = {host: count for host, count in free.items() if host in able}
    if waits is not None:
        left = ((host, waits.left(phase, host, count)) for host, count in free.items())
        free = {host: count for host, count in left if count}
    if not reserved:
        return free
    found = dict(free)
    for host in reserved:
        if able is not None and host not in able:
            continue
        by = None if waits is None else waits.keeper(phase, host)
        if slots := reserved_for(snapshot, phase, host, by):
            found[host] = found.get(host, 0) + slots
    return found


def reserved_for(
    snapshot: Snapshot, phase: PhaseState, host: str, keeper: PhaseState | None
) -> int:
    """The reserved slots of a host that a phase may use, without those that its keeper may."""
    return sum(
        slots
        for pool, slots in snapshot.reserved(phase.pool.slot_kind).get(host, {}).items()
        if may_use(snapshot, phase, pool)
        and not (keeper is not None and may_use(snapshot, keeper, pool))
    )


def may_use(snapshot: Snapshot, phase: PhaseState, taker: PoolState) -> bool:
    """Whether slots that are taken back for a pool are for a phase.

    They are for the phases in the pool. An overdue min share of another pool beats that, as far
    as no slots are being taken back for it, unless such a share is the reason for the taking.
    """
    path = list(path_of(phase.pool))
    if taker in path:
        return True
    return any(pool.is_starving and pool.missing_least(snapshot.now) > 0 for pool in path) and (
        not any(pool.is_starving for pool in path_of(taker))
    )


def reclaimed_for(snapshot: Snapshot, phase: PhaseState) -> Counter[str]:
    """The slots of each host that are free for a phase, or will be when stopping tasks end.

    Only as many as it can use with the other resources that are, or will be, free there.
    """
    slots, ending = reclaimed_parts(snapshot, phase)
    if phase.needs:
        for host, count in slots.items():
            fit = snapshot.spare.times(host, phase.needs, ending.get(host, ()))
            slots[host] = min(count, fit * phase.width)
    return slots


def reclaimed_parts(
    snapshot: Snapshot, phase: PhaseState
) -> tuple[Counter[str], dict[str, list[Resources]]]:
    """These slots of each host, and the other resources of the tasks that stop there."""
    kind = phase.pool.slot_kind
    slots = Counter(_free_slots(snapshot, phase, None))
    ending: dict[str, list[Resources]] = {}
    for other in snapshot.holding(kind):
        for task, taker in other.stopping.items():
            launch = other.launches[task][0]
            is_for_all, host = taker is None or taker.slot_kind != kind, launch.host
            if host in snapshot.lost:
                continue
            if is_for_all or (taker is not None and may_use(snapshot, phase, taker)):
                slots[host] += other.width
                ending.setdefault(host, []).append(other.held(launch))
    return slots, ending


def taken_for(snapshot: Snapshot, phase: PhaseState) -> Counter[str]:
    """Those of them that are taken back for pools that the phase is in."""
    kind = phase.pool.slot_kind
    path, slots = set(path_of(phase.pool)), Counter[str]()
    for host, by_pool in snapshot.reserved(kind).items():
        slots[host] += sum(count for pool, count in by_pool.items() if pool in path)
    for other in snapshot.holding(kind):
        for host, taker in other.stops():
            if host not in snapshot.lost and taker in path:
                slots[host] += other.width
    return slots


def _newest_starts(snapshot: Snapshot, slot_kind: str) -> dict[str, float]:
    """When the newest task on each host started, without those that were asked to stop."""
    newest: dict[str, float] = {}
    for phase in snapshot.holding(slot_kind):
        for started, launch in phase.attempts():
            newest[launch.host] = max(started, newest.get(launch.host, -inf))
    return newest


def _first_that_hold(
    phase: PhaseState, hosts: Sequence[str], slots: Mapping[str, int]
) -> list[str]:
    """The first of these hosts that hold a gang together if they have these slots for it."""
    chosen, left = [], phase.pending
    for host in hosts:
        if left <= 0:
            break
        if count := places(phase, (slots[host],)):
            chosen.append(host)
            left -= count
    return chosen


def _keeps_one(phase: PhaseState) -> bool:
    """Whether it keeps one host: it needs more than slots there, or runs only on some hosts."""
    return (bool(phase.needs) or phase.unit == 1) and not phase.is_gang


def _lacks(phase: PhaseState) -> float:
    """The slots of its allocation that it does not hold."""
    return phase.allocated - (phase.running - phase.slots_on_lost_hosts)


def path_of(pool: PoolState | None) -> Iterator[PoolState]:
    """A share of a pool and those that contain it."""
    while pool is not None:
        yield pool
        pool = pool.parent


# Where the tasks of a gang start together, near their input first.

Together = Callable[[Snapshot, PhaseState, Mapping[str, int], Locality], Sequence[Launch]]
"""Launches all tasks of a gang on hosts with these free slots, or none.

No task with input on hosts runs farther from it than the given locality.
"""


def near_first(
    snapshot: Snapshot, phase: PhaseState, free: Mapping[str, int], farthest: Locality
) -> Sequence[Launch]:
    """Tasks with few homes choose first; what is left fills the hosts with most free slots.

    Ties are broken by the number of the task and the order of the cluster. Not always as near
    as possible; `Flow` finds that. O(tasks + copies of their input + hosts log hosts).
    """
    position, width = snapshot.cluster.position, phase.width
    hosts = sorted(free, key=lambda host: (-free[host], position[host]))
    room = {host: free[host] // width for host in hosts if free[host] >= width}
    placed: dict[int, tuple[str, Locality]] = {}
    tasks = phase.pending_tasks()
    if phase.has_homes:
        homes = _homes(phase, position)
        tasks = sorted(tasks, key=lambda task: (len(homes.get(task, ())), task))
        for task in tasks:
            near = [host for host in homes.get(task, ()) if room.get(host)]
            if near:
                placed[task] = _take(room, min(near, key=position.__getitem__)), Locality.NODE
        if farthest >= Locality.RACK:
            _place_in_racks(snapshot, tasks, homes, room, placed)
        if farthest < Locality.ANY and any(t not in placed and t in homes for t in tasks):
            return ()
    places = (host for host, count in room.items() for _ in range(count))
    for task in tasks:
        if task not in placed:
            host = next(places, None)
            if host is None:
                return ()
            placed[task] = host, phase.locality(task, host)
    return launches(phase, placed)


def launches(phase: PhaseState, placed: Mapping[int, tuple[str, Locality]]) -> Sequence[Launch]:
    """The launches of tasks on hosts, by number."""
    return [
        Launch(phase.id, task, phase.attempt_of(task), *placed[task]) for task in sorted(placed)
    ]


def _homes(phase: PhaseState, known: Mapping[str, int]) -> dict[int, list[str]]:
    """The hosts of the cluster that hold the input of each pending task, if there are some."""
    names, tasks, hosts = phase.homes.copies()
    homes: dict[int, list[str]] = {}
    for task, host in zip(tasks.tolist(), hosts.tolist(), strict=True):
        if names[host] in known:
            homes.setdefault(task, []).append(names[host])
    return homes


def _place_in_racks(
    snapshot: Snapshot,
    tasks: Sequence[int],
    homes: Mapping[int, Sequence[str]],
    room: dict[str, int],
    placed: dict[int, tuple[str, Locality]],
) -> None:
    """Place tasks that have no room on a home in the rack of one."""
    rack_of = snapshot.cluster.rack_of
    in_rack: dict[str, Iterator[str]] = {}
    for rack in {rack_of[host] for host in room}:
        hosts = [host for host in room if rack_of[host] == rack]
        in_rack[rack] = iter([host for host in hosts for _ in range(room[host])])
    for task in tasks:
        if task not in placed:
            racks = sorted({rack_of[home] for home in homes.get(task, ()) if home in rack_of})
            found = (host for rack in racks for host in in_rack.get(rack, ()))
            if (host := next(found, None)) is not None:
                placed[task] = _take(room, host), Locality.RACK


def _take(room: dict[str, int], host: str) -> str:
    room[host] -= 1
    return host
