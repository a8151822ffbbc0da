"""The one loop, for every world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slotwise.model.decision import Decision, GiveUp, Launch, Preempt
from slotwise.model.event import Event
from slotwise.model.snapshot import Snapshot
from slotwise.runtime.state import State
from slotwise.runtime.world import World

PERFORMED = (Launch, Preempt, GiveUp)
"""The decisions that a world carries out; the others concern the state alone."""


class Decider(Protocol):
    """Whatever decides: a scheduler, or in tests a list of decisions."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there is nothing more to decide."""
        ...


class Record(Protocol):
    """Takes down what happened, turn by turn."""

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """One turn of the loop: the events that were heard and what was decided on them."""
        ...


def run(scheduler: Decider, world: World, state: State, record: Record) -> None:
    """Run until all jobs are over.

    Each turn waits for events, applies them, and asks the scheduler until it has nothing more
    to say. An error in the scheduler or the state is a bug and ends the run at once; failures
    of tasks arrive as events and are scheduled around.
    """
    while not state.is_done:
        events = world.wait(until=state.take_wake())
        turn(scheduler, world, state, record, events)


def turn(
    scheduler: Decider, world: World, state: State, record: Record, events: Sequence[Event]
) -> None:
    """One turn: apply the events, decide, do what was decided, take it all down."""
    now = world.now
    snapshot = state.at(now)
    for event in events:
        state.apply(event)
    decided: list[Decision] = []
    while decisions := scheduler.decide(snapshot):
        for decision in decisions:
            state.apply(decision)
            if isinstance(decision, PERFORMED):
                world.perform(decision)
        decided += decisions
    if events or decided:
        record(now, events, decided)
