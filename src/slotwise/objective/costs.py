"""The costs of many jobs at once, computed with numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import overload

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.cost import Cost, Hinge, Line, Steps, met_until

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Costs(Sequence[Cost]):
    """J costs, one per job. Lines, hinges and steps use arrays; others are called singly."""

    def __init__(self, costs: Sequence[Cost]) -> None:
        self._costs = tuple(costs)
        count = len(self._costs)
        self._slope, self._origin = np.ones(count), np.zeros(count)
        self._floor = np.full(count, -inf)  # 0 for a hinge, none for a line.
        self._others: list[int] = []
        steps: list[int] = []
        for j, cost in enumerate(self._costs):
            match cost:
                case Line(slope, origin):
                    self._slope[j], self._origin[j] = slope, origin
                case Hinge(slope, due):
                    self._slope[j], self._origin[j], self._floor[j] = slope, due, 0.0
                case Steps():
                    steps.append(j)
                case _:
                    self._others.append(j)
        self._stairs = _Stairs([self._costs[j] for j in steps], steps) if steps else None

    @property
    def are_lines(self) -> bool:
        """Whether every cost is a straight line."""
        is_plain = not self._others and self._stairs is None
        return is_plain and bool(np.all(self._floor == -inf))

    @property
    def slope(self) -> Floats:
        """The slopes of lines and hinges; 1 for the others."""
        return self._slope

    @property
    def origin(self) -> Floats:
        """The instants at which lines and hinges are 0; 0 for the others."""
        return self._origin

    def at(self, completion: Floats) -> Floats:
        """The cost of each job at its completion, shape (J,)."""
        values: Floats = np.maximum(self._slope * (completion - self._origin), self._floor)
        if self._stairs is not None:
            values[self._stairs.jobs] = self._stairs.at(completion[self._stairs.jobs])
        for j in self._others:
            values[j] = self._costs[j].at(float(completion[j]))
        return values

    def latest(self, level: float) -> Floats:
        """The latest completion of each job that costs at most `level`, shape (J,)."""
        due: Floats = np.where(level >= self._floor, self._origin + level / self._slope, -inf)
        if self._stairs is not None:
            due[self._stairs.jobs] = self._stairs.latest(level)
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


class _Stairs:
    """Costs that are steps: one row each of instants, padded with inf, and of costs."""

    def __init__(self, costs: Sequence[Cost], jobs: Sequence[int]) -> None:
        self.jobs = np.array(jobs)
        pairs = [cost.steps for cost in costs if isinstance(cost, Steps)]
        shape = len(pairs), max(map(len, pairs), default=0) + 1
        self._until, self._instants = np.full(shape, inf), np.full(shape, inf)
        self._costs, self._count = np.zeros(shape), np.array([len(own) for own in pairs])
        for row, own in enumerate(pairs):
            for place, (instant, cost) in enumerate(own):
                self._until[row, place] = met_until(instant)
                self._instants[row, place] = instant
                self._costs[row, place + 1] = cost
        self._rows = np.arange(len(pairs))

    def at(self, completion: Floats) -> Floats:
        """The cost of the last step that each job has passed."""
        passed = (self._until < completion[:, None]).sum(axis=1)
        values: Floats = self._costs[self._rows, passed]
        return values

    def latest(self, level: float) -> Floats:
        """The instant of the first step that costs more than a level; -inf below 0."""
        if level < 0:
            return np.full(len(self._rows), -inf)
        places = np.arange(1, self._costs.shape[1]) <= self._count[:, None]
        cheap = ((self._costs[:, 1:] <= level) & places).sum(axis=1)
        due: Floats = self._instants[self._rows, cheap]
        return due
