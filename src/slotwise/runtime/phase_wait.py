"""The wait of a phase for other free slots than those that it is offered."""

from __future__ import annotations

from slotwise.model.decision import Locality
from slotwise.runtime.ordering import ShareNode


class WaitingNode(ShareNode):
    """A place in the order of phases that may wait (`Defer`); see `model.views.PhaseView`."""

    __slots__ = ("deferred_since", "deferred_until", "has_passed", "level", "waited")

    def __init__(self, order: int, unit: int) -> None:
        super().__init__(order, unit)
        self.end_wait()
        self.has_passed = False
        self.level = Locality.NODE

    def end_wait(self) -> None:
        """It waits for no other slots, and has not waited."""
        self.deferred_since: float | None = None
        self.deferred_until: float | None = None
        self.waited = 0.0

    def pause(self, now: float) -> None:
        """From now on its wait stands still: others are offered slots, but it is not."""
        if self.deferred_since is not None:
            self.waited = now - self.deferred_since
            self.deferred_since = self.deferred_until = None

    def resume(self, now: float) -> None:
        """From now on its wait counts again."""
        self.deferred_since, self.waited = now - self.waited, 0.0
