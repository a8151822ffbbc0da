"""The one loop, for every world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slotwise.model.decision import Decision, GiveUp, Launch, Preempt
from slotwise.model.event import Event
from slotwise.model.snapshot import Snapshot
from slotwise.runtime.backend import Backend
from slotwise.runtime.state import State

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


def run(scheduler: Decider, backend: Backend, state: State, record: Record) -> None:
    """Run until all jobs are over.

    Each turn waits for events, applies them, and asks the scheduler until it has nothing more
    to say. An error in the scheduler or the state is a bug and ends the run at once; failures
    of tasks arrive as events and are scheduled around.
    """
    while not state.is_done:
        events = backend.wait(until=state.next_wakeup())
        turn(scheduler, backend, state, record, events)


def turn(
    scheduler: Decider, backend: Backend, state: State, record: Record, events: Sequence[Event]
) -> None:
    """One turn: apply the events, decide, do what was decided, take it all down."""
    now = backend.now
    snapshot = state.at(now)
    for event in events:
        state.apply(event)
    decided: list[Decision] = []
    while decisions := scheduler.decide(snapshot):
        for decision in decisions:
            state.apply(decision)
            if isinstance(decision, PERFORMED):
                backend.perform(decision)
        decided += decisions
    if events or decided:
        record(now, events, decided)
