"""How long a search may go on."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """Steps that a search may still take; asked before each one.

    The same number of steps gives the same result. `is_over` may end it earlier: the shell
    gives a function that looks at a clock, which nothing in here does.
    """

    def __init__(
        self, steps: float = float("inf"), is_over: Callable[[], bool] | None = None
    ) -> None:
        self.steps = steps
        self._is_over = is_over
        self.spent = 0

    def part(self, steps: float) -> Budget:
        """A budget of at most so many steps, which are taken from this one."""
        left = self.steps - self.spent
        return Budget(min(steps, left), is_over=lambda: not self.may_go_on())

    def may_go_on(self) -> bool:
        """Whether there is a step left; takes it if so."""
        if self.spent >= self.steps or (self._is_over is not None and self._is_over()):
            return False
        self.spent += 1
        return True
