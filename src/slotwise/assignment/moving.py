"""Moves: a running task that reads from another host starts again beside its input.

Quincy (SOSP 2009) weighs this in its network: to leave a task in place costs the bytes that it
reads remotely, less what it has done already. Here a move is considered only for slots that no
pending task takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from slotwise.assignment.flow_network import PlacementNetwork, place
from slotwise.assignment.flow_round import GRAIN
from slotwise.model.decision import Launch, Locality, Preempt
from slotwise.model.snapshot import Snapshot
from slotwise.model.views import PhaseView


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
        if not blocks or phase.is_limited or phase.unit > 1:
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


def _first_attempts(phase: PhaseView) -> Iterator[tuple[float, Launch]]:
    """The running tasks that never ran before, by number."""
    found = [one for one in phase.attempts() if one[1].attempt == 1]
    yield from sorted(found, key=lambda one: one[1].task)
