"""Which waits for locality count: those of phases that were offered slots (Hadoop's rule)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from slotwise.runtime.phase_state import PhaseState
from slotwise.runtime.pool_state import PhaseBelow


class LocalityWaitTimer:
    """The phases of one kind of slot whose waits count now.

    A turn of the loop offers slots if some are free when decisions are made. It offers them to
    each phase that may launch and comes, in the order of phases, before one that launches; and,
    if slots stay free, to all phases that may launch at its end. A wait counts from a turn that
    offers its phase slots until the next turn that offers slots, but none to its phase; from
    then on it stands still until its phase is offered slots again. Turns without free slots
    change nothing. Waits of phases that take several slots at once always count.

    A launch costs O(phases before it in the order), the end of a turn with free slots
    O(phases that wait): assigners have considered all of these then.
    """

    __slots__ = ("_counting", "_skipped")

    def __init__(self) -> None:
        self._counting: dict[PhaseState, None] = {}
        self._skipped: dict[PhaseState, None] = {}  # those that were offered slots in this turn

    def defer(self, phase: PhaseState) -> None:
        """A phase has begun its wait, or continues it."""
        if phase.unit == 1:
            self._counting[phase] = self._skipped[phase] = None

    def skip(
        self, order: Iterable[PhaseBelow], taker: PhaseState, now: float, ends_wait: bool
    ) -> None:
        """The phases before `taker` in the order skip a slot, which it takes.

        A launch that does not end the wait of `taker` leaves it among those that skip.
        """
        counting, skipped = self._counting, self._skipped
        for phase in cast("Iterable[PhaseState]", order):
            if phase is taker and ends_wait:
                break
            if phase in counting:
                if not phase.is_limited or phase.may_launch:
                    skipped[phase] = None
            elif phase.waited and phase.may_launch:
                phase.resume(now)
                counting[phase] = skipped[phase] = None
            if phase is taker:
                return
        counting.pop(taker, None)
        skipped.pop(taker, None)

    def take_last(self, now: float) -> None:
        """No slot is free any more: the other waits stand still."""
        counting, skipped = self._counting, self._skipped
        if len(counting) > len(skipped):
            for phase in counting.keys() - skipped.keys():  # Their order does not matter.
                phase.pause(now)
                del counting[phase]

    def end_turn(self, now: float, has_free: bool) -> None:
        """A turn at `now` is over. Slots that are free are offered to all that may launch."""
        self._skipped.clear()
        if has_free:
            counting = self._counting
            for phase in [p for p in counting if p.is_limited and not p.may_launch]:
                phase.pause(now)
                del counting[phase]

    def leave(self, phase: PhaseState, now: float) -> None:
        """A phase is not ready any more."""
        if phase in self._counting:
            phase.pause(now)
            del self._counting[phase]
            self._skipped.pop(phase, None)

    def check(self) -> None:
        """Assert that waits which count do not stand still. For tests."""
        assert self._skipped.keys() <= self._counting.keys()
        assert not any(phase.waited for phase in self._counting)
