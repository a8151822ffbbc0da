"""The costs of many jobs at once, as fast as arrays allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import overload

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.cost import Cost, Hinge, Line

Floats = NDArray[np.float64]


class Costs(Sequence[Cost]):
    """J costs, one a job. Lines and hinges are arrays inside; others are asked one by one."""

    def __init__(self, costs: Sequence[Cost]) -> None:
        self._costs = tuple(costs)
        count = len(self._costs)
        self._slope, self._origin = np.ones(count), np.zeros(count)
        self._floor = np.full(count, -inf)  # What a line does not have and a hinge has at 0.
        self._others: list[int] = []
        for j, cost in enumerate(self._costs):
            match cost:
                case Line(slope, origin):
                    self._slope[j], self._origin[j] = slope, origin
                case Hinge(slope, due):
                    self._slope[j], self._origin[j], self._floor[j] = slope, due, 0.0
                case _:
                    self._others.append(j)

    @property
    def are_lines(self) -> bool:
        """Whether every cost is a straight line."""
        return not self._others and bool(np.all(self._floor == -inf))

    @property
    def slope(self) -> Floats:
        """The slopes of lines and hinges; 1 for the others."""
        return self._slope

    @property
    def origin(self) -> Floats:
        """Where lines and hinges are 0; 0 for the others."""
        return self._origin

    def at(self, completion: Floats) -> Floats:
        """The cost of each job if it completes then."""
        values: Floats = np.maximum(self._slope * (completion - self._origin), self._floor)
        for j in self._others:
            values[j] = self._costs[j].at(float(completion[j]))
        return values

    def latest(self, level: float) -> Floats:
        """The latest completion of each job that costs at most `level`."""
        due: Floats = np.where(level >= self._floor, self._origin + level / self._slope, -inf)
        for j in self._others:
            due[j] = self._costs[j].latest(level)
        return due

    def __len__(self) -> int:
        return len(self._costs)

    def __iter__(self) -> Iterator[Cost]:
        return iter(self._costs)

    @overload
    def __getitem__(self, index: int) -> Cost: ...
    @overload
    def __getitem__(self, index: slice) -> Costs: ...
    def __getitem__(self, index: int | slice) -> Cost | Costs:
        return Costs(self._costs[index]) if isinstance(index, slice) else self._costs[index]
