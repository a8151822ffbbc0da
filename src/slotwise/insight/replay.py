"""Replay: repeating the decisions of a scheduler on recorded events to compare them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slotwise.core.decisions import Decision, Reallocate
from slotwise.core.log import RULES, Log
from slotwise.core.loop import Decider, initial_state
from slotwise.core.objective import Objective
from slotwise.policy.scheduler import make_scheduler


@dataclass(frozen=True, slots=True)
class Difference:
    """The first decision that differs from the record. None means that nothing was decided."""

    now: float
    turn: int
    recorded: Decision | None
    decided: Decision | None


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay: the number of equal decisions, and the first that differs.

    `rules` is the version of the rules of the log. Decisions of other versions may differ.
    """

    turns: int
    decisions: int
    difference: Difference | None
    rules: int = RULES

    @property
    def is_identical(self) -> bool:
        """Whether all decisions are equal."""
        return self.difference is None


def replay_log(log: Log, scheduler: Decider | None = None) -> Replay:
    """Repeat all decisions, by default with the scheduler of the log, and compare them.

    The replay ends at the first difference, because the states differ afterwards. Its memory is
    bounded by the unfinished jobs.
    """
    header = log.header
    decider = scheduler or make_scheduler(
        **header.scheduler, objective=Objective(**header.objective)
    )
    state = initial_state(header)
    same = turns = 0
    for number, turn in enumerate(log.turns):
        turns = number + 1
        snapshot = state.at(turn.now)
        for event in turn.events:
            state.apply(event)
        recorded = list(turn.decisions)
        while decided := decider.decide(snapshot):
            for decision in decided:
                expected = recorded.pop(0) if recorded else None
                if decision != expected and _lean(decision) != _lean(expected):
                    found = Difference(turn.now, number, expected, decision)
                    return Replay(number, same, found, header.rules)
                state.apply(decision)
                same += 1
        if recorded:
            found = Difference(turn.now, number, recorded[0], None)
            return Replay(number, same, found, header.rules)
    return Replay(turns, same, None, header.rules)


def _lean(decision: Decision | None) -> Decision | None:
    """The decision without phases of 0 slots, which only logs of earlier versions contain."""
    if isinstance(decision, Reallocate):
        return replace(decision, slots={p: n for p, n in decision.slots.items() if n})
    return decision
