"""Limits of the effort of a search."""

from __future__ import annotations

from collections.abc import Callable
from math import inf


class Budget:
    """The steps that a search may still take; call `may_go_on` before each step.

    The same number of steps gives the same result. `is_over` may end the search earlier: the
    shell passes a function that reads a clock. The library itself reads no clock.

    was_short  whether a search was refused a step that a larger budget would have allowed
    """

    def __init__(self, steps: float = inf, is_over: Callable[[], bool] | None = None) -> None:
        self.steps = steps
        self.spent = 0
        self.was_short = False
        self._is_over = is_over
        self._is_ended = False
        self._whole: Budget | None = None

    def part(self, steps: float = inf, parts: float = 1) -> Budget:
        """A budget of at most this number of steps, which are taken from this one.

        It is also at most 1 / parts of this one. If that is the limit that a search meets, this
        budget was short.
        """
        return self._limited(steps, self.steps / parts)

    def equal_part(self, searches: int) -> Budget:
        """The part of the first of `searches` searches that share the remaining steps."""
        return self._limited(inf, (self.steps - self.spent) / searches)

    def _limited(self, steps: float, own: float) -> Budget:
        limit = min(own, self.steps - self.spent)
        part = Budget(min(steps, limit), is_over=lambda: not self.may_go_on())
        part._whole = self if limit < steps else None
        return part

    def may_go_on(self) -> bool:
        """Whether a step is left; if so, takes it."""
        if self._is_ended:
            return False
        if self.spent >= self.steps:
            self.was_short = True
            if self._whole is not None and not self._whole._is_ended:
                self._whole.was_short = True
            return False
        if self._is_over is not None and self._is_over():
            self.was_short = True
            return False
        self.spent += 1
        return True

    def end(self) -> None:
        """Refuse all further steps: nothing better can be found."""
        self._is_ended = True
