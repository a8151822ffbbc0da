"""Which phases are asked first, and which hosts are offered to each, where some phases wait.

Phases for which one free slot is not enough may keep hosts from others (`wide`). Here is how
all phases are served beside them, without a look at each of thousands that fit nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

from slotwise.core.decisions import Defer
from slotwise.core.needs import PhasesByNeeds
from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import NOTHING, Resources
from slotwise.core.snapshot import Snapshot
from slotwise.core.tolerances import SLOTS
from slotwise.policy.assignment.free_slots import Fitting, free_for, places
from slotwise.policy.assignment.wide import WideTaskReservations, at_once, lacking

LOOK_AT = 100
"""The number of phases whose waits may begin: the first ones in the order of service."""

MANY_NEEDS = 32
"""Above this number of different needs, most of those that fit nowhere are found together."""


class Offers:
    """The phases in the order of service at one instant, and the hosts offered to each.

    O(hosts with free slots + different requests), beside what `WideTaskReservations` takes.
    """

    def __init__(
        self, snapshot: Snapshot, near_after: Callable[[PhaseState], float] = at_once
    ) -> None:
        """`near_after`: seconds for which a phase waits for slots near its input."""
        self._snapshot, self._waits = snapshot, WideTaskReservations(snapshot, near_after)
        self._noted: list[PhaseState] = []
        self._fitting = Fitting(snapshot)
        self._open: dict[tuple[str, Resources, int], Mapping[str, int]] = {}

    def in_order(self, slot_kind: str) -> Iterable[PhaseState]:
        """The phases that may launch: of overdue pools, then those that are due, then all.

        Those that are not due and need what no host offers them are left out, except for the
        first ones while waits may begin.
        """
        backlogged = self._snapshot.backlogged(slot_kind)
        if not self._snapshot.overdue(slot_kind):  # As `sorted` below, but lazily.
            first = [p for p in self._waits.due if p.slot_kind == slot_kind]
            if self._waits.passes_over:
                nowhere = self._fitting.nowhere
                first = [p for p in first if p.deferred_until is None or not nowhere(p)]
            return filter(self._may_launch, chain(first, self._not_due(slot_kind)))
        phases = list(filter(self._may_launch, backlogged))
        return sorted(phases, key=lambda p: (-p.overdue, self._waits.turn(p)))

    def _may_launch(self, phase: PhaseState) -> bool:
        """Whether its pools have room for a task; a phase may wait for room of a resource."""
        if not phase.may_launch:
            if phase.resource_limits:
                self.note(phase)
            return False
        return True

    def _not_due(self, slot_kind: str) -> Iterator[PhaseState]:
        """The others in their order: first all while waits may begin, then those that fit."""
        due, noted, nowhere = self._waits.place, self._noted, self._fitting.known
        rest: Iterator[PhaseState] = iter(self._snapshot.backlogged(slot_kind))
        passed: list[PhaseState] = []
        for phase in rest:
            if phase in due:
                continue
            if len(passed) >= LOOK_AT or len(noted) >= self._waits.left_to_begin:
                rest = chain((phase,), rest)
                break
            passed.append(phase)
            is_hidden = nowhere.get(id(phase.request))
            if is_hidden is None:
                is_hidden = self._fitting.nowhere(phase)
            if not (is_hidden and self._waits.passes_over) or (
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
                due = [one for one in self._waits.due if limit in one.resource_limits]
                kept = max(
                    (limit.taken_by(p) for p in due if self._waits.has_host(p)), default=0
                )
                left = limit.most - limit.held - kept
                room[limit.name] = min(left, room.get(limit.name, left))
            rooms.append(room)
        return rooms

    def _may_fit(self, alike: Collection[PhaseState]) -> bool:
        """Whether some of these phases, which need the same, may be offered a host."""
        for phase in islice(alike, LOOK_AT):
            if phase not in self._waits.place:
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
            if host in self._waits.kept_hosts and host not in reserved:
                kept.append(host)
                continue
            for name, amount in amounts_of(host).pairs:
                if amount > most.get(name, 0):
                    most[name] = amount
        for host in kept:  # Most of them have less free than others offer.
            amounts = amounts_of(host)
            if any(amount > most.get(name, 0) for name, amount in amounts.pairs):
                keeper = self._waits.keeper_for(slot_kind, host, True)
                left = amounts if keeper is None else self._left_of(keeper, host, slot_kind)
                for name, amount in amounts.pairs:
                    most[name] = max(most.get(name, 0), min(amount, left.get(name, 0)))
        return most

    def _left_of(self, keeper: PhaseState, host: str, slot_kind: str) -> Resources:
        """The resources beside slots that its keeper leaves on a host for phases of a kind."""
        slots, amounts = self._waits.beside_keeper(keeper, host)
        return amounts if slots or slot_kind != keeper.pool.slot_kind else NOTHING

    def note(self, phase: PhaseState) -> None:
        """A phase in its turn is offered no host that has what its tasks need.

        Its wait begins if it holds less than its allocation, and if waits do not keep too many
        hosts already (`HOSTS_A_WAIT`).
        """
        if (
            (phase.needs or phase.phase.hosts)
            and len(self._noted) < self._waits.left_to_begin
            and phase.unit == 1
            and phase.deferred_until is None
            and (lacking(phase) > SLOTS or self._waits.near_after(phase))
        ):
            self._noted.append(phase)

    def offered(self, slot_kind: str, phase: PhaseState) -> Mapping[str, int]:
        """The hosts with enough free slots for a task that are not kept from its phase.

        For a gang these hosts hold all of its tasks, or there are none.
        """
        if self._fitting.nowhere(phase) or self._waits.is_barred(phase):
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
            and phase not in self._waits.place
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
            return free_for(snapshot, phase, self._waits if self._waits.kept_hosts else None)
        hosts = self._fitting.hosts(kind, needs)
        if self._waits.kept_hosts.isdisjoint(hosts):
            return hosts
        left = ((host, self._waits.left(phase, host, count)) for host, count in hosts.items())
        return {host: count for host, count in left if count}

    def begin(self) -> list[Defer]:
        """The decisions with which the waits of phases begin that were noted.

        Before a launch of another phase: these come before it in the order of service.
        """
        return self._waits.defer(self._noted) if self._noted else []

    def defer(self) -> list[Defer]:
        """The decisions with which waits begin, and with which they continue until due."""
        return self._waits.defer((*self._waits.wide, *self._noted))


def _within(needs: Resources, room: Mapping[str, int]) -> bool:
    """Whether a task that needs this takes no more than what is left of each resource."""
    return all(amount <= room.get(name, amount) for name, amount in needs.pairs)
