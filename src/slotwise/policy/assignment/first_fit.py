"""Where a request fits first, by the tasks that run on each host, and what it leaves there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from operator import itemgetter

from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import GPU, NOTHING, Resources
from slotwise.core.snapshot import Snapshot, TaskOnHost
from slotwise.policy.assignment.free_slots import reserved_for

LOOK_AT_HOSTS = 16
"""The number of hosts among which one is chosen for a phase that waits: those with most free of
the resource of which it needs the greatest part."""


class FirstFit:
    """The tasks that run on hosts with resources at one instant, read when they are needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def host(self, phase: PhaseState, can_use: Callable[[str], bool]) -> str | None:
        """The usable host where a task fits first by the estimated ends of the tasks there.

        None if it would fit on none of those that are looked at. O(hosts log hosts + tasks on
        `LOOK_AT_HOSTS` of them).
        """
        snapshot, position = self._snapshot, self._snapshot.cluster.position
        hosts, totals = list(position), snapshot.totals
        if not totals.holds(phase.needs):
            return None
        if phase.needs:
            most = max(phase.needs, key=lambda name: phase.needs[name] / totals[name])
            free = snapshot.spare.amounts(most)
            hosts.sort(key=lambda host: -free.get(host, 0))  # Stable: then by position.
        found: list[tuple[float, int, str]] = []
        for host in islice(filter(can_use, hosts), LOOK_AT_HOSTS):
            ends = self._fits_from(phase, host)
            if ends is not None:
                found.append((max(snapshot.now, ends), position[host], host))
        return min(found)[2] if found else None

    def _fits_from(self, phase: PhaseState, host: str) -> float | None:
        """When a task is expected to fit on a host; in the past if it fits now. None: never."""
        tasks, kind = self._snapshot.tasks_on(host), phase.pool.slot_kind
        if self._snapshot.reserved(kind) or any(one.phase.stopping for one in tasks.by_end):
            running = self._by_end(host)
            last = self._enough(phase, host, running)
            return None if last is None else running[last - 1].ends if last else -inf
        key = -1, kind, phase.width, phase.needs, self._snapshot.free(kind).get(host, 0)
        if key not in tasks.known:
            last = self._enough(phase, host, tasks.by_end)
            ends = None if last is None else tasks.by_end[last - 1].ends if last else -inf
            tasks.known[key] = ends
        known: float | None = tasks.known[key]
        return known

    def beside(self, keeper: PhaseState, host: str) -> tuple[int, Resources]:
        """The slots of its kind, and the other resources, that a keeper leaves on a host.

        It leaves what it will not need when the oldest tasks there, as many as must end for its
        request to fit, have ended.
        """
        snapshot, kind = self._snapshot, keeper.pool.slot_kind
        slots = snapshot.free(kind).get(host, 0)
        if snapshot.reserved(kind):
            return self._beside(keeper, host, slots)
        known, key = snapshot.tasks_on(host).known, (kind, keeper.width, keeper.needs, slots)
        if key not in known:
            known[key] = self._beside(keeper, host, slots)
        found: tuple[int, Resources] = known[key]
        return found

    def _beside(self, keeper: PhaseState, host: str, slots: int) -> tuple[int, Resources]:
        kind, oldest = keeper.pool.slot_kind, self._snapshot.tasks_on(host).by_start
        count = self._enough(keeper, host, oldest)
        if count is None:
            return 0, NOTHING
        slots -= keeper.width
        amounts = dict(self._snapshot.spare.free(host))
        for one in oldest[:count]:
            slots += one.slots if one.kind == kind else 0
            for name, amount in one.needs.pairs:
                amounts[name] = amounts.get(name, 0) + amount
        for name, amount in keeper.needs.pairs:
            amounts[name] = amounts.get(name, 0) - amount
        if GPU in keeper.needs:
            amounts[GPU] = 0  # It is not known which devices will be free together.
        return max(0, slots), Resources({name: max(0, n) for name, n in amounts.items()})

    def _enough(
        self, phase: PhaseState, host: str, running: Sequence[TaskOnHost]
    ) -> int | None:
        """How many of these tasks on a host must end, in order, until a task fits there.

        None if it does not fit even then.
        """
        snapshot, kind = self._snapshot, phase.pool.slot_kind
        slots = snapshot.free(kind).get(host, 0)
        if snapshot.reserved(kind):
            slots += reserved_for(snapshot, phase, host, None)
        free = snapshot.spare.free(host) if phase.needs else NOTHING
        lacks = {name: amount - free.get(name, 0) for name, amount in phase.needs.pairs}
        for count, one in enumerate((None, *running)):
            if one is not None:
                slots += one.slots if one.kind == kind else 0
                for name, amount in one.needs.pairs:
                    if name in lacks:
                        lacks[name] -= amount
            if slots >= phase.width and max(lacks.values(), default=0) <= 0:
                ended = [one.needs for one in running[:count]]
                if GPU not in lacks or snapshot.spare.times(host, phase.needs, ended):
                    return count
        return None

    def _by_end(self, host: str) -> Sequence[TaskOnHost]:
        """The tasks that run on a host by their ends; those that stop may end at once."""
        tasks = self._snapshot.tasks_on(host)
        if any(one.phase.stopping for one in tasks.by_end):
            now = self._snapshot.now
            found = [
                one._replace(ends=now) if one.task in one.phase.stopping else one
                for one in tasks.by_start
            ]
            return sorted(found, key=itemgetter(1))
        return tasks.by_end
