"""Limits of the effort of a search."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """The steps that a search may still take; call `may_go_on` before each step.

    The same number of steps gives the same result. `is_over` may end the search earlier: the
    shell passes a function that reads a clock. The library itself reads no clock.
    """

    def __init__(
        self, steps: float = float("inf"), is_over: Callable[[], bool] | None = None
    ) -> None:
        self.steps = steps
        self._is_over = is_over
        self.spent = 0

    def part(self, steps: float) -> Budget:
        """A budget of at most this number of steps, which are taken from this one."""
        left = self.steps - self.spent
        return Budget(min(steps, left), is_over=lambda: not self.may_go_on())

    def may_go_on(self) -> bool:
        """Whether a step is left; if so, takes it."""
        if self.spent >= self.steps or (self._is_over is not None and self._is_over()):
            return False
        self.spent += 1
        return True
