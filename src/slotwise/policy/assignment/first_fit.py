"""Where a request fits first, by the tasks that run on each host, and what it leaves there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import GPU, NOTHING, Resources
from slotwise.core.snapshot import Snapshot
from slotwise.policy.assignment.free_slots import reserved_for

LOOK_AT_HOSTS = 16
"""The number of hosts among which one is chosen for a phase that waits: those with most free of
the resource of which it needs the greatest part."""


class FirstFit:
    """The tasks that run on hosts with resources at one instant, read when they are needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._running: dict[str, list[_Running]] = {}

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
            amount = snapshot.spare.amount
            hosts.sort(key=lambda host: -amount(host, most))  # Stable: then by position.
        found: list[tuple[float, int, str]] = []
        for host in islice(filter(can_use, hosts), LOOK_AT_HOSTS):
            running = sorted(self._on(host), key=_ENDS)
            last = self._enough(phase, host, running)
            if last is not None:
                ends = running[last - 1].ends if last else snapshot.now
                found.append((ends, position[host], host))
        return min(found)[2] if found else None

    def beside(self, keeper: PhaseState, host: str) -> tuple[int, Resources]:
        """The slots of its kind, and the other resources, that a keeper leaves on a host.

        It leaves what it will not need when the oldest tasks there, as many as must end for its
        request to fit, have ended.
        """
        snapshot, kind = self._snapshot, keeper.pool.slot_kind
        oldest = sorted(self._on(host), key=_STARTED)
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
                for name, amount in one.needs.pairs:
                    if name in lacks:
                        lacks[name] -= amount
            if slots >= phase.width and max(lacks.values(), default=0) <= 0:
                ended = [one.needs for one in running[:count]]
                if GPU not in lacks or snapshot.spare.times(host, phase.needs, ended):
                    return count
        return None

    def _on(self, host: str) -> list[_Running]:
        """The tasks that run on a host with resources."""
        if host not in self._running:
            now = self._snapshot.now
            self._running[host] = [
                _Running(
                    started,
                    now if ends < now or task in phase.stopping else ends,
                    phase.slot_kind,
                    phase.width,
                    phase.held(phase.launches[task][0]),
                )
                for phase, task, started, ends in self._snapshot.tasks_on(host)
            ]
        return self._running[host]


class _Running(NamedTuple):
    """A task that runs: since when, until when it is estimated to, and what it holds."""

    started: float
    ends: float
    kind: str
    slots: int
    needs: Resources


_STARTED, _ENDS = itemgetter(0), itemgetter(1)  # of a `_Running`
