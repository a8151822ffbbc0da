"""What a world is: a clock, a way to do things, a way to hear what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slotwise.model.decision import GiveUp, Launch, Preempt
from slotwise.model.event import Event


class Backend(Protocol):
    """A simulated cluster, this machine, or many hosts: the scheduler cannot tell which."""

    @property
    def now(self) -> float:
        """Seconds on the clock of arrivals; it never runs back."""
        ...

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Begin to do it. What comes of it is told by `wait`, later."""
        ...

    def wait(self, until: float | None) -> Sequence[Event]:
        """Wait for the next events, at most until then; empty if nothing happened before."""
        ...
