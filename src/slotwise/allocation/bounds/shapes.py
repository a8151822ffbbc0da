"""The costs of many jobs at many instants each, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.objective.cost import Cost, Hinge, Line, Steps
from slotwise.objective.costs import Floats

STAIRS = 64
"""A curve of unknown shape is bounded by a staircase with this number of steps."""


def kinks_most(costs: Sequence[Cost]) -> int:
    """The maximum number of kinks of one of the costs, as a shape."""
    known = (Line, Hinge, Steps)
    return max(len(cost.kinks) if isinstance(cost, known) else STAIRS for cost in costs)


class Shapes:
    """For each job, the maximum of a line and a floor, or a staircase.

    A staircase jumps after its instants: at them it still has the lower value. Lines, hinges
    and steps are exact. Other costs are replaced by a staircase below them that touches them at
    instants between `soonest` and `until`.
    """

    def __init__(self, costs: Sequence[Cost], soonest: Floats, until: Floats) -> None:
        count = len(costs)
        self._slope, self._origin = np.zeros(count), np.zeros(count)
        self._floor = np.full(count, -np.inf)
        stairs: dict[int, Sequence[tuple[float, float]]] = {}
        base = np.zeros(count)
        for j, cost in enumerate(costs):
            match cost:
                case Line(slope, origin):
                    self._slope[j], self._origin[j] = slope, origin
                case Hinge(slope, due):
                    self._slope[j], self._origin[j], self._floor[j] = slope, due, 0.0
                case Steps(steps):
                    stairs[j] = steps
                case _:
                    grid = np.linspace(soonest[j], max(until[j], soonest[j]), STAIRS + 1)
                    base[j] = cost.at(float(soonest[j]))
                    stairs[j] = [(at, cost.at(at)) for at in grid[1:].tolist()]
        widest = max(map(len, stairs.values()), default=0)
        self._jumps = np.full((count, widest), np.inf)
        self._levels = np.repeat(base[:, None], widest + 1, axis=1)
        for j, stair in stairs.items():
            for k, (at, value) in enumerate(stair):
                self._jumps[j, k] = at
                self._levels[j, k + 1 :] = value

    @property
    def are_stairs(self) -> bool:
        """Whether all are staircases."""
        return not np.any(self._slope)

    @property
    def kinks(self) -> Floats:
        """One row per job: the instants of its kinks, padded with inf."""
        bends = np.where(self._floor > -np.inf, self._origin, np.inf)[:, None]
        return np.concatenate([bends, self._jumps], axis=1)

    def at(self, instants: Floats) -> Floats:
        """The cost of each job, row by row, at its own instants."""
        straight = self._slope[:, None] * (instants - self._origin[:, None])
        passed = np.zeros(instants.shape, dtype=np.intp)
        for jump in self._jumps.T:
            passed += instants > jump[:, None]
        values: Floats = np.maximum(straight, self._floor[:, None])
        return values + np.take_along_axis(self._levels, passed, axis=1)
