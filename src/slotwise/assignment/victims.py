"""Running tasks that preemption may stop for a pool; a gang is stopped as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter

from slotwise.assignment.wide import path_of, places
from slotwise.model.decision import Launch
from slotwise.model.job import PhaseId
from slotwise.model.pool_tree import ShareKey
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView, PoolView

_Attempts = tuple[PhaseView, Sequence[Launch]]
"""A running task, or all of a gang."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A running task, or all of a gang, and the pools whose slots it gives."""

    phase: PhaseView
    launches: Sequence[Launch]
    giving: Sequence[PoolView]

    @property
    def slots(self) -> int:
        """The slots that it frees."""
        return self.phase.width * len(self.launches)


class Stoppable:
    """The running tasks that may be stopped, the newest first: found once for all pools.

    Otherwise each overdue pool would look at all of them in each turn while they are spared.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._found: dict[tuple[str, bool], Sequence[_Attempts]] = {}

    def of(self, slot_kind: str, is_least: bool) -> Sequence[_Attempts]:
        """Those on slots of a kind; for a min share, those that were stopped before, too."""
        key = slot_kind, is_least
        if key not in self._found:
            now = inf if is_least else self.snapshot.now
            self._found[key] = list(_newest_first(self.snapshot.holding(slot_kind), now))
        return self._found[key]


class Victims:
    """Running tasks that can be stopped for a pool.

    above     the keys of this pool and of the pools that contain it: nothing is taken from
              these, on any kind of slot
    is_least  whether its min share is missing: then tasks may be stopped again at any time
    spared    hosts on which no task is stopped, beside the unresponsive ones
    """

    def __init__(
        self,
        stoppable: Stoppable,
        above: Collection[ShareKey],
        is_least: bool,
        spared: Collection[str] = (),
    ) -> None:
        self._stoppable, self._above, self._is_least = stoppable, above, is_least
        self._spared = {*stoppable.snapshot.lost, *spared}
        self._taken_from: Counter[PoolView] = Counter()

    def take(self, slot_kind: str, within: PoolView | None, slots_max: int) -> list[Victim]:
        """More of them, with `slots_max` slots of a kind, within a pool if one is given."""
        taken: list[Victim] = []
        for victim in self._find(slot_kind, within) if slots_max > 0 else ():
            if self._can_give(victim, self._taken_from):
                self._taken_from.update(dict.fromkeys(victim.giving, victim.slots))
                taken.append(victim)
                slots_max -= victim.slots
                if slots_max <= 0:
                    break
        return taken

    def by_host(
        self, slot_kind: str, within: PoolView | None, lacks: Mapping[str, int]
    ) -> dict[str, list[Victim]]:
        """For each host that lacks slots, those with enough slots there; without others."""
        left = {host: slots for host, slots in lacks.items() if slots > 0}
        taken: dict[str, list[Victim]] = {host: [] for host in left}
        taken_from: dict[str, Counter[PoolView]] = {host: Counter() for host in left}
        for victim in self._find(slot_kind, within):
            for host, count in Counter(launch.host for launch in victim.launches).items():
                if left.get(host, 0) > 0 and self._can_give(victim, taken_from[host]):
                    taken_from[host].update(dict.fromkeys(victim.giving, victim.slots))
                    taken[host].append(victim)
                    left[host] -= count * victim.phase.width
        return {host: victims for host, victims in taken.items() if left[host] <= 0}

    def for_gang(
        self,
        slot_kind: str,
        within: PoolView | None,
        coming: Mapping[str, int],
        gang: PhaseView,
    ) -> list[Victim]:
        """Those after which a gang has room on hosts with these slots; none if it has not."""
        left, taken = Counter(coming), []
        taken_from: Counter[PoolView] = Counter()
        for victim in self._find(slot_kind, within):
            if not self._can_give(victim, taken_from):
                continue
            taken_from.update(dict.fromkeys(victim.giving, victim.slots))
            taken.append(victim)
            left.update(_freed(victim, coming))
            if places(gang, left.values()) >= gang.pending:
                break
        else:
            return []
        for victim in taken[::-1]:  # Spare those whose slots are no use to it after all.
            without = left - _freed(victim, coming)
            if places(gang, without.values()) >= gang.pending:
                left = without
                taken.remove(victim)
        return taken

    def _find(self, slot_kind: str, within: PoolView | None) -> Iterator[Victim]:
        """The tasks that may be stopped, each with the pools whose slots it gives."""
        giving: dict[PhaseId, Sequence[PoolView]] = {}
        for phase, launches in self._stoppable.of(slot_kind, self._is_least):
            if phase.id not in giving:
                giving[phase.id] = self._giving(phase, within)
            if giving[phase.id] and all(a.host not in self._spared for a in launches):
                yield Victim(phase, launches, giving[phase.id])

    def _giving(self, phase: PhaseView, within: PoolView | None) -> Sequence[PoolView]:
        """The pools whose slots a task of a phase gives; none if one cannot spare them."""
        path = list(path_of(phase.pool))
        if within is not None and within not in path:
            return ()
        # Moving slots within a pool that contains the taker does not change that pool.
        giving = [pool for pool in path if pool.key not in self._above]
        return giving if all(pool.spare() >= phase.width for pool in giving) else ()

    def _can_give(self, victim: Victim, taken_from: Mapping[PoolView, int]) -> bool:
        """Whether none of its pools drops below its share without its slots."""
        slots = victim.slots
        return all(pool.spare() >= taken_from[pool] + slots for pool in victim.giving)


def _freed(victim: Victim, hosts: Container[str]) -> Counter[str]:
    """The slots that a victim frees on each of these hosts."""
    freed: Counter[str] = Counter()
    for launch in victim.launches:
        if launch.host in hosts:
            freed[launch.host] += victim.phase.width
    return freed


def _newest_first(phases: Sequence[PhaseView], now: float) -> Iterator[_Attempts]:
    """The tasks not spared at `now`, the newest first, then gangs; guaranteed ones last.

    A job's own min share is spared as long as other tasks can be stopped.
    """
    running: list[tuple[bool, float, int, int, PhaseView, Sequence[Launch]]] = []
    for phase in phases:
        attempts = list(phase.attempts())
        # A task that was stopped before would never end if that went on.
        free = [(since, a) for since, a in attempts if phase.spared_until(a.task) <= now]
        if not phase.is_gang:
            for started, launch in free:
                running.append((False, -started, -phase.order, -launch.task, phase, (launch,)))
        elif attempts and len(free) == len(attempts):
            gang = [launch for _, launch in attempts]
            running.append((True, -attempts[0][0], -phase.order, 0, phase, gang))
    running.sort(key=itemgetter(0, 1, 2, 3))
    left = {phase.id: phase.running - phase.away for phase in phases}
    guaranteed = []
    for *_, phase, launches in running:
        slots = phase.width * len(launches)
        if left[phase.id] - slots >= phase.phase.slots_min:
            left[phase.id] -= slots
            yield phase, launches
        else:
            guaranteed.append((phase, launches))
    yield from guaranteed
