"""Replay: a log tells why, decision for decision; what does not fit is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from slotwise.backends.simulated.backend import Fault, Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import Launch, Reallocate
from slotwise.core.job import Block, Job, Phase, PhaseId, Tasks
from slotwise.core.log import Log
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import make_scheduler

Simulate = Callable[..., object]


@pytest.fixture(scope="module")
def logs(simulated: Simulate) -> dict[tuple[str, str], Log]:
    """The log of each allocator with each assigner, of jobs with homes, noise and failures."""
    hosts = tuple(Host(f"h{n}", {"task": 1}, f"r{n % 2}") for n in range(4))
    blocks = tuple(Block(frozenset({f"h{n % 3}"})) for n in range(8))
    jobs = [
        Job(f"j{n}", (Phase("map", Tasks(8, 1.0 + n, blocks)),), arrival=n / 3)
        for n in range(4)
    ]
    simulation = Simulation(
        seed=1,
        noise=0.3,
        remote_factor=2.0,
        fault=lambda launch: Fault("no") if launch.task == launch.attempt else None,
    )
    found = {}
    for name in ("fifo", "fair", "flex"):
        for assigner, waits in (("greedy", None), ("delay", (0.5, 1.5))):
            found[name, assigner] = simulated(
                jobs, Cluster(hosts), (), name, simulation, assigner=assigner, waits=waits
            ).log
    return found


@pytest.mark.parametrize("name", ["fifo", "fair", "flex"])
@pytest.mark.parametrize("assigner", ["greedy", "delay"])
def test_a_log_replays_identically(
    logs: dict[tuple[str, str], Log], name: str, assigner: str
) -> None:
    """The same scheduler over the same events says the same again, to the last decision."""
    log = logs[name, assigner]
    found = replay_log(log)
    assert found.is_identical
    assert (found.turns, found.difference) == (len(log.turns), None)
    assert found.decisions == sum(len(turn.decisions) for turn in log.turns) > 40


def changed(log: Log, turn: int, decisions: list[object]) -> Log:
    """The same log with other decisions in one turn."""
    turns = list(log.turns)
    turns[turn] = replace(turns[turn], decisions=decisions)
    return Log(log.header, turns)


def turn_with(log: Log, kind: type, after: int = 5) -> tuple[int, int]:
    """The first turn from `after` on that holds such a decision, and the place of it."""
    return next(
        (number, place)
        for number, turn in enumerate(log.turns)
        if number >= after
        for place, decision in enumerate(turn.decisions)
        if isinstance(decision, kind)
    )


def test_a_changed_decision_is_found(logs: dict[tuple[str, str], Log]) -> None:
    """Another host, another share: the first difference is shown with turn and time."""
    log = logs["flex", "greedy"]
    for kind, change in (
        (Launch, lambda d: replace(d, host="h9")),
        (Reallocate, lambda d: replace(d, until=d.until + 1)),
    ):
        number, place = turn_with(log, kind)
        decisions = list(log.turns[number].decisions)
        was = decisions[place]
        decisions[place] = change(was)
        found = replay_log(changed(log, number, decisions))
        assert not found.is_identical
        assert found.difference is not None
        assert found.difference.turn == number
        assert found.difference.now == log.turns[number].now
        assert found.difference.recorded == decisions[place]
        assert found.difference.decided == was


def test_a_log_that_names_phases_without_slots_replays(
    logs: dict[tuple[str, str], Log],
) -> None:
    """Logs of earlier versions do; ours name only those that are allocated slots."""
    log = again = logs["flex", "greedy"]
    for number, turn in enumerate(log.turns):
        decisions = list(turn.decisions)
        for place, one in enumerate(decisions):
            if isinstance(one, Reallocate):
                assert all(one.slots.values())
                slots = {PhaseId("none", "map"): 0.0} | one.slots
                decisions[place] = replace(one, slots=slots)
        again = changed(again, number, decisions)
    assert again.turns != log.turns
    assert replay_log(again).is_identical


def test_missing_and_extra_decisions_are_found(logs: dict[tuple[str, str], Log]) -> None:
    """One that was left out stands against none recorded, one too many against none decided."""
    log = logs["fair", "delay"]
    number, place = turn_with(log, Launch)
    decisions = list(log.turns[number].decisions)
    last = decisions[-1]
    found = replay_log(changed(log, number, decisions[:-1])).difference
    assert found is not None
    assert (found.turn, found.recorded, found.decided) == (number, None, last)
    found = replay_log(changed(log, number, [*decisions, last])).difference
    assert found is not None
    assert (found.turn, found.recorded, found.decided) == (number, last, None)
    assert place <= len(decisions)


def test_another_scheduler_decides_differently(logs: dict[tuple[str, str], Log]) -> None:
    """FIFO over the log of FAIR, and greedy over that of delay, differ somewhere."""
    assert not replay_log(logs["fair", "greedy"], make_scheduler("fifo")).is_identical
    assert not replay_log(logs["fair", "delay"], make_scheduler("fair")).is_identical
    assert replay_log(logs["fair", "greedy"], make_scheduler("fair")).is_identical


def test_a_truncated_log_replays_to_its_end(
    logs: dict[tuple[str, str], Log],
) -> None:
    """Half of the turns are half of the story, and all of it is right."""
    log = logs["flex", "delay"]
    half = Log(log.header, log.turns[: len(log.turns) // 2])
    assert replay_log(half).is_identical
    assert replay_log(half).turns == len(half.turns)
