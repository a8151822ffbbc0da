"""Replay: the recorded scheduler over the recorded events, decision for decision."""

from __future__ import annotations

from dataclasses import dataclass

from slotwise.model.decision import Decision
from slotwise.objective.objective import Objective
from slotwise.record.log import RULES, Log
from slotwise.runtime.loop import Decider
from slotwise.runtime.state import State
from slotwise.scheduler import make_scheduler


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that is not as recorded. None stands for: nothing was decided."""

    now: float
    turn: int
    recorded: Decision | None
    decided: Decision | None


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found: how many decisions were the same, and the first that was not.

    `rules` are those by which the log was decided; others than ours may decide otherwise.
    """

    turns: int
    decisions: int
    difference: Difference | None
    rules: int = RULES

    @property
    def is_identical(self) -> bool:
        """Whether every decision was as recorded."""
        return self.difference is None


def replay_log(log: Log, scheduler: Decider | None = None) -> Replay:
    """Decide everything again and compare; by the log's own scheduler unless another is given.

    Ends at the first difference, since from there on the state is another one.
    """
    header = log.header
    decider = scheduler or make_scheduler(
        **header.scheduler, objective=Objective(**header.objective)
    )
    state = State(
        header.cluster,
        header.pools,
        jobs_expected=header.jobs_expected,
        attempts_max=header.attempts_max,
        losses_max=header.losses_max,
    )
    same = 0
    for number, turn in enumerate(log.turns):
        snapshot = state.at(turn.now)
        for event in turn.events:
            state.apply(event)
        recorded = list(turn.decisions)
        while decided := decider.decide(snapshot):
            for decision in decided:
                expected = recorded.pop(0) if recorded else None
                if decision != expected:
                    found = Difference(turn.now, number, expected, decision)
                    return Replay(number, same, found, header.rules)
                state.apply(decision)
                same += 1
        if recorded:
            found = Difference(turn.now, number, recorded[0], None)
            return Replay(number, same, found, header.rules)
    return Replay(len(log.turns), same, None, header.rules)
