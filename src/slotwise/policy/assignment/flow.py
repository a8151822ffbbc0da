"""Placement by minimum cost flow: all tasks of a round together, near their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from slotwise.core.decisions import Decision, Defer, Launch, Locality, Preempt
from slotwise.core.errors import InputError, check_installed, is_number, option_name, shown
from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.snapshot import Snapshot
from slotwise.policy.assignment.assigner import Assigner, Greedy
from slotwise.policy.assignment.delay import DEFAULT_LEVELS, Delay, Levels, check_waits, resumes
from slotwise.policy.assignment.flow_network import PlacementNetwork, place
from slotwise.policy.assignment.flow_round import GRAIN, Placed, Round
from slotwise.policy.assignment.together import launches


@dataclass(frozen=True, slots=True)
class Flow:
    """Minimum cost flow (Hammr 6.2; Quincy): each round moves as few bytes as possible.

    A round is all launches at one instant on slots of one kind. The order of the phases decides
    how many tasks each phase launches, as under `Greedy`; a network decides which ones, and
    where. Three additions of Quincy are options:

    rack_after, any_after  seconds that a phase waits before it takes slots in the rack of its
                           input, and any slot; as in `Delay`
    levels                 where a wait begins after a launch; as in `Delay`, where the last
                           launch of a round counts: that is its farthest
    core_cost              the cost of a byte from another rack, relative to one from another
                           host of the same rack. 1: no difference, and racks are ignored,
                           as in Hammr. Quincy: 2
    move_within            seconds for which a task that reads from another host may still be
                           stopped, to start again beside its input on a slot that nobody
                           else takes (`assignment.moving`). 0: tasks stay where they are

    Rounds with wide tasks or gangs, and rounds where the order depends on several kinds of
    slots, are decided launch by launch, as `Greedy` or `Delay` does; all tasks of a gang are
    one launch, placed by a network of their own. InputError for invalid options.
    """

    rack_after: float = 0.0
    any_after: float = 0.0
    core_cost: float = 1.0
    move_within: float = 0.0
    levels: Levels = field(default=DEFAULT_LEVELS, kw_only=True)

    def __post_init__(self) -> None:
        check_waits("flow", self.rack_after, self.any_after, self.levels)
        if not is_number(self.core_cost) or not 1 <= self.core_cost <= 1000:
            raise InputError(
                f"{option_name('core_cost')} is {shown(self.core_cost)}; give a number from 1"
                " to 1000: the cost of a byte from another rack, relative to one from another"
                " host of the same rack"
            )
        if not is_number(self.move_within) or not 0 <= self.move_within < float("inf"):
            raise InputError(
                f"{option_name('move_within')} is {shown(self.move_within)}; give seconds >= 0"
                " for which a task that reads from another host may still move"
            )
        check_installed("ortools", "the assigner flow (unlike greedy and delay)", "flow")

    def assign(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The launches of the next round, with the deferrals of the phases that wait."""
        free = [snapshot.free(kind) for kind in snapshot.cluster.capacity]
        is_alone = all(sum(hosts.values()) <= 1 for hosts in free)
        if snapshot.has_wide or snapshot.promises.open or is_alone:
            # One slot needs no network, and each launch may take room that is promised.
            return self._one_by_one.assign(snapshot) or self._moves(snapshot)
        is_cut, now, delay = False, snapshot.now, self._delay
        for slot_kind in snapshot.cluster.capacity:
            if not snapshot.free(slot_kind):
                continue
            one = Round(snapshot, slot_kind, delay.farthest, self.core_cost)
            turns = snapshot.turns(slot_kind, one.most)
            placed = one.placed(turns.phases, place)
            begun = list(_in_turn(turns.phases, placed))
            launched = {launch.phase for launch in begun}
            passed = [p for p in one.asked if p.may_launch and p.id not in launched]
            waits = [p for p in passed if not (begun and resumes(p))]
            decisions: list[Decision] = [*begun, *_deferrals(delay, waits, now)]
            if decisions:
                return decisions
            is_cut = is_cut or turns.is_cut
        if is_cut and (others := self._one_by_one.assign(snapshot)):
            return others
        return self._moves(snapshot)

    def _moves(self, snapshot: Snapshot) -> Sequence[Preempt]:
        for slot_kind in snapshot.cluster.capacity if self.move_within else ():
            if found := moves(snapshot, slot_kind, self.move_within):
                return found
        return ()

    @property
    def _delay(self) -> Delay:
        return Delay(self.rack_after, self.any_after, self.levels)

    @property
    def _one_by_one(self) -> Assigner:
        if self.any_after:
            return replace(self._delay, together=self._together)
        return Greedy(self._together)

    def _together(
        self,
        snapshot: Snapshot,
        phase: PhaseState,
        free: Mapping[str, int],
        farthest: Locality,
    ) -> Sequence[Launch]:
        """Launch a gang on hosts with these free slots so that it moves as few bytes as it can.

        None if some task would run farther from its input than `farthest`.
        """
        room = {host: count // phase.width for host, count in free.items()}
        one = Round(snapshot, phase.pool.slot_kind, lambda *_: farthest, self.core_cost, room)
        found = one.placed([phase] * phase.pending, place)[phase.id]
        placed = {task: (host, locality) for task, host, locality in found}
        if len(placed) < phase.pending:
            _place_the_homeless(phase, room, placed)
        return launches(phase, placed) if len(placed) == phase.pending else ()


def _place_the_homeless(
    phase: PhaseState, room: dict[str, int], placed: dict[int, tuple[str, Locality]]
) -> None:
    """Place the tasks without homes, for which all hosts are equal, in what is left."""
    for host, _ in placed.values():
        room[host] -= 1
    places = (host for host, count in room.items() for _ in range(count))
    for task in phase.homes.without_home():
        if task not in placed and (found := next(places, None)) is not None:
            placed[task] = found, phase.locality(task, found)


def _deferrals(delay: Delay, phases: Sequence[PhaseState], now: float) -> Iterator[Defer]:
    """Begin or continue the waits of phases that launch nothing."""
    for phase in phases:
        until = phase.deferred_until
        is_due = until is None or now >= until
        far = delay.farthest(phase, now)
        if phase.has_homes and not phase.is_pinned and is_due and far < Locality.ANY:
            yield delay.deferral(phase, now)


def _in_turn(
    turns: Sequence[PhaseState], placed: dict[PhaseId, list[Placed]]
) -> Iterator[Launch]:
    """The launches in the order of turns; a phase that waits leaves out its last turns."""
    next_tasks = {name: iter(tasks) for name, tasks in placed.items()}
    for phase in turns:
        name = phase.id
        if (found := next(next_tasks[name], None)) is not None:
            task, host, locality = found
            yield Launch(name, task, phase.attempt_of(task), host, locality)


# Moves: a running task that reads from another host starts again beside its input.
#
# Quincy (SOSP 2009) weighs this in its network: to leave a task in place costs the bytes that
# it reads remotely, less what it has done already. Here a move is considered only for slots
# that no pending task takes.


class _Mover(NamedTuple):
    """A running task that may move, the free hosts with its input, and what a move saves."""

    launch: Launch
    homes: Sequence[str]
    saves: int


def moves(snapshot: Snapshot, slot_kind: str, within: float) -> list[Preempt]:
    """Stop tasks that can start again on a free slot beside their input.

    A task that has run for t seconds loses them: its move saves 1 - t/`within` of the bytes of
    its input, and the tasks whose moves save most together are stopped. Each task moves once at
    most, in its first attempt. Nothing moves while a pending task may launch or a task is being
    stopped, so the stopped tasks get these slots, unless others come at the same instant. Tasks
    of pools with a max share stay, since others may wait for their part of it; wide tasks and
    those of gangs stay, too.
    O(running tasks).
    """
    free = snapshot.free(slot_kind)
    if not free or any(phase.may_launch for phase in snapshot.backlogged(slot_kind)):
        return []
    if any(host for phase in snapshot.ready(slot_kind) for host, _ in phase.stops()):
        return []
    movers = sorted(_movers(snapshot, slot_kind, within), key=lambda mover: mover.launch.phase)
    if not movers:
        return []
    hosts = sorted(free, key=snapshot.cluster.position.__getitem__)
    number = {host: place for place, host in enumerate(hosts)}
    prices, group_of = np.unique([mover.saves for mover in movers], return_inverse=True)
    edges = [(task, number[home]) for task, mover in enumerate(movers) for home in mover.homes]
    network = PlacementNetwork(
        launches=np.array([len(movers)]),
        phase_of=np.zeros(len(prices), np.int64),
        most=np.bincount(group_of),
        prices=prices,
        group_of=group_of,
        tasks=np.array([task for task, _ in edges]),
        hosts=np.array([host for _, host in edges]),
        room=np.array([free[host] for host in hosts]),
    )
    ends = place(network).host.tolist()
    chosen = [mover.launch for mover, end in zip(movers, ends, strict=True) if end >= 0]
    return [Preempt(one.phase, one.task, one.attempt, one.host) for one in chosen]


def _movers(snapshot: Snapshot, slot_kind: str, within: float) -> Iterator[_Mover]:
    free = snapshot.free(slot_kind)
    for phase in snapshot.ready(slot_kind):
        blocks = phase.phase.tasks.blocks
        if not blocks or phase.is_limited or phase.is_wide:
            continue
        for started, launch in _first_attempts(phase):
            block = blocks[launch.task]
            if launch.locality is Locality.NODE or snapshot.now >= started + within:
                continue
            homes = sorted(home for home in block.hosts if home in free)
            left = 1 - (snapshot.now - started) / within
            saves = round(GRAIN * max(1, block.size_bytes) * left)
            if homes and saves > 0:
                yield _Mover(launch, homes, saves)


def _first_attempts(phase: PhaseState) -> Iterator[tuple[float, Launch]]:
    """The running tasks that never ran before, by number."""
    found = [one for one in phase.attempts() if one[1].attempt == 1]
    yield from sorted(found, key=lambda one: one[1].task)
