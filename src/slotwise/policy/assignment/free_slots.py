"""The free slots of each host for a phase, and those that tasks being stopped will free.

A host counts only if it has what a task of the phase needs beside slots. Reserved slots are for
the phases of the pools that took them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol

from slotwise.core.cluster import MAX_SLOTS
from slotwise.core.decisions import Launch
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState, path_to
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import GPU, Resources
from slotwise.core.snapshot import Snapshot


class Keepers(Protocol):
    """Who keeps hosts from other phases."""

    def keeper(self, phase: PhaseState, host: str) -> PhaseState | None:
        """The phase that keeps a host from a phase, if one does."""
        ...

    def left(self, phase: PhaseState, host: str, slots: int) -> int:
        """Those of the free slots of a host that a phase may use beside one that keeps it."""
        ...


def places(phase: PhaseState, slots: Iterable[int]) -> int:
    """The tasks of a phase for which hosts with these numbers of slots have room together."""
    return sum(count // phase.width for count in slots)


def free_for(
    snapshot: Snapshot, phase: PhaseState, waits: Keepers | None = None
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
    waits: Keepers | None,
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


class Fitting:
    """Where requests fit on hosts with free slots, at one instant.

    `nowhere` looks at the hosts once for each resource, and `hosts` once for each request.

    known  what `nowhere` has found, by identity of `PhaseState.request`: most phases that need
           the same share it
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.known: dict[int, bool] = {}
        self._largest: dict[tuple[str, str], int] = {}
        self._hosts: dict[tuple[str, Resources], Mapping[str, int]] = {}

    def nowhere(self, phase: PhaseState) -> bool:
        """Whether no host with free slots has what a task needs; False if some are reserved."""
        key = id(phase.request)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._exceeds_all(phase.slot_kind, phase.needs)
        return found

    def _exceeds_all(self, slot_kind: str, needs: Resources) -> bool:
        snapshot, largest = self._snapshot, self._largest
        free, spare = snapshot.free(slot_kind), snapshot.spare
        if not needs.pairs or snapshot.reserved(slot_kind):
            return False
        for name, amount in needs.pairs:
            most = largest.get((slot_kind, name))
            if most is None:
                if spare.holds(next(iter(free), ""), needs):
                    return False  # As long as the cluster is not full, the first host has it.
                most = largest[slot_kind, name] = spare.largest(name, free)
            if most < amount:
                return True
        if len(needs.pairs) == 1 and GPU not in needs:
            return False  # The host that has most has enough.
        return spare.hosts_for(needs).isdisjoint(free)

    def hosts(self, slot_kind: str, needs: Resources) -> Mapping[str, int]:
        """The hosts with free slots that have what is needed, and the number of their slots."""
        key = slot_kind, needs
        if key not in self._hosts:
            able = self._snapshot.spare.hosts_for(needs)
            free = self._snapshot.free(slot_kind)
            some = {} if able.isdisjoint(free) else free
            self._hosts[key] = {host: count for host, count in some.items() if host in able}
        return self._hosts[key]


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
    path = list(path_to(phase.pool))
    if taker in path:
        return True
    return any(pool.is_starving and pool.missing_least(snapshot.now) > 0 for pool in path) and (
        not any(pool.is_starving for pool in path_to(taker))
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
    path, slots = set(path_to(phase.pool)), Counter[str]()
    for host, by_pool in snapshot.reserved(kind).items():
        slots[host] += sum(count for pool, count in by_pool.items() if pool in path)
    for other in snapshot.holding(kind):
        for host, taker in other.stops():
            if host not in snapshot.lost and taker in path:
                slots[host] += other.width
    return slots


class GangRoom:
    """The tasks of a gang that fit on some hosts when the tasks that stop there have ended."""

    def __init__(self, snapshot: Snapshot, gang: PhaseState, hosts: Iterable[str]) -> None:
        slots, ending = reclaimed_parts(snapshot, gang)
        self._spare, self._gang, self._places = snapshot.spare, gang, 0
        self._slots = {host: slots[host] for host in hosts}
        self._ending = {host: ending.get(host, []) for host in self._slots}
        self._fit = dict.fromkeys(self._slots, 0)
        for host in self._slots:
            self._count(host)

    @property
    def is_enough(self) -> bool:
        """Whether all of its tasks fit."""
        return self._places >= self._gang.pending

    def stop(self, phase: PhaseState, launches: Iterable[Launch]) -> None:
        """Count these tasks of a phase as stopping, too."""
        for launch in launches:
            if launch.host in self._slots:
                self._slots[launch.host] += phase.width
                self._ending[launch.host].append(phase.held(launch))
                self._count(launch.host)

    def spare(self, phase: PhaseState, launches: Iterable[Launch]) -> None:
        """Count them as running again."""
        for launch in launches:
            if launch.host in self._slots:
                self._slots[launch.host] -= phase.width
                self._ending[launch.host].remove(phase.held(launch))
                self._count(launch.host)

    def _count(self, host: str) -> None:
        fit = places(self._gang, (self._slots[host],))
        if fit and self._gang.needs:
            fit = min(fit, self._spare.times(host, self._gang.needs, self._ending[host]))
        self._places += fit - self._fit[host]
        self._fit[host] = fit


class LimitRoom:
    """What limits of pools will leave for a phase when the tasks that stop have ended.

    left  of each limit that its tasks take from, inner ones first; minus what `taken` says
    """

    def __init__(
        self,
        phase: PhaseState,
        limits: Iterable[PoolState | ResourceLimit],
        taken: Mapping[PoolState | ResourceLimit, int],
    ) -> None:
        self._phase = phase
        self.left: dict[PoolState | ResourceLimit, float] = {
            limit: limit.room_later - taken.get(limit, 0)
            for limit in limits
            if limit.taken_by(phase)
        }

    @property
    def tasks(self) -> int:
        """The tasks, or gangs, for which there will be room; `MAX_SLOTS` without a limit."""
        return min(map(self.tasks_in, self.left), default=MAX_SLOTS)

    def tasks_in(self, limit: PoolState | ResourceLimit) -> int:
        """The same within one limit."""
        return max(0, int(self.left[limit] // limit.taken_by(self._phase)))

    def stop(self, phase: PhaseState, launches: Sequence[Launch], sign: int = 1) -> None:
        """Count these tasks of a phase as stopping, too, or as running again (-1)."""
        for limit in self.left:
            self.left[limit] += sign * freed_of(limit, phase, launches)

    def gains(self, phase: PhaseState, launches: Sequence[Launch], tasks: int) -> bool:
        """Whether an end of these frees what limits lack that have no room for these tasks."""
        short = (limit for limit in self.left if self.tasks_in(limit) < tasks)
        return any(freed_of(limit, phase, launches) for limit in short)


def freed_of(
    limit: PoolState | ResourceLimit, phase: PhaseState, launches: Sequence[Launch]
) -> int:
    """What some tasks of a phase hold of a limit."""
    if limit not in phase.limits:
        return 0
    if isinstance(limit, PoolState):
        return len(launches) * phase.width
    return sum([phase.held(launch).get(limit.name, 0) for launch in launches])
