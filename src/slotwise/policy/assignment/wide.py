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
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter

from slotwise.core.cluster import MAX_SLOTS
from slotwise.core.decisions import Defer
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import path_to
from slotwise.core.resources import NOTHING, Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.assignment.first_fit import FirstFit
from slotwise.policy.assignment.free_slots import free_for, places, reclaimed_for

HOSTS_A_WAIT = 4
"""At most one host in as many is kept for tasks that wait for memory or other resources, but
one at least: waits in turn are enough, and fewer hosts idle in part."""

LOOK_SECONDS = 1.0
"""The least wait of a `Defer` that needs no wake-up, since the phase keeps slots already."""

Turn = tuple[bool, int, float, int, PhaseState]
"""The place of a phase whose wait is due in the order of these: the smallest comes first."""


def at_once(phase: PhaseState) -> float:
    """No wait for slots near the input."""
    return 0.0


class WideTaskReservations:
    """The waits of wide phases at one instant, and the hosts that they keep.

    wide  the phases whose waits may begin or continue now
    due   the phases whose waits are due: first those of promises that are due, then those with
          the most overdue pools, so that a pool takes slots before others within the same one,
          then by the instant from which they have been due
    place  the place of each of them in this order
    kept_hosts  the hosts that some of them keep
    left_to_begin  how many more waits for resources may begin (`HOSTS_A_WAIT`)
    passes_over  phases that are offered nothing and begin no wait need not be looked at: there
          are no promises that count how many they refuse, and no waits for slots near input

    O(such phases + running wide tasks); for each gang that is due also O(hosts log hosts +
    running tasks). A wait for resources that begins costs O(hosts + tasks on `LOOK_AT_HOSTS` of
    them).
    """

    def __init__(
        self, snapshot: Snapshot, near_after: Callable[[PhaseState], float] = at_once
    ) -> None:
        """`near_after`: seconds for which a phase waits for slots near its input."""
        self._snapshot, self.near_after = snapshot, near_after
        self._first_fit = FirstFit(snapshot)
        self._beside: dict[tuple[str, str], tuple[int, Resources]] = {}
        self._hosted: dict[PhaseId, bool] = {}
        self.passes_over = near_after is at_once and not snapshot.promises.open
        if not self._read_changes():
            self._read_all()
        self.kept_hosts = {host for _, host in self._keepers}
        self.left_to_begin = max(1, len(snapshot.cluster.hosts) // HOSTS_A_WAIT) - self._waiting

    def _read_all(self) -> None:
        """Read all waits, and find who keeps which hosts."""
        snapshot = self._snapshot
        self.wide = [
            phase
            for kind in snapshot.cluster.capacity
            for phase in snapshot.wide(kind)
            if not (phase.is_gang and phase.running)  # Such a gang runs, or is being stopped.
        ]
        self._due_at = {p: self._due(p) for p in self.wide if p.pending}
        found = sorted(self._turns(self._due_at), key=_ORDER)
        self.due: list[PhaseState] = [one[4] for one in found]
        self.place = {phase: place for place, phase in enumerate(self.due)}
        self._waiting = len([p for p, due in self._due_at.items() if due < inf and p.unit == 1])
        self._keepers: dict[tuple[str, str], PhaseState] = {}
        for phase in self.due:
            if phase.may_launch and snapshot.promises.permits(phase):
                self._keep(phase)
        if self._are_simple() and all(map(_is_simple, self.wide)):
            self._keep_read(found)

    def _read_changes(self) -> bool:
        """The same from the last reading and what has changed since; False if it cannot be."""
        kept, changed = self._snapshot.kept_waits()
        if kept is None or not self._are_simple():
            return False
        found, self._keepers = list(kept[0]), dict(kept[1])
        wide = self._snapshot.wide
        self.wide = [
            phase
            for kind in (self._snapshot.cluster.capacity if changed else ())
            for phase in wide(kind)
            if phase in changed
        ]
        if not all(map(_is_simple, self.wide)):
            return False
        if changed:
            found = [one for one in found if one[4] not in changed]
            self._keepers = {at: p for at, p in self._keepers.items() if p not in changed}
        self._due_at = {p: self._due(p) for p in self.wide if p.pending}
        if new := self._turns(self._due_at):
            found = sorted([*found, *new], key=_ORDER)
        self._waiting, self.due = len(found), [one[4] for one in found]
        self.place = {phase: place for place, phase in enumerate(self.due)}
        for *_, phase in new:
            if (phase.slot_kind, phase.kept_host) in self._keepers:
                return False  # Who comes first keeps it.
            if phase.may_launch:
                self._keep(phase)
        if changed:
            self._keep_read(found)
        return True

    def _turns(self, due_at: Mapping[PhaseState, float]) -> list[Turn]:
        """The places in the order of those whose waits are due."""
        now, first = self._snapshot.now, self._snapshot.promises.comes_first
        return [
            (not first(p), -p.overdue, due, p.order, p)
            for p, due in due_at.items()
            if due <= now
        ]

    def _are_simple(self) -> bool:
        """Whether only a change of a phase itself changes its wait, if it is simple, too."""
        snapshot = self._snapshot
        is_overdue = any(map(snapshot.overdue, snapshot.cluster.capacity))
        return self.passes_over and not is_overdue

    def _keep_read(self, found: Sequence[Turn]) -> None:
        """Let the snapshot keep what was read, without those whose waits must continue.

        The others keep a host, or hold what they are allocated.
        """
        keep = {*self._keepers.values()}
        changed = [one for *_, one in found if one not in keep or one.deferred_until is None]
        kept = [one for one in found if one[4] not in changed] if changed else found
        self._snapshot.keep_waits((kept, dict(self._keepers)), changed)

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
        keeper = self.keeper_for(phase.pool.slot_kind, host, bool(phase.needs))
        return keeper if keeper is not None and self._precedes(keeper, phase) else None

    def keeper_for(self, slot_kind: str, host: str, has_needs: bool) -> PhaseState | None:
        """The phase that keeps a host from phases of a kind, with or without needs."""
        keeper = self._keepers.get((slot_kind, host))
        if keeper is None and has_needs:  # Resources are for tasks of all kinds.
            kinds = self._snapshot.cluster.capacity
            every = (self._keepers.get((kind, host)) for kind in kinds)
            keeper = next((one for one in every if one is not None and one.needs), None)
        return keeper

    def keeps(self, phase: PhaseState, host: str) -> bool:
        """Whether a phase keeps the free slots of a host from others."""
        return self._keepers.get((phase.pool.slot_kind, host)) is phase

    def defer(self, phases: Iterable[PhaseState]) -> list[Defer]:
        """The decisions with which the waits of these begin, or continue until due."""
        now, decisions = self._snapshot.now, []
        for phase in phases:
            if not phase.pending:
                continue
            due, until = self._due_at.get(phase), phase.deferred_until
            if due is None:
                due = self._due(phase)
            since = now if phase.deferred_since is None else phase.deferred_since
            if due == inf and (near_after := self.near_after(phase)):
                due = since + near_after  # It may use slots that nobody else does.
            if due == inf:
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

        At once if it lacks the slots of a whole task, or gang, its pool is overdue, or its
        promise is due. If it lacks a part of these slots, after the time in which that part
        adds up to a task, or gang, of usual length.
        """
        lacks = lacking(phase)
        if lacks <= SLOTS:
            return inf
        wait = 0.0
        if not (phase.overrides_delay or self._snapshot.promises.comes_first(phase)):
            if lacks < phase.unit - SLOTS and phase.unit > 1:  # Otherwise it is its turn.
                wait = self._mean(phase) * (phase.unit / lacks - 1)
            wait = max(wait, self.near_after(phase))
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
        free, could_use = free_for(self._snapshot, phase), self._usable(phase)
        hosts = [host for host in free if (kind, host) not in self._keepers]
        hosts = list(filter(could_use, hosts))
        if hosts and not self._will_come(phase, could_use):
            reclaimed = reclaimed_for(self._snapshot, phase)
            position = self._snapshot.cluster.position
            hosts.sort(key=lambda host: (-reclaimed[host], position[host]))
            for host in hosts[: max(1, int(lacking(phase) / phase.width + SLOTS))]:
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
            host.name: host.amounts.times(phase.request) * phase.width
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

    def _will_come(self, phase: PhaseState, could_use: Callable[[str], bool]) -> bool:
        """Whether a task of another phase holds enough slots of a host that it could use."""
        return any(
            launch.host not in self._snapshot.lost and could_use(launch.host)
            for other in self._snapshot.wide(phase.pool.slot_kind)
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
        """The host where a task fits first, which is kept from now on.

        None if other phases keep all that it could use.
        """
        kind, could_use, lost = phase.pool.slot_kind, self._usable(phase), self._snapshot.lost

        def can_keep(host: str) -> bool:
            if host in self.kept_hosts and (
                (kind, host) in self._keepers or self.keeper(phase, host)
            ):
                return False
            return host not in lost and could_use(host)

        host = self._first_fit.host(phase, can_keep)
        if host is not None:
            self._keepers[kind, host] = phase
            self.kept_hosts.add(host)
        return host

    def left(self, phase: PhaseState, host: str, slots: int) -> int:
        """Those of the free slots of a host that a phase may use beside one that keeps it.

        A phase with needs leaves what others can have without delaying it.
        """
        keeper = self.keeper(phase, host)
        if keeper is None:
            return slots
        left, needs = self.beside_keeper(keeper, host)
        if phase.needs and not needs.holds(phase.needs):
            return 0
        same_kind = phase.pool.slot_kind == keeper.pool.slot_kind
        return min(slots, left) if same_kind or not _keeps_one(keeper) else slots

    def beside_keeper(self, keeper: PhaseState, host: str) -> tuple[int, Resources]:
        """The slots of its kind, and the other resources, that a keeper leaves on a host."""
        if not _keeps_one(keeper):
            return 0, NOTHING
        key = keeper.pool.slot_kind, host
        if key not in self._beside:
            self._beside[key] = self._first_fit.beside(keeper, host)
        return self._beside[key]

    def _usable(self, phase: PhaseState) -> Callable[[str], bool]:
        """Whether one more of its tasks could run on a host if all other phases left it."""
        own = Counter(launch.host for _, launch in phase.attempts())
        own.update(host for host, _ in phase.stops())
        hosts, request = self._snapshot.cluster.by_name, phase.request

        def could_use(host: str) -> bool:
            amounts, runs = hosts[host].amounts, own.get(host, 0)
            return (
                (amounts.times(request) > runs if runs else amounts.holds(request))
                and phase.allows(host)
                and not (phase.is_pinned and not phase.next_task_on((host,)))
            )

        return could_use

    def _needs_room_of(self, keeper: PhaseState, phase: PhaseState) -> bool:
        """Whether a launch would take room in a pool that a phase before it needs."""
        if not keeper.is_limited or not self._precedes(keeper, phase):
            return False
        keys = {pool.key for pool in path_to(keeper.pool)}
        is_short = any(
            pool.key in keys and pool.room - phase.unit < keeper.unit
            for pool in path_to(phase.pool)
        ) or any(
            limit.slots_for(keeper, taken) < keeper.unit
            for limit in keeper.resource_limits
            if (taken := limit.taken_by(phase)) and limit in phase.resource_limits
        )
        return is_short and self.has_host(keeper)

    def _precedes(self, keeper: PhaseState, phase: PhaseState) -> bool:
        """Whether a phase that is due comes before another one, which may be due, too."""
        promises = self._snapshot.promises
        if phase.overdue > keeper.overdue:
            return False
        first = promises.comes_first
        if promises.open and first(phase) and not first(keeper):
            return False
        return self.turn(keeper) < self.turn(phase)

    def turn(self, phase: PhaseState) -> int:
        """Its place in the order of those that are due; after all of them if it is not."""
        return self.place.get(phase, len(self.place))

    def has_host(self, phase: PhaseState) -> bool:
        """Whether the responsive hosts have slots for one of its tasks, or for its gang."""
        if phase.id in self._hosted:
            return self._hosted[phase.id]
        lost, needed, found = self._snapshot.lost, phase.pending if phase.is_gang else 1, 0
        for host in self._snapshot.cluster.hosts:
            if host.name not in lost and phase.allows(host.name):
                found += host.amounts.times(phase.request)
                if found >= needed:  # Most often on the first one.
                    break
        self._hosted[phase.id] = found >= needed
        return found >= needed


_ORDER = itemgetter(0, 1, 2, 3)  # of a `Turn`


def _is_simple(phase: PhaseState) -> bool:
    """Whether a phase keeps the host that its wait names, whatever happens to others."""
    return phase.unit == 1 and not (phase.is_limited or phase.is_gang)


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
    return (phase.unit == 1 or bool(phase.needs)) and not phase.is_gang


def lacking(phase: PhaseState) -> float:
    """The slots of its allocation that it does not hold."""
    return phase.allocated - (phase.running - phase.slots_on_lost_hosts)
