"""The scheduling loop, the same for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from slotwise.core.decisions import Decision, GiveUp, Launch, Preempt
from slotwise.core.events import Event, TaskAdopted, launches
from slotwise.core.log import RULES_RESERVING, Header
from slotwise.core.snapshot import Snapshot
from slotwise.core.state import State

PERFORMED = (Launch, Preempt, GiveUp)
"""The decisions that a backend carries out; the others change only the state."""


class Decider(Protocol):
    """Makes decisions: a scheduler, or in tests a list of decisions."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """The next decisions at this instant; empty when there is nothing more to decide."""
        ...


class Record(Protocol):
    """Records what happened, turn by turn."""

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Record one turn of the loop: its events and the decisions made on them."""
        ...


class Buffer(Protocol):
    """Holds turns that must be written at an instant, also if no other turn follows."""

    @property
    def due(self) -> float:
        """The instant; infinity if nothing is held."""
        ...

    def flush(self) -> None:
        """Write what is held."""
        ...


def all_of(records: Sequence[Record]) -> Record:
    """One record that is all of these."""

    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        for one in records:
            one(now, events, decisions)

    return record


def run(
    scheduler: Decider,
    backend: Backend,
    state: State,
    record: Record,
    buffer: Buffer | None = None,
) -> None:
    """Run until all jobs are over.

    Each turn waits for events, applies them, and calls the scheduler until it returns no more
    decisions. An error in the scheduler or the state is a bug and ends the run at once. Task
    failures arrive as events, and the scheduler handles them. A buffer is flushed when it is
    due.
    """
    while not state.is_done:
        until = state.next_wakeup()
        due = inf if buffer is None else buffer.due
        if buffer is not None and due < (inf if until is None else until):
            events = backend.wait(due)
            if not events:
                buffer.flush()
                continue
        else:
            events = backend.wait(until)
        turn(scheduler, backend, state, record, events)


def turn(
    scheduler: Decider,
    backend: Performer,
    state: State,
    record: Record,
    events: Sequence[Event],
) -> None:
    """One turn: apply the events, decide, carry out the decisions, record everything.

    The attempts of adopted tasks begin before the decisions. Those that the state could not
    count as running are not recorded.
    """
    now = backend.now
    snapshot = state.at(now)
    for event in events:
        state.apply(event)
    if state.adopted:
        events = [e for e in events if not isinstance(e, TaskAdopted) or state.adopted[e]]
        for launch in launches(events, ()):
            backend.perform(launch)
    decided: list[Decision] = []
    while decisions := scheduler.decide(snapshot):
        for decision in decisions:
            state.apply(decision)
            if isinstance(decision, PERFORMED):
                backend.perform(decision)
        decided += decisions
    if events or decided:
        record(now, events, decided)


# The backend protocol: a clock, a method to carry out decisions, and one to get events.


class Performer(Protocol):
    """A clock, and a method to carry out decisions: all that one turn of the loop needs."""

    @property
    def now(self) -> float:
        """Seconds on the clock of arrivals; they never decrease."""
        ...

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Begin to carry out a decision. Its result is an event that `wait` returns later."""
        ...


class Backend(Performer, Protocol):
    """A simulated cluster, this machine, or many hosts; all look the same to the scheduler."""

    def wait(self, until: float | None) -> Sequence[Event]:
        """Wait for the next events, at most until `until`; empty if none came before."""
        ...


# The state in which the run of a log begins.


def initial_state(header: Header) -> State:
    """The state before the first event of a run with this header."""
    return State(
        header.cluster,
        header.pools,
        attempts_max=header.attempts_max,
        losses_max=header.losses_max,
        reserves=header.rules >= RULES_RESERVING,
        seed=header.parameters.get("seed", 0),
        user=header.user,
    )
