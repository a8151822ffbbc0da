"""The backend protocol: a clock, a method to carry out decisions, and one to get events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slotwise.model.decision import GiveUp, Launch, Preempt
from slotwise.model.event import Event


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
