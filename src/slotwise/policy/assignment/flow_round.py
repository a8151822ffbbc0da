"""One round of placement by minimum cost flow: from a snapshot to the network and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from slotwise.core.decisions import Locality
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot
from slotwise.core.task_homes import Integers
from slotwise.policy.assignment.flow_network import CheapestFlow, PlacementNetwork, Racks

Placed = tuple[int, str, Locality]
"""A task, its host, and how far that is from its input."""

GRAIN = 1000
"""Costs are whole numbers: thousandths of a byte."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one phase contributes to the network. Tasks are numbered within the phase.

    numbers     the tasks that have edges, in increasing order
    local, near the local edges and those to racks: places in `numbers`, and ends
    others      more tasks that may be launched remotely, the first one first
    prices      of a remote launch, different ones; `group` and `others_group` have the place
                of the price of each task
    """

    phase: PhaseState
    launches: int
    numbers: Integers
    local: tuple[Integers, Integers]
    near: tuple[Integers, Integers]
    others: Integers
    prices: Integers
    group: Integers
    others_group: Integers
    is_remote: bool


class Round:
    """The free slots of one kind at one instant, and the phases that get them.

    asked  the phases to which a turn came
    """

    def __init__(
        self,
        snapshot: Snapshot,
        slot_kind: str,
        farthest: Callable[[PhaseState, float], Locality],
        core_cost: float,
        room: Mapping[str, int] | None = None,
    ) -> None:
        """`room`: how many tasks each host has room for; None: as many as it has free slots."""
        cluster, free = snapshot.cluster, room or snapshot.free(slot_kind)
        self.asked: list[PhaseState] = []
        self._now, self._farthest, self._core_cost = snapshot.now, farthest, core_cost
        self._hosts = sorted(free, key=cluster.position.__getitem__)
        self._room = np.array([free[host] for host in self._hosts], np.int64)
        self._place = {host: number for number, host in enumerate(self._hosts)}
        self._freed = set(snapshot.freed(slot_kind))
        self._rack_of = cluster.rack_of
        racks = sorted({self._rack_of[host] for host in self._hosts})
        self._racks = {rack: number for number, rack in enumerate(racks)}
        self._of_host = np.array([self._racks[self._rack_of[h]] for h in self._hosts], np.int64)
        self._maps: dict[tuple[int, bool], tuple[Sequence[str], Integers]] = {}
        self._ends: dict[tuple[PhaseId, bool], tuple[Integers, Integers]] = {}

    def most(self, phase: PhaseState) -> int:
        """No fewer than the tasks of a phase that may be launched in this round."""
        self.asked.append(phase)
        far = self._farthest(phase, self._now)
        if not phase.has_homes or far is Locality.ANY:
            return phase.pending
        is_rack = far is Locality.RACK
        _, ends = self._edges(phase, is_rack)
        room = np.bincount(self._of_host, self._room) if is_rack else self._room
        near = int(np.minimum(np.bincount(ends, minlength=len(room)), room).sum())
        return near + len(phase.homes.without_home())

    def placed(
        self, turns: Sequence[PhaseState], place: Callable[[PlacementNetwork], CheapestFlow]
    ) -> dict[PhaseId, list[Placed]]:
        """Where the tasks of each phase go that has turns, by a cheapest flow."""
        counts = Counter(phase.id for phase in turns)
        phases = sorted({p.id: p for p in turns}.values(), key=lambda phase: phase.order)
        choosy = [phase for phase in phases if phase.has_homes]
        with_racks = self._core_cost > 1 or any(
            self._farthest(phase, self._now) is Locality.RACK for phase in choosy
        )
        parts = [self._part(phase, counts[phase.id], with_racks) for phase in choosy]
        parts = [part for part in parts if len(part.prices)]  # The others have no homes.
        room = _Room(self._hosts, self._room, self._of_host)
        placed: dict[PhaseId, list[Placed]] = {phase.id: [] for phase in phases}
        if any(len(part.numbers) for part in parts):
            found = place(self._network(parts, with_racks))
        else:
            found = _all_remote(parts)
        self._take(parts, found, room, placed)
        for phase in phases:
            used = {task for task, *_ in placed[phase.id]}
            left, anywhere = counts[phase.id] - len(used), phase.homes.without_home()
            if not phase.has_homes:
                anywhere = _next_tasks(phase, left)
            for task in [one for one in anywhere if one not in used][:left]:
                host = room.any()
                placed[phase.id].append((task, host, phase.locality(task, host)))
        return placed

    def _part(self, phase: PhaseState, launches: int, with_racks: bool) -> _Part:
        far = self._farthest(phase, self._now)
        local, near = self._edges(phase, False), (_NONE, _NONE)
        if with_racks and far >= Locality.RACK:
            near = self._edges(phase, True)
        is_remote = far is Locality.ANY
        others = np.array(_next_tasks(phase, launches) if is_remote else (), np.int64)
        prices = (
            self._prices(phase, others),
            *(self._prices(phase, t) for t, _ in (local, near)),
        )
        different = np.unique(np.concatenate(prices))
        if len(different) <= 1:  # Tasks are alike but for their edges: the first ones will do.
            local, near = _first(local, launches), _first(near, launches)
        numbers = np.unique(np.concatenate([local[0], near[0]]))
        others = others[~np.isin(others, numbers)]
        return _Part(
            phase,
            launches,
            numbers,
            (np.searchsorted(numbers, local[0]), local[1]),
            (np.searchsorted(numbers, near[0]), near[1]),
            others,
            different,
            np.searchsorted(different, self._prices(phase, numbers)),
            np.searchsorted(different, self._prices(phase, others)),
            is_remote,
        )

    def _prices(self, phase: PhaseState, tasks: Integers) -> Integers:
        """What a remote launch of each task costs; a task of unknown input counts a byte."""
        return np.maximum(phase.homes.bytes_of(tasks), 1)

    def _edges(self, phase: PhaseState, is_rack: bool) -> tuple[Integers, Integers]:
        """The pending tasks with input on a free host, or in its rack, and the end of each."""
        key = (phase.id, is_rack)
        if key not in self._ends:
            names, tasks, hosts = phase.homes.copies()
            ends = self._end_of(names, is_rack)[hosts] if len(names) else hosts
            if phase.has_passed and not is_rack:
                # Slots that were free before this turn were offered and passed: they are far.
                is_freed = np.array([host in self._freed for host in self._hosts])
                ends = np.where((ends >= 0) & is_freed[ends], ends, -1)
            tasks, ends = tasks[ends >= 0], ends[ends >= 0]
            # In one order, however the copies are listed: a replay reads them from the log.
            order = np.lexsort((ends, tasks))
            tasks, ends = tasks[order], ends[order]
            if is_rack and len(tasks):
                is_new = np.ones(len(tasks), bool)
                is_new[1:] = (tasks[1:] != tasks[:-1]) | (ends[1:] != ends[:-1])
                tasks, ends = tasks[is_new], ends[is_new]
            self._ends[key] = tasks, ends
        return self._ends[key]

    def _end_of(self, names: Sequence[str], is_rack: bool) -> Integers:
        """The free host, or its rack, of each of these hosts, as a number; -1 without one."""
        key = (id(names), is_rack)
        if key not in self._maps:  # Phases of one workload share their names.
            if is_rack:
                ends = [self._racks.get(self._rack_of.get(name, ""), -1) for name in names]
            else:
                ends = [self._place.get(name, -1) for name in names]
            self._maps[key] = names, np.array(ends, np.int64)
        return self._maps[key][1]

    def _network(self, parts: Sequence[_Part], with_racks: bool) -> PlacementNetwork:
        """The network of all phases; those that wait pay most for what is not launched."""
        far = round(GRAIN * self._core_cost)
        high = 1 + max(int(part.prices.max(initial=0)) for part in parts) * far
        sizes = [len(part.numbers) for part in parts]
        groups = [len(part.prices) for part in parts]
        first, first_group = _starts(sizes), _starts(groups)
        prices = [
            p.prices * far if p.is_remote else np.full_like(p.prices, high) for p in parts
        ]
        racks = None
        if with_racks:
            each = [p.prices[p.group[p.near[0]]] * GRAIN for p in parts]
            tasks = [part.near[0] + at for part, at in zip(parts, first, strict=True)]
            ends = np.concatenate([part.near[1] for part in parts])
            racks = Racks(self._of_host, np.concatenate(tasks), ends, np.concatenate(each))
        return PlacementNetwork(
            launches=np.array([part.launches for part in parts], np.int64),
            phase_of=np.repeat(np.arange(len(parts)), groups),
            most=np.concatenate([_most(part) for part in parts]),
            prices=np.concatenate(prices),
            group_of=np.concatenate(
                [part.group + at for part, at in zip(parts, first_group, strict=True)]
            ),
            tasks=np.concatenate(
                [part.local[0] + at for part, at in zip(parts, first, strict=True)]
            ),
            hosts=np.concatenate([part.local[1] for part in parts]),
            room=self._room,
            racks=racks,
        )

    def _take(
        self,
        parts: Sequence[_Part],
        found: CheapestFlow,
        room: _Room,
        placed: dict[PhaseId, list[Placed]],
    ) -> None:
        """The flow as tasks on hosts: first those beside their input, then in its rack."""
        first = _starts([len(part.numbers) for part in parts])
        for part, at in zip(parts, first, strict=True):
            placed[part.phase.id] += [
                (task, room.take(host), Locality.NODE)
                for task, host in _ends(part.numbers, found.host[at:])
            ]
        for part, at in zip(parts, first, strict=True):
            placed[part.phase.id] += [
                (task, room.in_rack(rack), Locality.RACK)
                for task, rack in _ends(part.numbers, found.rack[at:])
            ]
        first_group = _starts([len(part.prices) for part in parts])
        far = [
            (part, found.remote[at : at + len(part.prices)].tolist())
            for part, at in zip(parts, first_group, strict=True)
            if part.is_remote
        ]
        for part, remote in far:
            if any(remote):
                placed[part.phase.id] += self._in_racks(
                    part, remote, {task for task, *_ in placed[part.phase.id]}, room
                )
        for part, remote in far:
            if any(remote):
                used = {task for task, *_ in placed[part.phase.id]}
                for task in _remote_tasks(part, remote, used):
                    host = room.any()
                    locality = part.phase.locality(task, host)
                    placed[part.phase.id].append((task, host, locality))

    def _in_racks(
        self, part: _Part, remote: list[int], used: set[int], room: _Room
    ) -> Iterator[Placed]:
        """Remote tasks on slots in the rack of their input, as far as there are some.

        Tasks of one group cost the same, so any of them may be the remote ones.
        """
        tasks, racks = self._edges(part.phase, True)
        has_room = np.array([room.has_rack(rack) for rack in range(len(self._racks))])
        tasks, racks = tasks[has_room[racks]], racks[has_room[racks]]
        prices = self._prices(part.phase, tasks)
        groups = np.searchsorted(part.prices, prices)
        known = groups < len(part.prices)
        known[known] = part.prices[groups[known]] == prices[known]
        pairs = tasks[known].tolist(), racks[known].tolist(), groups[known].tolist()
        left = sum(remote)
        for task, rack, group in zip(*pairs, strict=True):
            if not left:
                return
            if remote[group] and task not in used and room.has_rack(rack):
                used.add(task)
                remote[group], left = remote[group] - 1, left - 1
                host = room.in_rack(rack)
                yield task, host, part.phase.locality(task, host)


class _Room:
    """The free slots that no task has yet; hosts in the order of the cluster."""

    def __init__(self, hosts: Sequence[str], room: Integers, of_host: Integers) -> None:
        self._hosts, self._left = hosts, room.tolist()
        order = np.argsort(of_host, kind="stable").tolist()
        starts = np.searchsorted(of_host[order], np.arange(int(of_host.max()) + 2)).tolist()
        self._of_rack = [iter(order[a:b]) for a, b in pairwise(starts)]
        self._now = [next(rack, None) for rack in self._of_rack]
        self._at = 0

    def take(self, host: int) -> str:
        """A slot of this host."""
        self._left[host] -= 1
        assert self._left[host] >= 0, "no more tasks than slots"
        return self._hosts[host]

    def has_rack(self, rack: int) -> bool:
        """Whether a host of a rack has a slot."""
        while (host := self._now[rack]) is not None and not self._left[host]:
            self._now[rack] = next(self._of_rack[rack], None)
        return host is not None

    def in_rack(self, rack: int) -> str:
        """A slot of the first host of a rack that has one."""
        assert self.has_rack(rack), "no more tasks are in a rack than slots"
        host = self._now[rack]
        assert host is not None
        return self.take(host)

    def any(self) -> str:
        """A slot of the first host that has one."""
        while not self._left[self._at]:
            self._at += 1
        return self.take(self._at)


_NONE = np.zeros(0, np.int64)


def _next_tasks(phase: PhaseState, count: int) -> list[int]:
    """The tasks that a phase launches next if it does not matter where, the first one first."""
    return list(dict.fromkeys((phase.next_task()[0], *phase.homes.pending(count))))


def _first(edges: tuple[Integers, Integers], most: int) -> tuple[Integers, Integers]:
    """The edges without those beyond the first `most` tasks of each end."""
    tasks, ends = edges
    if not len(tasks) or np.bincount(ends).max() <= most:
        return tasks, ends
    order = np.lexsort((tasks, ends))
    sorted_ends = ends[order]
    place = np.arange(len(order)) - np.searchsorted(sorted_ends, sorted_ends)
    kept = np.sort(order[place < most])
    return tasks[kept], ends[kept]


def _ends(numbers: Integers, ends: Integers) -> Iterator[tuple[int, int]]:
    """The tasks of a phase that have an end, and their ends."""
    ends = ends[: len(numbers)]
    has_end = ends >= 0
    return zip(numbers[has_end].tolist(), ends[has_end].tolist(), strict=True)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()][: len(sizes)]


def _most(part: _Part) -> Integers:
    """The units of each group: its tasks, or, where none is remote, all of the phase."""
    if not part.is_remote:
        return np.full(len(part.prices), part.launches)
    count = len(part.prices)
    return np.bincount(part.group, minlength=count) + np.bincount(
        part.others_group, minlength=count
    )


def _all_remote(parts: Sequence[_Part]) -> CheapestFlow:
    """The placement if no task has input on a free host: the smallest inputs move."""
    remote: list[int] = []
    for part in parts:
        left = part.launches if part.is_remote else 0
        for most in _most(part).tolist():
            remote.append(min(left, most))
            left -= remote[-1]
    return CheapestFlow(_NONE, _NONE, np.array(remote, np.int64))


def _remote_tasks(part: _Part, remote: list[int], used: set[int]) -> Iterator[int]:
    """The tasks that are launched remotely: of each group, as many as its flow says."""
    others = zip(part.others.tolist(), part.others_group.tolist(), strict=True)
    numbers = zip(part.numbers.tolist(), part.group.tolist(), strict=True)
    for task, group in (*others, *numbers):
        if remote[group] and task not in used:
            remote[group] -= 1
            yield task
