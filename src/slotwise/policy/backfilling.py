"""Backfilling: rigid jobs in a queue, some of which go ahead if they delay nobody before them.

EASY (Lifka 1995; Mu'alem and Feitelson 2001) reserves slots for the first job that does not
fit; conservative backfilling for each waiting job. Both rely on the times that jobs request.
docs/algorithms/backfilling.md has the rules, what they guarantee, and what they ignore.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, nextafter

from slotwise.core.decisions import Decision, Enqueue, Launch, Locality
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.pool_state import PoolState
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.resources import Resources
from slotwise.core.snapshot import Snapshot
from slotwise.policy.assignment.assigner import (
    give_up,
    local,
    remote,
    retry,
    stop_broken,
    with_resources,
)
from slotwise.policy.assignment.together import near_first

Places = Mapping[str, int]
"""Hosts, and the number of tasks of a phase on each."""


@dataclass(frozen=True, slots=True)
class Easy:
    """EASY backfilling: the first phase that does not fit has a reservation.

    Phases are served by priority, then by arrival. Each that fits launches. The first one that
    does not, of each kind of slot, gets the earliest slots that it can have if all tasks run
    for the times that they request. Later phases launch if they fit without these slots.

    shortest_first  these are tried by requested time (SJBF), otherwise in their order

    A decision costs O(ready phases + running tasks); an attempt to place a task costs the
    number of instants at which tasks end meanwhile, for each host.
    """

    shortest_first: bool = False

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there are no more."""
        if (urgent := _urgent(snapshot)) is not None:
            return urgent
        queue = _queue(snapshot)
        if not queue or not any(map(snapshot.free, snapshot.cluster.capacity)):
            return ()
        turn = _Turn(snapshot)
        reserved: set[str] = set()
        later: list[PhaseState] = []
        for phase in queue:
            if not turn.has_room(phase):
                turn.keep_room(phase)
            elif phase.slot_kind in reserved:
                later.append(phase)
            else:
                is_all = turn.launch(phase, turn.most(phase))
                if turn.is_over:
                    break
                if not is_all and turn.reserve(phase) < inf:
                    turn.keep_room(phase)
                    reserved.add(phase.slot_kind)
        if self.shortest_first:
            later.sort(key=lambda phase: (turn.seconds(phase), phase.order))
        for phase in later:
            if turn.is_over:
                break
            turn.launch(phase, turn.most(phase))
        return with_resources(snapshot, turn.launches)


RESERVED_MAX = 500
"""The most phases that have reservations; others launch only if they delay none of these."""


