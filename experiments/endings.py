"""A record for the loop: how all jobs of a run ended."""

from __future__ import annotations

from collections.abc import Sequence

from slotwise.core.decisions import Decision
from slotwise.core.events import Event
from slotwise.core.state import State


class Endings:
    """Collects from a state, which forgets jobs that are over, how they ended.

    completed  when each job that succeeded was done
    failed     why each job that was given up has failed
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.completed: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def __call__(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note the jobs that ended in one turn."""
        self.completed |= self._state.completed
        self.failed |= self._state.failed
