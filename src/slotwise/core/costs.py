"""The costs of many jobs as arrays: the one form in which solvers and bounds compute them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import overload

import numpy as np
from numpy.typing import NDArray

from slotwise.core.objective import MET, Cost, Hinge, Line, Steps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STAIRS = 64
"""A curve of unknown shape is bounded by a staircase with this number of steps."""


class Costs(Sequence[Cost]):
    """J costs, one per job. Lines, hinges and steps use arrays; others are called singly.

    shapes  the lines, hinges and steps as arrays; others are 0 there
    until   J x K: when each step is passed, up to rounding; inf after the last
    """

    def __init__(self, costs: Sequence[Cost]) -> None:
        count = len(costs)
        slope, origin, floor = np.zeros(count), np.zeros(count), np.full(count, -inf)
        stairs: dict[int, Sequence[tuple[float, float]]] = {}
        others: list[int] = []
        for j, cost in enumerate(costs):
            match cost:
                case Line(rise, begin):
                    slope[j], origin[j] = rise, begin
                case Hinge(rise, due):
                    slope[j], origin[j], floor[j] = rise, due, 0.0
                case Steps(steps):
                    stairs[j] = steps
                case _:
                    others.append(j)
        shapes = CostShapes(slope, origin, floor, *_stairs(stairs, np.zeros(count)))
        self._arrange(shapes, others, stairs, costs)

    @classmethod
    def of_hinges(cls, slope: Floats, due: Floats) -> Costs:
        """The costs `Hinge(slope[j], due[j])`; objects for them are made only if read."""
        made, zeros = cls.__new__(cls), np.zeros(len(slope))
        made._arrange(CostShapes(slope, due, zeros, *_stairs({}, zeros)), [], {}, None)
        return made

    def _arrange(
        self,
        shapes: CostShapes,
        others: list[int],
        stairs: Collection[int],
        costs: Sequence[Cost] | None,
    ) -> None:
        count, slope = len(shapes.slope), shapes.slope
        self.shapes, self._given = shapes, costs
        # As `met_until`, for arrays.
        self.until: Floats = self.shapes.instants + MET * np.abs(self.shapes.instants)
        self._slope = np.where(slope > 0, slope, 1.0)
        self._others, self._is_other = others, _mask(others, count)
        self._is_stairs, self._has_stairs = _mask(stairs, count), bool(stairs)
        # The instant of each step, then inf.
        self._ends = np.column_stack((self.shapes.instants, np.full(count, inf)))
        self._rows = np.arange(count)

    @cached_property
    def _costs(self) -> tuple[Cost, ...]:
        if self._given is not None:
            return tuple(self._given)
        shapes = zip(self.shapes.slope.tolist(), self.shapes.origin.tolist(), strict=True)
        return tuple(Hinge(slope, due) for slope, due in shapes)

    @property
    def are_lines(self) -> bool:
        """Whether every cost is a straight line."""
        is_plain = self.are_known and not self._has_stairs
        return is_plain and bool(np.all(self.shapes.floor == -inf))

    @property
    def are_steps(self) -> bool:
        """Whether every cost has steps."""
        return bool(self._is_stairs.all())

    @property
    def are_known(self) -> bool:
        """Whether every cost is a line, a hinge or steps."""
        return not self._others

    @property
    def slope(self) -> Floats:
        """The slopes of lines and hinges; 1 for the others."""
        return self._slope

    @property
    def origin(self) -> Floats:
        """The instants at which lines and hinges are 0; 0 for the others."""
        return self.shapes.origin

    @cached_property
    def stakes(self) -> Floats:
        """The weight of each job, > 0: its slope, or the cost of its last step; 1 otherwise."""
        last = np.maximum(self.shapes.levels[:, -1], np.finfo(float).tiny)
        return np.where(self._ends[:, 0] < inf, last, self._slope)

    @cached_property
    def due(self) -> Floats:
        """When each first rises: the instant of a hinge or of the first step, otherwise inf.

        A line always rises; its origin is used.
        """
        straight = self.shapes.slope > 0
        return np.where(straight, self.shapes.origin, self._ends[:, 0])

    @property
    def kinks_most(self) -> int:
        """The maximum number of kinks of one of the costs in `below`."""
        hinges, steps = np.any(self.shapes.floor == 0), self.shapes.instants.shape[1]
        return max(int(hinges), int(steps), STAIRS if self._others else 0)

    @property
    def plateaus(self) -> Floats:
        """J x N: the ends of the intervals in which each is constant, in order; then -inf."""
        ends = np.where(self._is_stairs[:, None], self._ends, -inf)
        hinges = self.shapes.floor == 0
        ends[hinges, 0] = self.shapes.origin[hinges]
        return ends

    def at(self, completion: Floats, jobs: Ints | None = None) -> Floats:
        """The cost of each job at its completion, shape (J,); or of these jobs, shape (N,)."""
        some = slice(None) if jobs is None else jobs
        values: Floats = self._slope[some] * (completion - self.shapes.origin[some])
        np.maximum(values, self.shapes.floor[some], out=values)
        if self._has_stairs:
            passed = (self.until[some] < completion[:, None]).sum(axis=1)
            levels = self.shapes.levels[self._rows[some], passed]
            values = np.where(self._is_stairs[some], levels, values)
        if self._others:
            for place in np.flatnonzero(self._is_other[some]).tolist():
                job = place if jobs is None else int(jobs[place])
                values[place] = self._costs[job].at(float(completion[place]))
        return values

    def latest(self, level: float) -> Floats:
        """The latest completion of each job that costs at most `level`, shape (J,)."""
        due: Floats = np.where(
            level >= self.shapes.floor, self.shapes.origin + level / self._slope, -inf
        )
        if self._has_stairs:
            cheap = (self.shapes.levels[:, 1:] <= level).sum(axis=1)
            ends = self._ends[self._rows, cheap] if level >= 0 else -inf
            due = np.where(self._is_stairs, ends, due)
        for j in self._others:
            due[j] = self._costs[j].latest(level)
        return due

    def below(self, soonest: Floats, until: Floats) -> CostShapes:
        """The costs, with staircases below those of unknown shape.

        A staircase touches its cost at instants from `soonest` to `until`.
        """
        if not self._others:
            return self.shapes
        known = self.shapes
        stairs: dict[int, Sequence[tuple[float, float]]] = {
            j: list(zip(known.instants[j], known.levels[j, 1:], strict=True))
            for j in np.flatnonzero(self._is_stairs).tolist()
        }
        base = np.zeros(len(self))
        for j in self._others:
            cost, first = self._costs[j], float(soonest[j])
            grid = np.linspace(first, max(float(until[j]), first), STAIRS + 1)
            base[j] = cost.at(first)
            stairs[j] = [(at, cost.at(at)) for at in grid[1:].tolist()]
        return CostShapes(known.slope, known.origin, known.floor, *_stairs(stairs, base))

    def __len__(self) -> int:
        return len(self._slope)

    def __iter__(self) -> Iterator[Cost]:
        return iter(self._costs)

    @overload
    def __getitem__(self, index: int) -> Cost: ...
    @overload
    def __getitem__(self, index: slice) -> Costs: ...
    def __getitem__(self, index: int | slice) -> Cost | Costs:
        return Costs(self._costs[index]) if isinstance(index, slice) else self._costs[index]


@dataclass(frozen=True, slots=True)
class CostShapes:
    """J costs: max(slope (C - origin), floor) + the level after the instants before C.

    slope     J; 0 for staircases
    origin    J
    floor     J; 0 for hinges, otherwise -inf
    instants  J x K, in order, padded with inf
    levels    J x (K + 1): before the first instant, after it, and so on
    """

    slope: Floats
    origin: Floats
    floor: Floats
    instants: Floats
    levels: Floats

    @property
    def are_stairs(self) -> bool:
        """Whether all are staircases."""
        return not np.any(self.slope)

    @property
    def kinks(self) -> Floats:
        """One row per job: the instants of its kinks, padded with inf."""
        bends = np.where(self.floor > -inf, self.origin, inf)[:, None]
        return np.concatenate([bends, self.instants], axis=1)

    def at(self, instants: Floats) -> Floats:
        """J x N: the cost of each job at its own instants; at a jump, the value before it."""
        straight = self.slope[:, None] * (instants - self.origin[:, None])
        passed = np.zeros(instants.shape, dtype=np.intp)
        for jump in self.instants.T:
            passed += instants > jump[:, None]
        values: Floats = np.maximum(straight, self.floor[:, None])
        return values + np.take_along_axis(self.levels, passed, axis=1)


def _stairs(
    stairs: dict[int, Sequence[tuple[float, float]]], base: Floats
) -> tuple[Floats, Floats]:
    """The instants and levels of staircases by job, each from its `base` on."""
    width = max(map(len, stairs.values()), default=0)
    instants = np.full((len(base), width), inf)
    levels = np.repeat(base[:, None], width + 1, axis=1)
    for j, steps in stairs.items():
        for k, (instant, level) in enumerate(steps):
            instants[j, k] = instant
            levels[j, k + 1 :] = level
    return instants, levels


def _mask(some: Collection[int], count: int) -> NDArray[np.bool_]:
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(some)] = True
    return mask