@dataclass(frozen=True, slots=True)
class Conservative:
    """Conservative backfilling: each waiting phase has a reservation.

    It gets the earliest slots that it can have beside the earlier reservations, if all tasks
    run for the times that they request. When tasks end early, each reservation in turn moves
    to the earliest instant that the others leave it, and never to a later one. The
    reservations are in `Enqueue`, from which the next decision continues.

    shortest_first  new reservations are made, and all are moved, by requested time (SJBF);
                    otherwise in the order of the queue

    A decision costs O(n (n + r)) for n reservations and r running tasks on one host.
    """

    shortest_first: bool = False

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there are no more."""
        if (urgent := _urgent(snapshot)) is not None:
            return urgent
        queues, queue = snapshot.queues, _queue(snapshot)
        if not queue or not (queues.is_outdated or queues.has_time_passed):
            return ()
        turn, waiting = _Turn(snapshot), list[PhaseState]()
        for phase in queue:
            if turn.has_room(phase):
                waiting.append(phase)
            turn.keep_room(phase)
        if self.shortest_first:
            waiting.sort(key=lambda phase: (turn.seconds(phase), phase.order))
        known = {
            phase.id: queues.starts[phase.id] for phase in waiting if phase.id in queues.starts
        }
        starts = self._planned(turn, waiting, known)
        for phase in waiting:
            if starts.get(phase.id) == snapshot.now and not turn.is_over:
                turn.release(phase)
                if turn.launch(phase, phase.pending if phase.is_gang else 1):
                    del starts[phase.id]
                else:  # Its devices are not free, though there are enough of them.
                    turn.reserve(phase)
        for phase in waiting:  # The further tasks of arrays, and those without reservations.
            if phase.id not in starts and not phase.is_gang and not turn.is_over:
                turn.launch(phase, turn.most(phase))
        launches = with_resources(snapshot, turn.launches)
        if turn.is_over or starts == known:
            return launches
        return [Enqueue({}, (), starts), *launches]

    def _planned(
        self, turn: _Turn, waiting: Sequence[PhaseState], known: Mapping[PhaseId, float]
    ) -> dict[PhaseId, float]:
        """The reservations of these phases; each of those known is the same or earlier."""
        old = [phase for phase in waiting if phase.id in known]
        for phase in sorted(old, key=lambda phase: (known[phase.id], phase.order)):
            turn.reserve(phase, known[phase.id])
        starts = {}
        for phase in old:
            turn.release(phase)
            starts[phase.id] = turn.reserve(phase)
        new = [phase for phase in waiting if phase.id not in known]
        for phase in new[: max(0, RESERVED_MAX - len(old))]:
            starts[phase.id] = turn.reserve(phase)
        return {phase: start for phase, start in starts.items() if start < inf}


def _urgent(snapshot: Snapshot) -> Sequence[Decision] | None:
    """What comes before all launches: ends of jobs and gangs that failed, and retries."""
    if snapshot.doomed:
        return give_up(snapshot)
    if snapshot.broken:
        return stop_broken(snapshot)
    if snapshot.delays and (due := retry(snapshot)):
        return due
    return None


def _queue(snapshot: Snapshot) -> list[PhaseState]:
    """The phases with tasks that may launch: by priority, then by arrival."""
    found = [
        phase
        for kind in snapshot.cluster.capacity
        for phase in snapshot.ready(kind)
        if phase.pending and phase.running + phase.unit <= phase.max_share
    ]
    found.sort(key=lambda phase: (phase.urgency, phase.order))
    return found


class _Turn:
    """The launches of one decision, and what they and the reservations leave to others.

    launches  so far. Where only the state knows what a further launch may take, such as devices
              or tasks near their input, the decision `is_over`; the next one continues
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._now = snapshot, snapshot.now
        self._ahead = HostsAhead(snapshot)
        self._kept: Counter[PoolState | ResourceLimit] = Counter()
        self._reserved: dict[PhaseId, tuple[float, Places]] = {}
        self._begun: Counter[PhaseId] = Counter()
        self.launches: list[Launch] = []
        self.is_over = False

    def has_room(self, phase: PhaseState) -> bool:
        """Whether its pools have room for a task beside those that room is kept for."""
        kept = self._kept
        return all(one.slots_for(phase, kept[one]) >= phase.unit for one in phase.limits)

    def keep_room(self, phase: PhaseState) -> None:
        """Phases after it leave it room in its pools."""
        for limit in phase.limits:
            self._kept[limit] += limit.taken_by(phase)

    def seconds(self, phase: PhaseState) -> float:
        """How long a task of the phase takes at most, on a host of speed 1 if estimated."""
        return self._ahead.seconds(phase)

    def launch(self, phase: PhaseState, most: int) -> bool:
        """Launch tasks of a phase that fit from now until they end, as requested.

        Whether it launches `most` of them.
        """
        places = self._ahead.places_now(phase, most)
        if not places:
            return False
        made = self._made(phase, places)
        self.launches += made
        for host, count in Counter(launch.host for launch in made).items():
            self._ahead.take(phase, host, self._now, count)
        self._begun[phase.id] += len(made)
        self.is_over = bool(made) and (
            bool(phase.limits or phase.needs or phase.has_homes or phase.failures)
        )
        return len(made) == most

    def most(self, phase: PhaseState) -> int:
        """The most tasks of a phase that may launch together within its shares."""
        if phase.is_gang:
            return phase.pending
        room: float = phase.max_share - phase.running
        for limit in phase.limits:
            room = min(room, limit.slots_for(phase, self._kept[limit]))
        begun = self._begun[phase.id]
        return max(0, min(int(room // phase.width), phase.pending) - begun)

    def _made(self, phase: PhaseState, places: Places) -> Sequence[Launch]:
        snapshot = self._snapshot
        if phase.is_gang:
            free = {host: count * phase.width for host, count in places.items()}
            return near_first(snapshot, phase, free, Locality.ANY)
        if phase.has_homes or phase.failures or phase.needs:  # One, by the rules of the state.
            found = local(phase, places) or remote(phase, snapshot, places, Locality.ANY)
            return [found] if found is not None else []
        hosts = [host for host, count in places.items() for _ in range(count)]
        if len(hosts) == 1 == phase.pending:
            task, attempt, host = phase.next_task_for(hosts)
            return [Launch(phase.id, task, attempt, host, Locality.NODE)]
        begun = self._begun[phase.id]
        tasks = phase.homes.pending(begun + len(hosts))
        return [
            Launch(phase.id, task, phase.attempt_of(task), host, Locality.NODE)
            for task, host in zip(tasks[begun:], hosts, strict=True)
        ]

    def reserve(self, phase: PhaseState, after: float = -inf) -> float:
        """Reserve the earliest slots for a task of a phase, or its gang: when they begin.

        inf, and nothing is reserved, if no host that is present can ever run it.
        """
        start, places = self._ahead.earliest(phase, max(self._now, after))
        self._reserved[phase.id] = start, places
        for host, count in places.items():
            self._ahead.take(phase, host, start, count)
        return start

    def release(self, phase: PhaseState) -> None:
        """Give up a reservation of this turn."""
        start, places = self._reserved.pop(phase.id)
        for host, count in places.items():
            self._ahead.take(phase, host, start, -count)


class FreeAhead:
    """What is free of one resource of a host from now on, as a step function of time.

    times  when the steps begin; the first one is now, and the last one has no end
    free   the amount during each step
    """

    __slots__ = ("free", "times")

    def __init__(
        self, now: float, free: int, total: int, held: Iterable[tuple[float, int]]
    ) -> None:
        """`held` are the ends and amounts of tasks, by end, all later than now.

        From the first of these ends on, `total` counts less what is held then.
        """
        self.times, self.free = [now], [free]
        ends = list(held)
        left = total - sum(amount for _, amount in ends)
        for end, amount in ends:
            left += amount
            if end == self.times[-1]:
                self.free[-1] = left
            else:
                self.times.append(end)
                self.free.append(left)

    def least(self, begin: float, end: float) -> int:
        """The least amount that is free from `begin` until just before `end`."""
        times, first = self.times, bisect_right(self.times, begin) - 1
        return min(self.free[first : bisect_left(times, end, first + 1)])

    def earliest(self, after: float, seconds: float, amount: int) -> float:
        """The first instant, `after` or later, from which an amount is free for so long."""
        times, free = self.times, self.free
        begin = after
        for place in range(bisect_right(times, after) - 1, len(times)):
            if free[place] < amount:
                begin = times[place + 1] if place + 1 < len(times) else inf
            elif place + 1 == len(times) or times[place + 1] >= begin + seconds:
                return begin
        return inf

    def take(self, begin: float, end: float, amount: int) -> None:
        """Take an amount from `begin` until `end`."""
        first, last = self._step(begin), self._step(end)
        for place in range(first, last):
            self.free[place] -= amount

    def _step(self, at: float) -> int:
        """The place of the step that begins at an instant; it is made if there is none."""
        if at == inf:
            return len(self.times)
        place = bisect_left(self.times, at)
        if place == len(self.times) or self.times[place] != at:
            self.times.insert(place, at)
            self.free.insert(place, self.free[place - 1])
        return place


class HostsAhead:
    """What each host where tasks can begin has free from now on, if tasks end as they request.

    A task that has run for longer is taken to end at any moment. Devices are amounts here:
    which of them are free is asked of the state, for launches.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._now = snapshot, snapshot.now
        self._soon = nextafter(snapshot.now, inf)
        self._hosts = [host.name for host in snapshot.cluster.hosts]
        if snapshot.lost:
            self._hosts = [host for host in self._hosts if host not in snapshot.lost]
        self._seconds: dict[PhaseId, float] = {}
        self._held = self._ends()
        self._of: dict[tuple[str, str], FreeAhead] = {}

    def seconds(self, phase: PhaseState) -> float:
        """The seconds that a task requests, or is estimated to take on a host of speed 1."""
        found = self._seconds.get(phase.id)
        if found is None:
            stated = phase.job.seconds_most
            found = self._seconds[phase.id] = _mean(phase) if stated is None else stated
        return found

    def _seconds_on(self, phase: PhaseState, host: str) -> float:
        seconds = self.seconds(phase)
        if phase.job.seconds_most is None:
            seconds /= self._snapshot.cluster.by_name[host].speed
        return seconds

    def _ends(self) -> dict[str, list[tuple[float, Resources | None, PhaseState]]]:
        """The tasks that run on each host: when they end, and what they hold beside slots."""
        snapshot, soon = self._snapshot, self._soon
        ends: dict[str, list[tuple[float, Resources | None, PhaseState]]] = {}
        for phase in chain.from_iterable(map(snapshot.holding, snapshot.cluster.capacity)):
            if not phase.running:
                continue
            seconds, is_stated = self.seconds(phase), phase.job.seconds_most is not None
            for launch, started, speed in phase.launches.values():
                end = max(soon, started + (seconds if is_stated else seconds / speed))
                held = phase.held(launch) if phase.is_wide else None
                ends.setdefault(launch.host, []).append((end, held, phase))
        for held_on in ends.values():
            held_on.sort(key=lambda one: one[0])
        return ends

    def _ahead(self, host: str, name: str) -> FreeAhead:
        """One resource of a host."""
        found = self._of.get((host, name))
        if found is None:
            snapshot, held = self._snapshot, self._held.get(host, ())
            if name in snapshot.cluster.capacity:
                free = snapshot.free(name).get(host, 0)
                amounts = [(end, p.width) for end, _, p in held if p.slot_kind == name]
            else:
                free = snapshot.spare.amount(host, name)
                amounts = [(end, beside.get(name, 0)) for end, beside, _ in held if beside]
            total = snapshot.cluster.by_name[host].amounts.get(name, 0)
            found = FreeAhead(self._now, free, total, amounts)
            self._of[host, name] = found
        return found

    def places_now(self, phase: PhaseState, most: int) -> Places:
        """Hosts where at most `most` tasks fit from now on; for a gang where all do, or none.

        First those with the fewest slots that stay free, since longer tasks need these, then
        the fullest.
        """
        free, width = self._snapshot.free(phase.slot_kind), phase.width
        if phase.is_gang and sum(free.values()) < phase.unit:
            return {}
        able = [host for host in self._able(phase) if free.get(host, 0) >= width]
        found = self._places(phase, able, self._now)
        if phase.needs:
            times = self._snapshot.spare.times
            found = {host: min(n, times(host, phase.needs)) for host, n in found.items()}
        if len(found) > 1:

            def rank(host: str) -> tuple[int, int]:
                left = self._ahead(host, phase.slot_kind).least(self._now, inf)
                return left, found[host]

            found = {host: found[host] for host in sorted(found, key=rank)}
        return _first(phase, found, most)

    def earliest(self, phase: PhaseState, after: float) -> tuple[float, Places]:
        """When and where a task, or the whole gang, can begin first; inf if nowhere."""
        if not phase.is_gang:
            starts = ((self._earliest_on(phase, h, after), h) for h in self._able(phase))
            start, host = min(starts, default=(inf, ""), key=lambda one: one[0])
            return start, {host: 1} if start < inf else {}
        hosts, names = self._able(phase), [name for name, _ in phase.request.pairs]
        begins = {host: self._earliest_on(phase, host, after) for host in hosts}
        # Hosts that are free later are taken first: what is free now is left to others.
        hosts = sorted(hosts, key=begins.__getitem__, reverse=True)
        instants = {at for h in hosts for name in names for at in self._ahead(h, name).times}
        for at in sorted({after, *(one for one in instants if one > after)}):
            begun = [host for host in hosts if begins[host] <= at]
            if self._most_on(phase, begun) < phase.pending:
                continue
            if places := _first(phase, self._places(phase, begun, at), phase.pending):
                return at, places
        return inf, {}

    def _most_on(self, phase: PhaseState, hosts: Iterable[str]) -> int:
        """The tasks of a phase that hosts have slots for if nothing else runs there."""
        kind, by_name = phase.slot_kind, self._snapshot.cluster.by_name
        return sum(by_name[host].slots.get(kind, 0) // phase.width for host in hosts)

    def _earliest_on(self, phase: PhaseState, host: str, after: float) -> float:
        seconds, begin = self._seconds_on(phase, host), after
        while True:
            first = begin
            for name, amount in phase.request.pairs:
                begin = self._ahead(host, name).earliest(begin, seconds, amount)
            if begin in (first, inf) or len(phase.request.pairs) == 1:
                return begin

    def _places(self, phase: PhaseState, hosts: Iterable[str], begin: float) -> dict[str, int]:
        """How many tasks of a phase each of these hosts has room for from an instant on."""
        found = {}
        for host in hosts:
            end = begin + self._seconds_on(phase, host)
            count = min(
                self._ahead(host, name).least(begin, end) // amount
                for name, amount in phase.request.pairs
            )
            if count > 0:
                found[host] = count
        return found

    def _able(self, phase: PhaseState) -> Sequence[str]:
        """The hosts where tasks of a phase may run."""
        hosts: Sequence[str] = self._hosts
        if phase.is_pinned:
            hosts = [host for host in hosts if phase.homes.has_pinned_to(host)]
        if phase.phase.hosts or phase.failures:
            avoided = phase.avoided(self._snapshot.lost)
            hosts = [host for host in hosts if phase.allows(host) and host not in avoided]
        return hosts

    def take(self, phase: PhaseState, host: str, begin: float, tasks: int) -> None:
        """Take what tasks of a phase hold from an instant on; a number below 0 returns it."""
        end = begin + self._seconds_on(phase, host)
        for name, amount in phase.request.pairs:
            self._ahead(host, name).take(begin, end, amount * tasks)


def _first(phase: PhaseState, room: Mapping[str, int], most: int) -> Places:
    """The first hosts with room for `most` tasks; for a gang none if that is too little."""
    left, found = most, {}
    for host in room:
        if left and room[host]:
            found[host] = min(room[host], left)
            left -= found[host]
    return {} if phase.is_gang and left else found


def _mean(phase: PhaseState) -> float:
    """The estimated seconds of each task of a phase that is not done, at speed 1.

    Not longer while one runs longer: otherwise later jobs could go ahead again and again.
    """
    work, done = phase.work, phase.done
    seconds, _ = work.estimate_idle(done) if done else work.estimate_unbegun()
    return seconds / max(1, phase.tasks_left)
