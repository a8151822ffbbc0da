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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf
from operator import itemgetter

from slotwise.core.cluster import MAX_SLOTS
from slotwise.core.decisions import Defer
from slotwise.core.job import PhaseId
from slotwise.core.needs import PhasesByNeeds
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import path_to
from slotwise.core.resources import NOTHING, Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.assignment.first_fit import FirstFit
from slotwise.policy.assignment.free_slots import Fitting, free_for, places, reclaimed_for

LOOK_AT = 100
"""The number of phases whose waits may begin: the first ones in the order of service."""

MANY_NEEDS = 32
"""Above this number of different needs, most of those that fit nowhere are found together."""

HOSTS_A_WAIT = 4
"""At most one host in as many is kept for tasks that wait for memory or other resources, but
one at least: waits in turn are enough, and fewer hosts idle in part."""

LOOK_SECONDS = 1.0
"""The least wait of a `Defer` that needs no wake-up, since the phase keeps slots already."""


Turn = tuple[bool, int, float, int, PhaseState]
"""The place of a phase whose wait is due in the order of these: the smallest comes first."""


def _at_once(phase: PhaseState) -> float:
    """No wait for slots near the input."""
    return 0.0


class WideTaskReservations:
    """The waits of wide phases at one instant, and the hosts that they keep.

    due  the phases whose waits are due: first those of promises that are due, then those with
         the most overdue pools, so that a pool takes slots before others within the same one,
         then by the instant from which they have been due

    O(such phases + hosts with free slots + running wide tasks + different requests); for each
    gang that is due also O(hosts log hosts + running tasks). A wait for resources that begins
    costs O(hosts + tasks on `LOOK_AT_HOSTS` of them).
    """

    def __init__(
        self, snapshot: Snapshot, near_after: Callable[[PhaseState], float] = _at_once
    ) -> None:
        """`near_after`: seconds for which a phase waits for slots near its input."""
        self._snapshot, self._near_after = snapshot, near_after
        self._noted: list[PhaseState] = []
        self._first_fit = FirstFit(snapshot)
        self._fitting = Fitting(snapshot)
        self._open: dict[tuple[str, Resources, int], Mapping[str, int]] = {}
        self._beside: dict[tuple[str, str], tuple[int, Resources]] = {}
        self._hosted: dict[PhaseId, bool] = {}
        # Phases that are offered nothing and begin no wait need not be looked at, unless
        # promises count how many they refuse, or they wait for slots near their input.
        self._passes_over = near_after is _at_once and not snapshot.promises.open
        if not self._read_changes():
            self._read_all()
        self._place = {phase: place for place, phase in enumerate(self.due)}
        self._kept_hosts = {host for _, host in self._keepers}
        self._waits_left = max(1, len(snapshot.cluster.hosts) // HOSTS_A_WAIT) - self._waiting

    def _read_all(self) -> None:
        """Read all waits, and find who keeps which hosts."""
        snapshot = self._snapshot
        self._wide = [
            phase
            for kind in snapshot.cluster.capacity
            for phase in snapshot.wide(kind)
            if not (phase.is_gang and phase.running)  # Such a gang runs, or is being stopped.
        ]
        self._due_at = {p: self._due(p) for p in self._wide if p.pending}
        found = sorted(self._turns(self._due_at), key=_ORDER)
        self.due: list[PhaseState] = [one[4] for one in found]
        self._place = {phase: place for place, phase in enumerate(self.due)}
        self._waiting = len([p for p, due in self._due_at.items() if due < inf and p.unit == 1])
        self._keepers: dict[tuple[str, str], PhaseState] = {}
        for phase in self.due:
            if phase.may_launch and snapshot.promises.permits(phase):
                self._keep(phase)
        if self._are_simple() and all(map(_is_simple, self._wide)):
            self._keep_read(found)

    def _read_changes(self) -> bool:
        """The same from the last reading and what has changed since; False if it cannot be."""
        kept, changed = self._snapshot.kept_waits()
        if kept is None or not self._are_simple():
            return False
        found, self._keepers = list(kept[0]), dict(kept[1])
        wide = self._snapshot.wide
        self._wide = [
            phase
            for kind in (self._snapshot.cluster.capacity if changed else ())
            for phase in wide(kind)
            if phase in changed
        ]
        if not all(map(_is_simple, self._wide)):
            return False
        if changed:
            found = [one for one in found if one[4] not in changed]
            self._keepers = {at: p for at, p in self._keepers.items() if p not in changed}
        self._due_at = {p: self._due(p) for p in self._wide if p.pending}
        if new := self._turns(self._due_at):
            found = sorted([*found, *new], key=_ORDER)
        self._waiting, self.due = len(found), [one[4] for one in found]
        self._place = {phase: place for place, phase in enumerate(self.due)}
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
        return self._passes_over and not is_overdue

    def _keep_read(self, found: Sequence[Turn]) -> None:
        """Let the snapshot keep what was read, without those whose waits must continue.

        The others keep a host, or hold what they are allocated.
        """
        keep = {*self._keepers.values()}
        changed = [one for *_, one in found if one not in keep or one.deferred_until is None]
        kept = [one for one in found if one[4] not in changed] if changed else found
        self._snapshot.keep_waits((kept, dict(self._keepers)), changed)

    def in_order(self, slot_kind: str) -> Iterable[PhaseState]:
        """The phases that may launch: of overdue pools, then those that are due, then all.

        Those that are not due and need what no host offers them are left out, except for the
        first ones while waits may begin.
        """
        backlogged = self._snapshot.backlogged(slot_kind)
        if not self._snapshot.overdue(slot_kind):  # As `sorted` below, but lazily.
            first = [p for p in self.due if p.slot_kind == slot_kind]
            if self._passes_over:
                nowhere = self._fitting.nowhere
                first = [p for p in first if p.deferred_until is None or not nowhere(p)]
            return filter(self._may_launch, chain(first, self._not_due(slot_kind)))
        phases = list(filter(self._may_launch, backlogged))
        return sorted(phases, key=lambda p: (-p.overdue, self._turn(p)))

    def _may_launch(self, phase: PhaseState) -> bool:
        """Whether its pools have room for a task; a phase may wait for room of a resource."""
        if not phase.may_launch:
            if phase.resource_limits:
                self.note(phase)
            return False
        return True

    def _not_due(self, slot_kind: str) -> Iterator[PhaseState]:
        """The others in their order: first all while waits may begin, then those that fit."""
        due, noted, nowhere = self._place, self._noted, self._fitting.known
        rest: Iterator[PhaseState] = iter(self._snapshot.backlogged(slot_kind))
        passed: list[PhaseState] = []
        for phase in rest:
            if phase in due:
                continue
            if len(passed) >= LOOK_AT or len(noted) >= self._waits_left:
                rest = chain((phase,), rest)
                break
            passed.append(phase)
            is_hidden = nowhere.get(id(phase.request))
            if is_hidden is None:
                is_hidden = self._fitting.nowhere(phase)
            if not (is_hidden and self._passes_over) or (
                phase.deferred_until is None
                and phase.allocated - phase.running + phase.slots_on_lost_hosts > SLOTS
            ):
                yield phase
        by_needs = self._snapshot.by_needs(slot_kind)
        fitting = self._needs_that_fit(slot_kind, by_needs)
        few = list(islice((p for needs in fitting for p in by_needs[needs]), LOOK_AT))
        if len(few) < LOOK_AT:  # These are all of them: the others need not be passed over.
            seen = {*due, *passed} if few else {}
            few = [p for p in few if p not in seen]
            yield from self._snapshot.in_order(slot_kind, few)
        else:
            able = set(fitting)
            yield from (p for p in rest if p.needs in able and p not in due)

    def _needs_that_fit(self, slot_kind: str, by_needs: PhasesByNeeds) -> Collection[Resources]:
        """What phases that are not due need, without that for which no host is offered.

        Of many different needs, some may be left for which none is.
        """
        found: Collection[Resources] = by_needs
        if len(found) > MANY_NEEDS:
            found = by_needs.within(self._most_offered(slot_kind))
        if (rooms := self._rooms(slot_kind)) is not None:
            found = [needs for needs in found if any(_within(needs, room) for room in rooms)]
        if len(found) > MANY_NEEDS:
            return found
        return [needs for needs in found if self._may_fit(by_needs[needs])]

    def _rooms(self, slot_kind: str) -> list[dict[str, int]] | None:
        """What each pool with a backlog may still hold of the resources that it limits.

        Without what is kept for phases that are due. None if such a pool limits none.
        """
        rooms = []
        for pool in self._snapshot.shares(slot_kind):
            if pool.below or not pool.is_backlogged:
                continue
            if not pool.resource_limits:
                return None
            room: dict[str, int] = {}
            for limit in pool.resource_limits:
                due = [one for one in self.due if limit in one.resource_limits]
                kept = max((limit.taken_by(p) for p in due if self._has_host(p)), default=0)
                left = limit.most - limit.held - kept
                room[limit.name] = min(left, room.get(limit.name, left))
            rooms.append(room)
        return rooms

    def _may_fit(self, alike: Collection[PhaseState]) -> bool:
        """Whether some of these phases, which need the same, may be offered a host."""
        for phase in islice(alike, LOOK_AT):
            if phase not in self._place:
                if not self._is_like_others(phase):
                    return True
                return not self._fitting.nowhere(phase) and bool(self._open_for(phase))
        return len(alike) > LOOK_AT

    def _most_offered(self, slot_kind: str) -> dict[str, int]:
        """The largest amount of each resource that is offered on a host with free slots."""
        free, reserved = self._snapshot.free(slot_kind), self._snapshot.reserved(slot_kind)
        most: dict[str, int] = {}
        amounts_of, kept = self._snapshot.spare.free, list[str]()
        for host in {**free, **reserved}:
            if host in self._kept_hosts and host not in reserved:
                kept.append(host)
                continue
            for name, amount in amounts_of(host).pairs:
                if amount > most.get(name, 0):
                    most[name] = amount
        for host in kept:  # Most of them have less free than others offer.
            amounts = amounts_of(host)
            if any(amount > most.get(name, 0) for name, amount in amounts.pairs):
                keeper = self._keeper(slot_kind, host, True)
                left = amounts if keeper is None else self._left_of(keeper, host, slot_kind)
                for name, amount in amounts.pairs:
                    most[name] = max(most.get(name, 0), min(amount, left.get(name, 0)))
        return most

    def _left_of(self, keeper: PhaseState, host: str, slot_kind: str) -> Resources:
        """The resources beside slots that its keeper leaves on a host for phases of a kind."""
        slots, amounts = self._beside_keeper(keeper, host)
        return amounts if slots or slot_kind != keeper.pool.slot_kind else NOTHING

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
        if self._fitting.nowhere(phase) or self.is_barred(phase):
            return {}
        if self._is_like_others(phase):
            return self._open_for(phase)
        hosts = self._free_for(phase)
        if phase.width > 1:
            hosts = {host: count for host, count in hosts.items() if count >= phase.width}
        if phase.is_gang and places(phase, hosts.values()) < phase.pending:
            return {}
        return hosts

    def _is_like_others(self, phase: PhaseState) -> bool:
        """Whether it is offered the same hosts as others that are not due and need the same."""
        return (
            phase.unit == 1
            and not phase.phase.hosts
            and phase not in self._place
            and not phase.overdue
            and not self._snapshot.reserved(phase.pool.slot_kind)
        )

    def _open_for(self, phase: PhaseState) -> Mapping[str, int]:
        """The hosts that are offered to all such phases."""
        key = phase.pool.slot_kind, phase.needs, phase.width
        if key not in self._open:
            self._open[key] = self._free_for(phase)
        return self._open[key]

    def _free_for(self, phase: PhaseState) -> Mapping[str, int]:
        """The free slots of each host for a phase, without what is kept from it."""
        snapshot, kind, needs = self._snapshot, phase.slot_kind, phase.needs
        if not needs or phase.phase.hosts or phase.is_gang or snapshot.reserved(kind):
            return free_for(snapshot, phase, self if self._keepers else None)
        hosts = self._fitting.hosts(kind, needs)
        if self._kept_hosts.isdisjoint(hosts):
            return hosts
        left = ((host, self.left(phase, host, count)) for host, count in hosts.items())
        return {host: count for host, count in left if count}

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
        keeper = self._keeper(phase.pool.slot_kind, host, bool(phase.needs))
        return keeper if keeper is not None and self._precedes(keeper, phase) else None

    def _keeper(self, slot_kind: str, host: str, has_needs: bool) -> PhaseState | None:
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
            if not phase.pending:
                continue
            due, until = self._due_at.get(phase), phase.deferred_until
            if due is None:
                due = self._due(phase)
            since = now if phase.deferred_since is None else phase.deferred_since
            if due == inf and (near_after := self._near_after(phase)):
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
        lacks = _lacks(phase)
        if lacks <= SLOTS:
            return inf
        wait = 0.0
        if not (phase.overrides_delay or self._snapshot.promises.comes_first(phase)):
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
        free, could_use = free_for(self._snapshot, phase), self._usable(phase)
        hosts = [host for host in free if (kind, host) not in self._keepers]
        hosts = list(filter(could_use, hosts))
        if hosts and not self._will_come(phase, could_use):
            reclaimed = reclaimed_for(self._snapshot, phase)
            position = self._snapshot.cluster.position
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
            if host in self._kept_hosts and (
                (kind, host) in self._keepers or self.keeper(phase, host)
            ):
                return False
            return host not in lost and could_use(host)

        host = self._first_fit.host(phase, can_keep)
        if host is not None:
            self._keepers[kind, host] = phase
            self._kept_hosts.add(host)
        return host

    def left(self, phase: PhaseState, host: str, slots: int) -> int:
        """Those of the free slots of a host that a phase may use beside one that keeps it.

        A phase with needs leaves what others can have without delaying it.
        """
        keeper = self.keeper(phase, host)
        if keeper is None:
            return slots
        left, needs = self._beside_keeper(keeper, host)
        if phase.needs and not needs.holds(phase.needs):
            return 0
        same_kind = phase.pool.slot_kind == keeper.pool.slot_kind
        return min(slots, left) if same_kind or not _keeps_one(keeper) else slots

    def _beside_keeper(self, keeper: PhaseState, host: str) -> tuple[int, Resources]:
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
        return is_short and self._has_host(keeper)

    def _precedes(self, keeper: PhaseState, phase: PhaseState) -> bool:
        """Whether a phase that is due comes before another one, which may be due, too."""
        promises = self._snapshot.promises
        if phase.overdue > keeper.overdue:
            return False
        first = promises.comes_first
        if promises.open and first(phase) and not first(keeper):
            return False
        return self._turn(keeper) < self._turn(phase)

    def _turn(self, phase: PhaseState) -> int:
        return self._place.get(phase, len(self._place))

    def _has_host(self, phase: PhaseState) -> bool:
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


def _lacks(phase: PhaseState) -> float:
    """The slots of its allocation that it does not hold."""
    return phase.allocated - (phase.running - phase.slots_on_lost_hosts)


def _within(needs: Resources, room: Mapping[str, int]) -> bool:
    """Whether a task that needs this takes no more than what is left of each resource."""
    return all(amount <= room.get(name, amount) for name, amount in needs.pairs)
